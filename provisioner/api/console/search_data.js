// @ts-check
// What the search offers for a text: pages, and what the server has found. No page and no request.

const order = new Intl.Collator("en", { numeric: true }).compare;

/** How well a name fits a text: 0 not at all; a whole name before a beginning, that before a part. */
export function rank(name, text) {
  const [of, wanted] = [name.toLowerCase(), text.toLowerCase()];
  if (of === wanted) return 4;
  if (of.startsWith(wanted)) return 3;
  if (new RegExp(`(^|[^a-z0-9])${escaped(wanted)}`).test(of)) return 2;
  return of.includes(wanted) ? 1 : 0;
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The best of [{kind, name, words, to}] for a text, at most `most`; of one kind at most `each`. */
export function best(found, text, most = 24, each = 6) {
  const seen = new Set();
  const ranked = found.map((entry) => [Math.max(rank(entry.name, text), entry.sure ? 1 : 0), entry]).filter(([n]) => n > 0)
    .sort((a, b) => b[0] - a[0] || order(a[1].name, b[1].name));
  const counts = new Map();
  const chosen = [];
  for (const [, entry] of ranked) {
    const key = entry.to;
    const n = counts.get(entry.kind) ?? 0;
    if (seen.has(key) || n >= each) continue;
    seen.add(key);
    counts.set(entry.kind, n + 1);
    chosen.push(entry);
    if (chosen.length >= most) break;
  }
  return chosen;
}
