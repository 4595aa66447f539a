// @ts-check
// What an act of a person was: who, what, on which object, before and after. No page here.

const OBJECTS = ["node", "case", "campaign", "tenant", "pin", "policy", "webhook", "token", "certificate", "key", "about", "target", "name", "id"];
const WHO = ["by", "asked_by", "subject"];
const DETAILS = new Set(["agent", "source", "sha256", "issuer", "user_agent"]);

const AFTER_MAX = 160; // characters in its column; the act has all of it

const words = (word) => String(word).replaceAll("_", " ");

/** {who, what, object, before, after, detail} of one row of the journal. */
export function act_of(row) {
  const detail = row.detail ?? {};
  const [verb, inner] = Object.entries(detail).find(([, value]) => value && typeof value === "object" && !Array.isArray(value)) ?? ["", {}];
  const nested = ["begun", "ended", "made", "revoked", "changed", "removed", "tags", "record"].includes(verb) ? inner : {};
  const all = { ...nested, ...detail };
  const asked = row.kind === "asked"; // its subject is what the change is of, not who asked
  const who = (asked ? ["asked_by", "by"] : WHO).map((name) => all[name]).find((value) => typeof value === "string" && value) ?? "";
  const change = detail.kind && asked ? `${words(detail.kind)}: ${words(detail.state ?? "asked")}` : detail.request ? words(detail.request) : nested === inner && verb ? `${words(row.kind)} ${words(verb)}` : words(row.kind);
  const object = row.node || (asked && detail.subject) || OBJECTS.map((name) => all[name]).find((value) => (typeof value === "string" && value && value !== who) || typeof value === "number") || "";
  const before = all.before ?? all.was ?? all.from ?? "";
  const after = all.after ?? all.to ?? all.becomes ?? (detail.arguments && Object.keys(detail.arguments).length ? detail.arguments : "");
  const rest = Object.entries(all).filter(([name, value]) => !WHO.includes(name) && !OBJECTS.includes(name) && !["before", "was", "from", "after", "to", "becomes", "arguments", "request", "kind", "state"].includes(name) && value !== nested && value !== "" && value !== null);
  return { who, what: change, object: String(object), before: short(before), after: short(after).length > AFTER_MAX ? `${short(after).slice(0, AFTER_MAX)}…` : short(after), whole: short(after), why: all.why ?? all.reason ?? all.note ?? "",
    detail: rest.filter(([name]) => !["why", "reason", "note"].includes(name)).map(([name, value]) => `${words(name)}: ${short(value)}`), quiet: rest.filter(([name]) => DETAILS.has(name)).length };
}

function short(value) {
  if (value === "" || value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(short).join(", ");
  if (typeof value === "object") return Object.entries(value).filter(([, v]) => v !== null && v !== "" && v !== false && !(Array.isArray(v) && !v.length)).map(([k, v]) => `${words(k)} ${short(v)}`).join(", ");
  return String(value);
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
      for (const name of ["who", "object", "before", "after", "why"]) known.act[name] ||= older[name];
      continue;
    }
    const act = { row, rows: [row], act: act_of(row) };
    if (id) by_request.set(id, act);
    told.push(act);
  }
  return told;
}
