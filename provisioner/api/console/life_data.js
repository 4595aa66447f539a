// @ts-check
// What the time line of a node shows, of the server's answer (GET /nodes/NODE/timeline): its states
// as a bar, and lanes of what lasted and what was done. No page here.

const LANES = [["firmware", "Firmware"], ["reset", "Resets"], ["other", "Work"], ["certificate", "Proof"], ["case", "Cases"], ["alert", "Alerts"]];

/**
 * {from, to, states: [{what, from, to}], lanes: [{name, spans: [{...span, from, to}], marks: [{from, rows}]}]}; marks that are closer
 * than `near` of the whole are one. `seconds` reads a time, `end` is now.
 */
export function life(told, seconds, end, near = 0.012) {
  const begins = [...told.spans.map((s) => seconds(s.begins_at)), ...told.marks.map((m) => seconds(m.at))].filter((t) => t > 0);
  const from = begins.length ? Math.min(...begins) : end;
  const span = Math.max(end - from, 1);
  const lasting = (row) => ({ ...row, from: seconds(row.begins_at), to: Math.min(seconds(row.ends_at) || end, end) });
  const lanes = LANES.map(([lane, name]) => {
    const marks = [];
    for (const row of told.marks.filter((m) => m.lane === lane)) {
      const last = marks[marks.length - 1];
      if (last && seconds(row.at) - last.from < near * span) last.rows.push(row);
      else marks.push({ from: seconds(row.at), rows: [row] });
    }
    return { name, spans: told.spans.filter((s) => s.lane === lane).map(lasting), marks };
  });
  return { from, to: end, states: told.spans.filter((s) => s.lane === "state").map(lasting), lanes: lanes.filter((l) => l.spans.length || l.marks.length) };
}

/** Moments for an axis: at most `most`, at round times. */
export function ticks(from, to, most = 6) {
  const steps = [60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400, 90 * 86400, 365 * 86400];
  const step = steps.find((s) => (to - from) / s <= most) ?? (to - from) / most;
  const found = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) found.push(t);
  return found;
}
