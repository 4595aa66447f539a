// @ts-check
// The waves of a campaign in time: as they went, beside the forecast of the start.

import { drawn, hint, made } from "./dom.js";
import { ticks } from "./life_data.js";
import { lasts, many, moment, seconds, when } from "./words.js";

const WIDE = 1000;
const LEFT = 110;
const OVER = new Set(["done", "failed", "skipped"]);

/** What became of each wave, and what is forecast of it: [{name, nodes, over, from, to, ends: [{at, node, state}], planned: {from, to} | null}]. */
export function wave_rows(told, course, now) {
  const by = new Map();
  for (const n of told.nodes) by.set(n.wave, [...(by.get(n.wave) ?? []), n]);
  const canary = told.campaign.policy.canary.size > 0;
  const forecast = course?.waves ?? []; // of the start, in the order of the waves
  return [...by].sort((a, b) => a[0] - b[0]).map(([wave, nodes], place) => {
    const begun = nodes.map((n) => seconds(n.admitted_at)).filter(Boolean);
    const ends = nodes.filter((n) => seconds(n.finished_at)).map((n) => ({ at: seconds(n.finished_at), node: n.node, state: n.state })).sort((a, b) => a.at - b.at);
    const over = nodes.every((n) => OVER.has(n.state));
    const w = forecast[place];
    const planned = w && seconds(w.planned_begins_at) && seconds(w.planned_ends_at) ? { from: seconds(w.planned_begins_at), to: seconds(w.planned_ends_at) } : null;
    return { name: canary && wave === 0 ? "Canaries" : `Wave ${wave + (canary ? 0 : 1)}`, nodes: nodes.length, over, from: begun.length ? Math.min(...begun) : 0, to: begun.length ? (over && ends.length ? ends[ends.length - 1].at : now) : 0, ends, planned };
  });
}

/** The picture, or null before anything began. */
export function forecast_line(told, course, now) {
  const started = seconds(told.campaign.started_at);
  const rows = wave_rows(told, course, now);
  if (!started || !rows.length) return null;
  const moving = !["done", "aborted"].includes(told.campaign.state);
  const last = Math.max(moving ? now : started, ...rows.map((r) => Math.max(r.to, r.planned?.to ?? 0)));
  const x = (t) => LEFT + ((WIDE - LEFT - 10) * (t - started)) / Math.max(last - started, 1);
  const high = 34 + 34 * rows.length;
  const bars = rows.map((row, n) => {
    const y = 10 + 34 * n;
    return drawn("g", {}, drawn("text", { x: 4, y: y + 16, class: "quiet" }, row.name),
      row.planned ? drawn("rect", { x: x(row.planned.from), y: y + 2, width: Math.max(2, x(row.planned.to) - x(row.planned.from)), height: 20, rx: 3, class: "planned" }, hint(`${row.name}: forecast from ${when(row.planned.from)} to ${when(row.planned.to)}`)) : null,
      row.from ? drawn("rect", { x: x(row.from), y, width: Math.max(2, x(row.to) - x(row.from)), height: 24, rx: 3, class: "span", "data-word": row.over ? "released" : "converging" }, hint(`${row.name}: ${many(row.nodes, "node")}, ${row.ends.length} ended, ${lasts(row.to - row.from)}`)) : null,
      row.ends.map((end) => drawn("circle", { cx: x(end.at), cy: y + 12, r: 4, class: "mark", "data-mark": end.state === "failed" ? "alert" : "certificate" }, hint(`${end.node} ${end.state}, ${when(end.at)}`))));
  });
  const axis = ticks(started, last).map((t) => drawn("g", {}, drawn("line", { x1: x(t), x2: x(t), y1: 4, y2: high - 20, class: "grid" }), drawn("text", { x: x(t), y: high - 4, "text-anchor": x(t) > WIDE - 60 ? "end" : "middle", class: "quiet" }, moment(t))));
  const today = moving ? drawn("g", {}, drawn("line", { x1: x(now), x2: x(now), y1: 2, y2: high - 20, class: "now" }), hint(`Now, ${when(now)}`)) : null;
  const ends = rows.filter((r) => r.planned).map((r) => r.planned.to);
  const words = rows.map((r) => `${r.name}: ${r.ends.length} of ${r.nodes} ended${r.planned ? `, forecast to end ${when(r.planned.to)}` : ""}`).join(". ");
  return made("div", {}, made("div", { class: "scroll", role: "region", "aria-label": "Time line of the waves", tabindex: "0" }, drawn("svg", { viewBox: `0 0 ${WIDE} ${high}`, class: "drawing", role: "img", "aria-label": words }, axis, bars, today)),
    made("p", { class: "quiet" }, `Filled: as it went; outlined: as it was forecast at the start. Began ${when(started)}${ends.length ? `; the forecast ended ${when(Math.max(...ends))}` : ""}${moving && seconds(course?.ends_at) ? `; at its pace it ends ${when(course.ends_at)}` : ""}.`));
}
