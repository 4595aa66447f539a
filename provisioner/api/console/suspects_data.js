// @ts-check
// Rates of faults against those of alike nodes: words, and places on a logarithmic axis.

export const WIDE = 240; // pixels of an interval's picture
const LEAST = 1 / 8; // rate ratios at its ends
const MOST = 16;

/** Return the pixel of a rate ratio; what is beyond an end, or unknown there, stands at it. */
export function place(ratio, unknown = LEAST) {
  const held = Math.min(MOST, Math.max(LEAST, ratio ?? unknown));
  return Math.round(((Math.log(held) - Math.log(LEAST)) / (Math.log(MOST) - Math.log(LEAST))) * WIDE * 10) / 10;
}

/** Return the ends of an interval in pixels. */
export const ends = ({ low, high }) => [place(low), place(high, MOST)];

/** Return what one suspect's evidence says. */
export function words_of({ ratio, low, high }) {
  if (ratio === null) return "nothing could be compared";
  const figure = (value) => (value === null ? "unknown" : value < 10 ? value.toFixed(2) : String(Math.round(value)));
  return `${figure(ratio)} times the faults of alike nodes, 95 % between ${figure(low)} and ${figure(high)}`;
}

/** Return the expression for the nodes that have it: "hgx.gpu.driver=580.95" or "rack=r07"; "" for what is none, as a power feed. */
export function where(what) {
  const at = what.indexOf("=");
  return at < 1 || what.startsWith("pdu=") ? "" : `${what.slice(0, at)}="${what.slice(at + 1).replaceAll('"', "?")}"`;
}
