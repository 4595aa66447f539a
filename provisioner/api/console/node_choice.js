// @ts-check
// Which nodes a rule picks for a tenant. No page here: columns of the fleet in, names out.

/** The free nodes that a rule picks, without those in `taken`: of the unit, or of the leaves, that has the fewest free ones that suffice. */
export function choose(fleet, rule, count, taken = new Set()) {
  if (rule === "near" || rule === "map" || count < 1) return [];
  const groups = new Map();
  for (let i = 0; i < fleet.size; i += 1) {
    if (!is_free(fleet, i, taken)) continue;
    const leaves = fleet.ports(i).filter(([rail]) => rail >= 0).map(([, leaf]) => leaf).sort();
    const key = rule === "unit" ? `${fleet.word("pod", i)}/${fleet.word("su", i)}` : leaves.join(" ");
    groups.set(key, [...(groups.get(key) ?? []), fleet.nodes[i]]);
  }
  const enough = [...groups.values()].filter((names) => names.length >= count).sort((a, b) => a.length - b.length);
  return enough.length ? enough[0].slice(0, count) : [];
}

/** Whether a tenant may have a node. */
export const is_free = (fleet, i, taken) => !taken.has(fleet.nodes[i]) && fleet.word("kind", i) === "host" && fleet.word("state", i) === "certified" && !fleet.word("tenant", i);
