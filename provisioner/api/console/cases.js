// @ts-check
// Cases: the list, and one repair from the fault to the node's return.

import { ask } from "./api.js";
import { operation_words } from "./dialog.js";
import { at, chip, empty, facts, link, made, section, table, tell } from "./dom.js";
import { grown, listing } from "./listing.js";
import { follow } from "./live.js";
import { proposes } from "./proposal.js";
import { ago, instant, lasts, now, seconds, when } from "./words.js";

const WAY = ["opened", "evidence", "diagnosis", "remedy", "measuring", "hardware", "returning", "closed"];
const words = (word) => word.replaceAll("_", " ");

const DAY_S = 86_400;
const KINDS = ["gpu", "dpu", "nic", "nvswitch", "memory", "cpu", "storage", "psu", "baseboard", "bmc", "system"]; // DeviceKind

const MOST = 1000; // the newest first

export async function page({ parts, query, signal, me, again }) {
  return parts[1] ? one(parts[1], { signal, me, again }) : list({ query, signal, me, again });
}

async function list({ query, signal, me, again }) {
  const all = query.get("all") === "1";
  const nothing = empty(all ? "There was never a case." : "No case is open.", "A case opens by itself when a check or a device reports a fault. To report one, go to its node.");
  const other = made("a", { href: all ? "#/cases" : "#/cases?all=1" }, all ? "Only open ones" : "Closed ones too");
  const body = section(all ? "All cases" : "Open cases", await grown(`/cases?open=${!all}`, MOST, signal, (rows) => listing({
    caption: "Cases", rows, again, query, nothing, sort: 6, down: true, name: (c) => c.id,
    columns: [
      { head: "Case", cell: (c) => link(["cases", c.id], c.id), value: (c) => c.id },
      { head: "Node", cell: (c) => link(["nodes", c.node], c.node), value: (c) => c.node },
      { head: "Stage", cell: (c) => chip(c.stage, "stage"), value: (c) => c.stage },
      { head: "Tenant", cell: (c) => c.tenant || "—" },
      { head: "Service", cell: (c) => words(c.service) },
      { head: "Reason", cell: (c) => c.reason || "—" },
      { head: "Opened", num: true, cell: (c) => at(c.opened_at), value: (c) => seconds(c.opened_at) },
    ],
  })));
  const work = me.roles.includes("tenant") ? null : made("a", { href: "#/technician" }, "For technicians");
  return { title: "Cases", beside: made("p", { class: "buttons" }, work, " ", other), body, end: follow((row) => row.kind.includes("case"), () => again()) };
}

async function one(id, { signal, me, again }) {
  const { line, case: full, next_step, due } = await ask(`/cases/${encodeURIComponent(id)}`, { signal });
  const about = section("Case", facts([
      ["Node", link(["nodes", line.node], line.node)], ["Tenant", line.tenant ? link(["tenants", line.tenant], line.tenant) : "nobody's"], ["Service", words(line.service)],
      ["Opened", `${when(line.opened_at)} (${ago(line.opened_at)})`], ["Taken from its tenant", line.drain_at ? when(line.drain_at) : ""], ["Closed", line.closed_at ? `${when(line.closed_at)}${full?.ending ? `: ${words(full.ending)}` : ""}` : ""],
      ["Reported by", full ? `${full.by || "nobody"} (${words(full.origin)})` : ""], [line.closed_at ? "At its end" : "Waits for", full?.note], ["Not before", full?.next_at ? when(full.next_at) : ""],
    ], "narrow"));
  const body = made("div", { class: "stack" },
    made("p", { class: "lead" }, line.reason || "Its reason is not told."),
    next_step ? made("p", { class: "notice" }, made("span", { class: "strong" }, "What happens next: "), next_step) : null,
    full ? section("Stages", stages(full)) : null,
    full ? made("div", { class: "duo" }, made("div", { class: "stack" }, details(full)), made("div", { class: "stack" }, about, section("Parts and ticket", parts_and_ticket(full))))
      : [about, made("p", { class: "quiet" }, "More is told to the staff.")]);
  const end = follow((row) => row.node === line.node, () => again());
  const beside = made("div", { class: "buttons" }, verbs(line, full, due, me, again));
  return { title: `Case ${id}`, heading: [id, " ", chip(line.stage, "stage")], beside, body, end };
}

/** A button for each request that is due and that this person may make, and the evidence archive. */
export function verbs(line, full, due, me, again, only = null) {
  const may = me.roles.includes("operator") || me.roles.includes("tenant");
  const path = `/cases/${encodeURIComponent(line.id)}`;
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const match = () => (full ? `"g${full.generation}"` : "*");
  const shown = may ? due.filter((verb) => !only || only.includes(verb)).map((verb) => proposes({ path: `${path}/${verb}`, done, match, ...request(verb, line, full) })) : [];
  if (full && !only && (full.ticket || Object.keys(full.evidence).length)) shown.push(made("a", { class: "button", href: `/v1${path}/bundle`, download: `${line.id}.tar.gz` }, "Evidence archive"));
  return shown;
}

function request(verb, line, full) {
  const suspect = full?.suspects[0];
  const why = (text) => ({ name: "why", words: text, required: true, most: 300 });
  const about = {
    accept: { words: "Accept", title: `Accept the repair of ${line.node}`, says: "As its tenant: the node is taken back now, and returns once it is repaired." },
    defer: {
      words: "Defer", title: `Defer the repair of ${line.node}`, says: "As its tenant: the node stays in service for now.",
      fields: [{ name: "days", words: "For how many days", kind: "number", value: "3", required: true }], body: ({ days }) => ({ until: instant(now() + Number(days) * DAY_S) }),
    },
    returned: {
      words: "Returned", title: `${line.node}: the work is done`, primary: true, says: "The node is taken in as unknown hardware, compared with the parts before, and certified anew.",
      fields: [{ name: "work", words: "What was done", value: full?.ticket?.work ?? "", required: true, most: 500 }, { name: "serial", words: "Serial of the new part (scan or type it)", most: 100 },
        { name: "cards", words: "BMCs of exchanged cards, such as DPU_1" }],
      body: ({ work, serial, cards }) => ({ work: serial ? `${work} (new serial ${serial})` : work, cards: cards.split(/[\s,]+/).filter(Boolean) }),
    },
    spare: {
      words: "Spare", title: `A spare part for ${line.node}`, says: "It is recorded with the case and its ticket.",
      fields: [{ name: "kind", words: "Kind of part", kind: "select", options: KINDS.map((k) => [k, k.toUpperCase()]), value: KINDS.includes(suspect?.kind) ? suspect.kind : KINDS[0] }, { name: "serial", words: "Its serial (scan or type it)", most: 100 },
        { name: "part_number", words: "Its part number", value: suspect?.part_number ?? "", most: 100 }], body: (values) => values,
    },
    rma: { words: "RMA", title: "The vendor's return number", says: "It goes into the case and its ticket.", fields: [{ name: "number", words: "Return number", required: true, most: 100, value: full?.ticket?.rma ?? "" }], body: (values) => values },
    tell: { words: "Update ticket", title: "Send the ticket again", says: full?.ticket?.problem ?? "" },
    replace: { words: "Replace host", title: `Another host stands in the place of ${line.node}`, danger: true, fields: [why("Why")], body: (values) => values },
    retire: {
      words: "Retire", title: `Retire ${line.node}`, danger: true, fields: [why("Why (its tenant reads it)"), { name: "days", words: "Days of notice", kind: "number", value: "14", required: true }, { name: "disks", words: "Who destroyed its disks, and how (then it is not erased)", most: 300 }],
      body: ({ why: reason, days, disks }) => ({ why: reason, days: Number(days), disks }),
    },
    close: { words: "Close", title: `Close ${line.id}`, says: "The node stays where it is: nothing proves that it is well.", fields: [why("Why")], body: (values) => values },
  };
  return about[verb];
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
    c.tries.map((t) => [words(t.remedy), t.part, String(t.attempt), chip(t.outcome, "outcome"), at(t.started_at), t.measured_at ? lasts(seconds(t.measured_at) - seconds(t.started_at)) : "—", t.detail || "—"]));
}

function faults(c) {
  if (!c.faults.length) return empty("No fault was collected yet.", "");
  return table("Faults, as last collected", [["Fault"], ["Part"], ["Seen by"], ["Count", "num"], ["Detail"]], c.faults.map((f) => [f.id, f.part || "node", words(f.source), String(f.count), f.detail || "—"]));
}

function parts_and_ticket(c) {
  const t = c.ticket;
  const told = t || c.spare ? facts([
    ["Ticket", t ? t.id || (t.asked ? ["not taken to the ticket system yet", t.problem].filter(Boolean).join(": ") : "in no ticket system") : ""], ["System", t?.system], ["Work", t?.work], ["Vendor's return", t?.rma], ["Identify light", t?.led ? "on" : ""],
    ["Spare", c.spare ? [c.spare.kind, c.spare.part_number, c.spare.serial].filter(Boolean).join(" ") : ""],
  ]) : empty("No part is to be touched.", "");
  const changes = c.difference?.changes ?? [];
  return [told, changes.length ? table("Parts before and after", [["Slot"], ["Before", "num"], ["After", "num"]], changes.map((p) => [`${p.kind} ${p.slot}`, p.before ?? "empty", p.after ?? "empty"])) : null,
    c.difference ? facts([["Not what was asked for", c.difference.unexpected.join(", ")], ["Asked for, not changed", c.difference.missing.join(", ")], ["Another model", c.difference.wrong.join(", ")], ["Not proved", c.difference.unknown.join(", ")]]) : null];
}
