// Tenants: the list, and one of them with what it has of what it may have.

import { all, ask } from "./api.js";
import { chip, empty, facts, link, made, section, table } from "./dom.js";
import { follow } from "./live.js";
import { number } from "./words.js";

export async function page({ parts, signal, again }) {
  return parts[1] ? one(parts[1], { signal, again }) : list({ signal, again });
}

async function list({ signal, again }) {
  const [rows, summary] = await Promise.all([all("/tenants", 5000, { signal }), ask("/summary", { signal })]);
  const held = new Map();
  for (const c of summary.counts) held.set(c.tenant, (held.get(c.tenant) ?? 0) + c.nodes);
  const body = rows.length
    ? section("All tenants", table("Tenants", [["Tenant"], ["Network"], ["VRF"], ["Nodes", "num"], ["Wanted", "num"]],
      rows.map((t) => [link(["tenants", t.name], t.name), chip(t.phase, "phase"), t.vrf || "—", number(held.get(t.name) ?? 0), number(t.nodes_wanted)])))
    : empty("There is no tenant yet.", "Make one: `provisioner tenant apply NAME --nodes 4`, or PUT /v1/tenants/NAME.");
  return { title: "Tenants", body, end: follow((row) => ["tenant", "allocated"].includes(row.kind), () => again()) };
}

async function one(name, { signal, again }) {
  const [{ tenant, usage }, summary] = await Promise.all([ask(`/tenants/${encodeURIComponent(name)}`, { signal }), ask("/summary", { signal })]);
  const states = new Map();
  for (const c of summary.counts) if (c.tenant === name) states.set(c.state, (states.get(c.state) ?? 0) + c.nodes);
  const quota = tenant.quota;
  const body = made("div", { class: "stack" },
    made("div", { class: "card" }, facts([["VRF", tenant.vrf], ["Number", tenant.number], ["InfiniBand partition", tenant.pkey ? `0x${tenant.pkey.toString(16)}` : ""], ["Storage", tenant.storage.join(", ")],
      ["Where", tenant.units.length ? tenant.units.map(([pod, su]) => `pod ${pod}, unit ${su}`).join("; ") : "anywhere"]])),
    section("What it has", made("div", { class: "tiles" },
      tile("Nodes", usage.nodes, Math.max(usage.wanted, usage.nodes), `${number(usage.nodes)} of ${number(usage.wanted)} wanted`),
      tile("GPUs", usage.gpus, quota.gpus, quota.gpus === null ? `${number(usage.gpus)}, no limit` : `${number(usage.gpus)} of ${number(quota.gpus)}`),
      tile("Outside prefixes", usage.prefixes, quota.prefixes, quota.prefixes === null ? `${number(usage.prefixes)}, no limit` : `${number(usage.prefixes)} of ${number(quota.prefixes)}`))),
    section("Nodes", states.size ? [made("ul", { class: "legend" }, [...states].map(([state, n]) => made("li", {}, chip(state), " ", number(n)))),
      made("p", {}, made("a", { href: `#/fleet?where=${encodeURIComponent(`tenant="${name}"`)}` }, "Show them on the map"))]
      : empty("It has no node yet.", tenant.nodes_wanted ? "Certified nodes follow by themselves; see which are certified on the map." : "Say how many it is to have: `provisioner tenant apply NAME --nodes 4`.")),
    section("Sessions to the outside", tenant.outside.length ? table("Sessions", [["Leaf"], ["Peer", "num"], ["AS", "num"], ["Takes"], ["Sends"]],
      tenant.outside.map((o) => [link(["nodes", o.switch], o.switch), o.peer, String(o.remote_as), o.accepts.join(", ") || "nothing", o.sends.join(", ") || "nothing"])) : empty("It has none.", "Nothing of it is exchanged with the outside.")));
  return { title: `Tenant ${name}`, heading: [name, " ", chip(tenant.phase, "phase")], body, end: follow((row) => ["tenant", "allocated", "state"].includes(row.kind), () => again(), 2000) };
}

function tile(title, value, most, words) {
  return made("div", { class: "tile" }, made("p", { class: "quiet" }, title), made("p", { class: "figure" }, words),
    most ? made("meter", { min: "0", max: String(most), value: String(Math.min(value, most)), "aria-label": `${title}: ${words}` }) : null);
}
