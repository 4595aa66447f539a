// @ts-check
// Pictures of one node: its life as a time line, its cables, and its parts as the chassis has them.

import { drawn, empty, hint, made } from "./dom.js";
import { life, ticks } from "./life_data.js";
import { many, moment, now, seconds, when } from "./words.js";

const WIDE = 1000;
const LEFT = 70;

/** A link in a drawing. */
const leading = (where, about, ...children) => drawn("a", { href: `#/${where.map(encodeURIComponent).join("/")}`, ...about }, ...children);

/** The life of a node: states as a bar; below it what was done, proved and broken. A click opens it. */
export function life_line(node, told) {
  if (!told?.spans.length && !told?.marks.length) return empty("Nothing happened to it yet.", "");
  const shown = life(told, seconds, now());
  const x = (t) => LEFT + ((WIDE - LEFT - 8) * (t - shown.from)) / Math.max(shown.to - shown.from, 1);
  const high = 62 + 30 * shown.lanes.length;
  const wide = (s) => Math.max(x(s.to) - x(s.from), 3);
  const states = shown.states.map((s) => drawn("g", {}, drawn("rect", { x: x(s.from), y: 8, width: wide(s), height: 26, rx: 3, class: "span", "data-word": s.what }, hint(`${s.what} from ${when(s.from)} to ${when(s.to)}${s.detail ? `: ${s.detail}` : ""}`)),
    wide(s) > 9 * s.what.length ? drawn("text", { x: x(s.from) + 6, y: 26, class: "on-span" }, s.what) : null));
  const lanes = shown.lanes.map((lane, n) => {
    const y = 58 + 30 * n;
    return drawn("g", {}, drawn("text", { x: 4, y: y + 4, class: "quiet" }, lane.name), drawn("line", { x1: LEFT, x2: WIDE - 8, y1: y, y2: y, class: "lane" }),
      lane.spans.map((s) => leading(place_of(node, s), { "aria-label": `${s.lane} ${s.what}, from ${moment(s.from)}${s.ends_at ? ` to ${moment(s.ends_at)}` : ""}` },
        drawn("rect", { x: x(s.from), y: y - 7, width: wide(s), height: 14, rx: 4, class: "lasting", "data-mark": s.lane }, hint(`${s.what}${s.detail ? `: ${s.detail}` : ""}\nfrom ${when(s.from)}${s.ends_at ? ` to ${when(s.ends_at)}` : ", it goes on"}`)))),
      lane.marks.map((m) => leading(["actions", node.id, m.rows.at(-1).id], { "aria-label": `${m.rows.length > 1 ? `${m.rows.length} × ` : ""}${m.rows[0].what}, ${moment(m.from)}` },
        drawn("circle", { cx: x(m.from), cy: y, r: m.rows.length > 1 ? 8 : 6, class: "mark", "data-mark": m.rows.some((row) => row.status === "failed") ? "alert" : m.rows[0].lane }, hint(m.rows.slice(0, 6).map((row) => `${when(row.at)}: ${row.what}, ${row.status}`).join("\n"))),
        m.rows.length > 1 ? drawn("text", { x: x(m.from), y: y + 4, "text-anchor": "middle", class: "on-mark" }, String(m.rows.length)) : null)));
  });
  const axis = ticks(shown.from, shown.to).map((t) => drawn("g", {}, drawn("line", { x1: x(t), x2: x(t), y1: 34, y2: high - 18, class: "grid" }), drawn("text", { x: x(t), y: high - 4, "text-anchor": x(t) > WIDE - 60 ? "end" : "middle", class: "quiet" }, moment(t))));
  const picture = drawn("svg", { viewBox: `0 0 ${WIDE} ${high}`, class: "drawing life", role: "group", "aria-label": `Time line of ${node.id}, from ${when(shown.from)}` }, axis, drawn("text", { x: 4, y: 26, class: "quiet" }, "State"), states, lanes);
  return made("div", { class: "scroll", role: "region", "aria-label": "Time line", tabindex: "0" }, picture);
}

const place_of = (node, span) => ({ case: ["cases", span.id], alert: ["alerts"] })[span.lane] ?? ["nodes", node.id];

/** The cables of a host: each card with its rail, its leaf and port; a click leads to the port. */
export function cables(node, alerts) {
  if (!node.ports.length) return empty("No cable of it is declared.", "The hardware list says which of its cards is in which port of a leaf.");
  const high = 26 + 32 * node.ports.length;
  const troubled = (port) => alerts.some((a) => a.target && (a.target === port.interface || a.target === port.nic_slot || a.target === `${port.switch}/${port.interface}` || a.target.startsWith(`${port.switch} `)));
  const rows = node.ports.map((port, n) => {
    const y = 34 + 32 * n;
    const rail = port.rail >= 0 ? `rail ${port.rail}` : "north–south";
    const bad = troubled(port);
    return leading(["nodes", port.switch], { "aria-label": `${port.nic_slot || rail} to ${port.switch}, port ${port.interface}${bad ? ", with an alert" : ""}` },
      drawn("rect", { x: 0, y: y - 14, width: WIDE, height: 28, class: "row-hit" }),
      drawn("rect", { x: 12, y: y - 12, width: 130, height: 24, rx: 5, class: "box" }), drawn("text", { x: 22, y: y + 4 }, port.nic_slot || "a card"),
      drawn("path", { d: `M 142 ${y} C 300 ${y} 340 ${y} 470 ${y}`, class: bad ? "cable bad" : "cable", "data-rail": port.rail >= 0 ? port.rail % 8 : "none" }),
      drawn("text", { x: 306, y: y - 5, "text-anchor": "middle", class: "quiet" }, `${rail}${bad ? " · alert" : ""}`),
      drawn("rect", { x: 470, y: y - 12, width: 110, height: 24, rx: 5, class: "box port" }), drawn("text", { x: 480, y: y + 4 }, port.interface),
      drawn("rect", { x: 592, y: y - 12, width: 396, height: 24, rx: 5, class: "box leaf" }), drawn("text", { x: 602, y: y + 4, class: "link-text" }, `${port.switch}${port.address ? ` · ${port.address}` : ""}`), hint(`${port.switch} ${port.interface}${port.address ? `, ${port.address}` : ""}`));
  });
  const heads = drawn("g", { "aria-hidden": "true" }, [[12, "Card"], [470, "Port"], [592, "Leaf"]].map(([x, words]) => drawn("text", { x, y: 12, class: "quiet" }, words)));
  return made("div", { class: "scroll", role: "region", "aria-label": "Cables", tabindex: "0" }, drawn("svg", { viewBox: `0 0 ${WIDE} ${high}`, class: "drawing", role: "group", "aria-label": `${many(node.ports.length, "cable")} of ${node.id}` }, heads, rows));
}

const BAYS = [["gpu", "GPUs"], ["nvswitch", "NVSwitches"], ["nic", "Cards"], ["dpu", "Cards"], ["bluefield", "Cards"], ["drive", "Drives"], ["cpu", "Processors"], ["psu", "Power"], ["power_supply", "Power"], ["fan", "Fans"], ["memory", "Memory"]];

/** The parts in their bays; one with a finding has its words. `alerts` are those of the node. */
export function chassis(node, devices, alerts) {
  const bays = new Map();
  for (const d of devices) {
    const title = BAYS.find(([kind]) => d.kind === kind || d.kind.startsWith(`${kind}_`))?.[1] ?? null;
    if (title) bays.set(title, [...(bays.get(title) ?? []), d]);
  }
  if (!bays.size) return null;
  const said = made("p", { class: "pointed", role: "status" }, "Choose a part to see its model and serial number.");
  const order = [...new Set(BAYS.map(([, title]) => title))].filter((title) => bays.has(title));
  const part = (d) => {
    const of_it = alerts.filter((a) => a.target === d.slot);
    const health = of_it.length ? "alert" : (d.health ?? "unknown").toLowerCase();
    const words = [d.slot, d.model, d.serial && `serial ${d.serial}`, d.part && `part ${d.part}`, `health ${d.health ?? "not reported"}`, ...of_it.map((a) => `${a.id}: ${a.message || "alert"}`)].filter(Boolean).join(" · ");
    return made("button", { type: "button", class: "part", "data-health": health, "aria-label": words, title: words, on: { click: () => said.replaceChildren(words, " ", d.kind === "gpu" || d.kind === "nvswitch" ? made("a", { href: `#/logs/${encodeURIComponent(node.id)}?show=nvlink&part=${encodeURIComponent(d.slot)}` }, "NVLink counters") : "") } },
      made("span", { class: "part-name" }, brief(d.slot)), health === "ok" || health === "unknown" ? null : made("span", { class: "part-state" }, of_it.length ? "alert" : d.health));
  };
  return [made("div", { class: "chassis" }, order.map((title) => made("div", { class: "bay", "data-bay": title.toLowerCase() }, made("p", { class: "quiet" }, `${title} (${bays.get(title).length})`), made("div", { class: "bay-parts" }, bays.get(title).map(part))))), said];
}

const brief = (slot) => slot.replace(/^(GPU_SXM_|NVSwitch_|P)(?=\d)/, (_, head) => (head === "P" ? "P" : head === "GPU_SXM_" ? "SXM " : "NVS ")).replace("DIMM", " ");

/** What lies beside the node: its logs, its figures and its cables. */
export function doors(node, staff) {
  const host = node.kind === "host";
  return made("div", { class: "buttons" }, [...(staff ? [["bmc", "BMC logs"]] : []), ["syslog", "System log"], ...(host && staff ? [["metrics", "Metric reports"], ["nvlink", "NVLink"]] : [])].map(([show, words]) => made("a", { class: "button", href: `#/logs/${encodeURIComponent(node.id)}?show=${show}` }, words)));
}
