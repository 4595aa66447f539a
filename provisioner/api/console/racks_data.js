// @ts-check
// A rack's elevation: where each unit is drawn, and what it says in words.

export const HIGH = 20; // pixels of a rack unit
export const WIDE = 520;

/** Return the highest rack unit of an elevation. */
export const top_of = (units) => Math.max(...units.map((unit) => unit.u));

/** Return the upper edge of a rack unit in pixels: the highest stands at the top. */
export const edge_of = (u, top) => (top - u) * HIGH;

/** Return a text as a drawing has room for it. */
export const cut = (words, most) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);

/** Return what is known of a unit's water in a word: a power shelf has no detector that is known. */
export const water_of = (unit) => unit.water ?? (unit.kind === "power-shelf" ? "none" : "unknown");

/** Return whether a unit is the planned one, in words. */
export function membership_of(unit) {
  if (unit.member === null) return "unknown";
  return unit.member ? (unit.kind === "power-shelf" ? "planned" : "yes") : "no";
}

/** Return what a unit says when one points at it. */
export function words_of(unit) {
  const power = `power ${unit.power ?? "unknown"}`;
  return [`${unit.name}, U${unit.u}, ${unit.kind.replaceAll("-", " ")}`, `as planned: ${membership_of(unit)}`, power, `water: ${water_of(unit)}`, unit.latched ? "held as wet until a person clears it" : ""].filter(Boolean).join("; ");
}
