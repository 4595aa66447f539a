// @ts-check
// Which colour says what. States have theirs in the style sheet; releases take them in their order.

const SERIES = 8;

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
  const order = [...words].filter(Boolean).sort(new Intl.Collator("en", { numeric: true }).compare);
  const map = new Map(order.map((word, n) => [word, of(n < SERIES ? `--c-${n}` : "--s-other")]));
  return (word) => map.get(word) ?? of("--s-other");
}
