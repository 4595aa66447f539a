// @ts-check
// Nodes whose versions differ from their target, and what is written but waits for a reset.

import { ask } from "./api.js";
import { chip, empty, link, made, section } from "./dom.js";
import { listing } from "./listing.js";

export async function page({ signal, again }) {
  const [drift, debt] = await Promise.all([ask("/drift", { signal }), ask("/debt", { signal })]);
  const node = { head: "Node", cell: (row) => link(["nodes", row.node], row.node), value: (row) => row.node };
  const body = made("div", { class: "stack" },
    section("Drift", listing({
      caption: "Nodes that differ from their target", rows: drift.items, again, name: (row) => row.node, nothing: empty("Every node runs what it should.", ""),
      columns: [node,
        { head: "State", cell: (row) => chip(row.state) },
        { head: "Release", cell: (row) => row.release || "—" },
        { head: "Target", cell: (row) => row.target || "—" },
        { head: "Because of", cell: (row) => row.why },
        { head: "Behind", cell: (row) => row.behind.map((b) => `${b.kind} ${b.running} → ${b.wanted}`).join("; ") || "—" },
      ],
    })),
    section("Debt", listing({
      caption: "Written but not in force", rows: debt.items, again, name: (row) => row.node, nothing: empty("Nothing waits for a reset.", ""),
      columns: [node,
        { head: "Component", cell: (row) => row.kind },
        { head: "Version", cell: (row) => row.version },
        { head: "Slots", cell: (row) => row.slots.join(", ") || "—" },
        { head: "Waits for", cell: (row) => row.waits_for.replaceAll("_", " ") },
        { head: "Known from", cell: (row) => row.source },
      ],
    })));
  return { title: "Drift and debt", body };
}
