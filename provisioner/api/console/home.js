// @ts-check
// What needs a person now: blocked nodes by their remedy, cases, approvals, alerts, certificates,
// campaigns, tenants; and how much room there is. Each part is there only while it has something.

import { ask } from "./api.js";
import { asks, operation_words } from "./dialog.js";
import { at, chip, empty, link, made, remedy, section, table, tell } from "./dom.js";
import { changes, course_of, hosts_of, is_calm, parties } from "./home_data.js";
import { follow } from "./live.js";
import { plot } from "./plots.js";
import { sentence } from "./sentences.js";
import { ago, lasts, many, now, number, seconds, short } from "./words.js";

const DAYS = 5; // of the plots, hour by hour
const LATELY_MAX = 12;
const KINDS = new Set(["state", "case", "request", "asked", "alert", "campaign", "tenant", "allocated", "certified"]);

export async function page({ signal, me, again }) {
  const [home, overview] = await Promise.all([ask("/home", { signal }), ask(`/overview?days=${DAYS}&by=hour`, { signal })]);
  const may = (role) => me.roles.includes(role);
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const body = made("div", { class: "stack" },
    is_calm(home) ? made("div", { class: "empty" }, made("p", { class: "strong" }, "All is well: nothing waits for a person."), made("p", {}, "This page changes by itself when something does.")) : null,
    work(overview, home),
    blocked(home.blocked, may("operator"), done),
    approvals(home.approvals, may("approver"), done),
    cases(home.cases),
    campaigns(home.campaigns),
    alerts(home.alerts),
    certificates(home.certificates),
    tenants(home.tenants),
    made("div", { class: "duo" }, made("div", { class: "stack" }, lately(overview.hour)), made("div", { class: "stack" }, plots(overview))),
    capacity(home.capacity));
  return { title: "Home", body, end: follow((row) => KINDS.has(row.kind), () => again(), 3000) };
}

/** Nodes on their way by state, and campaigns that run. */
function work(overview, home) {
  const { by, hosts, served, moving } = hosts_of(overview);
  const running = overview.work.campaigns.filter((c) => ["started", "rolling_back", "paused"].includes(c.state)).slice(0, 20);
  if (!moving.length && !running.length) return null;
  const bar = made("div", { class: "stackbar tall", role: "img", "aria-label": by.map(([state, n]) => `${number(n)} ${state}`).join(", ") }, by.map(([state, n]) => {
    const span = made("span", { "data-word": state, title: `${number(n)} ${state}` });
    span.style.flexGrow = String(n);
    return span;
  }));
  const places = running.map((c) => made("div", { class: "under-way" },
    made("p", {}, link(["campaigns", c.campaign], `Campaign ${c.campaign}`, { class: "strong" }), " ", chip(c.state, "campaign"), ` to ${c.release}`),
    made("meter", { min: "0", max: String(c.total), value: String(c.done), "aria-label": `${c.done} of ${c.total}` }),
    made("p", { class: "quiet" }, `${number(c.done)} of ${many(c.total, "node")}; began ${ago(c.started_at)}; ${c.state === "paused" ? "it is paused" : c.ends_at ? `at its pace so far it ends in about ${lasts(seconds(c.ends_at) - now())}` : c.done ? "all its nodes have ended" : "no node has ended yet"}.`)));
  return section("Work under way", moving.length ? [made("p", { class: "links" }, moving.map(([state, n]) => [made("a", { href: `#/nodes?where=${encodeURIComponent(`state=${state} and kind=host`)}` }, `${number(n)} ${state}`), " "]), made("span", { class: "quiet" }, `· ${number(served)} of ${many(hosts, "host")} certified or in service`)), bar] : null, places,
    home.cases.length ? made("p", { class: "quiet" }, `${many(home.cases.length, "case")} with people, below.`) : null);
}

/** What changed in the last hour, the newest first. */
function lately(hour) {
  const told = changes(hour.items);
  const events = Object.values(hour.counts).reduce((a, b) => a + b, 0);
  if (!told.length) return section("Last hour", empty("Nothing changed in the last hour.", ""), made("p", {}, link(["events"], "All events")));
  return section("Last hour", made("ul", { class: "plain recent" }, told.slice(0, LATELY_MAX).map((g) => made("li", {}, made("span", { class: "quiet" }, at(g.rows[0].at)), " ", made("span", { class: "tag" }, g.words), " ",
    g.nodes.length === 1 ? link(["nodes", g.nodes[0]], g.nodes[0]) : g.nodes.length ? made("span", { title: g.nodes.join(", ") }, many(g.nodes.length, "node")) : "", " ", made("span", { class: "quiet" }, g.rows.length === 1 ? sentence(g.rows[0]).replace(/\b[0-9a-f]{32,}\b/g, short).slice(0, 140) : many(g.rows.length, "row"))))),
  made("p", {}, link(["events"], `All ${many(events, "event")}`)));
}

/** Capacity and faults, hour by hour, as the server counts them. */
function plots(overview) {
  const told = course_of(overview, seconds);
  if (told.times.length < 2) return null;
  return section("Capacity and faults",
    plot({ title: "In service", says: `${number(told.served.at(-1))} of ${many(hosts_of(overview).hosts, "host")} now`, times: told.times, series: [{ name: "in service or certified", values: told.served, colour: "--s-released", stepped: true, filled: true }, { name: "under way", values: told.moving, colour: "--s-converging", stepped: true }] }),
    plot({ title: "Faults", says: `${many(told.total, "alert or case", "alerts and cases")} in ${lasts(seconds(overview.at) - told.times[0])}`, times: told.times, series: [{ name: "begun", values: told.faults, colour: "--s-quarantined", stepped: true, filled: true }], high: 110 }));
}

function blocked(groups, may, done) {
  if (!groups.length) return null;
  const total = groups.reduce((sum, g) => sum + g.nodes, 0);
  const rows = groups.map((g) => [
    made("div", {}, chip(g.reason, "reason"), made("p", { class: "quiet" }, g.detail)),
    remedy(g.unblock),
    made("a", { href: where_of(g) }, many(g.nodes, "node")),
    may && g.retryable ? asks({
      words: `Retry ${number(g.retryable)}`, title: `Let ${many(g.retryable, "node")} try again`,
      says: `Quarantined nodes with this blocker go on with their journey: ${g.unblock}`,
      path: "/blocked/retry", body: () => ({ reason: g.reason, unblock: g.unblock }), done,
    }) : "—",
  ]);
  return section(`Blocked: ${many(total, "node")}`, table("Blocked nodes by reason", [["Reason"], ["To unblock"], ["Nodes", "num"], ["Retry"]], rows));
}

// one node is shown itself, several as a table of that reason
const where_of = (g) => (g.nodes === 1 ? `#/nodes/${encodeURIComponent(g.example)}` : `#/nodes?where=${encodeURIComponent(`reason=${g.reason}`)}`);

function approvals(rows, may, done) {
  if (!rows.length) return null;
  return section("Approvals", table("Requests that wait for a second person", [["Request"], ["Change"], ["Of"], ["By"], ["Decide"]], rows.map((r) => [
    link(["approvals"], r.request), r.kind, r.subject || "—", r.asked_by,
    may ? decide(r.request, "approve", "Approve", done) : "—",
  ])));
}

/** A button that approves or refuses a request. */
export function decide(request, verb, words, done) {
  return asks({
    words, title: `${words} ${request}`, danger: verb === "refuse", done, path: `/requests/${encodeURIComponent(request)}/${verb}`,
    says: verb === "approve" ? "It is carried out at once." : "It is never carried out.",
    fields: [{ name: "note", words: "A note, if there is something to say" }], body: (values) => ({ note: values.note }),
    ...(verb === "approve" ? { figures: async () => (await ask(`/requests/${encodeURIComponent(request)}/approve?dry_run=true`, { verb: "POST", body: { note: "" } })).result?.would ?? [] } : {}),
  });
}

function cases(rows) {
  if (!rows.length) return null;
  const titles = { technician: "for a technician", tenant: "for the tenant", person: "for a decision" };
  return section("Cases that wait", parties(rows).map(([party, mine]) => [made("h3", {}, `${titles[party]} (${number(mine.length)})`),
    table(`Cases ${titles[party]}`, [["Case"], ["Node"], ["Work"]], mine.map((c) => [link(["cases", c.case], c.case), link(["nodes", c.node], c.node), c.work]))]));
}

function campaigns(rows) {
  if (!rows.length) return null;
  return section("Campaigns that stopped", table("Campaigns that stopped", [["Campaign"], ["State"], ["Release"], ["Why"]],
    rows.map((c) => [link(["campaigns", c.campaign], c.campaign), chip(c.state), c.release, c.reason || "—"])));
}

function alerts(rows) {
  if (!rows.length) return null;
  return section("Alerts", table("Active alerts by name", [["Alert"], ["Class"], ["Alerts", "num"], ["Nodes", "num"]],
    rows.map((a) => [made("a", { href: `#/alerts?filter=${encodeURIComponent(a.id)}` }, a.id), a.classification || "—", number(a.alerts), a.nodes === 1 ? link(["nodes", a.example], a.example) : number(a.nodes)])));
}

function certificates(rows) {
  if (!rows.length) return null;
  return section("Certificates that end within a week", table("Certificates that end", [["Node"], ["Ends", "num"]],
    rows.map((c) => [link(["nodes", c.node], c.node), c.left_s > 0 ? `in ${lasts(c.left_s)}` : `${lasts(-c.left_s)} ago`])));
}

function tenants(rows) {
  if (!rows.length) return null;
  return section("Tenants short of nodes", table("Tenants short of nodes", [["Tenant"], ["Nodes", "num"], ["Wanted", "num"]],
    rows.map((t) => [link(["tenants", t.tenant], t.tenant), number(t.nodes), number(t.wanted)])));
}

function capacity(all) {
  if (!all.hosts) return empty("There is no host yet.", "Take some in: `provisioner intake SITE.yaml --data var`.");
  const tile = (title, n) => made("div", { class: "tile" }, made("p", { class: "quiet" }, title), made("p", { class: "figure" }, number(n)),
    made("meter", { min: "0", max: String(all.hosts), value: String(n), "aria-label": `${title}: ${number(n)} of ${number(all.hosts)}` }));
  const heads = (word) => [[word], ["Free", "num"], ["Certified", "num"], ["Hosts", "num"]];
  const rows = (rooms) => rooms.map((r) => [r.place, number(r.free), number(r.certified), number(r.hosts)]);
  return section("Capacity", made("div", { class: "tiles" }, tile("Free", all.free), tile("Certified or released", all.certified), tile("Hosts", all.hosts)),
    made("details", {}, made("summary", {}, `By unit (${number(all.units.length)}) and by rail (${number(all.rails.length)})`),
      table("Capacity by unit", heads("Unit"), rows(all.units)), table("Capacity by rail", heads("Rail"), rows(all.rails))));
}
