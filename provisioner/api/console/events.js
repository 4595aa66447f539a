// @ts-check
// What happens, as it happens: the newest first. Nothing is asked for again and again.

import { chip, empty, link, made } from "./dom.js";
import { live } from "./live.js";
import { sentence } from "./sentences.js";
import { keep_newest } from "./stream_data.js";
import { seconds, when } from "./words.js";

const KEPT = 500; // rows on the page
const BEFORE = 200; // rows that are told again at the beginning
const WORDS_MAX = 300;
const DRAW_MS = 250; // between two drawings: nobody reads faster

export async function page({ query }) {
  const rows = [];
  const node = made("input", { id: "of-node", type: "search", value: query.get("node") ?? "", spellcheck: "false", autocomplete: "off" });
  const kind = made("input", { id: "of-kind", type: "search", value: query.get("kind") ?? "", spellcheck: "false", autocomplete: "off", list: "kinds" });
  const kinds = made("datalist", { id: "kinds" });
  const hold = made("button", { type: "button", "aria-pressed": "false" }, "Hold");
  const said = made("p", { class: "said", role: "status", "aria-live": "off" });
  const list = made("ol", { class: "events", reversed: true, "aria-label": "Events, the newest first" });
  const known = new Set();
  let held = false;
  let timer = 0;

  const fits = (row) => row.node.includes(node.value.trim()) && row.kind.includes(kind.value.trim());
  const lines = new Map(); // number of a row -> its element: what is there is not made again
  const element = (row) => {
    if (!lines.has(row.seq)) lines.set(row.seq, line(row));
    return lines.get(row.seq);
  };
  const draw = () => {
    timer = 0;
    const shown = rows.filter(fits);
    place(list, by_day(shown, element));
    const numbers = new Set(rows.map((row) => row.seq));
    for (const seq of lines.keys()) if (!numbers.has(seq)) lines.delete(seq);
    said.replaceChildren(shown.length ? `${shown.length} events${held ? ", held" : ""}` : rows.length ? "No event is like that." : empty("Nothing happened lately.", "Events show up here by themselves."));
  };
  const soon = () => { if (!held) timer ||= setTimeout(draw, DRAW_MS); };
  /** Draw what a person asked for, which a screen reader says; events that come are not read out. */
  const answer = () => {
    said.setAttribute("aria-live", "polite");
    draw();
    setTimeout(() => said.setAttribute("aria-live", "off"), DRAW_MS);
  };
  const heard = (event) => {
    const row = event.detail;
    if (!keep_newest(rows, row, KEPT)) return;
    if (!known.has(row.kind)) {
      known.add(row.kind);
      kinds.append(made("option", { value: row.kind }));
    }
    soon();
  };
  node.addEventListener("input", answer);
  kind.addEventListener("input", answer);
  hold.addEventListener("click", () => {
    held = !held;
    hold.setAttribute("aria-pressed", String(held));
    answer();
  });
  await live.start();
  live.addEventListener("row", heard);
  live.replay(BEFORE);
  const body = made("div", { class: "stack" },
    made("div", { class: "toolbar" }, made("div", { class: "field" }, made("label", { for: "of-node" }, "Node"), node), made("div", { class: "field" }, made("label", { for: "of-kind" }, "Kind"), kind, kinds), hold),
    said, list);
  return { title: "Events", body, shown: draw, end: () => { live.removeEventListener("row", heard); clearTimeout(timer); } };
}

/** Put elements into a list in their order; one that stands where it belongs is not touched. */
function place(list, elements) {
  const wanted = new Set(elements);
  for (const old of [...list.children]) if (!wanted.has(old)) old.remove();
  elements.forEach((element, n) => {
    if (list.children[n] !== element) list.insertBefore(element, list.children[n] ?? null);
  });
}

/** The rows with the day above those of a day. */
function by_day(rows, element) {
  const told = [];
  let last = "";
  for (const row of rows) {
    const day = when(row.at).slice(0, -14);
    if (day !== last) told.push(made("li", { class: "day" }, day));
    last = day;
    told.push(element(row));
  }
  return told;
}

function line(row) {
  const to = row.detail.to;
  return made("li", {}, made("time", { datetime: new Date(seconds(row.at) * 1000).toISOString(), title: when(row.at) }, when(row.at).slice(-12, -4)), made("span", { class: "tag" }, row.kind.replaceAll("_", " ")),
    row.node ? link(["nodes", row.node], row.node) : made("span", { class: "quiet" }, "site"),
    made("span", { class: "event-words" }, typeof to === "string" ? [chip(to), " "] : null, sentence(row).slice(0, WORDS_MAX)));
}
