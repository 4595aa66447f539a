// @ts-check
// Asks before something is changed, asks the server for it, and says what became of it. Where the
// server wants a fresh sign-in first, it asks for the token and sends the same again.

import { ask, person } from "./api.js";
import { made, tell } from "./dom.js";
import { begin_session, read_provider, refusal } from "./login.js";
import { append_blockers } from "./problem_words.js";

let count = 0;

/**
 * A button that asks first. `fields`: [{name, words, kind: "text"|"area"|"check"|"number", required, value, proposed}];
 * `body(values)` makes what is sent; `done(operation)` is called when the server said yes. `figures()` asks the server what
 * it would mean, as lines; until they stand there nobody can agree. `kind: "select"` and
 * "choice" (all of them in sight) have `options`: [[value, words]].
 * `send(values, request)` replaces the one request: request(path, options) sends each of several. `keeps()` gives what the
 * dialog shows in place of its question, until it is closed.
 */
export function asks(about) {
  const button = made("button", { type: "button", class: about.danger ? "danger" : "" }, about.words);
  button.addEventListener("click", () => open({ verb: "POST", fields: [], ...about, button }));
  return button;
}

function open(about) {
  const id = `dialog-${(count += 1)}`;
  const said = made("div", { class: "dialog-said", role: "alert" });
  const costs = made("div", { "aria-live": "polite" });
  const inputs = new Map();
  const rows = about.fields.map((field) => row(field, `${id}-${field.name}`, inputs));
  const yes = made("button", { type: "submit", class: about.danger ? "danger" : "primary" }, about.words);
  const no = made("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = made("form", { novalidate: true }, made("h2", { id }, about.title), made("p", {}, about.says), rows, costs, said, made("div", { class: "buttons end" }, no, yes));
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
      if (about.keeps) {
        said.replaceChildren(await about.keeps());
        yes.remove();
        no.textContent = "Close";
        return;
      }
      const values = Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === "checkbox" ? input.checked : input.value.trim()]));
      const operation = about.send ? await about.send(values, (path, request) => ask_proved({ path }, request), (line) => said.replaceChildren(made("p", {}, line)))
        : await ask_proved(about, { verb: about.verb, body: about.body?.(values), match: about.match?.() });
      dialog.close();
      tell(`${about.words}: ${operation.state ?? "done"}`);
      about.done?.(operation);
    } catch (problem) {
      said.replaceChildren();
      append_blockers(said, problem);
      yes.disabled = false;
    }
  });
  if (about.figures) {
    yes.disabled = true;
    costs.replaceChildren(made("p", { class: "quiet" }, "Asking what it would mean…"));
    about.figures().catch((problem) => [`What it would mean is not known. ${problem.title ?? ""}`]).then((lines) => {
      costs.replaceChildren(...lines.map((line) => made("p", {}, line)));
      yes.disabled = false;
    });
  }
  document.body.append(dialog);
  dialog.showModal();
  (rows[0]?.querySelector("input, textarea, select") ?? no).focus();
}

/** Ask; where the session is over or too old, ask for the token and send the same again: nothing typed is lost. */
export async function ask_proved(about, request) {
  try {
    return await ask(about.path, request);
  } catch (problem) {
    if (problem.status !== 401 || !await sign_in_again(problem)) throw problem;
    return ask(about.path, request);
  }
}

/** Ask for a sign-in, at the provider or with the token, in a dialog of its own; whether the same
    person has a new session now. */
function sign_in_again(problem) {
  const id = `dialog-${(count += 1)}`;
  const said = made("p", { class: "bad", role: "alert" });
  const token = made("input", { id: `${id}-token`, type: "password", autocomplete: "current-password", spellcheck: "false", required: true });
  const yes = made("button", { type: "submit", class: "primary" }, "Sign in");
  const no = made("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = made("form", { novalidate: true }, made("h2", { id }, "Sign in again"), made("p", {}, [problem.title, problem.detail].filter(Boolean).join(": ")),
    made("div", { class: "field" }, made("label", { for: `${id}-token` }, "Token"), token), said, made("div", { class: "buttons end" }, no, yes));
  const dialog = made("dialog", { "aria-labelledby": id }, form);
  const before = Promise.resolve(person);
  let proved = false;
  const end = (me, was) => {
    if (me.subject !== was.subject || me.tenant !== was.tenant) location.reload(); // another person's page
    else proved = true;
    dialog.close();
  };
  const back = new BroadcastChannel("provisioner-signed-in"); // from the tab that came back from the provider
  back.addEventListener("message", async () => end(await ask("/me"), await before));
  read_provider().then((name) => {
    if (name) form.querySelector(".field").before(made("p", {}, made("a", { class: "button", href: "/console/sign-in?again=1", target: "_blank" }, `Sign in at ${name}`)));
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      const was = await before;
      end(await begin_session(token.value), was);
    } catch (failure) {
      said.textContent = refusal(failure);
      yes.disabled = false;
      token.focus();
    }
  });
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      token.value = "";
      back.close();
      dialog.remove();
      done(proved);
    });
    document.body.append(dialog);
    dialog.showModal();
    token.focus();
  });
}

/** One field with its label; its input goes into `inputs` by name. */
export function row(field, id, inputs) {
  const { name, words, kind = "text", value = "", required } = field;
  if (kind === "choice") return choice(field, id, inputs);
  const about = { id, name, required: Boolean(required), maxlength: kind === "check" ? null : String(field.most ?? 200) };
  const input = kind === "select" ? made("select", { id, name }, field.options.map(([key, text]) => made("option", { value: key, selected: key === value }, text)))
    : kind === "area" ? made("textarea", { ...about, rows: "3" })
    : made("input", { ...about, type: kind === "check" ? "checkbox" : kind, autocomplete: "off", list: field.proposed ? `${id}-proposed` : null });
  if (kind === "check") input.checked = Boolean(value);
  else if (kind !== "select") input.value = value;
  inputs.set(name, input);
  const label = made("label", { for: id }, words);
  const proposed = field.proposed && made("datalist", { id: `${id}-proposed` }, field.proposed.map((word) => made("option", { value: word })));
  return made("div", { class: kind === "check" ? "field check" : "field" }, kind === "check" ? [input, label] : [label, input, proposed]);
}

// A few words of which one is chosen by one click; it has a value as an input has.
function choice({ name, words, options, value }, id, inputs) {
  const radios = options.map(([key], i) => made("input", { type: "radio", id: `${id}-${i}`, name, value: key }));
  const place = made("fieldset", { class: "choice", id }, made("legend", { class: "visually-hidden" }, words), options.map(([, text], i) => [radios[i], made("label", { for: `${id}-${i}` }, text)]));
  Object.defineProperty(place, "value", { get: () => radios.find((radio) => radio.checked)?.value ?? "", set: (key) => { for (const radio of radios) radio.checked = radio.value === key; } });
  /** @type {any} */ (place).value = value;
  inputs.set(name, place);
  return made("div", { class: "field" }, made("span", { "aria-hidden": "true" }, words), made("div", {}, place));
}

/** What became of a request that is not over yet. */
export function operation_words(operation) {
  const words = { waiting: "It waits for another person to approve it.", running: "It is under way.", done: "Done.", unfinished: "It is not everywhere yet." };
  return `${words[operation.state] ?? operation.state} ${operation.note ?? ""}`.trim();
}
