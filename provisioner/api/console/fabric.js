// @ts-check
// The fabric as a picture: spines, the leaves of a unit with their ports by tenant, and one switch with
// its neighbours. Places and cables come from the declared hardware; no cable is drawn that no list has.

import { ask } from "./api.js";
import { blockers, chip, empty, link, made, section, table } from "./dom.js";
import { Fleet } from "./fleet_data.js";
import { leaves_of, spines_of, units_of } from "./fabric_data.js";
import { colours } from "./palette.js";
import { many, number } from "./words.js";

const SPINES_MAX = 128; // drawn; the table of switches has all
const BROKEN = new Set(["quarantined", "repairing"]); // framed

export async function page({ query, signal, me, go }) {
  const fleet = new Fleet();
  await fleet.load(signal);
  const staff = me.roles.some((role) => role !== "tenant");
  const units = units_of(fleet);
  const unit = units.includes(query.get("unit")) ? query.get("unit") : units[0] ?? "";
  const tenant = colours("tenant", [...fleet.counts("tenant", null).keys()]);
  const body = made("div", { class: "stack" });
  const draw = () => body.replaceChildren(...picture(fleet, unit, units, tenant, go, staff));
  draw();
  fleet.addEventListener("changed", draw);
  fleet.addEventListener("placed", draw);
  document.addEventListener("theme", draw);
  return { title: "Fabric", body, end: () => { fleet.end(); document.removeEventListener("theme", draw); } };
}

function picture(fleet, unit, units, tenant, go, staff) {
  if (!fleet.size) return [empty("There is no switch yet.", "Switches come with the hardware list.")];
  const spines = spines_of(fleet);
  const leaves = leaves_of(fleet, unit);
  const shown = new Map();
  for (const leaf of leaves) for (const port of leaf.ports) shown.set(port.tenant, (shown.get(port.tenant) ?? 0) + 1);
  const choose = made("select", { id: "unit", on: { change: (event) => go(["fabric"], `unit=${encodeURIComponent(event.target.value)}`) } }, units.map((u) => made("option", { value: u, selected: u === unit }, u)));
  const legend = made("ul", { class: "legend" }, [...shown].sort((a, b) => b[1] - a[1]).map(([word, n]) => {
    const sign = made("span", { class: "swatch", "aria-hidden": "true" });
    sign.style.background = tenant(word);
    return made("li", {}, made("span", { class: "entry" }, sign, word || "no tenant", made("span", { class: "count" }, many(n, "port"))));
  }));
  const broken = leaves.flatMap((leaf) => leaf.ports.filter((port) => BROKEN.has(port.state))).length;
  if (broken) legend.append(made("li", {}, made("span", { class: "entry" }, made("span", { class: "swatch port-square", "data-bad": true, "aria-hidden": "true" }), "its node is in quarantine or repair", made("span", { class: "count" }, many(broken, "port")))));
  return [
    made("div", { class: "toolbar" }, made("div", { class: "field" }, made("label", { for: "unit" }, "Unit"), choose), legend),
    spines.length ? section(`Spines and other switches (${number(spines.length)})`, made("div", { class: "spines" }, spines.slice(0, SPINES_MAX).map((s) => device(fleet, s))),
      spines.length > SPINES_MAX ? made("p", {}, made("a", { href: "#/nodes?where=kind%3Dswitch" }, `All ${number(spines.length)} as a table`)) : null,
      made("p", { class: "quiet" }, "Cables between switches are not in the hardware list, so none is drawn.")) : null,
    section(`Leaves of ${unit || "the site"} (${number(leaves.length)})`, leaves.length ? made("div", { class: "leaves" }, leaves.map((leaf) => card(fleet, leaf, tenant))) : empty("No cable leads to a leaf here.", "")),
    staff ? optics() : null,
    staff ? audit() : null,
  ].filter(Boolean);
}

function device(fleet, name) {
  const i = fleet.place(name);
  return link(["nodes", name], [made("span", { class: "strong" }, name), " ", i >= 0 ? chip(fleet.word("state", i)) : made("span", { class: "quiet" }, "not taken in")], { class: "device" });
}

function card(fleet, leaf, tenant) {
  const ports = leaf.ports.map((port) => {
    const square = made("a", { class: "port-square", href: `#/nodes/${encodeURIComponent(port.node)}`, title: `${port.node} · ${port.tenant || "no tenant"} · ${port.state}`, "aria-label": `${port.node}, ${port.tenant || "no tenant"}, ${port.state}`, "data-bad": BROKEN.has(port.state) });
    square.style.background = tenant(port.tenant);
    return square;
  });
  return made("div", { class: "leaf-card" }, device(fleet, leaf.name), made("p", { class: "quiet" }, `${leaf.rail}, ${many(leaf.ports.length, "cable")}`), made("div", { class: "port-squares" }, ports));
}

// Files of every leaf are read: on demand.
function optics() {
  const place = made("div", { role: "status" });
  const button = made("button", { type: "button", on: { click: async () => {
    button.disabled = true;
    try {
      const told = await ask("/fabric/optics");
      const unknown = told.unknown ? `, ${number(told.unknown)} of them unknown: too few days of readings` : "";
      const judged = `${many(told.ports, "port")} judged at the end of the last day${unknown}${told.unread.length ? `; not judged as a whole: ${told.unread.join(", ")}` : ""}.`;
      place.replaceChildren(...[
        told.causes.length ? made("ul", {}, told.causes.map((c) => made("li", {}, made("span", { class: "strong" }, c.group), `: ${number(c.bad)} of ${number(c.all_bad)} ${c.of} ports, though it has ${number(c.ports)} of the fleet's ${number(c.fleet)}. Look for the cause there.`))) : null,
        told.items.length ? table("Optics that want something", [["Leaf"], ["Port"], ["Node"], ["Verdict"], ["What to do"], ["Flaps", "num"]], told.items.map((o) => [link(["nodes", o.switch], o.switch), o.interface, o.node ? link(["nodes", o.node], o.node) : "—", o.says,
          [o.remedy, o.repaired_on ? `Changed on ${o.repaired_on}: ${o.proved ? "its light proves it." : "not proved by its light."}` : ""].filter(Boolean).join(" ") || "—", number(o.flaps)])) : empty(told.ports > told.unknown ? "No optic degrades or flaps." : "No optic was judged yet.", "Ports are judged when days of readings have ended."),
        made("p", { class: "quiet" }, judged),
      ].filter(Boolean));
    } catch (problem) {
      place.replaceChildren(made("p", { class: "bad" }, `${problem.title}. ${problem.unblock}`));
    }
    button.disabled = false;
  } } }, "Show optics that degrade or flap");
  return section("Optics", made("p", { class: "quiet" }, "By the light that leaves received day by day; no device is asked."), button, place);
}

// The audit asks every device: on demand.
function audit() {
  const place = made("div", { role: "status" });
  const button = made("button", { type: "button", on: { click: async () => {
    button.disabled = true;
    place.replaceChildren(made("p", { class: "quiet" }, "Every device is read…"));
    try {
      const told = await ask("/fabric/audit");
      place.replaceChildren(...[told.blockers.length ? blockers(told.blockers) : null,
        told.steps.length ? table("Differences", [["Device"], ["Lines it lacks or has too much"]], told.steps.map((s) => [s.device ?? s.switch ?? "—", made("pre", {}, (s.lines ?? []).join("\n"))])) : told.blockers.length ? null : empty("Every device has what the records say.", "")].filter(Boolean));
    } catch (problem) {
      place.replaceChildren(made("p", { class: "bad" }, `${problem.title}. ${problem.unblock}`));
    }
    button.disabled = false;
  } } }, "Compare with every device now");
  return section("Audit", made("p", { class: "quiet" }, "Tenants' networks on every device, compared with the records. Nothing is changed."), button, place);
}

/** The neighbours of a switch: a row for each host's cable, with the port and its counters on demand. */
export function neighbours(node, hosts, staff) {
  const rows = hosts.flatMap((host) => host.ports.filter((p) => p.switch === node.id).map((p) => ({ host, port: p })));
  if (!rows.length) return empty("No host's cable leads here.", "The hardware list has cables of hosts; cables between switches are not in it.");
  rows.sort((a, b) => a.port.interface.localeCompare(b.port.interface, "en", { numeric: true }));
  const place = made("div");
  const draw = (counters) => place.replaceChildren(table(`Ports of ${node.id}`, [["Port"], ["Node"], ["Card"], ["State"], ["Tenant"], ["Network"], ["Carried", "num"], ["Errors", "num"], ["Carrier changes", "num"], ["PFC from host", "num"], ["Queue"], ["Light received, dBm", "num"], ["Optic"]], rows.map(({ host, port }) => {
    const c = counters.get(`${host.id} ${port.interface}`);
    return [port.interface, link(["nodes", host.id], host.id), port.nic_slot || "—", chip(host.state), host.tenant ? link(["tenants", host.tenant], host.tenant) : "—", host.vrf || host.placement,
      c ? bytes(c.carried_bytes) : "—", c ? number(c.in_errors) : "—", c ? number(c.carrier_changes) : "—",
      c?.queues?.pause_received === undefined ? "—" : number(c.queues.pause_received), queue(c), c?.optic?.rx_dbm?.toFixed(1) ?? "—", c?.optic ? [c.optic.part, c.optic.serial].filter(Boolean).join(" ") || c.optic.kind : "—"];
  })));
  draw(new Map());
  if (!staff) return place;
  const said = made("span", { class: "quiet", role: "status" });
  const button = made("button", { type: "button", on: { click: async () => {
    button.disabled = true;
    const counters = new Map();
    let missed = 0;
    for (const host of hosts.slice(0, HOSTS_READ)) {
      said.textContent = `${counters.size} ports read`;
      const told = await ask(`/nodes/${encodeURIComponent(host.id)}/ports`).catch(() => null);
      if (!told) missed += 1;
      for (const p of told?.ports ?? []) if (p.switch === node.id) counters.set(`${host.id} ${p.interface}`, p);
    }
    draw(counters);
    said.textContent = `${counters.size} of ${rows.length} ports read${missed ? `, ${missed} hosts' could not be read` : ""}${hosts.length > HOSTS_READ ? `, of the first ${HOSTS_READ} hosts` : ""}`;
    button.disabled = false;
  } } }, "Read the counters now");
  return [made("div", { class: "buttons" }, button, said), place];
}

function queue(c) {
  const stuck = c?.queues?.watchdog_stuck;
  return stuck === undefined ? "—" : stuck ? made("span", { class: "bad" }, "stuck") : "moves";
}

const HOSTS_READ = 64; // a leaf has no more hosts than ports
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

function bytes(n) {
  let [value, unit] = [n, 0];
  while (value >= 1000 && unit < UNITS.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}
