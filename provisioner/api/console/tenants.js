// @ts-check
// Tenants: the list, and one of them with what it has of what it may have.

import { all, ask } from "./api.js";
import { operation_words } from "./dialog.js";
import { blockers, chip, empty, facts, link, made, section, table, tell } from "./dom.js";
import { listing } from "./listing.js";
import { follow } from "./live.js";
import { shown } from "./onboard.js";
import { proposes } from "./proposal.js";
import { many, number, size_words } from "./words.js";

export async function page({ parts, query, signal, me, again, go }) {
  if (me.roles.includes("tenant") && !parts[1]) return one(me.tenant, { signal, me, again, go });
  return parts[1] ? one(parts[1], { signal, me, again, go }) : list({ query, signal, me, again });
}

async function list({ query, signal, me, again }) {
  const rows = await all("/tenants", { signal });
  const body = section("All tenants", listing({
    caption: "Tenants", rows, again, query, name: (t) => t.name, nothing: empty("There is no tenant yet.", "Make one: `provisioner tenant apply NAME --nodes 4`, or PUT /v1/tenants/NAME."),
    columns: [
      { head: "Tenant", cell: (t) => link(["tenants", t.name], t.name), value: (t) => t.name },
      { head: "Network", cell: (t) => chip(t.phase, "phase"), value: (t) => t.phase },
      { head: "VRF", cell: (t) => t.vrf || "—" },
      { head: "Nodes", num: true, cell: (t) => number(t.nodes), value: (t) => t.nodes },
      { head: "Wanted", num: true, cell: (t) => number(t.nodes_wanted), value: (t) => t.nodes_wanted },
    ],
  }));
  const make = me.roles.includes("operator") ? made("p", { class: "buttons" }, made("a", { class: "button", href: "#/fleet?colour=tenant" }, "Where they stand"), made("a", { class: "button", href: "#/onboard" }, "New tenant")) : made("p", { class: "buttons" }, made("a", { class: "button", href: "#/fleet?colour=tenant" }, "Where they stand"));
  return { title: "Tenants", beside: make, body, end: follow((row) => ["tenant", "allocated"].includes(row.kind), () => again()) };
}

async function one(name, { signal, me, again, go }) {
  const [{ tenant, usage }, summary, rows, notices] = await Promise.all([ask(`/tenants/${encodeURIComponent(name)}`, { signal }), ask("/summary", { signal }),
    all(`/nodes?where=${encodeURIComponent(`tenant="${name}"`)}`, { signal }), me.roles.includes("tenant") ? ask("/notices?limit=20", { signal }) : null]);
  const states = new Map();
  for (const c of summary.counts) if (c.tenant === name) states.set(c.state, (states.get(c.state) ?? 0) + c.nodes);
  const quota = tenant.quota;
  const body = made("div", { class: "stack" },
    made("div", { class: "card" }, facts([["VRF", tenant.vrf], ["Number", tenant.number], ["InfiniBand partition", tenant.pkey ? `0x${tenant.pkey.toString(16)}` : ""], ["Storage routes", tenant.storage.join(", ")],
      ["Where", tenant.units.length ? tenant.units.map(([pod, su]) => `pod ${pod}, unit ${su}`).join("; ") : "anywhere"]])),
    section("What it has", made("div", { class: "tiles" },
      tile("Nodes", usage.nodes, Math.max(usage.wanted, usage.nodes), `${number(usage.nodes)} of ${number(usage.wanted)} wanted`),
      tile("GPUs", usage.gpus, quota.gpus, quota.gpus === null ? `${number(usage.gpus)}, no limit` : `${number(usage.gpus)} of ${number(quota.gpus)}`),
      tile("Outside prefixes", usage.prefixes, quota.prefixes, quota.prefixes === null ? `${number(usage.prefixes)}, no limit` : `${number(usage.prefixes)} of ${number(quota.prefixes)}`))),
    section("Nodes", states.size ? [made("ul", { class: "legend" }, [...states].map(([state, n]) => made("li", {}, chip(state), " ", number(n)))),
      made("p", {}, made("a", { href: `#/fleet?colour=tenant&where=${encodeURIComponent(`tenant="${name}"`)}` }, "Show them on the map"), " ", me.roles.includes("tenant") ? null : made("a", { href: "#/fabric" }, "Ports on the leaves"))]
      : empty("It has no node yet.", tenant.nodes_wanted ? "Certified nodes follow by themselves; see which are certified on the map." : "Say how many it is to have: `provisioner tenant apply NAME --nodes 4`.")),
    tenant.file_storage ? section("Shared storage", storage(tenant, signal)) : null,
    rows.length ? section("Progress", made("p", { class: "quiet" }, progress_words(usage, rows)), listing({
      caption: "Its nodes", rows, again, sort: 2, down: true, name: (n) => n.id, // those on their way first
      columns: [{ head: "Node", cell: (n) => link(["nodes", n.id], n.id), value: (n) => n.id }, { head: "State", cell: (n) => chip(n.state), value: (n) => n.state }, { head: "Now", cell: (n) => n.note || "—", value: (n) => (n.state === "released" ? "" : n.note || n.state) }],
    })) : null,
    notices ? section("Notices", notices.items.length ? [notices.next ? made("p", { class: "quiet" }, "The newest 20.") : null, made("ul", { class: "plain" }, notices.items.map((n) => made("li", {}, n.text)))] : empty("There is none.", "")) : null,
    section("Sessions to the outside", tenant.outside.length ? table("Sessions", [["Leaf"], ["Peer", "num"], ["AS", "num"], ["Takes"], ["Sends"]],
      tenant.outside.map((o) => [link(["nodes", o.switch], o.switch), o.peer, String(o.remote_as), o.accepts.join(", ") || "nothing", o.sends.join(", ") || "nothing"])) : empty("It has none.", "Nothing of it is exchanged with the outside.")));
  return { title: `Tenant ${name}`, heading: [name, " ", chip(tenant.phase, "phase")], beside: made("div", { class: "buttons" }, verbs(tenant, usage, me, again, go)), body, end: follow((row) => ["tenant", "allocated", "state"].includes(row.kind), () => again(), 2000) };
}

/** What the storage has for it, read now: in its own time, since a storage may be slow or silent. */
function storage(tenant, signal) {
  const place = made("div", { "aria-live": "polite" }, made("p", { class: "quiet" }, "Reading the storage …"));
  ask(`/tenants/${encodeURIComponent(tenant.name)}/storage`, { signal }).then(
    (space) => place.replaceChildren(...space_parts(space)),
    (problem) => { if (problem.name !== "AbortError") place.replaceChildren(empty(problem.detail || problem.title || "The storage could not be read.", problem.unblock || "")); });
  return place;
}

function space_parts(space) {
  const yes = (value, words, other) => (value === null ? "not all alike" : value ? words : other);
  return [
    space.space ? facts([["Space", space.space], ["Clients", clients_of(space.clients)], ["Limit", limit(space.quota_bytes)], ["Encrypted", space.encrypted ? "by keys of its own" : "no"]])
      : empty("Its space is not made yet.", "It is made by itself; `provisioner tenant settle NAME` says what is in the way."),
    space.exports.length ? table("Exports", [["Export"], ["Mounted as"], ["Access"], ["Root"], ["Clients", "num"], ["Used", "num"], ["Limit", "num"]],
      space.exports.map((e) => [e.name, e.mount || e.path, yes(e.read_only, "read only", "read and write"), yes(e.root_squash, "nobody", "root"),
        number(e.clients), e.used_bytes === null ? "—" : size_words(e.used_bytes), limit(e.quota_bytes)])) : null,
    space.foreign.length ? made("div", {}, made("p", { class: "strong" }, "Changed by somebody else than the daemon:"), made("ul", { class: "plain" }, space.foreign.map((words) => made("li", {}, words)))) : null,
    space.blockers.length ? blockers(space.blockers) : null,
  ].filter(Boolean);
}

const limit = (bytes) => (bytes === null ? "none" : size_words(bytes));

function progress_words(usage, rows) {
  const served = rows.filter((n) => n.state === "released").length;
  return `${many(served, "node")} of ${number(usage.wanted)} in service, ${number(rows.length - served)} on their way.`;
}

function verbs(tenant, usage, me, again, go) {
  if (!me.roles.includes("operator") || tenant.phase === "leaving") return [];
  const path = `/tenants/${encodeURIComponent(tenant.name)}`;
  const match = () => `"g${tenant.generation}-n${usage.nodes}"`;
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const names = (text) => text.split(/[\s,]+/).filter(Boolean);
  const about = { match, done, show: shown };
  return [
    proposes({ ...about, words: "Grow", title: `More nodes for ${tenant.name}`, says: "Certified nodes follow by themselves.", path, verb: "PATCH",
      fields: [{ name: "nodes", words: "Nodes in all", kind: "number", required: true, value: String(tenant.nodes_wanted + 1) }, { name: "picked", words: "These first (names, or empty)", most: 2000 }],
      body: ({ nodes, picked }) => ({ nodes: Number(nodes), ...(picked ? { picked: [...new Set([...(tenant.picked ?? []), ...names(picked)])] } : {}) }) }),
    proposes({ ...about, words: "Shrink", danger: true, title: `Fewer nodes for ${tenant.name}`, path: `${path}/shrink`,
      fields: [{ name: "to", words: "Nodes that stay", kind: "number", required: true, value: String(Math.max(0, tenant.nodes_wanted - 1)) }, { name: "nodes", words: "Nodes that leave (names, or empty: proposed below)", most: 2000 },
        { name: "accept", words: "Also nodes that could not serve again afterwards", kind: "check" }],
      body: ({ to, nodes, accept }) => ({ to: Number(to), nodes: names(nodes), ...(accept ? { accept_no_return: true } : {}) }) }),
    tenant.phase === "making" ? proposes({ ...about, words: "Settle", title: `Go on with the network of ${tenant.name}`, path: `${path}/settle`, show: undefined }) : null,
    proposes({ ...about, words: "Delete", danger: true, title: `Delete ${tenant.name}`, says: "Its network goes from every device, then its record.", path, verb: "DELETE",
      done: (operation) => { tell(operation_words(operation)); if (operation.state === "done") go(["tenants"]); else again(); } }),
  ].filter(Boolean);
}

function tile(title, value, most, words) {
  return made("div", { class: "tile" }, made("p", { class: "quiet" }, title), made("p", { class: "figure" }, words),
    most ? made("meter", { min: "0", max: String(most), value: String(Math.min(value, most)), "aria-label": `${title}: ${words}` }) : null);
}

const FEW_CLIENTS = 6; // each node has one for each of its rails

function clients_of(clients) {
  if (!clients.length) return "nobody";
  if (clients.length <= FEW_CLIENTS) return clients.join(", ");
  return made("details", { class: "more" }, made("summary", {}, many(clients.length, "address", "addresses")), clients.join(", "));
}
