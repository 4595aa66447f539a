// @ts-check
// What the time line of a node shows: its states as spans, all else as marks in lanes. No page here.

/** @type {[string, Record<string, string>][]} */
const LANES = [
  ["Work", { step: "step", fence: "network", erased: "erasure", rewritten: "erasure", action: "step" }],
  ["Proof", { certified: "certificate", certificate: "certificate", revoked: "revocation", validated: "validation", evidence: "validation" }],
  ["Faults", { alert: "alert", case: "case", suspect: "case", remedy: "remedy" }],
];
const RESET = /^(warm_reboot|cold_reboot|ac_cycle|power_cycle|reset|bmc_reset|dc_cycle)\b/;

/** Lane and word of an event, or null where it is no mark. */
export function mark_of(row) {
  if (row.kind === "step" && RESET.test(String(row.detail.step ?? ""))) return { lane: "Resets", word: "reset" };
  for (const [lane, kinds] of LANES) {
    for (const [kind, word] of Object.entries(kinds)) {
      if (row.kind === kind || (row.kind.startsWith(`${kind}_`) && kind !== "certificate")) return { lane, word };
    }
  }
  return null;
}

/**
 * {from, to, states: [{word, from, to}], lanes: [[name, [{at, word, rows}]]]} of events in any order; marks that are closer than
 * `near` of the whole are one. `at(row)` gives seconds, `end` is now.
 */
export function life(rows, at, end, state, near = 0.012) {
  const sorted = [...rows].sort((a, b) => a.seq - b.seq);
  const from = sorted.length ? at(sorted[0]) : end;
  const span = Math.max(end - from, 1);
  const states = [];
  for (const row of sorted.filter((r) => r.kind === "state")) {
    if (!states.length && row.detail.from && at(row) > from) states.push({ word: String(row.detail.from), from, to: at(row) });
    if (states.length) states[states.length - 1].to = at(row);
    states.push({ word: String(row.detail.to ?? ""), from: at(row), to: end });
  }
  if (!states.length) states.push({ word: state, from, to: end });
  const lanes = new Map(["Work", "Resets", "Proof", "Faults"].map((name) => [name, []]));
  for (const row of sorted) {
    const mark = mark_of(row);
    if (!mark) continue;
    const marks = lanes.get(mark.lane);
    const last = marks[marks.length - 1];
    if (last && at(row) - last.at < near * span) last.rows.push(row);
    else marks.push({ at: at(row), word: mark.word, rows: [row] });
  }
  return { from, to: end, states, lanes: [...lanes].filter(([, marks]) => marks.length) };
}

/** Moments for an axis: at most `most`, at round times. */
export function ticks(from, to, most = 6) {
  const steps = [60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400, 90 * 86400, 365 * 86400];
  const step = steps.find((s) => (to - from) / s <= most) ?? (to - from) / most;
  const found = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) found.push(t);
  return found;
}
