// @ts-check
// Nodes as a table with reason, age and tenant: filtered by the fleet's language, and acted on
// several at once.

import { some } from "./api.js";
import { chip, empty, link, made } from "./dom.js";
import { growing, listing } from "./listing.js";
import { follow } from "./live.js";
import { append_blockers, marked } from "./problem_words.js";
import { lasts, now, seconds } from "./words.js";

const marks = (text, value) => Object.fromEntries(text.split(/[\s,]+/).filter(Boolean).map((tag) => [tag, value]));
const MOST = 2000; // nodes at first; more come when they are asked for

/** The page; `where` picks the nodes. */
export async function page({ query, signal, me, go, again }) {
  const where = query.get("where") ?? "";
  let wrong = null;
  const path_of = `/nodes${where ? `?where=${encodeURIComponent(where)}` : ""}`;
  const first = await some(path_of, MOST, { signal }).catch((problem) => {
    if (problem.status !== 400 && problem.status !== 414 && problem.status !== 422) throw problem;
    wrong = problem;
    return { rows: [], next: "", total: 0 };
  });
  const may = me.roles.includes("operator");
  const input = made("input", { type: "search", id: "pick", value: where, placeholder: "state=quarantined and rack=su0-*", spellcheck: "false", autocomplete: "off", "aria-invalid": wrong ? "true" : null, "aria-describedby": "pick-said" });
  const form = made("form", { class: "toolbar", on: { submit: (event) => { event.preventDefault(); go(["nodes"], input.value.trim() ? `where=${encodeURIComponent(input.value.trim())}` : ""); } } },
    made("div", { class: "grow" }, made("label", { for: "pick" }, "Nodes: an expression"), input), made("button", { type: "submit" }, "Show"));
  const said_of = (problem) => {
    const place = made("div", { id: "pick-said", role: "alert" });
    append_blockers(place, problem);
    place.append(marked(where, problem.mistake) ?? "");
    return place;
  };
  const path = (row, verb) => `/nodes/${encodeURIComponent(row.id)}/${verb}`;
  const reasons = (row) => [...new Set((row.blockers ?? []).map((b) => b.reason.replaceAll("_", " ")))].join(", ");
  const names = new Set();
  const table_of = (rows) => (rows.forEach((row) => names.add(row.id)), listing({
    caption: "Nodes", rows, again, query, name: (row) => row.id, nothing: empty("No node is like that.", "Change the expression, or clear it."),
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
  }));
  return { title: "Nodes", body: made("div", { class: "card" }, form, wrong ? said_of(wrong) : growing(path_of, MOST, first, signal, table_of)), end: follow((row) => row.kind === "state" && names.has(row.node) && !document.querySelector("dialog[open], .listing input:checked"), () => again(), 5000) };
}
