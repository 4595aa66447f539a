// @ts-check
// Which version, place or part makes nodes fail: the suspects of the fleet's faults, each with a picture of its interval.

import { ask } from "./api.js";
import { chip, drawn, empty, hint, made } from "./dom.js";
import { listing } from "./listing.js";
import { WIDE, ends, place, where, words_of } from "./suspects_data.js";
import { many, number } from "./words.js";

const HIGH = 24; // pixels

function interval({ evidence, accused }) {
  const says = words_of(evidence);
  if (evidence.ratio === null) return says;
  const middle = HIGH / 2;
  const [from, to] = ends(evidence);
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, class: accused ? "interval accused" : "interval", role: "img", "aria-label": says },
    drawn("line", { x1: place(1), x2: place(1), y1: 0, y2: HIGH, class: "even" }),
    drawn("line", { x1: from, x2: to, y1: middle, y2: middle }),
    drawn("circle", { cx: place(evidence.ratio), cy: middle, r: 4 }), hint(says));
}

const named = (what) => made("div", {}, where(what) ? made("a", { href: `#/nodes?where=${encodeURIComponent(where(what))}` }, what) : what);

/** Return the table of suspects, as `/cohorts/suspects` gives them. */
export function suspects_table({ items, faults, node_days: days }, { query, again }) {
  const said = `${many(faults, "fault")} in ${many(Math.round(days), "node-day")} of the last 90 days. The line is the 95 % interval; the upright stands where nodes fail as often as alike ones. Of the accused at most 5 % are innocent on average.`;
  return [made("p", { class: "quiet" }, said), listing({
    caption: "What makes nodes fail", rows: items, again, query, key: "s-", sort: 1, down: true, name: (row) => row.what.join(", "), nothing: empty("Nothing could be compared yet.", "It needs faults, and nodes that differ in one version or in rack, feed, leaf, model or tag."),
    columns: [
      { head: "Suspect", cell: (row) => row.what.map(named), value: (row) => row.what.join(" ") },
      { head: "Verdict", cell: (row) => (row.accused ? chip("accused", "outcome") : "—"), value: (row) => Number(row.accused) },
      { head: "Faults against alike nodes", cell: interval, value: (row) => row.evidence.ratio ?? -1 },
      { head: "Faults with it", num: true, cell: (row) => number(row.evidence.faults_with), value: (row) => row.evidence.faults_with },
      { head: "Node-days with it", num: true, cell: (row) => number(Math.round(row.evidence.days_with)), value: (row) => row.evidence.days_with },
      { head: "Run on some nodes to tell apart", cell: (row) => row.decided_by.join(", ") || "—" },
    ],
  })];
}

/** Read the suspects into a place of a page that is shown already: they take a moment at a large fleet. */
export async function show_suspects(place_of, { signal, query, again }) {
  try {
    place_of.replaceChildren(...suspects_table(await ask("/cohorts/suspects", { signal }), { query, again }));
  } catch (problem) {
    if (problem.name !== "AbortError") place_of.replaceChildren(made("p", { class: "bad" }, `${problem.title}. ${problem.unblock}`));
  }
}
