// @ts-check
// Times and sums of the ledger of time, as its page shows them.

import { number } from "./words.js";

const DAY_S = 86_400;
/** Words of the address and of a person for the usual times. */
export const SPANS = [["day", "24 hours"], ["week", "7 days"], ["month", "This month"], ["before", "Last month"]];

// from the bottom of the stack to its top, each with its colour
const CAUSES = [["serving", "--s-released"], ["degraded", "--s-draining"], ["draining", "--c-4"], ["adopted", "--c-7"], ["handover", "--c-0"], ["free", "--s-certified"], ["intake", "--s-intake"],
  ["firmware", "--s-converging"], ["validation", "--s-validating"], ["case", "--s-repairing"], ["people", "--s-retired"], ["fault", "--s-quarantined"]];

/** The time that an address asks for: {begin, end, words}, in seconds since the epoch. Days are those of UTC. */
export function times_of(query, now) {
  const day = (word) => (/^\d{4}-\d{2}-\d{2}$/.test(query.get(word) ?? "") ? Date.parse(`${query.get(word)}T00:00:00Z`) / 1000 : NaN);
  const [from, to] = [day("from"), day("to")];
  if (Number.isFinite(from)) {
    const end = Number.isFinite(to) && to >= from ? to + DAY_S : now;
    return { begin: from, end: Math.min(end, now), words: `${query.get("from")} to ${Number.isFinite(to) && to >= from ? query.get("to") : "now"}` };
  }
  const at = new Date(now * 1000);
  const month = (back) => Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - back, 1) / 1000;
  const word = query.get("time");
  if (word === "day") return { begin: now - DAY_S, end: now, words: "24 hours" };
  if (word === "week") return { begin: now - 7 * DAY_S, end: now, words: "7 days" };
  if (word === "before") return { begin: month(1), end: month(0), words: new Date(month(1) * 1000).toISOString().slice(0, 7) };
  return { begin: month(0), end: now, words: new Date(now * 1000).toISOString().slice(0, 7) };
}

/** Lines of a course for a stacked plot, from the top of the stack down; the last step is drawn to its end. */
export function stacked(course, seconds) {
  const lines = new Map(course.lines.map((line) => [line.cause, line.nodes]));
  const known = CAUSES.filter(([cause]) => lines.has(cause));
  const others = course.lines.filter((line) => !CAUSES.some(([cause]) => cause === line.cause)).map((line) => [line.cause, "--s-other"]);
  return {
    times: [...course.times.map(seconds), seconds(course.period.ends_at)],
    series: [...known, ...others].reverse().map(([cause, colour]) => ({ name: cause, values: [...lines.get(cause), lines.get(cause).at(-1)], colour, stepped: true, filled: true })),
  };
}

/** Seconds as hours: "1,234.5". */
export const hours = (s) => number(Math.round(s / 360) / 10);

/** How available a tenant's nodes were. */
export const share_words = (a) => (a.share === null ? "nothing counts yet." : `${(a.share * 100).toFixed(3)} % of the time that counts was served (${hours(a.served_s)} of ${hours(a.served_s + a.unserved_s)} node-hours; ${hours(a.excluded_s)} do not count).`);
