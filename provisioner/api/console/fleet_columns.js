// @ts-check
// The columns of the fleet: small numbers, one place for each node, counted here. No page and no
// request: answers of the API in, numbers out.

const PLACES = ["ports", "rack", "su", "pod"]; // fields that say where a node stands

/** Nodes and their fields. Events: "changed" (some nodes are otherwise), "placed" (they stand otherwise, or are others). */
export class FleetColumns extends EventTarget {
  nodes = [];
  seq = 0;
  #columns = new Map(); // field -> {values, keys: Map, index: Uint32Array}
  #at = new Map();

  /** Take a whole fleet over (GET /fleet/map). */
  take(told) {
    this.nodes = told.nodes;
    this.seq = told.seq;
    this.#at = new Map(told.nodes.map((name, i) => [name, i]));
    this.#columns.clear();
    for (const [field, { values, index }] of Object.entries(told.fields)) {
      const keys = new Map(values.map((v, i) => [v.join("\n"), i]));
      this.#columns.set(field, { values, keys, index: Uint32Array.from(index) });
    }
    this.#split_ports();
    this.dispatchEvent(new Event("placed"));
  }

  /** Take the nodes over that changed; new ones come after those that are there. */
  merge(told) {
    if (!told.nodes.length) return;
    const added = told.nodes.filter((name) => !this.#at.has(name));
    if (added.length) this.#append(added);
    let placed = added.length > 0;
    for (const [field, { values, index }] of Object.entries(told.fields)) {
      const column = this.#columns.get(field);
      told.nodes.forEach((name, n) => {
        const value = values[index[n]];
        const word = value.join("\n");
        if (!column.keys.has(word)) {
          column.keys.set(word, column.values.length);
          column.values.push(value);
        }
        const at = this.#at.get(name);
        const now = column.keys.get(word);
        if (column.index[at] !== now && PLACES.includes(field)) placed = true;
        column.index[at] = now;
      });
    }
    this.#split_ports();
    this.dispatchEvent(new Event(placed ? "placed" : "changed"));
  }

  #append(names) {
    names.forEach((name, n) => this.#at.set(name, this.size + n));
    this.nodes = [...this.nodes, ...names];
    for (const column of this.#columns.values()) {
      const index = new Uint32Array(this.size);
      index.set(column.index);
      column.index = index;
    }
  }

  #split_ports() {
    const ports = this.#columns.get("ports");
    ports.pairs = ports.values.map((v) => v.map((p) => [Number(p.slice(0, p.indexOf(" "))), p.slice(p.indexOf(" ") + 1)]));
    const of = (pick) => ports.pairs.map((pairs) => [...new Set(pairs.map(pick))]);
    this.#columns.set("leaf", { values: of((p) => p[1]), index: ports.index });
    this.#columns.set("rail", { values: of((p) => String(p[0])), index: ports.index });
  }

  get size() {
    return this.nodes.length;
  }

  /** The place of a node, or -1. */
  place(name) {
    return this.#at.get(name) ?? -1;
  }

  /** The one word of a field. */
  word(field, i) {
    const column = this.#columns.get(field);
    return column.values[column.index[i]][0] ?? "";
  }

  /** [[rail, switch], ...] of a node. */
  ports(i) {
    const column = this.#columns.get("ports");
    return column.pairs[column.index[i]];
  }

  /** {values, index} for painting: the value's number by place. */
  column(field) {
    return this.#columns.get(field);
  }

  /** A column of one's own, for painting. */
  set_column(field, values, index) {
    this.#columns.set(field, { values, keys: new Map(values.map((v, i) => [v.join("\n"), i])), index });
  }

  /** How many of the picked nodes have each value of a field. */
  counts(field, picked) {
    const { values, index } = this.#columns.get(field);
    const found = new Uint32Array(values.length);
    for (let i = 0; i < index.length; i += 1) if (!picked || picked[i]) found[index[i]] += 1;
    return new Map(values.map((v, n) => [v[0] ?? "", found[n]]).filter(([, n]) => n));
  }

  /** A byte for each node: 1 of these names. */
  bytes_of(names) {
    const picked = new Uint8Array(this.size);
    for (const name of names) {
      const i = this.place(name);
      if (i >= 0) picked[i] = 1;
    }
    return picked;
  }
}
