// @ts-check
// Alerts that are active: suspended for a time or cleared by hand, several at once.

import { at, empty, link, made } from "./dom.js";
import { grown, listing } from "./listing.js";
import { follow } from "./live.js";
import { ago, now, number, seconds } from "./words.js";

const MOST = 2000;

export async function page({ signal, me, query, again }) {
  const path = (row, verb) => `/nodes/${encodeURIComponent(row.node)}/alerts/${verb}`;
  const why = { name: "why", words: "Why", required: true };
  const table = await grown("/alerts", MOST, signal, (rows) => listing({
    caption: "Active alerts", rows, again, query, sort: 5, down: true, name: (row) => `${row.id} of ${row.node}`,
    nothing: empty("No alert is active.", "Alerts of nodes in service show up here by themselves."),
    columns: [
      { head: "Alert", cell: (row) => row.id },
      { head: "Node", cell: (row) => link(["nodes", row.node], row.node) },
      { head: "Part", cell: (row) => row.target || "—" },
      { head: "Class", cell: (row) => row.classifications.join(", ") || "—" },
      { head: "Message", cell: (row) => row.message || "—" },
      { head: "Since", num: true, cell: (row) => at(row.since), value: (row) => seconds(row.since) },
      { head: "Reports", num: true, cell: (row) => number(row.count), value: (row) => row.count },
      { head: "Suspended", cell: (row) => (seconds(row.overridden_until) > now() ? `${ago(row.overridden_until)}, by ${row.overridden_by}: ${row.overridden_why}` : "—") },
    ],
    bulk: me.roles.includes("operator") ? [
      { words: "Suspend", says: () => "They have no effect for that time. They stay in the list.",
        fields: [why, { name: "hours", words: "Hours", kind: "number", required: true, value: "24" }],
        request: (row, values) => ({ path: path(row, "override"), body: { id: row.id, target: row.target || "*", why: values.why, hours: Number(values.hours) } }) },
      { words: "Clear", says: () => "An alert that is observed again is raised again.", fields: [why],
        request: (row, values) => ({ path: path(row, "clear"), body: { id: row.id, target: row.target || "*", why: values.why } }) },
    ] : [],
  }));
  return { title: "Alerts", body: made("div", { class: "card" }, table), end: follow((row) => row.kind.startsWith("alert"), () => again(), 3000) };
}
