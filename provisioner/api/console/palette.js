// @ts-check
// Which colour says what. States have theirs in the style sheet; releases take them in their order.

const SERIES = 8;
const CERTIFICATE = { expired: "--s-quarantined", "within a day": "--s-repairing", "within a week": "--s-draining", "within 30 days": "--s-certified", later: "--s-released" };

/** A function from a word to its colour, in the theme that is on. */
export function colours(field, words) {
  const ink = getComputedStyle(document.documentElement);
  const of = (name) => ink.getPropertyValue(name).trim();
  if (field === "state") {
    const known = new Map();
    return (word) => {
      if (!known.has(word)) known.set(word, of(`--s-${word.replace(/[^a-z_]/g, "")}`) || of("--s-other"));
      return known.get(word);
    };
  }
  if (field === "certificate") return (word) => of(CERTIFICATE[word] ?? "--none");
  const order = [...words].filter(Boolean).sort(new Intl.Collator("en", { numeric: true }).compare);
  const map = new Map(order.map((word, n) => [word, of(n < SERIES ? `--c-${n}` : "--s-other")]));
  return (word) => map.get(word) ?? of(word ? "--s-other" : "--none");
}
