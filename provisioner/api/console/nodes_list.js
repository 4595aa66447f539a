// @ts-check
// Nodes as a table with reason, age and tenant: filtered by the fleet's language, and acted on
// several at once.

import { all } from "./api.js";
import { chip, empty, link, made } from "./dom.js";
import { listing } from "./listing.js";
import { follow } from "./live.js";
import { lasts, now, seconds } from "./words.js";

const marks = (text, value) => Object.fromEntries(text.split(/[\s,]+/).filter(Boolean).map((tag) => [tag, value]));
const MOST = 2000; // nodes; a narrower expression shows the others

/** The page; `where` picks the nodes. */
export async function page({ query, signal, me, go, again }) {
  const where = query.get("where") ?? "";
  const rows = await all(`/nodes${where ? `?where=${encodeURIComponent(where)}` : ""}`, MOST, { signal });
  const may = me.roles.includes("operator");
  const input = made("input", { type: "search", id: "pick", value: where, placeholder: "state=quarantined and rack=su0-*", spellcheck: "false", autocomplete: "off", maxlength: "2000" });
  const form = made("form", { class: "toolbar", on: { submit: (event) => { event.preventDefault(); go(["nodes"], input.value.trim() ? `where=${encodeURIComponent(input.value.trim())}` : ""); } } },
    made("div", { class: "grow" }, made("label", { for: "pick" }, "Nodes: an expression"), input), made("button", { type: "submit" }, "Show"));
  const path = (row, verb) => `/nodes/${encodeURIComponent(row.id)}/${verb}`;
  const reasons = (row) => [...new Set((row.blockers ?? []).map((b) => b.reason.replaceAll("_", " ")))].join(", ");
  const table = listing({
    caption: "Nodes", rows, again, name: (row) => row.id, nothing: empty("No node is like that.", "Change the expression, or clear it."),
    columns: [
      { head: "Node", cell: (row) => link(["nodes", row.id], row.id), value: (row) => row.id },
      { head: "State", cell: (row) => chip(row.state), value: (row) => row.state },
      { head: "Reason", cell: (row) => reasons(row) || "—" },
      { head: "Age", num: true, cell: (row) => lasts(now() - seconds(row.entered_at)), value: (row) => now() - seconds(row.entered_at) },
      { head: "Tenant", cell: (row) => row.tenant || "—" },
      { head: "Release", cell: (row) => row.release || "—" },
      { head: "Tags", cell: (row) => row.tags?.join(", ") || "—" },
      { head: "Rack", cell: (row) => row.location.rack || "—" },
      { head: "To unblock", cell: (row) => row.blockers?.[0]?.unblock ?? "—" },
    ],
    bulk: may ? [
      { words: "Retry", fits: (row) => row.state === "quarantined", says: () => "They leave quarantine and go on with their journey.", request: (row) => ({ path: path(row, "retry") }) },
      { words: "Reclaim", danger: true, fits: (row) => row.state === "released", says: () => "They are drained, fenced from their tenant and erased: all data on them is lost.", request: (row) => ({ path: path(row, "reclaim"), body: { for_repair: false } }) },
      { words: "Tag", says: () => "Words that people search by. No decision reads them.", fields: [{ name: "add", words: "Tags to add, by space", most: 1000 }, { name: "remove", words: "Tags to remove, by space", most: 1000 }],
        request: (row, { add, remove }) => ({ path: path(row, "tags"), verb: "PATCH", body: { tags: { ...marks(add, true), ...marks(remove, null) } } }) },
      { words: "Report a fault", says: () => "Their tenants are informed, and policy decides what becomes of them.", fields: [{ name: "reason", words: "What is wrong, in a sentence", kind: "area", required: true, most: 300 }],
        request: (row, values) => ({ path: path(row, "cases"), body: { reason: values.reason } }) },
    ] : [],
  });
  const names = new Set(rows.map((row) => row.id));
  return { title: "Nodes", body: made("div", { class: "card" }, form, table), end: follow((row) => row.kind === "state" && names.has(row.node) && !document.querySelector("dialog[open], .listing input:checked"), () => again(), 5000) };
}
