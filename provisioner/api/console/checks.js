// @ts-check
// Health checks, their thresholds with the source of each, and how the fleet's values are spread.

import { ask } from "./api.js";
import { chip, empty, link, made, section } from "./dom.js";
import { listing } from "./listing.js";
import { number } from "./words.js";

const TABS = [["values", "Measured values"], ["thresholds", "Thresholds"], ["checks", "Checks"]];

export async function page({ signal, again, query }) {
  const shown = TABS.some(([word]) => word === query.get("show")) ? query.get("show") : "values";
  const [checks, figures] = await Promise.all([ask("/checks", { signal }), ask("/measurements", { signal })]);
  const figure = (value) => (value === null ? "—" : Number(value.toPrecision(5)).toString());
  const tabs = made("nav", { class: "choice tabs", "aria-label": "Parts of this page" }, TABS.map(([word, words]) => made("a", { href: `#/checks?show=${word}`, "aria-current": word === shown ? "page" : null }, words)));
  const body = made("div", { class: "stack" }, tabs,
    shown === "values" && section("Measured values", made("p", { class: "quiet" }, `Of the newest ${number(figures.samples_max)} nodes of each profile.`), listing({
      caption: "Measured values", rows: figures.spreads, again, query, sort: 0, name: (row) => row.metric, group: (row) => `Profile ${row.profile}`, nothing: empty("Nothing was measured yet.", "Gates B to D measure."),
      columns: [
        { head: "Value", cell: (row) => row.metric },
        { head: "Spread", cell: (row) => bars(row), value: (row) => row.most - row.least },
        { head: "Least", num: true, cell: (row) => figure(row.least), value: (row) => row.least },
        { head: "Tenth", num: true, cell: (row) => figure(row.tenth), value: (row) => row.tenth },
        { head: "Median", num: true, cell: (row) => figure(row.median), value: (row) => row.median },
        { head: "Most", num: true, cell: (row) => figure(row.most), value: (row) => row.most },
        { head: "Learned floor", num: true, cell: (row) => figure(row.floor), value: (row) => row.floor ?? -1 },
        { head: "Nodes", num: true, cell: (row) => number(row.nodes), value: (row) => row.nodes },
        { head: "Profile", cell: (row) => row.profile },
      ],
    })),
    shown === "thresholds" && section("Thresholds", listing({
      caption: "Thresholds", rows: figures.thresholds, again, query, sort: 0, name: (row) => row.name, group: (row) => (row.own ? "Of this site" : row.applies_to === "any" ? "Of any GPU" : `Of ${row.applies_to}`),
      columns: [
        { head: "Threshold", cell: (row) => row.name },
        { head: "For", cell: (row) => row.applies_to },
        { head: "Value", num: true, cell: (row) => (row.value === null ? "learned" : `${row.bound} ${figure(row.value)} ${row.unit}`), value: (row) => row.value ?? -1 },
        { head: "Of", cell: (row) => row.about },
        { head: "Source", cell: (row) => (row.own ? `this site: ${row.source}` : row.source) },
      ],
    })),
    shown === "checks" && section("Checks", listing({
      caption: "Checks", rows: checks.items.map((row, place) => ({ ...row, place })), again, query, sort: 0, name: (row) => row.name, group: (row) => `Gate ${row.gate.toUpperCase()}${row.kind === "switch" ? ", of switches" : ""}`,
      columns: [
        { head: "Order", num: true, cell: (row) => number(row.place + 1), value: (row) => row.place },
        { head: "Check", cell: (row) => row.name },
        { head: "Gate", cell: (row) => row.gate.toUpperCase() },
        { head: "Kind", cell: (row) => row.kind },
        { head: "Load", cell: (row) => chip(row.load ? "yes" : "no", "load") },
        { head: "Thresholds", cell: (row) => row.thresholds.join(", ") || "—" },
        { head: "Commands", cell: (row) => row.commands.join("; ") || "—" },
      ],
    })),
    made("p", {}, link(["drift"], "Nodes whose versions differ")));
  return { title: "Checks", body };
}

// A small picture of the counts; the numbers beside it say the same.
function bars({ metric, bins }) {
  const most = Math.max(...bins);
  return made("span", { class: "bars", role: "img", "aria-label": `Spread of ${metric}: ${bins.join(", ")}` }, bins.map((n) => {
    const bar = made("span");
    bar.style.height = `${n ? Math.max(2, Math.round((20 * n) / most)) : 0}px`;
    return bar;
  }));
}
