// @ts-check
// Which rows of a table fit a filter, and in which order they stand. No page here: values in, rows out.

const order = new Intl.Collator("en", { numeric: true }).compare;

/** The rows of which some column has every word of the filter. */
export function matching(rows, values, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    const line = values.map((value) => String(value(row))).join("\n").toLowerCase();
    return words.every((word) => line.includes(word));
  });
}

/** The rows by a value: numbers by size, others as words; equal ones stay in their order. */
export function sorted(rows, value, down) {
  const pairs = rows.map((row) => [value(row), row]);
  const compare = ([a], [b]) => (typeof a === "number" && typeof b === "number" ? a - b : order(String(a), String(b)));
  pairs.sort((a, b) => (down ? compare(b, a) : compare(a, b)));
  return pairs.map(([, row]) => row);
}
