// @ts-check
// Text files in and out of the browser: nothing leaves it but to its own disk or to the server.

import { made, tell } from "./dom.js";

/** Offer a text to the person's own disk. */
export function save(name, text, kind = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  tell(`Saved as ${name}`);
}

/** A field for a text that is typed, pasted or taken from a file: {element, input}. */
export function text_field(id, words, { value = "", rows = 14, most = 4_000_000, help = "" } = {}) {
  const input = made("textarea", { id, rows: String(rows), maxlength: String(most), spellcheck: "false", autocomplete: "off", class: "code" });
  input.value = value;
  const file = made("input", { type: "file", id: `${id}-file`, accept: ".yaml,.yml,.json,.txt,text/*", on: { change: async () => {
    const [chosen] = file.files ?? [];
    if (!chosen) return;
    input.value = (await chosen.text()).slice(0, most);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  } } });
  return { input, element: made("div", { class: "field" }, made("label", { for: id }, words), help ? made("p", { class: "quiet" }, help) : null, input, made("label", { for: `${id}-file`, class: "quiet" }, "or from a file"), file) };
}
