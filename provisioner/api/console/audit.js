// @ts-check
// Actions of people, the newest first: searched, verified, and saved as a file.

import { ask } from "./api.js";
import { at, empty, link, made, tell } from "./dom.js";
import { sentence } from "./sentences.js";
import { listing } from "./listing.js";
import { many, number, seconds, short } from "./words.js";

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
      caption: "Actions of people", rows, again, filter: query.get("filter") ?? "", sort: 0, down: true, name: (row) => `row ${row.seq}`, nothing: empty("Nobody did anything yet.", ""),
      columns: [
        { head: "When", num: true, cell: (row) => at(row.at), value: (row) => seconds(row.at) },
        { head: "By", cell: (row) => row.detail.by ?? row.detail.subject ?? "—" },
        { head: "Kind", cell: (row) => row.kind.replaceAll("_", " ") },
        { head: "Node", cell: (row) => (row.node ? link(["nodes", row.node], row.node) : "—"), value: (row) => row.node },
        { head: "Action", cell: (row) => sentence(row) || "—" },
        { head: "Row", num: true, cell: (row) => made("span", { title: row.sha256 }, number(row.seq)), value: (row) => row.seq },
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
  const save = made("button", { type: "button", on: { click: () => download("audit.jsonl", rows) } }, "Export");
  draw();
  return { title: "Audit", beside: made("div", { class: "buttons" }, verify, save), body: made("div", { class: "stack" }, said, place, older) };
}

// A file of the rows that were read; nothing leaves the browser but to its own disk.
function download(name, rows) {
  const url = URL.createObjectURL(new Blob(rows.map((row) => `${JSON.stringify(row)}\n`), { type: "application/jsonl" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  tell(`${many(rows.length, "row")} saved as ${name}`);
}
