// @ts-check
// Actions of people, the newest first: searched, verified, and saved as a file.

import { ask } from "./api.js";
import { acts } from "./audit_data.js";
import { empty, link, made, tell } from "./dom.js";
import { save } from "./files.js";
import { sentence } from "./sentences.js";
import { listing } from "./listing.js";
import { many, number, short, when } from "./words.js";

const AT_ONCE = 500;

export async function page({ signal, query, again }) {
  const rows = [];
  let next = "";
  const load = async () => {
    const page_of_rows = await ask(`/audit?limit=${AT_ONCE}${next ? `&cursor=${encodeURIComponent(next)}` : ""}`, { signal });
    rows.push(...page_of_rows.items);
    next = page_of_rows.next;
  };
  await load();
  const place = made("div", { class: "card" });
  const said = made("p", { class: "said", role: "status" });
  const read_older = async () => {
    older.disabled = true; // a second press would read the same rows again
    await load();
    older.disabled = false;
    draw();
  };
  const older = made("button", { type: "button", on: { click: read_older } }, "Read older rows");
  const draw = () => {
    place.replaceChildren(listing({
      caption: "Actions of people", rows: acts(rows), again, query, sort: 0, down: true, name: ({ row }) => `row ${row.seq}`, nothing: empty("Nobody did anything yet.", ""),
      columns: [
        { head: "When", num: true, cell: ({ row }) => made("span", { class: "nowrap" }, when(row.at)), value: ({ row }) => row.seq },
        { head: "Who", cell: ({ act }) => act.who || "the daemon" },
        { head: "What", cell: ({ act }) => act.what },
        { head: "On", cell: ({ row, act }) => (row.node ? link(["nodes", row.node], row.node) : act.object || "—"), value: ({ act }) => act.object },
        { head: "Before", cell: ({ act }) => act.before || "—" },
        { head: "After", cell: ({ act }) => act.after || "—" },
        { head: "Why", cell: ({ act }) => act.why || "—" },
        { head: "More", cell: (one) => more(one), value: (one) => `${one.act.detail.join("; ")} ${one.rows.map((row) => sentence(row)).join(" ")}` },
      ],
    }));
    older.hidden = !next;
  };
  const verify = made("button", { type: "button", on: { click: async () => {
    said.textContent = "The chain is followed…";
    const check = await ask("/audit/verification").catch((problem) => ({ problem: `${problem.title}. ${problem.unblock}` }));
    said.textContent = check.intact ? `The journal is intact: ${many(check.rows, "row")}, head ${short(check.head)}.` : `The journal is not intact: row ${check.broken_at ?? "unknown"}. ${check.problem}`;
    tell(said.textContent);
  } } }, "Verify");
  const exports = made("button", { type: "button", on: { click: () => save("audit.jsonl", rows.map((row) => `${JSON.stringify(row)}\n`).join(""), "application/jsonl") } }, "Export");
  draw();
  return { title: "Audit", beside: made("div", { class: "buttons" }, verify, exports), body: made("div", { class: "stack" }, said, place, older) };
}

// What else the rows of an act say: where it came from, by which program, and the numbers of its rows.
function more({ rows, act }) {
  return made("details", { class: "more" }, made("summary", {}, rows.length > 1 ? `${rows.length} rows` : `Row ${number(rows[0].seq)}`),
    act.whole.map((line) => made("p", {}, line)), act.detail.map((line) => made("p", {}, line)), rows.map((row) => made("p", { class: "quiet", title: row.sha256 }, `Row ${number(row.seq)}, ${when(row.at)}: ${sentence(row) || row.kind}`)));
}
