// @ts-check
// Numbers and times as people read them.

const day = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium", timeZone: "UTC" });
const brief = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const dated = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const count = new Intl.NumberFormat("en-GB");

// The site's clock, as the server told it: the browser's may be wrong, and a simulated site's runs fast.
let site = { at: Date.now() / 1000, heard: performance.now() / 1000, speed: 1 };

/** Take the site's clock over: its time now, and how fast it runs. */
export function set_clock(time, speed) {
  const at = seconds(time);
  if (at > 0) site = { at, heard: performance.now() / 1000, speed: speed || 1 };
}

/** The site's time, in seconds since the epoch. */
export const now = () => site.at + (performance.now() / 1000 - site.heard) * site.speed;

/** 12,345 */
export const number = (n) => count.format(n);

/** Bytes in decimal units, as limits are set. */
export function size_words(bytes) {
  const unit = [{ size: 1e15, word: "PB" }, { size: 1e12, word: "TB" }, { size: 1e9, word: "GB" }, { size: 1e6, word: "MB" }]
    .find(({ size }) => bytes >= size);
  return unit ? `${(bytes / unit.size).toFixed(1).replace(/\.0$/, "")} ${unit.word}` : `${count.format(bytes)} B`;
}

/** "3 nodes", "1 node" */
export const many = (n, one, more = `${one}s`) => `${number(n)} ${n === 1 ? one : more}`;

/** A time of the API (RFC 3339) in seconds since the epoch; 0 for none. */
export const seconds = (at) => (typeof at === "string" ? Date.parse(at) / 1000 || 0 : at ?? 0);

/** Seconds since the epoch as the API takes them: RFC 3339 in UTC. */
export const instant = (at) => new Date(at * 1000).toISOString();

/** A time of the API as UTC. */
export function when(time) {
  const at = seconds(time);
  if (!at || !Number.isFinite(at) || Math.abs(at) > 8e12) return "—";
  return `${day.format(new Date(at * 1000))} UTC`;
}

/** The site's clock: "21 Nov 2026, 14:22 UTC". */
export const clock_words = (at) => `${dated.format(new Date(at * 1000))} UTC`;

/** The same for a column of a table: "21 Nov, 14:22", and with its year where that is another one than the site's now. */
export function moment(at) {
  if (when(at) === "—") return "—";
  const told = new Date(seconds(at) * 1000);
  return (told.getUTCFullYear() === new Date(now() * 1000).getUTCFullYear() ? brief : dated).format(told);
}

/** How long: "2 h 5 min". */
export function lasts(duration_s) {
  const s = Math.max(0, Math.round(duration_s));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${number(Math.floor(s / 86400))} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** "5 min ago", or "in 5 min". */
export function ago(time) {
  const at = seconds(time);
  if (!at) return "—";
  const apart = now() - at;
  return apart >= 0 ? `${lasts(apart)} ago` : `in ${lasts(-apart)}`;
}

/** The first characters of a digest. */
export const short = (digest) => (digest.length > 16 ? `${digest.slice(0, 12)}…` : digest);
