// @ts-check
// What needs a person now: blocked nodes by their remedy, cases, approvals, alerts, certificates,
// campaigns, tenants; and how much room there is. Each part is there only while it has something.

import { ask } from "./api.js";
import { asks, operation_words } from "./dialog.js";
import { chip, empty, link, made, section, table, tell } from "./dom.js";
import { is_calm, parties } from "./home_data.js";
import { follow } from "./live.js";
import { lasts, many, number } from "./words.js";

const KINDS = new Set(["state", "case", "request", "asked", "alert", "campaign", "tenant", "allocated", "certified"]);

export async function page({ signal, me, again }) {
  const home = await ask("/home", { signal });
  const may = (role) => me.roles.includes(role);
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const body = made("div", { class: "stack" },
    is_calm(home) ? made("div", { class: "empty" }, made("p", { class: "strong" }, "All is well: nothing waits for a person."), made("p", {}, "This page changes by itself when something does.")) : null,
    blocked(home.blocked, may("operator"), done),
    approvals(home.approvals, may("approver"), done),
    cases(home.cases),
    campaigns(home.campaigns),
    alerts(home.alerts),
    certificates(home.certificates),
    tenants(home.tenants),
    capacity(home.capacity));
  return { title: "Home", body, end: follow((row) => KINDS.has(row.kind), () => again(), 3000) };
}

function blocked(groups, may, done) {
  if (!groups.length) return null;
  const total = groups.reduce((sum, g) => sum + g.nodes, 0);
  const rows = groups.map((g) => [
    made("div", {}, chip(g.reason, "reason"), made("p", { class: "quiet" }, g.detail)),
    g.unblock,
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
