// Asks before something is changed, asks the server for it, and says what became of it.

import { ask } from "./api.js";
import { made, tell } from "./dom.js";
import { append_blockers } from "./problem_words.js";

let count = 0;

/**
 * A button that asks first. `fields`: [{name, words, kind: "text"|"area"|"check"|"number", required, value}];
 * `body(values)` makes what is sent; `done(operation)` is called when the server said yes.
 */
export function asks({ words, title, says, path, verb = "POST", fields = [], body, match, danger = false, done }) {
  const button = made("button", { type: "button", class: danger ? "danger" : "" }, words);
  button.addEventListener("click", () => open({ words, title, says, path, verb, fields, body, match, danger, done, button }));
  return button;
}

function open(about) {
  const id = `dialog-${(count += 1)}`;
  const said = made("div", { class: "dialog-said", role: "alert" });
  const inputs = new Map();
  const rows = about.fields.map((field) => row(field, `${id}-${field.name}`, inputs));
  const yes = made("button", { type: "submit", class: about.danger ? "danger" : "primary" }, about.words);
  const no = made("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = made("form", { novalidate: true }, made("h2", { id }, about.title), made("p", {}, about.says), rows, said, made("div", { class: "buttons end" }, no, yes));
  const dialog = made("dialog", { "aria-labelledby": id }, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    about.button.focus();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const missing = about.fields.find((f) => f.required && !(f.kind === "check" ? inputs.get(f.name).checked : inputs.get(f.name).value.trim()));
    if (missing) {
      said.replaceChildren(made("p", { class: "bad" }, missing.kind === "check" ? `Confirm first: ${missing.words}` : `Fill in: ${missing.words}`));
      inputs.get(missing.name).focus();
      return;
    }
    yes.disabled = true;
    try {
      const values = Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === "checkbox" ? input.checked : input.value.trim()]));
      const operation = await ask(about.path, { verb: about.verb, body: about.body?.(values), match: about.match?.() });
      dialog.close();
      tell(`${about.words}: ${operation.state ?? "done"}`);
      about.done?.(operation);
    } catch (problem) {
      said.replaceChildren();
      append_blockers(said, problem);
      yes.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  (rows[0]?.querySelector("input, textarea") ?? no).focus();
}

function row(field, id, inputs) {
  const { name, words, kind = "text", value = "", required } = field;
  const about = { id, name, required: Boolean(required), maxlength: kind === "check" ? null : String(field.most ?? 200) };
  const input = kind === "area" ? made("textarea", { ...about, rows: "3" })
    : made("input", { ...about, type: kind === "check" ? "checkbox" : kind, autocomplete: "off" });
  if (kind === "check") input.checked = Boolean(value);
  else input.value = value;
  inputs.set(name, input);
  const label = made("label", { for: id }, words);
  return made("div", { class: kind === "check" ? "field check" : "field" }, kind === "check" ? [input, label] : [label, input]);
}

/** What became of a request that is not over yet. */
export function operation_words(operation) {
  const words = { waiting: "It waits for another person to approve it.", running: "It is under way.", done: "Done.", unfinished: "It is not everywhere yet." };
  return `${words[operation.state] ?? operation.state} ${operation.note ?? ""}`.trim();
}
