// @ts-check
// Campaigns: the list, and one of them with its waves, its budget, and how far it is.

import { remember } from "./address.js";
import { all, ask, maybe } from "./api.js";
import { operation_words } from "./dialog.js";
import { at, blockers, chip, empty, facts, link, made, section, table, tell } from "./dom.js";
import { forecast_line } from "./campaign_line.js";
import { listing } from "./listing.js";
import { follow } from "./live.js";
import { proposes } from "./proposal.js";
import { instant, lasts, many, now, number, seconds, when } from "./words.js";

const STATES = ["done", "soaking", "admitted", "failed", "notified", "deferred", "skipped", "pending"];

export async function page({ parts, query, signal, me, again }) {
  return parts[1] ? one(parts[1], { query, signal, me, again }) : list({ query, signal, me, again });
}

async function list({ query, signal, me, again }) {
  const rows = await all("/campaigns", { signal }); // few, and the newest come last
  const make = me.roles.includes("operator") ? made("a", { class: "button", href: "#/draft" }, "New campaign") : null;
  const start = (c) => (c.state === "draft" ? made("a", { class: "button small", href: `#/campaigns/${encodeURIComponent(c.id)}?start=1`, "aria-label": `Start ${c.id}` }, "Start") : "—");
  const body = section("All campaigns", listing({
    caption: "Campaigns", rows, again, query, sort: 5, down: true, name: (c) => c.id,
    nothing: empty("There is no campaign yet.", "Draft one here, or with `provisioner campaign create --release NAME --select EXPRESSION`."),
    columns: [
      { head: "Campaign", cell: (c) => link(["campaigns", c.id], c.id), value: (c) => c.id },
      { head: "State", cell: (c) => made("span", {}, chip(c.state, "campaign"), c.reason ? made("span", { class: "quiet block" }, c.reason) : null) },
      { head: "Release", cell: (c) => c.release },
      { head: "Nodes", cell: (c) => made("code", {}, c.select) },
      { head: "By", cell: (c) => c.created_by },
      { head: "Made", num: true, cell: (c) => at(c.created_at), value: (c) => seconds(c.created_at) },
      ...(make ? [{ head: "Request", cell: start, value: (c) => c.state }] : []),
    ],
  }));
  return { title: "Campaigns", body, beside: make ? made("div", { class: "buttons" }, make) : null, end: follow((row) => row.kind === "campaign", () => again()) };
}

async function one(id, { query, signal, me, again }) {
  const path = `/campaigns/${encodeURIComponent(id)}`;
  const told = await ask(path, { signal });
  const draft = told.campaign.state === "draft";
  // what would happen costs the server a forecast: it is asked for where nothing has happened yet
  const seen = draft ? await maybe(`${path}/preview`, { signal }).catch(() => null) : null;
  const view = { told, report: draft ? null : await maybe(`${path}/report`, { signal }), course: draft ? null : await maybe(`${path}/course`, { signal }).catch(() => null) };
  const rehearsal = made("div", {});
  const progress = made("div", { class: "stack" });
  const beside = made("div", { class: "buttons" });
  const head = made("span", {});
  const draw = () => {
    const { campaign } = view.told;
    head.replaceChildren(id, " ", chip(campaign.state, "campaign"));
    const focused = beside.contains(document.activeElement);
    const typed = progress.querySelector("input[type=search]:focus");
    beside.replaceChildren(...verbs(view, me, path, seen, again), ...(draft && me.roles.includes("operator") ? [rehearse(path, rehearsal)] : []));
    if (focused) beside.querySelector("button")?.focus();
    progress.replaceChildren(...[about(campaign), draft ? null : budget(view.told), draft ? forecast(seen) : waves(view.told), draft ? null : time_line(view), draft ? null : nodes(view.told, me, path, again), draft ? null : measures(view, me, path, again)].filter(Boolean));
    if (typed) progress.querySelector("input[type=search]")?.focus();
  };
  draw();
  const look = async () => {
    try {
      const newer = await ask(path);
      if (draft && newer.campaign.state !== "draft") again();
      view.told = newer;
      draw();
    } catch { /* the next row tries again */ }
  };
  const end = follow((row) => row.kind.startsWith("campaign") && (row.detail.campaign === id || !row.detail.campaign), look);
  return { title: `Campaign ${id}`, heading: head, beside, body: made("div", { class: "stack" }, rehearsal, progress), end, shown: () => {
    if (!query.get("start")) return;
    remember({ start: "" }); // the question comes once, not with each return to this address
    if (draft) [...beside.querySelectorAll("button")].find((button) => button.textContent === "Start")?.click();
  } };
}

function verbs(view, me, path, seen, again) {
  if (!me.roles.includes("operator")) return [];
  const { campaign } = view.told;
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const match = () => `"g${view.told.campaign.generation}"`;
  const reason = [{ name: "reason", words: "Why (it is shown to everybody)" }];
  const because = (values) => ({ reason: values.reason });
  const one_way = seen?.to_confirm ?? [];
  const made_of = {
    start: () => proposes({
      words: "Start", title: `Start ${campaign.id}`, path: `${path}/start`, match, done,
      says: seen ? start_words(seen) : "The preview could not be made. From now on its nodes are upgraded.", danger: one_way.length > 0,
      fields: one_way.length ? [{ name: "agreed", words: `I agree to ${many(one_way.length, "step")} that nothing undoes`, kind: "check", required: true }] : [], body: () => ({ confirm: one_way }),
    }),
    pause: () => proposes({ words: "Pause", title: `Pause ${campaign.id}`, says: "No further node begins. What is under way ends.", path: `${path}/pause`, fields: reason, body: because, match, done }),
    resume: () => proposes({ words: "Resume", title: `Resume ${campaign.id}`, says: "It goes on. Failures before now are accepted.", path: `${path}/resume`, match, done }),
    abort: () => proposes({ words: "Abort", title: `Abort ${campaign.id}`, says: "It ends for good: nodes that have not begun stay as they are, what is under way ends.", path: `${path}/abort`, fields: reason, body: because, match, danger: true, done }),
    rollback: () => proposes({ words: "Roll back", title: `Roll ${campaign.id} back`, says: `Its nodes are brought back to ${campaign.baseline || "where they were"}, under the same limits.`, path: `${path}/rollback`, match, danger: true, done }),
  };
  const may = { draft: ["start", "abort"], started: ["pause", "abort"], paused: ["resume", "rollback", "abort"], stopped: ["resume", "rollback", "abort"], rolling_back: ["pause", "abort"], done: ["rollback"], aborted: ["rollback"] };
  return (may[campaign.state] ?? []).map((word) => made_of[word]());
}

// a wave that never begins has no length
const ends = (seen) => seen.lasts_s >= 0 && seen.waves.every((w) => w.ends_s !== null);

function start_words(seen) {
  const { hosts, switches, gpus, tenants } = seen.blast;
  const blast = `${many(hosts, "host")}, ${many(switches, "switch", "switches")} and ${many(gpus, "GPU")}`;
  const lines = [
    `${blast} go out of service in ${many(seen.waves.length, "wave")}, at most ${many(seen.at_once.hosts, "host")} at once.`,
    `${many(seen.steps, "step")}, ${many(seen.resets, "reset")}, ${ends(seen) ? `about ${lasts(seen.lasts_s)}` : "without an end"}.`,
    tenants.length ? `Tenants that feel it: ${tenants.join(", ")}.` : "No tenant feels it.",
    `${many(Object.keys(seen.refused).length, "node")} refused.`,
  ];
  return made("div", {}, made("p", {}, lines.join(" ")), seen.to_confirm.length ? [made("p", { class: "strong" }, "Nothing undoes these steps:"), one_way_list(seen)] : null);
}

const one_way_list = (seen) => made("ul", {}, seen.to_confirm.map((step) => made("li", {}, `${step}, on ${many(seen.one_way[step].length, "node")}`)));

function about(campaign) {
  return made("div", { class: "card" },
    campaign.reason ? made("p", { class: "notice" }, campaign.reason) : null,
    facts([["Release", `${campaign.baseline ? `${campaign.baseline} → ` : ""}${campaign.release}`], ["Nodes", made("code", {}, campaign.select)],
      ["Made", `${when(campaign.created_at)} by ${campaign.created_by}`], ["Started", campaign.started_at ? when(campaign.started_at) : "not yet"]]));
}

const limit = (l, of) => (l.count ?? Math.max(l.percent > 0 ? 1 : 0, Math.floor((of * l.percent) / 100)));
const limit_words = (l) => (l.count !== null && l.count !== undefined ? number(l.count) : `${l.percent} %`);

function budget({ campaign, nodes: rows }) {
  const failed = rows.filter((n) => n.state === "failed").length;
  const under = rows.filter((n) => n.state === "admitted").length;
  const may = limit(campaign.policy.failure_budget, rows.length);
  const over = rows.filter((n) => ["done", "skipped"].includes(n.state)).length;
  const limits = [...Object.entries(campaign.policy.limits), ...Object.entries(campaign.policy.switch_limits).map(([d, l]) => [`${d} (switches)`, l])];
  return section("Budget and limits", made("div", { class: "tiles" },
    tile("Finished", `${number(over)} of ${number(rows.length)}`, over, rows.length, "good"),
    tile("Failures", `${number(failed)} of ${number(may)} allowed`, failed, Math.max(may, 1), "bad"),
    tile("Under way", number(under), under, rows.length, "busy")),
  facts(limits.map(([domain, l]) => [`At once, ${domain.replaceAll("_", " ")}`, limit_words(l)])));
}

function tile(title, words, value, most, kind) {
  return made("div", { class: "tile" }, made("p", { class: "quiet" }, title), made("p", { class: "figure" }, words),
    made("meter", { min: "0", max: String(Math.max(most, 1)), value: String(Math.min(value, most)), "data-kind": kind, "aria-label": `${title}: ${words}` }));
}

function waves({ campaign, nodes: rows }) {
  const by = new Map();
  for (const n of rows) by.set(n.wave, [...(by.get(n.wave) ?? []), n]);
  if (!by.size) return section("Waves", empty("It has no nodes.", "Its expression picks none: draft another one."));
  const canary = campaign.policy.canary.size > 0;
  const items = [...by].sort((a, b) => a[0] - b[0]).map(([wave, members]) => {
    const counts = STATES.map((state) => [state, members.filter((n) => n.state === state).length]).filter(([, n]) => n);
    const words = counts.map(([state, n]) => `${number(n)} ${state}`).join(", ");
    const bar = made("div", { class: "stackbar", role: "img", "aria-label": words }, counts.map(([state, n]) => {
      const part = made("span", { "data-word": state });
      part.style.flexGrow = String(n);
      return part;
    }));
    return made("li", {}, made("p", {}, made("span", { class: "strong" }, canary && wave === 0 ? "Canaries" : `Wave ${wave + (canary ? 0 : 1)}`), made("span", { class: "quiet" }, ` · ${many(members.length, "node")}`)), bar, made("ul", { class: "chips" }, counts.map(([state, n]) => made("li", {}, chip(state, "progress"), " ", number(n)))));
  });
  return section("Waves", made("ol", { class: "waves", "aria-live": "off" }, items));
}

/** Waves in time as they went, and below them as they were forecast. */
function time_line({ told, course }) {
  const picture = forecast_line(told, course, now());
  return picture ? section("Time line", picture) : null;
}

function nodes({ campaign, nodes: rows }, me, path, again) {
  const may = me.roles.includes("operator") && ["started", "paused", "stopped", "rolling_back"].includes(campaign.state);
  const rank = { failed: 0, admitted: 1, soaking: 2, deferred: 3, notified: 4, pending: 5, skipped: 6, done: 7 };
  const place = new Map([...rows].sort((a, b) => rank[a.state] - rank[b.state] || a.wave - b.wave || a.node.localeCompare(b.node, "en", { numeric: true })).map((n, i) => [n, i]));
  return section("Nodes", listing({
    caption: "Nodes of the campaign", rows, again, sort: 1, query: new URLSearchParams(location.hash.split("?")[1]), key: "node-", name: (n) => n.node, // what needs a person comes first
    columns: [
      { head: "Node", cell: (n) => link(["nodes", n.node], n.node), value: (n) => n.node },
      { head: "Progress", cell: (n) => chip(n.state, "progress"), value: (n) => place.get(n), text: (n) => n.state },
      { head: "Wave", num: true, cell: (n) => String(n.wave), value: (n) => n.wave },
      { head: "Admitted", num: true, cell: (n) => at(n.admitted_at), value: (n) => seconds(n.admitted_at) },
      { head: "Finished", num: true, cell: (n) => at(n.finished_at), value: (n) => seconds(n.finished_at) },
      { head: "Reason", cell: (n) => n.reason || (n.deferred_until ? `put off until ${when(n.deferred_until)}` : n.earliest_at ? `not before ${when(n.earliest_at)}` : "—") },
      ...(may ? [{ head: "Requests", cell: (n) => made("div", { class: "buttons" }, of_node(n, path, again)), value: () => "" }] : []),
    ],
  }));
}

function of_node(n, campaign_path, again) {
  const path = `${campaign_path}/nodes/${encodeURIComponent(n.node)}`;
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const made_of = {
    again: () => proposes({ words: "Again", title: `Try ${n.node} again`, path: `${path}/again`, done }),
    skip: () => proposes({ words: "Skip", title: `Leave ${n.node} out`, path: `${path}/skip`, done, fields: [{ name: "reason", words: "Why" }], body: (values) => values }),
    defer: () => proposes({ words: "Defer", title: `Defer ${n.node}`, path: `${path}/defer`, done, says: "For its tenant, within the policy's limit.", fields: [{ name: "hours", words: "For how many hours", kind: "number", value: "24", required: true }], body: ({ hours }) => ({ until: instant(now() + Number(hours) * 3600) }) }),
  };
  const may = { failed: ["again"], skipped: ["again"], pending: ["skip"], notified: ["skip", "defer"], deferred: ["skip", "defer"] };
  return (may[n.state] ?? []).map((verb) => made_of[verb]());
}

/** Measurements before and after, with a button to accept one that got worse; and the rehearsal. */
function measures(view, me, path, again) {
  const { campaign } = view.told;
  const rows = view.report?.comparisons ?? [];
  if (!rows.length) return null;
  const may = me.roles.includes("operator");
  const done = (operation) => { tell(operation_words(operation)); again(); };
  return section("Measured before and after", table("Measurements", [["Metric"], ["Effect"], ["Change", "num"], ["Nodes", "num"], ["Request"]], rows.map((c) => [c.metric, chip(c.effect, "outcome"), `${(c.change * 100).toFixed(1)} %`, number(c.nodes),
    may && c.effect === "worse" && !campaign.accepted.includes(c.metric) ? proposes({ words: "Accept", title: `Go on although ${c.metric} got worse`, path: `${path}/accept`, body: () => ({ metric: c.metric }), done }) : campaign.accepted.includes(c.metric) ? "accepted" : "—"])));
}

const FOLLOW_MS = 2000;

/** A button that runs the campaign on a twin; its result replaces the note in `place` once it is over. */
function rehearse(path, place) {
  const show = (...children) => place.replaceChildren(section("Rehearsal", ...children));
  const done = async (operation) => {
    show(made("p", { role: "status" }, "It is rehearsed on a twin. That takes some seconds a host."));
    let latest = operation;
    while (["running", "waiting"].includes(latest.state) && place.isConnected) {
      await new Promise((go_on) => { setTimeout(go_on, FOLLOW_MS); });
      latest = await ask(`/operations/${encodeURIComponent(operation.id)}`).catch(() => latest);
    }
    const { result } = latest;
    if (!result?.report) show(latest.blockers?.length ? blockers(latest.blockers) : made("p", {}, operation_words(latest)));
    else {
      show(facts([["Ended as", chip(result.report.state, "campaign")], ["Nodes", Object.entries(result.report.states).map(([state, n]) => `${number(n)} ${state}`).join(", ")], ["Minutes a node", number(Math.round(result.report.minutes_median))], ["Took", result.report.ended_at ? lasts(seconds(result.report.ended_at) - seconds(result.report.began_at)) : ""]]),
        result.report.left.length ? table("Left behind", [["Node"], ["Progress"], ["Reason"]], result.report.left.map((n) => [n.node, chip(n.state, "progress"), n.reason || "—"])) : null, result.blockers.length ? blockers(result.blockers) : null);
    }
  };
  return proposes({ words: "Rehearse", title: "Rehearse on a twin", says: "No device is touched: recorded nodes run it in virtual time.", path: `${path}/rehearse`, fields: [{ name: "nodes", words: "Hosts of the twin", kind: "number", value: "8", required: true }], body: ({ nodes: hosts }) => ({ nodes: Number(hosts) }), done });
}

/** The preview of a campaign, as sections. */
export function forecast(seen) {
  if (!seen) return section("Preview", empty("The preview cannot be made now.", "Ask again in a minute."));
  const refused = Object.values(seen.refused);
  return made("div", { class: "stack" }, section("Preview",
    facts([["Lasts", ends(seen) ? `about ${lasts(seen.lasts_s)}` : "it never ends"], ["Bounded by", seen.bound_by], ["Steps", number(seen.steps)], ["Resets", number(seen.resets)], ["Out of service, together", `${number(seen.minutes)} min`],
      ["At most at once", `${many(seen.at_once.hosts, "host")}, ${many(seen.at_once.switches, "switch", "switches")}, ${many(seen.at_once.gpus, "GPU")}`], ...(seen.crossing ? [["Limits that cross", `${seen.crossing.domains.join(" and ").replaceAll("_", " ")}: ${many(seen.crossing.taken, "host")} fit at once, no choice has more than ${number(seen.crossing.at_most)}`]] : []), ["Tenants that feel it", seen.blast.tenants.join(", ") || "none"], ["Already there", many(seen.unchanged.length, "node")]]),
    seen.to_confirm.length ? [made("p", { class: "strong" }, "To be agreed to before it starts; nothing undoes it:"),
      one_way_list(seen)] : null,
    seen.waves.length ? table("Waves", [["Wave"], ["Nodes", "num"], ["GPUs", "num"], ["Resets", "num"], ["Begins", "num"], ["Ends", "num"]],
      seen.waves.map((w) => [w.name, number(w.nodes.length), number(w.blast.gpus), number(w.resets), w.begins_s === null ? "never" : `+${lasts(w.begins_s)}`, w.ends_s === null ? "never" : `+${lasts(w.ends_s)}`]))
      : empty("It would upgrade nothing.", "See what is refused, or which nodes it picks."), seen.stopped.length ? blockers(seen.stopped) : null),
  refused.length ? section("Refused", made("p", { class: "quiet" }, `${many(refused.length, "node")} would not be upgraded.`), blockers(refused.slice(0, 50)), refused.length > 50 ? made("p", { class: "quiet" }, `and ${number(refused.length - 50)} more`) : null) : null);
}
