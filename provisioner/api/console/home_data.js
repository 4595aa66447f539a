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

/** What changed since `from`: rows of one kind, and of one state, together; the newest first. */
export function changes(rows, from, at) {
  const groups = new Map();
  for (const row of rows) {
    if (at(row.at) < from) continue;
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
const SPANS = 96;

/**
 * Hosts in service and under way, and faults that began, by moments up to now: today's numbers, taken back through the changes
 * that the rows tell. Rows are the journal's newest; nothing is said of the time before the oldest.
 */
export function hours_of(rows, summary, now, at) {
  let served = 0;
  let moving = 0;
  let total = 0;
  for (const c of summary.counts) {
    if (c.kind !== "host") continue;
    total += c.nodes;
    if (SERVED.has(c.state)) served += c.nodes;
    if (MOVING.has(c.state)) moving += c.nodes;
  }
  const sorted = [...rows].sort((a, b) => b.seq - a.seq);
  const from = sorted.length ? at(sorted[sorted.length - 1].at) : now;
  const span = Math.max((now - from) / SPANS, 1);
  const told = { times: [], served: [], moving: [], faults: [], hosts: total, faults_total: 0 };
  let n = 0;
  for (let k = SPANS; k >= 0; k -= 1) {
    const begins = from + k * span;
    told.times.unshift(begins);
    told.served.unshift(Math.max(0, served));
    told.moving.unshift(Math.max(0, moving));
    let faults = 0;
    while (n < sorted.length && at(sorted[n].at) > begins - span) {
      const row = sorted[n];
      n += 1;
      if (/^(alert_raised|case_opened)$/.test(row.kind) || (row.kind === "case" && row.detail.to === "opened") || (row.kind === "state" && row.detail.to === "quarantined")) faults += 1;
      if (row.kind !== "state" || /leaf|spine|switch/.test(row.node)) continue;
      served += (SERVED.has(row.detail.from) ? 1 : 0) - (SERVED.has(row.detail.to) ? 1 : 0);
      moving += (MOVING.has(row.detail.from) ? 1 : 0) - (MOVING.has(row.detail.to) ? 1 : 0);
    }
    told.faults.unshift(faults);
    told.faults_total += faults;
  }
  return told;
}
