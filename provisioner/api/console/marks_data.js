// @ts-check
// The words of GET /fleet/marks as a column of the fleet. No page here.

/** {values, index}: the first value is that of nodes without a word. */
export function mark_column(fleet, { values, nodes, index }) {
  const column = new Uint32Array(fleet.size);
  nodes.forEach((name, n) => {
    const at = fleet.place(name);
    if (at >= 0) column[at] = index[n] + 1;
  });
  return { values: [[], ...values.map((word) => [word])], index: column };
}

/** A byte for each node: those of `picked` (null: all) that have this word in a column. */
export function with_word(column, word, picked) {
  const is_it = column.values.map((value) => (value[0] ?? "") === word);
  const chosen = new Uint8Array(column.index.length);
  for (let i = 0; i < chosen.length; i += 1) chosen[i] = (!picked || picked[i]) && is_it[column.index[i]] ? 1 : 0;
  return chosen;
}

/** Places by the words of a column; equal ones stay in their order. `words(value)` is the text of a distinct value. */
export function by_word(places, column, down, words = (value) => value.join(" ")) {
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const texts = column.values.map(words);
  const rank = new Uint32Array(texts.length);
  const order = [...new Set(texts)].sort((a, b) => Number(!a) - Number(!b) || compare(a, b)); // without a word: last
  const places_of = new Map(order.map((text, n) => [text, n]));
  texts.forEach((text, n) => { rank[n] = places_of.get(text); });
  const sign = down ? -1 : 1;
  return places.sort((a, b) => sign * (rank[column.index[a]] - rank[column.index[b]]) || a - b);
}
