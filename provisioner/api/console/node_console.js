// @ts-check
// The serial console of a node: its last lines, and those that come while one looks.

import { ask } from "./api.js";
import { empty, link, made, tame } from "./dom.js";
import { when } from "./words.js";

const LINES = 500; // at the beginning
const KEPT = 5000; // on the page
const EVERY_MS = 3000; // the console's lines are no rows of the journal: they are asked for
const PLACES = 40; // pixels from the end within which the page follows new lines

export async function page({ parts, signal }) {
  const name = parts[1] ?? "";
  const path = `/nodes/${encodeURIComponent(name)}/console`;
  const first = await ask(`${path}?limit=${LINES}`, { signal });
  const text = made("pre", { class: "console", tabindex: "0", "aria-label": `Console of ${name}` });
  const said = made("p", { class: "said", role: "status" });
  let last = -1;
  const add = (answer) => {
    const at_end = text.scrollHeight - text.scrollTop - text.clientHeight < PLACES;
    for (const line of answer.lines) text.append(made("span", { title: when(line.at) }, `${tame(line.text)}\n`));
    while (text.childElementCount > KEPT) text.firstElementChild?.remove();
    last = answer.last;
    text.hidden = !text.childElementCount;
    said.replaceChildren(text.hidden ? empty("Its console has printed nothing yet.", "Lines are collected where the setting `consoles` says how; they come here by themselves.") : "New lines come by themselves. Point at one for its time.");
    if (at_end) text.scrollTop = text.scrollHeight;
  };
  add(first);
  const look = async () => {
    if (!document.hidden) {
      try { add(await ask(`${path}?after=${last}&limit=2000`, { signal })); } catch { /* the next look tries again */ }
    }
    timer = signal.aborted ? 0 : setTimeout(look, EVERY_MS);
  };
  let timer = setTimeout(look, EVERY_MS);
  return { title: `Console of ${name}`, beside: made("div", { class: "buttons" }, link(["nodes", name], "Its page", { class: "button" })), body: made("div", { class: "stack" }, said, text), shown: () => { text.scrollTop = text.scrollHeight; }, end: () => clearTimeout(timer) };
}
