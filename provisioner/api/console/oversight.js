// @ts-check
// What the daemon does and compares: operations, the watch of nodes in service, cohorts of alike nodes,
// and a restore that waits for people.

import { ask } from "./api.js";
import { at, blockers, chip, empty, facts, link, made, section, table } from "./dom.js";
import { grown, listing } from "./listing.js";
import { follow } from "./live.js";
import { proposes } from "./proposal.js";
import { show_suspects } from "./suspects.js";
import { ago, lasts, many, number, seconds, short, when } from "./words.js";

const OPERATIONS_MAX = 5000;
const STATES = [["active", "Under way"], ["parked", "Parked"], ["done", "Done"]];
const headed = (name) => `${name.charAt(0).toUpperCase()}${name.slice(1)}`.replaceAll("_", " ");
const node_link = (name) => (name ? link(["nodes", name], name) : "—");

/** Operations of nodes by their state, and one of them with its result. */
export async function operations({ parts, query, signal, again }) {
  if (parts[1]) {
    const o = await ask(`/operations/${encodeURIComponent(parts[1])}`, { signal });
    const running = ["running", "waiting", "active"].includes(o.state);
    return { title: `Operation ${o.id}`, heading: [o.id, " ", chip(o.state, "fact")], body: made("div", { class: "stack" },
      section("Operation", facts([["Kind", o.kind.replaceAll("_", " ")], ["Of", node_link(o.subject)], ["Phase", o.phase], ["Asked by", o.asked_by], ["Decided by", o.decided_by], ["Begun", when(o.opened_at)], ["Ended", o.ended_at ? when(o.ended_at) : "not yet"], ["Note", o.note]]),
        o.blockers?.length ? blockers(o.blockers) : null),
      o.result?.lines ? section("Result", o.result.lines.map((line) => made("p", {}, line))) : o.result ? section("Result", made("pre", {}, JSON.stringify(o.result, null, 2))) : null,
      Object.keys(o.arguments ?? {}).length ? section("Asked for", made("pre", {}, JSON.stringify(o.arguments, null, 2))) : null),
    end: running ? follow((row) => row.node === o.subject || row.kind === "request", () => again(), 2000) : undefined };
  }
  const state = STATES.some(([word]) => word === query.get("state")) ? query.get("state") : "active";
  const tabs = made("nav", { class: "choice tabs", "aria-label": "State" }, STATES.map(([word, words]) => made("a", { href: `#/operations?state=${word}`, "aria-current": word === state ? "page" : null }, words)));
  return { title: "Operations", beside: tabs, body: made("div", { class: "card" }, await grown(`/operations?status=${state}`, OPERATIONS_MAX, signal, (rows) => listing({
    caption: "Operations", rows, again, query, sort: 5, down: true, name: (row) => row.id, nothing: empty(state === "active" ? "Nothing is under way." : "There is none.", ""),
    columns: [{ head: "Operation", cell: (row) => link(["operations", row.id], row.id), value: (row) => row.id }, { head: "Of", cell: (row) => node_link(row.subject), value: (row) => row.subject }, { head: "To", cell: (row) => row.kind.replaceAll("_", " ") },
      { head: "Phase", cell: (row) => row.phase || "—" }, { head: "Note", cell: (row) => row.note || "—" }, { head: "Begun", num: true, cell: (row) => at(row.opened_at), value: (row) => seconds(row.opened_at) }, { head: "Asked by", cell: (row) => row.asked_by || "—" }],
  }))), end: state === "active" ? follow((row) => ["state", "step"].includes(row.kind), () => { if (!document.querySelector(".listing :focus")) again(); }, 5000) : undefined };
}

/** Whether nodes in service are watched, how, and what is missing. */
export async function watch({ query, signal, again }) {
  const told = await ask("/watch", { signal }).catch((problem) => {
    if (problem.status !== 409) throw problem;
    return null;
  });
  if (!told) return { title: "Watch", body: empty("No daemon watches from here.", "`provisioner serve` watches; a console beside it shows what it sees.") };
  const { status } = told;
  const rows = status.nodes.flatMap((n) => n.bmcs.map((b) => ({ ...b, node: n.node, looked_at: n.looked_at })));
  const silent = told.unwatched ?? [];
  return { title: "Watch", body: made("div", { class: "stack" },
    section("Standing", facts([["Written", `${ago(status.at)}, every ${lasts(status.every_s)}`], ["Nodes in service", number(status.nodes.length)], ["Requests since its start", `${number(status.requests)}, at most ${number(status.requests_per_s)} in a second`], ["Events are posted to us", status.listener ? "yes" : "no"], ["Leaves read", number(Object.keys(status.leaf_ports_read ?? {}).length)], ["Not watched", silent.length ? number(silent.length) : "none"]]),
      told.stale ? made("p", { class: "bad" }, "This standing is old: the daemon does not write it any more.") : null,
      silent.length ? made("p", {}, silent.slice(0, 50).map((n) => [node_link(n), " "])) : null),
    made("div", { class: "card" }, listing({ caption: "Controllers that are watched", rows, again, query, name: (row) => `${row.bmc} of ${row.node}`, nothing: empty("No node is in service.", ""), columns: [
      { head: "Node", cell: (row) => node_link(row.node), value: (row) => row.node }, { head: "Controller", cell: (row) => row.bmc }, { head: "Way", cell: (row) => chip(row.way, "fact") }, { head: "Last event", num: true, cell: (row) => (row.heard_at ? ago(row.heard_at) : "—"), value: (row) => seconds(row.heard_at) }, { head: "Looked at", num: true, cell: (row) => (row.looked_at ? ago(row.looked_at) : "—"), value: (row) => seconds(row.looked_at) }, { head: "Metric reports", num: true, cell: (row) => number(row.reports), value: (row) => row.reports }] }))) };
}

/** Alike nodes, the floors that were learned from them, and those that differ. */
export async function cohorts({ query, signal, again }) {
  const [told, moved] = await Promise.all([ask("/cohorts", { signal }), ask("/cohorts/comparison", { signal }).catch(() => ({ items: [] }))]);
  const figure = (n) => (n === null || n === undefined ? "—" : Number(Number(n).toPrecision(5)).toString());
  const columns = (rows, named) => Object.keys(rows[0] ?? {}).filter((k) => typeof rows[0][k] !== "object").map((k) => ({ head: headed(k), num: typeof rows[0][k] === "number", value: (row) => row[k], cell: (row) => (k === "node" ? node_link(row[k]) : typeof row[k] === "number" ? figure(row[k]) : k === named ? made("code", { title: row[k] }, short(String(row[k]))) : k.endsWith("_at") ? at(row[k]) : String(row[k] ?? "—")) }));
  const accused = made("div", {}, made("p", { class: "quiet" }, "It is read now…"));
  return { title: "Cohorts", shown: () => show_suspects(accused, { signal, query, again }), body: made("div", { class: "stack" },
    section("Which version, place or part makes nodes fail", accused),
    section("Nodes that differ from their like", told.outliers.length ? listing({ caption: "Outliers", rows: told.outliers, again, query, key: "o-", name: (row) => row.node, columns: columns(told.outliers, "versions") }) : empty("No node differs from its like.", "Nodes of one profile with the same versions are compared once enough of them were measured.")),
    section("Cohorts", told.cohorts.length ? table("Cohorts", [["Profile"], ["Versions", "num"], ["Nodes", "num"], ["Sound", "num"]], told.cohorts.map((c) => [c.profile, made("code", { title: c.versions }, short(c.versions)), number(c.nodes), number(c.sound)])) : empty("Nothing was measured yet.", "Gates B to D measure.")),
    section("Learned floors", told.baselines.length ? listing({ caption: "Floors", rows: told.baselines, again, query, key: "b-", name: (row) => row.metric, columns: columns(told.baselines, "versions") }) : empty("No floor is learned yet.", "")),
    moved.items.length ? section("Before and after the last change of versions", table("Comparison", [["Metric"], ["Effect"], ["Change", "num"], ["Nodes", "num"]], moved.items.map((c) => [c.metric, chip(c.effect, "outcome"), `${(c.change * 100).toFixed(1)} %`, number(c.nodes)]))) : null) };
}

/** A restore whose rows differ from the leaves: what people decide on, one by one, and its end. */
export async function recovery({ signal, me, again }) {
  const told = await ask("/recovery", { signal });
  const may = me.roles.includes("operator");
  const settle = (row, word, words) => proposes({ words, title: `${row.subject}: ${words.toLowerCase()}`, path: "/recovery/settle", says: "No port moves before the end.", body: () => ({ subject: row.subject, word }), done: () => again() });
  const open = told.items.filter((row) => !row.settled);
  return { title: "Recovery", beside: may && told.look_only ? proposes({ words: "Finish", danger: true, title: "End the restore", path: "/recovery/finish", says: "The daemons act again.", done: () => again() }) : null, body: made("div", { class: "stack" },
    told.look_only ? made("p", { class: "notice" }, told.look_only) : empty("No restore waits.", "After a restore from a backup, the differences between its rows and the leaves are decided on here; see docs/disaster-recovery.md."),
    told.surveyed_at ? made("p", { class: "quiet" }, `Leaves were read ${when(told.surveyed_at)}; ${many(open.length, "decision")} open.`) : null,
    told.items.length ? section("Differences", table("Differences", [["Subject"], ["The row says"], ["The leaves show"], ["Network"], ["Decision"]], told.items.map((row) => [row.subject, row.row || "—", row.world || "—", [row.vrf, row.tenant].filter(Boolean).join(", ") || "—",
      row.settled ? `${row.settled}${row.settled_by ? ` by ${row.settled_by}` : ""}` : may ? made("div", { class: "buttons" }, settle(row, "adopt", "The leaves are right"), settle(row, "keep", "The row is right")) : "open"]))) : null,
    Object.keys(told.adopted_ports).length ? section("Ports that a person left in a VRF", table("Ports", [["Port"], ["VRF"]], Object.entries(told.adopted_ports))) : null) };
}
