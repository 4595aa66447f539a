// @ts-check
// What the home page decides on its records. No page here.

const ORDER = ["technician", "tenant", "person"];

/** Whether nothing waits for a person. */
export function is_calm(home) {
  return ["blocked", "cases", "approvals", "alerts", "certificates", "campaigns", "tenants"].every((name) => !home[name].length);
}

/** [[party, its cases], ...] of those that have some, in the order of ORDER. */
export function parties(cases) {
  return ORDER.map((party) => [party, cases.filter((c) => c.party === party)]).filter(([, mine]) => mine.length);
}

const TOLD = { state: "became", alert_raised: "alert", alert_cleared: "alert cleared", case: "case", certified: "certified", released: "released", campaign: "campaign", request: "request", tenant: "tenant", allocated: "allocated", revoked: "revoked", step: "step" };

/** What changed: rows of one kind, and of one state, together; the newest first. */
export function changes(rows) {
  const groups = new Map();
  for (const row of rows) {
    const known = Object.keys(TOLD).find((kind) => row.kind === kind || row.kind.startsWith(`${kind}_`));
    if (!known) continue;
    const words = known === "state" ? `became ${String(row.detail.to ?? "").replaceAll("_", " ")}` : TOLD[row.kind] ?? row.kind.replaceAll("_", " ");
    const group = groups.get(words) ?? { words, rows: [], nodes: [] };
    group.rows.push(row);
    if (row.node && !group.nodes.includes(row.node)) group.nodes.push(row.node);
    groups.set(words, group);
  }
  return [...groups.values()].sort((a, b) => b.rows[0].seq - a.rows[0].seq);
}

const SERVED = new Set(["released", "certified"]);
const MOVING = new Set(["discovered", "intake", "converging", "validating", "draining", "repairing"]);

/** Hosts of the overview: {hosts, served, by: [[state, number]]} now; a retired one is none of the site any more. */
export function hosts_of(overview) {
  const by = Object.entries(overview.days.at(-1)?.states ?? {}).sort((a, b) => b[1] - a[1]);
  const sum = (of) => by.reduce((n, [state, more]) => n + (of(state) ? more : 0), 0);
  return { by, hosts: sum((state) => state !== "retired"), served: sum((state) => SERVED.has(state)), moving: by.filter(([state]) => MOVING.has(state)) };
}

/** The overview's spans as series for plots, from where the journal begins: {times, served, moving, faults, total}. */
export function course_of(overview, seconds) {
  const since = seconds(overview.since);
  const spans = overview.days.filter((_, n, all) => n === all.length - 1 || seconds(all[n + 1].begins_at) > since);
  const sum = (states, set) => Object.entries(states).reduce((n, [state, more]) => n + (set.has(state) ? more : 0), 0);
  const faults = spans.map((day) => day.opened + day.alerts);
  return {
    times: spans.map((_, n) => (n === spans.length - 1 ? seconds(overview.at) : seconds(spans[n + 1].begins_at))),
    served: spans.map((day) => sum(day.states, SERVED)), moving: spans.map((day) => sum(day.states, MOVING)), faults, total: faults.reduce((a, b) => a + b, 0),
  };
}
