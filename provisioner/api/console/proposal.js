// @ts-check
// A change with its dry run: a dialog that shows what the server would do with the values as they
// stand, and lets nobody agree before that stands there. It names the approval that is needed.

import { ask } from "./api.js";
import { ask_proved, operation_words, row } from "./dialog.js";
import { made, tame, tell } from "./dom.js";
import { append_blockers } from "./problem_words.js";

const PAUSE_MS = 250; // after the last key, before the server is asked again
const AGAIN_MS = 3000;
let count = 0;

/**
 * A button whose dialog shows the dry run. `fields` as in dialog.js; `body(values)` makes what is sent; `show(result)` gives
 * elements for the dry run's result, by default its lines; `says` stands above the fields, and what `reads()` finds out now
 * below them: what comes late must move nothing that is about to be clicked. `done(operation)` follows.
 */
export function proposes(about) {
  const button = made("button", { type: "button", class: [about.danger && "danger", about.primary && "primary"].filter(Boolean).join(" ") || null }, about.words);
  button.addEventListener("click", () => open({ verb: "POST", fields: [], ...about, button }));
  return button;
}

/** What a dry run said, as elements: its lines, and whether another person has to approve. */
export function shown_lines(result, nothing = "It is recorded at once. Nothing else changes now.") {
  const lines = result?.lines ?? [];
  return [...(lines.length ? lines : [nothing]).map((line) => made("p", {}, line)), approval_words(result)];
}

export function approval_words(result) {
  return result?.approval ? made("p", { class: "notice" }, "Another person has to approve it: it waits, and approvers see it.") : null;
}

/** The lines that each device would receive: one that begins with "-" or "no" takes something away. */
export function difference(steps) {
  if (!steps?.length) return made("p", { class: "quiet" }, "No switch gets other lines.");
  return made("div", { class: "difference" }, steps.map((step, n) => made("details", { open: n === 0 }, made("summary", {}, `${step.device}: ${step.lines.length} ${step.lines.length === 1 ? "line" : "lines"}`),
    made("pre", { tabindex: "0", "aria-label": `Lines of ${step.device}` }, step.lines.map((line) => made("span", { class: /^(-|no |delete |nv unset)/.test(line) ? "less" : "more" }, `${/^(-|no |delete |nv unset)/.test(line) ? "−" : "+"} ${line}\n`))))));
}

// `path_of(values)`: where the values say what the change is of.
const path_for = (about, values) => about.path_of?.(values) ?? about.path;

/** Ask for the dry run of these values. */
export const ask_dry = (about, values, signal) => ask(`${path_for(about, values)}?dry_run=true`, { verb: about.verb, body: about.body?.(values), signal });

/** The values of the inputs by name; a checkbox gives whether it is set. */
export const read_values = (inputs) => Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === "checkbox" ? input.checked : input.value.trim()]));

/** Show the dry run in `place` whenever `form` changes. Returns {look}; `ready(yes)` hears whether it stands there. */
export function watch_dry(form, about, inputs, place, ready) {
  let timer = 0;
  let cut = null;
  const missing = () => about.fields.find((f) => f.required && !(f.kind === "check" ? inputs.get(f.name).checked : inputs.get(f.name).value.trim()));
  const look = async () => {
    cut?.abort();
    cut = new AbortController();
    const { signal } = cut;
    const lacks = missing();
    if (lacks) {
      place.replaceChildren(made("p", { class: "quiet" }, `Fill in: ${lacks.words}. Then it is shown what would be done.`));
      ready(false);
      return;
    }
    try {
      const { result, blockers } = await ask_dry(about, read_values(inputs), signal);
      place.replaceChildren();
      if (blockers?.length) append_blockers(place, { title: "It cannot be done now", blockers });
      const silent = blockers?.length && !about.show && !result?.lines?.length; // nothing is recorded, so nothing is said of it
      place.append(...[silent ? [] : (about.show ?? shown_lines)(result)].flat(3).filter(Boolean));
      const refused = about.refuses?.(result);
      if (refused) append_blockers(place, refused);
      ready(!blockers?.length && !refused);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      place.replaceChildren();
      append_blockers(place, problem);
      ready(false);
      if (!problem.status) timer = setTimeout(look, AGAIN_MS); // no answer: what was typed is still here
    }
  };
  const soon = () => {
    cut?.abort(); // what is under way is of earlier values: its yes would be taken for these
    ready(false);
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE_MS);
  };
  form.addEventListener("input", soon);
  return { look, soon, end: () => { clearTimeout(timer); cut?.abort(); } };
}

function open(about) {
  const id = `proposal-${(count += 1)}`;
  const inputs = new Map();
  const rows = about.fields.map((field) => row(field, `${id}-${field.name}`, inputs));
  const plan = made("div", { class: "plan", role: "status", "aria-label": "Dry run" }, made("p", { class: "quiet" }, "Asking what it would mean…"));
  const said = made("div", { class: "dialog-said", role: "alert" });
  const yes = made("button", { type: "submit", class: about.danger ? "danger" : "primary", disabled: true }, about.words);
  const no = made("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = made("form", { novalidate: true }, made("h2", { id }, about.title), about.says instanceof Node ? about.says : about.says ? made("p", {}, about.says) : null, rows,
    made("h3", {}, "What would be done"), about.reads ? reading(about.reads) : null, plan, said, made("div", { class: "buttons end" }, no, yes));
  const dialog = made("dialog", { "aria-labelledby": id }, form);
  const watch = watch_dry(form, about, inputs, plan, (good) => { yes.disabled = !good; });
  dialog.addEventListener("close", () => {
    watch.end();
    dialog.remove();
    about.button.focus();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      const values = read_values(inputs);
      const operation = await ask_proved({ path: path_for(about, values) }, { verb: about.verb, body: about.body?.(values), match: about.match?.() });
      dialog.close();
      tell(`${about.words}: ${operation_words(operation)}`);
      about.done?.(operation);
    } catch (problem) {
      said.replaceChildren();
      append_blockers(said, problem);
      yes.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  (rows[0]?.querySelector("input, textarea, select") ?? no).focus();
  watch.look();
}

/** A line that is filled in once the server has the answer. */
function reading(ask_now) {
  const line = made("p", { class: "quiet", role: "status" }, "Reading it now…");
  ask_now().catch((problem) => `${problem.title}. ${problem.unblock}`).then((words) => line.replaceChildren(tame(words)));
  return line;
}
