// @ts-check
// The rows of the audit as acts of people: the server says of each row who, what, on which object,
// before and after; the rows of one request are one act. No page here.

const AFTER_MAX = 160; // characters in a column; the act has all of it
const TOLD = new Set(["by", "asked_by", "subject", "arguments", "before", "after", "request", "kind", "state", "why", "reason", "note", "id"]);

const words = (word) => String(word ?? "").replaceAll("_", " ");
const cut = (text) => (text.length > AFTER_MAX ? `${text.slice(0, AFTER_MAX)}…` : text);

/** {who, what, object, before, after, why, detail} of one row. */
export function act_of(row) {
  const rest = Object.entries(row.detail ?? {}).filter(([name, value]) => !TOLD.has(name) && value !== "" && value !== null && !(Array.isArray(value) && !value.length));
  return { who: row.who, what: `${words(row.what)}${row.state ? `: ${words(row.state)}` : ""}`, object: row.on, before: cut(row.before), after: cut(row.after), why: row.why,
    whole: [row.before && `before: ${row.before}`, row.after && `after: ${row.after}`].filter(Boolean), detail: rest.map(([name, value]) => `${words(name)}: ${typeof value === "object" ? JSON.stringify(value) : value}`) };
}

/** One row for each act: the rows of one request are one, with its last state; the newest first. */
export function acts(rows) {
  const by_request = new Map();
  const told = [];
  for (const row of [...rows].sort((a, b) => b.seq - a.seq)) {
    const id = ["asked", "request"].includes(row.kind) && typeof row.detail.id === "number" && row.detail.id > 0 ? row.detail.id : 0;
    const known = id ? by_request.get(id) : undefined;
    if (known) {
      known.rows.push(row);
      const older = act_of(row);
      if (row.kind === "asked" && known.rows[0].kind !== "asked") known.act.what = older.what; // by the name of the change
      for (const name of ["who", "object", "before", "after", "why"]) known.act[name] ||= older[name];
      continue;
    }
    const act = { row, rows: [row], act: act_of(row) };
    if (id) by_request.set(id, act);
    told.push(act);
  }
  return told;
}
