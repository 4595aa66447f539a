// @ts-check
// Requests of people: those that wait for a second person, and the others, the newest first.

import { all, some } from "./api.js";
import { operation_words } from "./dialog.js";
import { at, chip, empty, made, section, tell } from "./dom.js";
import { decide } from "./home.js";
import { growing, listing } from "./listing.js";
import { follow } from "./live.js";
import { seconds } from "./words.js";

const MOST = 500; // the newest

export async function page({ signal, me, again }) {
  const [waiting, past] = await Promise.all([all("/requests?waiting=true", { signal }), some("/requests", MOST, { signal })]);
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const may = me.roles.includes("approver");
  const base = [
    { head: "Request", cell: (row) => row.id },
    { head: "Change", cell: (row) => row.kind },
    { head: "Of", cell: (row) => row.subject || "—" },
    { head: "By", cell: (row) => row.asked_by },
    { head: "Asked", num: true, cell: (row) => at(row.opened_at), value: (row) => seconds(row.opened_at) },
  ];
  const words = (row) => Object.entries(row.arguments).map(([name, value]) => `${name.replaceAll("_", " ")}: ${Array.isArray(value) ? value.join(", ") : value}`).join("; ");
  const body = made("div", { class: "stack" },
    section("Waiting for a second person", listing({
      caption: "Requests that wait", rows: waiting.filter((row) => row.state === "waiting"), again, sort: 4, name: (row) => row.id,
      nothing: empty("Nothing waits for an approval.", may ? "" : "A person with the role approver decides here."),
      columns: [...base, { head: "With", cell: (row) => words(row) || "—" },
        { head: "Decide", cell: (row) => (may ? made("div", { class: "buttons" }, decide(row.id, "approve", "Approve", done), decide(row.id, "refuse", "Refuse", done)) : "—"), value: (row) => row.id }],
    })),
    section("Requests", growing("/requests", MOST, past, signal, (rows) => listing({
      caption: "All requests", rows, again, sort: 4, down: true, name: (row) => row.id, nothing: empty("Nobody asked for anything yet.", ""),
      columns: [...base, { head: "State", cell: (row) => chip(row.state) }, { head: "Decided by", cell: (row) => row.decided_by || "—" }, { head: "Note", cell: (row) => row.note || row.blockers.map((b) => b.detail).join("; ") || "—" }],
    }))));
  return { title: "Approvals", body, end: follow((row) => ["asked", "request"].includes(row.kind), () => again(), 2000) };
}
