// @ts-check
// Lines over days, without a page.

export const WIDE = 120;
export const HIGH = 26;

/** The points of a small line, "x,y x,y"; days without a value are left out. "": fewer than two days have one. */
export function points(values, wide = WIDE, high = HIGH) {
  const known = values.map((value, n) => ({ value, n })).filter(({ value }) => value !== null && value !== undefined);
  if (known.length < 2) return "";
  const low = Math.min(...known.map((p) => p.value));
  const span = Math.max(Math.max(...known.map((p) => p.value)) - low, 1); // less than one is noise: it is drawn flat
  return known.map(({ value, n }) => `${((wide - 4) * n / Math.max(values.length - 1, 1) + 2).toFixed(1)},${(high - 3 - (high - 6) * (value - low) / span).toFixed(1)}`).join(" ");
}
