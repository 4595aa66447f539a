// @ts-check
// Leaves, spines and units as the columns of the fleet have them. No page and no request.

const order = new Intl.Collator("en", { numeric: true }).compare;

const unit_of = (fleet, i) => `pod ${fleet.word("pod", i)}, unit ${fleet.word("su", i)}`;

/** The units that have hosts with a cable. */
export function units_of(fleet) {
  const found = new Set();
  for (let i = 0; i < fleet.size; i += 1) if (fleet.ports(i).length) found.add(unit_of(fleet, i));
  return [...found].sort(order);
}

/** [{name, rail, ports: [{node, tenant, state}]}] of the leaves to which hosts of a unit have a cable. */
export function leaves_of(fleet, unit) {
  const leaves = new Map();
  for (let i = 0; i < fleet.size; i += 1) {
    if (!fleet.ports(i).length || unit_of(fleet, i) !== unit) continue;
    for (const [rail, name] of fleet.ports(i)) {
      if (!leaves.has(name)) leaves.set(name, { name, rails: new Set(), ports: [] });
      const leaf = leaves.get(name);
      leaf.rails.add(rail < 0 ? "north–south" : `rail ${rail}`);
      leaf.ports.push({ node: fleet.nodes[i], tenant: fleet.word("tenant", i), state: fleet.word("state", i) });
    }
  }
  return [...leaves.values()].sort((a, b) => order([...a.rails].join(), [...b.rails].join()) || order(a.name, b.name)).map(({ name, rails, ports }) => ({ name, rail: [...rails].sort(order).join(", "), ports: ports.sort((a, b) => order(a.node, b.node)) }));
}

/** Switches to which no host has a cable. */
export function spines_of(fleet) {
  const cabled = new Set();
  for (let i = 0; i < fleet.size; i += 1) for (const [, leaf] of fleet.ports(i)) cabled.add(leaf);
  return fleet.nodes.filter((name, i) => fleet.word("kind", i) === "switch" && !cabled.has(name)).sort(order);
}
