// @ts-check
// Nodes whose versions differ from their target, and what is written but waits for a reset.

import { ask } from "./api.js";
import { chip, empty, link, made, section } from "./dom.js";
import { listing } from "./listing.js";
import { many, number } from "./words.js";

const LINES_MAX = 200; // nodes that have a line of their own
const NAMED_MAX = 60; // names that go into a link; more are picked by the version itself

/** Each component's running versions, counted against the pins; a count leads to its nodes. */
export async function versions({ signal, query, again }) {
  const { items } = await ask("/versions", { signal });
  const where = (row) => (row.names.length === row.nodes && row.nodes <= NAMED_MAX ? `node=${row.names.join(",")}` : `${row.kind}="${row.version.replaceAll('"', "?")}"`);
  const standings = new Map();
  for (const row of items) standings.set(row.standing, (standings.get(row.standing) ?? 0) + 1);
  const table = listing({
    caption: "Versions across the fleet", rows: items, again, query, name: (row) => `${row.kind} ${row.version}`, nothing: empty("No node was seen yet.", "Versions are read when nodes are taken in."),
    columns: [
      { head: "Component", cell: (row) => row.kind },
      { head: "Version", num: true, cell: (row) => row.version },
      { head: "Standing", cell: (row) => chip(row.standing, "fact") },
      { head: "Pinned", num: true, cell: (row) => row.wanted.join(", ") || "—" },
      { head: "Nodes", num: true, cell: (row) => made("a", { href: `#/nodes?where=${encodeURIComponent(where(row))}`, "aria-label": `${row.nodes} nodes with ${row.kind} ${row.version}` }, number(row.nodes)), value: (row) => row.nodes },
      { head: "Slots", num: true, cell: (row) => number(row.slots), value: (row) => row.slots },
    ],
  });
  return { title: "Versions", beside: made("div", { class: "buttons" }, link(["drift"], "Drift and debt", { class: "button" })), body: made("div", { class: "card" }, made("p", { class: "quiet" }, [...standings].map(([word, n]) => `${number(n)} ${word}`).join(", ")), unknown(items, "version"), table) };
}

/** What "?" means, where a row has it instead of a version. */
const unknown = (rows, name) => (rows.some((row) => row[name] === "?") ? made("p", { class: "quiet" }, "“?”: the device gives no version.") : null);

/** Versions that differ, by component with a way to their nodes; the first nodes; and, read after it, what waits for a reset. */
export async function page({ signal, again, query }) {
  const drift = await ask(`/drift?named=${LINES_MAX}`, { signal });
  const node = { head: "Node", cell: (row) => link(["nodes", row.node], row.node), value: (row) => row.node };
  const where = (row) => (row.names.length === row.nodes && row.nodes <= NAMED_MAX ? `node=${row.names.join(",")}` : row.running === "not listed" ? `drift="${row.kind}"` : `${row.kind}="${row.running.replaceAll('"', "?")}"`);
  const place = made("div", {}, made("p", { class: "quiet" }, "It is read now…"));
  const debts = (debt) => listing({
    caption: "Written but not in force", rows: debt.items, again, query, key: "debt-", name: (row) => row.node, nothing: empty("Nothing waits for a reset.", ""),
    columns: [node,
      { head: "Component", cell: (row) => row.kind },
      { head: "Version", cell: (row) => row.version },
      { head: "Slots", cell: (row) => row.slots.join(", ") || "—" },
      { head: "Waits for", cell: (row) => row.waits_for.replaceAll("_", " ") },
      { head: "Known from", cell: (row) => row.source },
    ],
  });
  const body = made("div", { class: "stack" },
    section("Drift", unknown(drift.table, "running"), listing({
      caption: "Components that differ from their target", rows: drift.table, again, query, name: (row) => `${row.kind} ${row.running}`, sort: 3, down: true, nothing: empty("Every node runs what it should.", ""),
      columns: [
        { head: "Component", cell: (row) => row.kind },
        { head: "Has", num: true, cell: (row) => row.running },
        { head: "Should have", num: true, cell: (row) => row.wanted },
        { head: "Nodes", num: true, cell: (row) => made("a", { href: `#/nodes?where=${encodeURIComponent(where(row))}`, "aria-label": `${row.nodes} nodes with ${row.kind} ${row.running}` }, number(row.nodes)), value: (row) => row.nodes },
        { head: "Slots", num: true, cell: (row) => number(row.slots), value: (row) => row.slots },
      ],
    })),
    drift.items.length ? section("Nodes that differ, or have a notice", drift.total > drift.items.length ? made("p", { class: "quiet" }, `The first ${number(drift.items.length)} of ${number(drift.total)}; a number above leads to all of its nodes.`) : null, listing({
      caption: "Nodes that differ from their target", rows: drift.items, again, query, key: "node-", name: (row) => row.node,
      columns: [node,
        { head: "State", cell: (row) => chip(row.state) },
        { head: "Release", cell: (row) => row.release || "—" },
        { head: "Target", cell: (row) => row.target || "—" },
        { head: "Because of", cell: (row) => row.why },
        { head: "Components", num: true, cell: (row) => number(row.behind.length), value: (row) => row.behind.length },
        { head: "Also", cell: (row) => also(row), value: (row) => row.security.length + Number(row.pin_expired !== "") },
      ],
    })) : null,
    section("Debt", place));
  const read_debt = () => ask("/debt", { signal }).then((debt) => place.replaceChildren(debts(debt)), (problem) => {
    if (problem.name !== "AbortError") place.replaceChildren(made("p", { class: "bad" }, `${problem.title}. ${problem.unblock}`));
  });
  return { title: "Drift and debt", body, shown: read_debt };
}

// What lists a node without a component that differs: a pin that has expired, security notices about what it runs.
function also({ pin_expired, security }) {
  const expired = pin_expired ? made("p", {}, `expired pin ${pin_expired}`) : null;
  const notices = security.length ? made("details", { class: "more" }, made("summary", {}, many(security.length, "security notice")), made("ul", { class: "plain" }, security.map((notice) => made("li", {}, notice)))) : null;
  return expired || notices ? [expired, notices] : "—";
}
