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
