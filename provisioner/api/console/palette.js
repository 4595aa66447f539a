// @ts-check
// Which colour says what. States have theirs in the style sheet; releases take them in their order.

const SERIES = 8;
const CERTIFICATE = { expired: "--s-quarantined", "within a day": "--s-repairing", "within a week": "--s-draining", "within 30 days": "--s-certified", later: "--s-released" };

// Hues after the eight that were chosen by eye: far from one another by the golden angle, in three lightnesses.
function further(n, dark) {
  const [hue, light] = [((n * 137.508) + 20) % 360, [50, 36, 62][n % 3] + (dark ? 12 : 0)];
  const [s, l] = [0.6, light / 100];
  const channel = (k) => {
    const at = (k + hue / 30) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(at - 3, 9 - at, 1)))).toString(16).padStart(2, "0");
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

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
  const dark = of("color-scheme") === "dark" || of("--page") === "#0e1319";
  const map = new Map(order.map((word, n) => [word, n < SERIES ? of(`--c-${n}`) : further(n - SERIES, dark)]));
  return (word) => map.get(word) ?? of(word ? "--s-other" : "--none");
}
