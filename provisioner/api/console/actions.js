// @ts-check
// One action, opened: what was sent, what came back, each Ansible task, the BMC's task, events. While
// it is under way it is asked for again, and what a person opened stays open.

import { ask } from "./api.js";
import { at, chip, empty, facts, link, made, section } from "./dom.js";
import { save } from "./files.js";
import { sentence } from "./sentences.js";
import { ago, lasts, many, seconds, when } from "./words.js";

const AGAIN_MS = 2500;
const BAD = new Set(["failed", "unreachable"]);

/** Where an action is opened. */
export const action_link = (node, id, words, about = {}) => link(["actions", node, id], words, about);

export async function page({ parts, signal, go }) {
  const [, name = "", id = ""] = parts;
  const path = `/nodes/${encodeURIComponent(name)}/actions/${encodeURIComponent(id)}`;
  const seen = { told: await ask(path, { signal }), asked: "", bmc: false };
  const opened = new Map(); // what a person opened or folded, by its name
  const place = made("div", { class: "stack" });
  const status = made("span", {}, chip(seen.told.action.status, "fact"));
  const said = made("p", { class: "said", role: "status" });
  let timer = 0;
  let over = false;
  const draw = () => {
    status.replaceChildren(chip(seen.told.action.status, "fact"));
    place.replaceChildren(...sections(seen, opened, { name, read_bmc: () => { seen.bmc = true; look(); } }).filter(Boolean));
  };
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden && seen.told.live) return soon(); // nobody looks: the BMC is left alone
    try {
      seen.told = await ask(`${path}${seen.bmc ? "?bmc=true" : ""}`, { signal });
      said.textContent = seen.told.live ? "" : "It has ended.";
      if (!over) draw();
    } catch (problem) {
      if (problem.name === "AbortError" || over) return;
      said.textContent = `${problem.title}. ${problem.unblock} Shown is what was read ${ago(seen.told.at)}.`;
    }
    soon();
  };
  const soon = () => { if (seen.told.live && !over) timer = setTimeout(look, AGAIN_MS); };
  seen.bmc = Boolean(seen.told.live && seen.told.task?.bmc); // of one under way its BMC is read, too
  draw();
  if (seen.bmc) look();
  else soon();
  const file = () => save(`${name}-action-${id}.json`, JSON.stringify(seen.told, null, 1), "application/json");
  return { title: `${seen.told.action.action} of ${name}`, heading: [seen.told.action.action, " ", status],
    beside: made("div", { class: "buttons" }, link(["nodes", name], "Its node", { class: "button" }), made("button", { type: "button", on: { click: () => go(["events"], `node=${encodeURIComponent(name)}`) } }, "Events"), made("button", { type: "button", on: { click: file } }, "Download")),
    body: made("div", { class: "stack" }, said, place), end: () => { over = true; clearTimeout(timer); } };
}

function sections({ told, bmc }, opened, { name, read_bmc }) {
  const a = told.action;
  const took = a.settled_at ? lasts(seconds(a.settled_at) - seconds(a.intended_at)) : "";
  return [
    section("Outcome", facts([["Node", link(["nodes", name], name)], ["Begun", when(a.intended_at)], ["Ended", a.settled_at ? `${when(a.settled_at)}, after ${took}` : `not yet: begun ${ago(a.intended_at)}`], ["Attempt", a.attempt > 1 ? String(a.attempt) : ""], ["Operation", made("code", {}, a.operation)]]),
      a.outcome ? made("p", { class: a.status === "failed" ? "bad strong" : "strong" }, a.outcome) : made("p", { class: "quiet" }, told.live ? "It is under way; this page follows it." : "Nothing was recorded of its outcome.")),
    ...told.plays.map((play) => played(play, opened)),
    told.task ? section("Task of the BMC", facts([["BMC", told.task.bmc || "not recorded"], ["Task", made("code", {}, told.task.path)], ["State", told.task.state], ["Done", told.task.percent === null ? "" : `${Math.round(told.task.percent)} %`]]),
      told.task.messages.length ? lines("Messages of the BMC", told.task.messages) : null,
      told.task.gap && (bmc || !told.task.bmc) ? made("p", { class: "quiet" }, `Not read: ${told.task.gap}.`) : null,
      told.task.bmc && !bmc ? made("button", { type: "button", on: { click: read_bmc } }, "Read it from the BMC") : null) : null,
    told.sent.length ? folds(`What was sent: ${many(told.sent.length, "line")}`, "sent", !told.plays.length, opened, lines("What was sent", told.sent)) : section("What was sent", empty("Nothing was recorded of it.", "")),
    told.events.length ? section("Events meanwhile", made("ol", { class: "plain recent" }, told.events.map((row) => made("li", {}, made("span", { class: "quiet" }, at(row.at)), " ", made("span", { class: "tag" }, row.kind.replaceAll("_", " ")), " ", sentence(row).slice(0, 300) || "—")))) : null,
  ];
}

/** One play: a task is a line that opens to what it said; one that failed is open. */
function played(play, opened) {
  const failed = play.tasks.filter((t) => BAD.has(t.status)).length;
  const head = [play.state === "open" ? "runs" : play.state, many(play.tasks.length, "task"), failed ? `${failed} failed` : "", play.ended_at ? `took ${lasts(seconds(play.ended_at) - seconds(play.started_at))}` : `begun ${ago(play.started_at)}`].filter(Boolean).join(" · ");
  return section(`Ansible: ${play.play}`, made("p", { class: "quiet" }, head), play.gap ? made("p", { class: "quiet" }, `No task is shown: ${play.gap}.`) : null,
    made("ol", { class: "plain tasks", "aria-label": `Tasks of ${play.play}` }, play.tasks.map((task, n) => {
      const words = [chip(task.status, "fact"), " ", made("span", { class: "strong" }, task.task), " ", made("span", { class: "quiet" }, task.began_at && task.ended_at ? lasts(seconds(task.ended_at) - seconds(task.began_at)) : "")];
      return made("li", { "data-status": task.status }, task.message ? fold(words, `${play.run} ${n}`, BAD.has(task.status), opened, made("pre", { tabindex: "0" }, task.message)) : words);
    })));
}

const lines = (title, rows) => made("pre", { "aria-label": title, tabindex: "0", role: "region" }, rows.join("\n"));

function fold(words, key, begins, opened, ...children) {
  const box = made("details", { open: opened.get(key) ?? begins }, made("summary", {}, words), children);
  box.addEventListener("toggle", () => { if (box.isConnected) opened.set(key, box.open); });
  return box;
}

const folds = (words, key, begins, opened, ...children) => made("section", { class: "card" }, fold(words, key, begins, opened, ...children));
