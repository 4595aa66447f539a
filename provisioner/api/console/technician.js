// @ts-check
// The technician's view, made for a phone: a serial leads to its case, and a case to the part, its
// place and its light. A hand scanner types the serial like a keyboard.

import { all, ask, maybe } from "./api.js";
import { verbs } from "./cases.js";
import { chip, empty, facts, link, made } from "./dom.js";
import { follow } from "./live.js";
import { ago } from "./words.js";

const SHOWN_MAX = 30; // cards; a technician works on one
const PAUSE_MS = 300; // after the last character of a serial
const WORK = ["returned", "spare"];

export async function page({ query, signal, me }) {
  const cards = made("div", { class: "stack", "aria-live": "polite" });
  const serial = made("input", { id: "serial", type: "search", value: query.get("serial") ?? "", maxlength: "100", autocomplete: "off", autocapitalize: "characters", spellcheck: "false", enterkeyhint: "search" });
  let timer = 0;
  let turn = 0;
  const look = async () => {
    turn += 1;
    const mine = turn;
    const shown = await find(serial.value.trim(), me, look, signal).catch((problem) => {
      if (!signal.aborted) throw problem;
      return []; // the page was left
    });
    if (mine === turn && !signal.aborted) cards.replaceChildren(...shown);
  };
  serial.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, PAUSE_MS); });
  serial.addEventListener("keydown", (event) => { if (event.key === "Enter") { clearTimeout(timer); look(); } });
  await look();
  const heard = follow((row) => row.kind.includes("case"), () => look());
  const body = made("div", { class: "stack technician" }, made("div", { class: "field" }, made("label", { for: "serial" }, "Serial: scan or type it"), serial), cards);
  return { title: "Work at the racks", body, shown: () => serial.focus(), end: () => { clearTimeout(timer); heard(); } };
}

async function find(serial, me, again, signal) {
  const found = (await all(`/cases?open=true${serial ? `&serial=${encodeURIComponent(serial)}` : ""}`, { signal })).filter((c) => serial || c.stage === "hardware");
  if (!found.length) return [serial ? empty(`No open case has a part with serial ${serial}.`, "Read it again, or clear it for the list of all work.") : empty("No work waits at the racks.", "Cases come here by themselves once a part is to be touched.")];
  const more = found.length > SHOWN_MAX ? [made("p", { class: "notice" }, `${SHOWN_MAX} of ${found.length} cases: type the serial of a part for the others, or see `, link(["cases"], "all cases"), ".")] : [];
  return [...more, ...await Promise.all(found.slice(0, SHOWN_MAX).map((line) => card(line, me, again, signal)))];
}

async function card(line, me, again, signal) {
  const [{ case: full, next_step, due }, node] = await Promise.all([ask(`/cases/${encodeURIComponent(line.id)}`, { signal }), maybe(`/nodes/${encodeURIComponent(line.node)}`, { signal })]);
  const place = node?.location;
  const suspect = full?.suspects[0];
  return made("section", { class: "card", "aria-label": line.id }, made("h2", {}, line.node, " ", chip(line.stage, "stage")),
    made("p", { class: "lead" }, full?.ticket?.work || line.reason),
    facts([["Where", place?.rack ? `${place.rack}, place ${place.index}` : place?.site], ["Part", suspect?.part], ["Its serial", suspect?.serial], ["Light", full?.ticket?.led ? "on" : full?.ticket?.led_problem || "off"], ["Spare", full?.spare ? [full.spare.kind, full.spare.serial].filter(Boolean).join(" ") : ""],
      ["Ticket", full?.ticket?.id], ["Open", ago(line.opened_at)], ["Case", link(["cases", line.id], line.id)]], "narrow"),
    made("p", { class: "notice" }, next_step),
    made("div", { class: "buttons wide" }, verbs(line, full, due, me, again, WORK)));
}
