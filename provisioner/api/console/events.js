// What happens, as it happens: the newest first. Nothing is asked for again and again.

import { empty, link, made } from "./dom.js";
import { live } from "./live.js";
import { when } from "./words.js";

const KEPT = 500; // rows on the page
const BEFORE = 200; // rows that are told again at the beginning
const WORDS_MAX = 300;

export async function page({ query }) {
  const rows = [];
  const node = made("input", { id: "of-node", type: "search", value: query.get("node") ?? "", spellcheck: "false", autocomplete: "off" });
  const kind = made("input", { id: "of-kind", type: "search", value: query.get("kind") ?? "", spellcheck: "false", autocomplete: "off", list: "kinds" });
  const kinds = made("datalist", { id: "kinds" });
  const hold = made("button", { type: "button", "aria-pressed": "false" }, "Hold");
  const said = made("p", { class: "said", role: "status" });
  const list = made("ol", { class: "events", reversed: true, "aria-label": "Events, the newest first" });
  const known = new Set();
  let held = false;
  let frame = 0;

  const fits = (row) => row.node.includes(node.value.trim()) && row.kind.includes(kind.value.trim());
  const draw = () => {
    frame = 0;
    const shown = rows.filter(fits);
    list.replaceChildren(...shown.map(line));
    said.replaceChildren(shown.length ? `${shown.length} events${held ? ", held" : ""}` : rows.length ? "No event is like that." : empty("Nothing happened lately.", "Events show up here by themselves."));
  };
  const soon = () => { if (!held) frame ||= requestAnimationFrame(draw); };
  const heard = (event) => {
    const row = event.detail;
    if (rows.some((r) => r.seq === row.seq)) return;
    rows.unshift(row);
    rows.sort((a, b) => b.seq - a.seq);
    rows.length = Math.min(rows.length, KEPT);
    if (!known.has(row.kind)) {
      known.add(row.kind);
      kinds.append(made("option", { value: row.kind }));
    }
    soon();
  };
  node.addEventListener("input", draw);
  kind.addEventListener("input", draw);
  hold.addEventListener("click", () => {
    held = !held;
    hold.setAttribute("aria-pressed", String(held));
    draw();
  });
  await live.start();
  live.addEventListener("row", heard);
  live.replay(BEFORE);
  const body = made("div", { class: "stack" },
    made("div", { class: "toolbar" }, made("div", { class: "field" }, made("label", { for: "of-node" }, "Node"), node), made("div", { class: "field" }, made("label", { for: "of-kind" }, "Kind"), kind, kinds), hold),
    said, list);
  return { title: "Events", body, shown: draw, end: () => { live.removeEventListener("row", heard); cancelAnimationFrame(frame); } };
}

function line(row) {
  const words = Object.entries(row.detail).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(" · ");
  return made("li", {}, made("time", { datetime: new Date(row.at * 1000).toISOString() }, when(row.at)), made("span", { class: "tag" }, row.kind.replaceAll("_", " ")),
    row.node ? link(["nodes", row.node], row.node) : made("span", { class: "quiet" }, "site"), made("span", { class: "event-words" }, words.slice(0, WORDS_MAX)));
}
