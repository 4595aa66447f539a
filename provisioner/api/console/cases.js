// Cases: the list, and one repair from the fault to the node's return.

import { ask } from "./api.js";
import { at, chip, empty, facts, link, made, section, table } from "./dom.js";
import { follow } from "./live.js";
import { ago, lasts, when } from "./words.js";

const WAY = ["opened", "evidence", "diagnosis", "remedy", "measuring", "hardware", "returning", "closed"];
const words = (word) => word.replaceAll("_", " ");

export async function page({ parts, query, signal, again }) {
  return parts[1] ? one(parts[1], { signal, again }) : list({ query, signal, again });
}

async function list({ query, signal, again }) {
  const all = query.get("all") === "1";
  const { items } = await ask("/cases?limit=500", { signal });
  const rows = items.filter((c) => all || c.stage !== "closed");
  const other = made("a", { href: all ? "#/cases" : "#/cases?all=1" }, all ? "Only open ones" : "Closed ones too");
  const body = rows.length
    ? section(all ? "All cases" : "Open cases", table("Cases, the newest first", [["Case"], ["Node"], ["Stage"], ["Tenant"], ["Service"], ["Reason"], ["Opened", "num"]],
      rows.map((c) => [link(["cases", c.id], c.id), link(["nodes", c.node], c.node), chip(c.stage, "stage"), c.tenant || "—", words(c.service), c.reason || "—", at(c.opened_at)])))
    : empty(all ? "There was never a case." : "No case is open.", "A case opens by itself when a check or a device reports a fault. To report one, go to its node.");
  return { title: "Cases", beside: made("p", { class: "buttons" }, other), body, end: follow((row) => row.kind.includes("case"), () => again()) };
}

async function one(id, { signal, again }) {
  const { line, case: full } = await ask(`/cases/${encodeURIComponent(id)}`, { signal });
  const about = section("Case", facts([
      ["Node", link(["nodes", line.node], line.node)], ["Tenant", line.tenant ? link(["tenants", line.tenant], line.tenant) : "nobody's"], ["Service", words(line.service)],
      ["Opened", `${when(line.opened_at)} (${ago(line.opened_at)})`], ["Taken from its tenant", line.drain_at ? when(line.drain_at) : ""], ["Closed", line.closed_at ? `${when(line.closed_at)}${full?.ending ? `: ${words(full.ending)}` : ""}` : ""],
      ["Reported by", full ? `${full.by || "nobody"} (${words(full.origin)})` : ""], ["Waits for", full?.note], ["Not before", full?.next_at ? when(full.next_at) : ""],
    ], "narrow"));
  const body = made("div", { class: "stack" },
    made("p", { class: "lead" }, line.reason || "Its reason is not told."),
    full ? section("Stages", stages(full)) : null,
    full ? made("div", { class: "duo" }, made("div", { class: "stack" }, details(full)), made("div", { class: "stack" }, about, section("Parts and ticket", parts(full))))
      : [about, made("p", { class: "quiet" }, "More is told to the staff.")]);
  const end = follow((row) => row.node === line.node, () => again());
  return { title: `Case ${id}`, heading: [id, " ", chip(line.stage, "stage")], body, end };
}

function details(c) {
  return [section("Suspects", suspects(c)), section("Remedies", remedies(c)), section("Faults", faults(c))];
}

function stages(c) {
  const entered = new Map(c.stages.map((s) => [s.stage, s.at]));
  const items = WAY.filter((w) => entered.has(w) || w === c.stage || w === "closed" || w === "opened").map((stage) => {
    const how = stage === c.stage ? "now" : entered.has(stage) || stage === "opened" ? "past" : "to come";
    const since = stage === "opened" ? c.opened_at : entered.get(stage);
    return made("li", { "data-how": how, "aria-current": how === "now" ? "step" : null }, made("span", { class: "step-name" }, stage), made("span", { class: "step-when" }, since ? ago(since) : "—"));
  });
  return made("ol", { class: "journey" }, items);
}

function suspects(c) {
  if (!c.suspects.length) return empty("Nothing is suspected yet.", "Suspects are chosen once the evidence is there.");
  return made("ol", { class: "suspects" }, c.suspects.map((s) => made("li", {},
    made("p", {}, made("span", { class: "strong" }, s.part), ` · ${words(s.kind)} `, made("span", { class: "tag" }, `${Math.round(s.confidence * 100)} %`)),
    made("meter", { min: "0", max: "1", value: String(s.confidence), "aria-label": `Confidence ${Math.round(s.confidence * 100)} percent` }),
    made("p", {}, s.why), s.serial ? made("p", { class: "quiet" }, `Serial ${s.serial}`) : null,
    s.evidence.length ? made("details", {}, made("summary", {}, `Evidence (${s.evidence.length})`), made("ul", { class: "plain" }, s.evidence.map((e) => made("li", {}, made("code", {}, e))))) : null)));
}

function remedies(c) {
  if (!c.tries.length) return empty("No remedy was tried yet.", c.note);
  return table("Remedies, as they were tried", [["Remedy"], ["Part"], ["Try", "num"], ["Outcome"], ["Begun", "num"], ["Took", "num"], ["Detail"]],
    c.tries.map((t) => [words(t.remedy), t.part, String(t.attempt), chip(t.outcome, "outcome"), at(t.started_at), t.measured_at ? lasts(t.measured_at - t.started_at) : "—", t.detail || "—"]));
}

function faults(c) {
  if (!c.faults.length) return empty("No fault was collected yet.", "");
  return table("Faults, as last collected", [["Fault"], ["Part"], ["Seen by"], ["Count", "num"], ["Detail"]], c.faults.map((f) => [f.id, f.part || "node", words(f.source), String(f.count), f.detail || "—"]));
}

function parts(c) {
  const t = c.ticket;
  const told = t || c.spare ? facts([
    ["Ticket", t ? t.id || "not taken to the ticket system yet" : ""], ["System", t?.system], ["Work", t?.work], ["Vendor's return", t?.rma], ["Identify light", t?.led ? "on" : ""],
    ["Spare", c.spare ? [c.spare.kind, c.spare.part_number, c.spare.serial].filter(Boolean).join(" ") : ""],
  ]) : empty("No part is to be touched.", "");
  const changes = c.difference?.changes ?? [];
  return [told, changes.length ? table("Parts before and after", [["Slot"], ["Before", "num"], ["After", "num"]], changes.map((p) => [`${p.kind} ${p.slot}`, p.before ?? "empty", p.after ?? "empty"])) : null,
    c.difference ? facts([["Not what was asked for", c.difference.unexpected.join(", ")], ["Asked for, not changed", c.difference.missing.join(", ")], ["Another model", c.difference.wrong.join(", ")], ["Not proved", c.difference.unknown.join(", ")]]) : null];
}
