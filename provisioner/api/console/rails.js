// @ts-check
// A host's rails: light with its days, which end of a link degrades and what to do, queues at its leaves.

import { at, chip, drawn, empty, hint, link, made, table } from "./dom.js";
import { HIGH, WIDE, points } from "./rails_data.js";
import { many, number } from "./words.js";

/** A small line over days, with the same in words. */
function spark(days, values, about, unit) {
  const line = points(values);
  if (!line) return made("span", { class: "quiet" }, "no trend yet");
  const known = values.filter((v) => v !== null && v !== undefined);
  const says = `${about} from ${days[0]} to ${days.at(-1)}: ${known[0]} to ${known.at(-1)} ${unit}`;
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, class: "spark", role: "img", "aria-label": says }, drawn("polyline", { points: line }), hint(says));
}

const shown = (value, digits = 1) => (value === null || value === undefined ? "—" : value.toFixed(digits));

/** Two tables: optics with their days, and queues. `optics` and `queues` are the API's answers, or null. */
export function rails(optics, queues) {
  const items = optics?.items ?? [];
  if (!items.length) return empty("No cable of it is declared.", "");
  if (items.every((o) => !o.read_at && !o.days.length) && !(queues?.items ?? []).some((q) => q.read_at)) return empty("Its leaves' ports were not read yet.", "The watch reads them while the node serves.");
  const name = (o) => made("span", { class: "nowrap" }, o.rail >= 0 ? `rail ${o.rail}` : "north–south");
  const port = (o) => made("span", {}, made("span", { class: "nowrap" }, link(["nodes", o.switch], o.switch)), ` ${o.interface}`);
  const bad = (o) => ["dirty", "dying", "dark"].includes(o.state);
  const lit = items.map((o) => [name(o), port(o),
    made("span", {}, chip(o.state, "fact"), bad(o) ? made("span", { class: "sentence" }, o.says, " ", made("span", { class: "strong" }, o.remedy)) : null,
      o.repaired_on ? made("span", { class: "quiet block" }, `Changed on ${o.repaired_on}: ${o.proved ? "its light proves it" : "not proved by its light"}`) : null),
    spark(o.days.map((d) => d.day), o.days.map((d) => d.rx_dbm), "Light received at the leaf", "dBm"), shown(o.rx_dbm), shown(o.host_rx_dbm), shown(o.tx_dbm), shown(o.bias_ma), shown(o.temperature_c, 0), shown(o.snr_db), o.pre_fec_ber === null || o.pre_fec_ber === undefined ? "—" : o.pre_fec_ber.toExponential(0), number(o.flaps),
    made("span", { title: o.serial ? `serial ${o.serial}, lot ${o.lot || "unknown"}` : "" }, o.part || o.kind)]);
  const held = (queues?.items ?? []).map((q) => {
    const count = (word) => (q.counts[word] === undefined ? "—" : number(q.counts[word]));
    const stuck = q.counts.watchdog_stuck;
    return [name(q), port(q), stuck === undefined ? "not counted" : stuck ? made("span", { class: "bad" }, "stuck") : "moves",
      q.per_s.pause_received === undefined ? "—" : `${number(Math.round(q.per_s.pause_received * 100) / 100)}/s`,
      spark(q.days.map((d) => d.day), q.days.map((d) => d.counts.pause_received ?? null), "PFC pause frames of a day", "frames"),
      count("pause_received"), count("pause_sent"), count("ecn_marked"), count("discards"), count("watchdog_storms"), q.alerts.join(", ") || "—", q.read_at ? at(q.read_at) : "never"];
  });
  const troubled = items.some((o) => bad(o) || o.repaired_on);
  const kept_back = (queues?.items ?? []).some((q) => q.alerts.length || q.counts.watchdog_stuck);
  const good = items.filter((o) => o.state === "good").length;
  const still = held.filter((row) => row[2] === "moves").length;
  return [
    opens(troubled, `${many(items.length, "link")}, ${number(good)} with good light`, table("Optics at the leaves", [["Rail"], ["Port"], ["Verdict"], ["Light by day"], ["Rx, dBm", "num"], ["Host's rx, dBm", "num"], ["Tx, dBm", "num"], ["Bias, mA", "num"], ["°C", "num"], ["SNR, dB", "num"], ["Pre-FEC BER", "num"], ["Flaps", "num"], ["Part"]], lit)),
    opens(kept_back, `${many(held.length, "queue")}, ${number(still)} that the watchdog sees moving`, table("Queues at the leaves", [["Rail"], ["Port"], ["Queue"], ["PFC from host", "num"], ["By day"], ["PFC received", "num"], ["PFC sent", "num"], ["ECN marked", "num"], ["Discards", "num"], ["Storms", "num"], ["Alerts"], ["Read", "num"]], held)),
  ];
}

/** A table under a line that opens it; open already where something is wrong. */
const opens = (open, says, whole) => made("details", open ? { open: true } : {}, made("summary", {}, says), whole);
