// @ts-check
// Racks of the plan, and one of them as an elevation: what stands where, what is wet, off or not proved, as last read.

import { ask } from "./api.js";
import { at, blockers, chip, drawn, empty, facts, hint, link, made, section, table } from "./dom.js";
import { listing } from "./listing.js";
import { HIGH, WIDE, cut, edge_of, membership_of, top_of, water_of, words_of } from "./racks_data.js";
import { number, seconds } from "./words.js";

const proof = (proved) => chip(proved === null ? "unknown" : proved ? "yes" : "no", "outcome");

function elevation({ name, items }) {
  const top = top_of(items);
  const says = `Elevation of ${name}: ${number(items.length)} units, the highest at U${top}`;
  const units = Array.from({ length: top }, (_, i) => i + 1);
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${top * HIGH}`, width: WIDE, height: top * HIGH, class: "elevation", role: "img", "aria-label": says }, hint(says),
    units.map((u) => [drawn("rect", { x: 28, y: edge_of(u, top), width: WIDE - 29, height: HIGH, class: "free" }), drawn("text", { x: 22, y: edge_of(u, top) + 14, "text-anchor": "end", class: "number" }, String(u))]),
    items.map((unit) => {
      const y = edge_of(unit.u, top) + 1;
      return drawn("g", { class: "unit", "data-kind": unit.kind, "data-member": membership_of(unit), "data-water": water_of(unit), "data-power": unit.power === "On" ? "on" : "other" }, hint(words_of(unit)),
        drawn("rect", { x: 29, y, width: WIDE - 31, height: HIGH - 2, class: "body" }), drawn("rect", { x: 29, y, width: 6, height: HIGH - 2, class: "water" }),
        drawn("text", { x: 42, y: y + 13 }, cut(unit.name, 18)), drawn("text", { x: 170, y: y + 13 }, unit.kind.replaceAll("-", " ")),
        drawn("text", { x: 290, y: y + 13 }, cut(`power ${(unit.power ?? "unknown").toLowerCase()}, water ${water_of(unit)}`, 36)));
    }));
}

function legend() {
  const words = "Bar at the left: blue is dry, yellow dry below a wet unit, red wet or held as wet, empty unknown. Red frame: not as planned; dotted frame: nobody knows. Pale: off, or power unknown.";
  return made("p", { class: "quiet" }, words);
}

async function one(name, signal) {
  const rack = await ask(`/racks/${encodeURIComponent(name)}`, { signal });
  const found = [...rack.findings, ...rack.items.flatMap((unit) => unit.findings)];
  const rows = rack.items.map((unit) => [String(unit.u), unit.name, unit.kind.replaceAll("-", " "), unit.slot === null ? "—" : `${unit.slot}/${unit.tray_index}`, unit.power ?? "unknown", chip(water_of(unit), "fact"),
    unit.water_says ? made("span", {}, unit.water_says, unit.latched ? " (held as wet until a person clears it)" : "") : "—", unit.water_at ? at(unit.water_at) : "never", chip(membership_of(unit), "outcome"), unit.serial ?? "unknown"]);
  const campaigns = rack.campaigns.map((wave) => [wave.name, chip(wave.state, "outcome"), wave.domains.join(", ") || "—", number(wave.done), number(wave.left), wave.says.join("; ") || "—", `${wave.approved_by}: ${wave.because}`, at(wave.at)]);
  return { title: rack.name, heading: [rack.name, " ", proof(rack.proved)], body: made("div", { class: "stack" },
    section("Elevation", facts([["Chassis", rack.chassis_serial], ["NVLink domain", rack.domain || "unknown"], ["Proved to be the planned one", rack.proved === null ? "unknown" : rack.proved ? "yes" : "no"], ["Last look", rack.looked_at ? at(rack.looked_at) : "never"], ["The building's sensors", rack.building ?? "not asked"]]),
      rack.unread.map((words) => made("p", { class: "bad" }, words)), made("div", { class: "scroll", role: "region", "aria-label": `Elevation of ${rack.name}`, tabindex: "0" }, elevation(rack)), legend()),
    campaigns.length ? section("Firmware campaigns", table("Firmware campaigns", [["Name"], ["State"], ["Domains out"], ["Acts done", "num"], ["Acts left", "num"], ["Now"], ["Approved"], ["As of", "num"]], campaigns)) : null,
    section("Units", table("Units", [["U", "num"], ["Unit"], ["Kind"], ["Slot"], ["Power"], ["Water"], ["Because"], ["Water read", "num"], ["As planned"], ["Serial"]], rows)),
    found.length ? section("Against the plan", blockers(found)) : null) };
}

/** The racks of the plan, or one of them. */
export async function page({ parts, query, signal, again }) {
  if (parts[1]) return one(parts[1], signal);
  let racks;
  try {
    racks = (await ask("/racks", { signal })).items;
  } catch (problem) {
    if (problem.status !== 409) throw problem;
    return { title: "Racks", body: empty(`${problem.title}.`, [problem.detail, " ", problem.unblock]) };
  }
  return { title: "Racks", body: made("div", { class: "card" }, listing({
    caption: "Racks", rows: racks, again, query, name: (row) => row.name, nothing: empty("There is none.", ""),
    columns: [{ head: "Rack", cell: (row) => link(["racks", row.name], row.name), value: (row) => row.name }, { head: "Chassis", cell: (row) => row.chassis_serial }, { head: "NVLink domain", cell: (row) => row.domain || "—" },
      { head: "Units", num: true, cell: (row) => number(row.units), value: (row) => row.units }, { head: "Proved", cell: (row) => proof(row.proved), value: (row) => String(row.proved) },
      { head: "Wet", num: true, cell: (row) => (row.wet ? made("span", { class: "bad" }, number(row.wet)) : number(row.wet)), value: (row) => row.wet }, { head: "Water unknown", num: true, cell: (row) => number(row.unknown), value: (row) => row.unknown },
      { head: "Last look", num: true, cell: (row) => (row.looked_at ? at(row.looked_at) : "never"), value: (row) => seconds(row.looked_at) }] })) };
}
