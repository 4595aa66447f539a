// @ts-check
// One node: where it is on its journey, what it waits for, what would be done, what proves it.

import { action_link } from "./actions.js";
import { all, ask, maybe } from "./api.js";
import { at, blockers, chip, empty, facts, link, made, section, table } from "./dom.js";
import { follow } from "./live.js";
import { neighbours } from "./fabric.js";
import { cables, chassis, doors, life_line } from "./node_pictures.js";
import { machine, revocation, verbs } from "./node_verbs.js";
import { page as list } from "./nodes_list.js";
import { rails } from "./rails.js";
import { parts as phrases, sentence } from "./sentences.js";
import { ago, lasts, many, now, number, seconds, short, when } from "./words.js";

const EVENTS = 12; // the newest ones, on the node's own page
const WAY = ["discovered", "intake", "converging", "validating", "certified", "released"];

export async function page({ parts, query, signal, me, go, again }) {
  const name = parts[1];
  if (!name) return list({ query, signal, me, go, again });
  const path = `/nodes/${encodeURIComponent(name)}`;
  const node = await ask(path, { signal });
  const staff = !me.roles.includes("tenant");
  const quiet = (p) => maybe(p, { signal });
  const adopted = staff && node.origin !== "taken_in";
  const [seen, plan, report, proof, cases, actions, handed, looked, past, signed, newest, raised, hosts, lived, released, optics, queues] = await Promise.all([
    staff ? quiet(`${path}/parts`) : null, staff ? quiet(`${path}/plan`) : null, quiet(`${path}/report`), quiet(`${path}/certificate`),
    quiet(`/cases?node=${encodeURIComponent(name)}&limit=20`), staff ? quiet(`${path}/actions?limit=30`) : null,
    adopted ? quiet(`${path}/capabilities`) : null, staff ? quiet(`${path}/observation`) : null,
    all(`/events?node=${encodeURIComponent(name)}&kind=state`, { signal }).catch(() => []),
    staff && node.kind === "host" ? quiet(`${path}/attestation`) : null,
    quiet(`/events?node=${encodeURIComponent(name)}&newest=true&limit=${EVENTS}`),
    all(`/alerts?node=${encodeURIComponent(name)}`, { signal }),
    node.kind === "switch" ? all(`/nodes?where=${encodeURIComponent(`leaf="${name}"`)}`, { signal }).catch(() => []) : [],
    staff ? quiet(`${path}/timeline`) : null,
    staff && node.kind === "host" && node.state === "released" ? quiet(`${path}/proof`) : null,
    ...["optics", "queues"].map((of) => (staff && node.kind === "host" && node.ports.length ? quiet(`${path}/${of}`) : null)),
  ]);
  const alarms = raised.filter((a) => a.active);
  const body = made("div", { class: "stack" },
    waiting(node),
    looked || handed ? section("What it would do", would_do(handed, looked)) : null,
    section("Journey", journey(node, past)),
    alarms.length ? section("Alerts", table("Active alerts", [["Alert"], ["Part"], ["Class"], ["Since", "num"], ["Message"]], alarms.map((a) => [made("a", { href: `#/alerts?filter=${encodeURIComponent(name)}` }, a.id), a.target || "—", a.classifications.join(", ") || "—", at(a.since), a.message || "—"]))) : null,
    staff ? section("Time line", life_line(node, lived)) : null,
    node.kind === "switch" ? section("Ports and neighbours", neighbours(node, hosts, staff)) : section("Cables", cables(node, alarms)),
    optics ? section("Rails", rails(optics, queues)) : null,
    seen?.devices.length ? section("Chassis", chassis(node, seen.devices, alarms)) : null,
    made("div", { class: "duo" },
      made("div", { class: "stack" },
        staff ? section("Plan", planned(plan, node)) : null,
        staff ? section("Components", components(seen)) : null,
        section("Evidence", evidence(report)),
        signed ? section("Signed firmware", attested(signed)) : null,
        section("Events", last_events(newest), made("p", {}, made("a", { href: `#/events?node=${encodeURIComponent(name)}` }, "All of its events")))),
      made("div", { class: "stack" },
        section("Node", top(node)),
        node.kind === "host" ? machine(node, me, path, again) : null,
        staff || node.kind === "host" ? section("Logs and figures", doors(node, staff)) : null,
        handed ? section("Handed over", handed_over(handed)) : null,
        section("Certificate", certificate(proof), revocation(proof, me, again)),
        released ? section("Proof of its release", release_proof(released)) : null,
        section("Cases", case_rows(cases)),
        staff ? section("Last actions", last_actions(node, actions)) : null)));
  const end = follow((row) => row.node === name, () => again());
  return { title: name, heading: [name, " ", chip(node.state)], beside: verbs(node, me, path, again), body, end };
}

function top(node) {
  const place = node.location;
  const leaves = [...new Set(node.ports.map((p) => p.switch))];
  return facts([
    ["In this state", made("span", { title: when(node.entered_at) }, lasts(now() - seconds(node.entered_at)))], ["Now", node.note], ["Release", node.release], ["Profile", node.profile],
    ["Tenant", node.tenant ? link(["tenants", node.tenant], node.tenant) : "nobody's"],
    ["Placement", node.vrf ? `${node.placement}, VRF ${node.vrf}` : node.placement],
    ["Place", place.rack ? `${place.site}, pod ${place.pod}, unit ${place.scalable_unit}, ${place.rack}` : `${place.site}`],
    ["Address", node.address],
    ["Cables", leaves.length ? made("span", { class: "links" }, leaves.map((leaf) => link(["nodes", leaf], leaf))) : ""],
    ["Boots", node.boots], ["Remedies tried", node.attempts ? number(node.attempts) : ""],
  ], "narrow");
}

function waiting(node) {
  if (!node.blockers.length) return null;
  return made("section", { class: "card alert", "aria-labelledby": "s-blocked" }, made("h2", { id: "s-blocked" }, "What stands in the way"), blockers(node.blockers),
    node.failed_action ? made("p", {}, action_link(node.id, node.failed_action, "Open the step that failed, with its output", { class: "button" })) : null);
}

/** The acts that a daemon which may not send them decided on: read now, and withheld until now. */
function would_do(handed, looked) {
  const rows = (handed?.would ?? []).map((a) => [at(a.at), a.act, a.why]);
  const read = looked?.would ?? [];
  if (!rows.length && !read.length) return empty("Nothing: no act follows from its last reading.", looked ? `Read ${ago(looked.at)}.` : "");
  return [
    read.length ? made("ul", {}, read.map((act) => made("li", {}, act))) : null,
    looked ? made("p", { class: "quiet" }, `Read ${ago(looked.at)}; nothing of it was sent.`) : null,
    rows.length ? table("Acts that were withheld, the newest first", [["When", "num"], ["Act"], ["Not sent because"]], rows) : null,
  ];
}

const STEPS = ["watch", "tickets", "credentials", "firmware", "certification", "isolation"];

function handed_over(handed) {
  const decided = new Map(handed.decisions.map((d) => [d.capability, d]));
  const rows = STEPS.map((step) => {
    const last = decided.get(step);
    return [step, chip(handed.allowed.includes(step) ? "yes" : "no", "fact"),
      last ? made("span", {}, `${last.granted ? "granted" : "withdrawn"} by ${last.by}`, made("span", { class: "quiet block" }, last.reason)) : "not granted"];
  });
  return [table("Steps of the handover", [["Step"], ["In force"], ["Last decision"]], rows),
    made("p", { class: "quiet" }, `It is ${handed.origin}: an act on it needs a step that a person granted.`)];
}

function journey(node, past) {
  const entered = new Map(past.map((row) => [row.detail.to, row]));
  const aside = !WAY.includes(node.state);
  const reached = aside ? -1 : WAY.indexOf(node.state);
  const steps = (aside ? [...WAY, node.state] : WAY).map((state) => {
    const row = entered.get(state);
    const how = state === node.state ? "now" : (aside ? Boolean(row) : WAY.indexOf(state) < reached) ? "past" : "to come";
    return made("li", { "data-how": how, "data-word": state, "aria-current": how === "now" ? "step" : null },
      made("span", { class: "step-name" }, state), made("span", { class: "step-when" }, how === "now" ? ago(node.entered_at) : row ? ago(row.at) : how === "past" ? "" : "—"));
  });
  const rows = [...past].reverse().slice(0, 12).map((row) => [at(row.at), chip(String(row.detail.to ?? "")), String(row.detail.why ?? "")]);
  return [made("ol", { class: "journey" }, steps),
    rows.length ? made("details", {}, made("summary", {}, `${many(past.length, "change")} of state`), table("Changes of state", [["When", "num"], ["To"], ["Why"]], rows)) : null];
}

function planned(plan, node) {
  if (!plan) return empty("There is nothing to plan on yet.", "It is planned once the node was seen: see what stands in the way.");
  const told = [];
  if (plan.blockers.length) told.push(blockers(plan.blockers));
  if (plan.in_flight.length) told.push(made("p", {}, `Under way: ${plan.in_flight.join(", ")}`));
  if (!plan.steps.length) {
    if (plan.in_flight.length) told.push(empty("It is looked at again once that has ended.", ""));
    else if (!plan.blockers.length) told.push(empty("Nothing is to be done.", `Everything that ${plan.release || node.release} pins runs.`));
    return told;
  }
  told.unshift(made("p", { class: "quiet" }, `${many(plan.steps.length, "step")}, ${many(plan.resets, "reset")}, about ${lasts(plan.duration_s)}, to ${plan.release}.`));
  told.push(made("ol", { class: "steps" }, plan.steps.map((step) => made("li", {},
    made("p", { class: "strong" }, step.kind === "activate" ? `${words(step.activation)}: activates ${many(step.activates.length, "version")}` : `${step.component} ${step.from_version} → ${step.to_version}`),
    made("p", {}, step.reason),
    made("p", { class: "quiet" }, [step.slots.join(", "), step.method, step.disruption !== "none" && `takes away: ${step.disruption}`, lasts(step.duration_s)].filter(Boolean).join(" · "))))));
  return told;
}

const words = (word) => word.replaceAll("_", " ");

function components(seen) {
  if (!seen) return empty("It was not seen yet.", "Its inventory is read first of all; see what stands in the way.");
  const sign = ({ met, why }) => (met === null ? made("span", { class: "quiet" }, why) : chip(met ? "met" : "not met", "fact"));
  const alike = new Map(); // eight NICs of which the same is so are one row
  for (const c of seen.components) {
    const key = JSON.stringify({ ...c, slot: "" });
    alike.set(key, [...(alike.get(key) ?? []), c]);
  }
  const lists = [...alike.values()];
  const rows = lists.map((same) => [same[0], same.map((c) => c.slot)]).map(([c, slots]) => [
    made("span", {}, c.kind, made("span", { class: "quiet block" }, slots.length > 2 ? `${many(slots.length, "slot")}, ${slots[0]} to ${slots.at(-1)}` : slots.join(", "))), c.target || "—", c.running || "unknown", c.staged || "—", c.background_copied || "—", c.pending ? words(c.pending) : "—", sign(c),
  ]);
  const heads = [["Component"], ["Target", "num"], ["Running", "num"], ["Staged", "num"], ["Copied"], ["Waits for"], ["Verdict"]];
  const [differing, rest] = split(rows, (_, n) => lists[n][0].met === false);
  const [unpinned, met] = split(rest, (row) => lists[rows.indexOf(row)][0].met === null);
  return [
    made("p", { class: "quiet" }, [seen.vendor, seen.model].filter(Boolean).join(" ")),
    differing.length ? table("Components that differ", heads, differing) : rows.length ? empty(unpinned.length ? "Every component with a published pin runs it." : "Every component runs its target.", "") : null,
    unpinned.length ? made("details", {}, made("summary", {}, `${many(unpinned.length, "row")} without a pin to compare with`), table("Components without a pin", heads, unpinned)) : null,
    met.length ? made("details", {}, made("summary", {}, `${many(met.length, "row")} as it should be`), table("Components that run their target", heads, met)) : null,
    seen.devices.length ? made("details", {}, made("summary", {}, many(seen.devices.length, "device")), table("Devices", [["Kind"], ["Slot"], ["Model"], ["Serial", "num"]],
      seen.devices.map((d) => [d.kind, d.slot, d.model ?? "—", d.serial ?? "—"]))) : null,
    seen.gaps.length ? made("details", {}, made("summary", {}, `${many(seen.gaps.length, "thing")} that could not be seen`), made("ul", {}, seen.gaps.map((g) => made("li", {}, phrases(g, 1).join(", "))))) : null,
  ];
}

function evidence(report) {
  if (!report) return empty("It was not validated yet.", "Checks run once every component is at its pin.");
  const rows = report.results.map((r) => [r.check, r.gate.toUpperCase(), chip(r.verdict, "fact"),
    r.findings.length ? made("ul", { class: "plain" }, r.findings.map((f) => made("li", {}, made("span", { class: "strong" }, f.part), `: ${f.detail}`, f.measured ? ` (${f.measured}${f.wanted ? `, wanted ${f.wanted}` : ""})` : "", " ", made("span", { class: "tag" }, words(f.severity))))) : "—",
    r.evidence ? made("code", { title: r.evidence }, short(r.evidence)) : "—"]);
  const heads = [["Check"], ["Gate"], ["Verdict"], ["Findings"], ["Evidence", "num"]];
  const [differing, passed] = split(rows, (_, n) => report.results[n].verdict !== "pass" || report.results[n].findings.length > 0);
  return [made("p", { class: "quiet" }, `Validated ${when(report.ended_at)}; of the inventory ${short(report.inventory_digest)}.`),
    differing.length ? table("Checks with a finding", heads, differing) : rows.length ? empty("Every check passed.", "") : empty("No check was selected.", ""),
    passed.length ? made("details", {}, made("summary", {}, `${many(passed.length, "check")} passed`), table("Checks that passed", heads, passed)) : null];
}

function attested(signed) {
  const cell = (hex) => made("code", { title: hex }, short(hex));
  const proofs = (proved) => proved.map((root) => [root.component, chip(root.verdict, "fact"), `${root.matched} of ${root.golden}`, root.identity]);
  const rows = proofs(signed.roots);
  const devices = proofs(signed.devices);
  const differing = [...signed.roots, ...signed.devices].flatMap((root) => root.mismatches.map((m) => [root.component, number(m.index),
    made("span", {}, m.golden.map(cell)), m.measured ? cell(m.measured) : "none", m.reference]));
  const keys = signed.systems.flatMap((system) => system.databases.map((d) => [d.database, number(d.entries), cell(d.entries_sha256),
    d.admitted_digests.length ? chip(d.differs ? "not admitted" : "admitted", "fact") : "not compared"]));
  const running = signed.systems.map((system) => (system.secure_boot === null ? "not shown" : system.secure_boot ? "on" : "off")).join(", ");
  return [made("p", { class: "quiet" }, `Of the validation ${when(signed.proved_at)}, by the golden values of today.`),
    facts([["Roots of trust", signed.policy || "not decided"], ["GPU reports", signed.gpu_reports_policy || "not decided"],
      ["NVSwitch reports", signed.nvswitch_reports_policy || "not decided"], ["Secure Boot", signed.secure_boot_policy || "not decided"], ["This boot", running]], "narrow"),
    folded("Roots of trust", [["Root"], ["Verdict"], ["Golden", "num"], ["Identity"]], rows, signed.roots),
    folded("GPUs and NVSwitches", [["Device"], ["Verdict"], ["Golden", "num"], ["Identity"]], devices, signed.devices),
    differing.length ? table("Measurements that differ", [["Device"], ["Index", "num"], ["Golden", "num"], ["Measured", "num"], ["Admitted by"]], differing) : null,
    keys.length ? table("Keys of Secure Boot", [["Database"], ["Entries", "num"], ["Digest", "num"], ["Matrix"]], keys) : null];
}

/** The gate's rows when it entered its tenant's network, those of storage first, and what its tenant was told of libraries. */
function release_proof({ proof, valid, objections }) {
  const [stored, rest] = split(proof.gate, (row) => row.check.startsWith("storage"));
  const line = (row) => [row.check.replaceAll("_", " "), row.subject, chip(row.verdict, "fact"), row.seen];
  const heads = [["Check"], ["Of"], ["Verdict"], ["Seen"]];
  const marks = rest.map((row) => ({ verdict: row.verdict === "pass" ? "proved" : row.verdict }));
  return [facts([["For", link(["tenants", proof.tenant], proof.tenant)], ["Valid", chip(valid ? "yes" : "no", "fact")], ["Objections", objections.join("; ")]]),
    stored.length ? table("Shared storage", heads, stored.map(line)) : null, folded("Other rows", heads, rest.map(line), marks),
    proof.libraries.length ? table("Oldest versions of its tenant's libraries", [["Library"], ["Oldest", "num"], ["Tested with", "num"], ["Why"]],
      proof.libraries.map((one) => [one.library.toUpperCase(), one.minimum, one.tested || "—", one.why || "—"])) : null];
}

/** A table of proofs; where all are proved, one line that opens. */
function folded(caption, heads, rows, proofs) {
  if (!rows.length) return null;
  const whole = table(caption, heads, rows);
  return proofs.every((proof) => proof.verdict === "proved") ? made("details", {}, made("summary", {}, `${caption}: all ${number(rows.length)} proved`), whole) : whole;
}

/** [those that are so, the others], each in its order. */
function split(rows, is_so) {
  return [rows.filter(is_so), rows.filter((row, n) => !is_so(row, n))];
}

function certificate(proof) {
  if (!proof) return empty("It has no certificate.", "It is issued once every check of the gates passed.");
  const c = proof.certificate;
  return [facts([
    ["In force", chip(proof.in_force ? "yes" : "no", "fact")], ["Id", made("code", {}, c.id)], ["Issued", when(c.issued_at)], ["Expires", `${when(c.expires_at)} (${ago(c.expires_at)})`],
    ["Revoked", proof.revoked_at ? `${when(proof.revoked_at)}: ${proof.revoked_reason}` : ""], ["Gates", c.gates.map((g) => g.gate.toUpperCase()).join(", ")],
    ["Bound to", `${many(c.serials.length, "serial")}, ${many(c.versions.length, "version")}, ${many(c.ports.length, "port")}`], ["Key", made("code", {}, short(c.key_id))],
  ], "narrow"), made("p", {}, made("a", { href: `/v1/certificates/${encodeURIComponent(c.id)}/attestation` }, "Signed attestation (in-toto)"))];
}

function case_rows(cases) {
  if (!cases?.items.length) return empty("There is no case.", "");
  return table("Cases of this node", [["Case"], ["Stage"], ["Opened", "num"], ["Reason"]], cases.items.map((c) => [link(["cases", c.id], c.id), chip(c.stage, "stage"), at(c.opened_at), c.reason]));
}

function last_actions(node, actions) {
  if (!actions?.items.length) return empty("Nothing was done to it yet.", "");
  return table("Physical actions, the newest first", [["Begun", "num"], ["Action"], ["Status"]], actions.items.map((a) => [at(a.intended_at), made("span", {}, action_link(node.id, a.id, a.action), a.outcome ? made("span", { class: "quiet block" }, a.outcome) : null), chip(a.status, "fact")]));
}

function last_events(rows) {
  if (!rows?.items.length) return empty("Nothing happened to it yet.", "");
  return made("ol", { class: "plain recent", "aria-label": "Events, the newest first" }, rows.items.slice(0, EVENTS).map((row) => made("li", {},
    made("span", { class: "quiet" }, at(row.at)), " ", made("span", { class: "tag" }, words(row.kind)), " ", sentence(row).slice(0, 300) || "—")));
}
