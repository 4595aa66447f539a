// The fleet as the map has it: columns of small numbers, one place for each node. It is filtered,
// grouped and counted here, and brought up to date by rows of the journal.

import { ask } from "./api.js";
import { matches, parse } from "./expression.js";
import { live } from "./live.js";

const FIELDS = ["node", "kind", "state", "profile", "release", "tenant", "vrf", "placement", "site", "pod", "su", "rack", "leaf", "rail", "tag", "reason"];
const CHANGED_MAX = 5000; // nodes of one answer; the rest is in the next

/** Events: "changed" (some nodes are otherwise), "placed" (they stand otherwise, or are others). */
export class Fleet extends EventTarget {
  nodes = [];
  seq = 0;
  #columns = new Map(); // field -> {values, keys: Map, index: Uint32Array}
  #at = new Map();
  #dirty = new Set();
  #timer = 0;
  #ended = false;
  #whole = false;
  #change = 0; // number of the newest change that is known
  #heard = null;

  async load(signal) {
    await live.start();
    this.#heard = (event) => this.#note(event.detail);
    live.addEventListener("row", this.#heard);
    this.#take(await ask("/fleet/map", { signal }));
  }

  end() {
    this.#ended = true;
    clearTimeout(this.#timer);
    if (this.#heard) live.removeEventListener("row", this.#heard);
  }

  #take(told) {
    this.nodes = told.nodes;
    this.seq = told.seq;
    this.#change = told.change;
    this.#at = new Map(told.nodes.map((name, i) => [name, i]));
    this.#columns.clear();
    for (const [field, { values, index }] of Object.entries(told.fields)) {
      const keys = new Map(values.map((v, i) => [v.join("\n"), i]));
      this.#columns.set(field, { values, keys, index: Uint32Array.from(index) });
    }
    this.#split_ports();
    this.dispatchEvent(new Event("placed"));
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

  /** A byte for each node: 1 if the expression picks it; null picks all. Throws Unreadable. */
  pick(text) {
    if (!text.trim()) return null;
    const root = parse(text, FIELDS);
    const picked = new Uint8Array(this.size);
    const tests = this.#by_value(root);
    for (let i = 0; i < picked.length; i += 1) picked[i] = tests(i) ? 1 : 0;
    return picked;
  }

  /** The tree with each term tried once for each distinct value of its field. */
  #by_value(part) {
    if (part.every) {
      const parts = part.every.map((p) => this.#by_value(p));
      return (i) => parts.every((p) => p(i));
    }
    if (part.any) {
      const parts = part.any.map((p) => this.#by_value(p));
      return (i) => parts.some((p) => p(i));
    }
    if (part.not) {
      const inner = this.#by_value(part.not);
      return (i) => !inner(i);
    }
    if (part.field === "node") return (i) => matches(part, () => [this.nodes[i]]);
    const { values, index } = this.#columns.get(part.field);
    const known = values.map((v) => matches(part, () => v));
    return (i) => known[index[i]];
  }

  #note(row) {
    if (!row.node) return;
    this.#dirty.add(row.node);
    this.#timer ||= setTimeout(() => this.#look(), 250);
  }

  async #look() {
    const names = [...this.#dirty];
    this.#dirty.clear();
    try {
      for (let more = names.length > 0; more && !this.#ended;) {
        const told = await ask(`/fleet/map?since=${this.#change}`);
        more = told.change > this.#change && told.nodes.length === CHANGED_MAX;
        this.#merge(told);
        this.#change = told.change;
      }
      if (this.#whole && !this.#ended) {
        this.#whole = false;
        this.#take(await ask("/fleet/map"));
      }
    } catch {
      for (const name of names) this.#dirty.add(name); // the next row tries again
    }
    this.#timer = 0;
    if (this.#dirty.size && !this.#ended) this.#timer = setTimeout(() => this.#look(), 2000);
  }

  #merge(told) {
    if (!told.nodes.length) return;
    if (told.nodes.some((name) => !this.#at.has(name))) {
      this.#whole = true; // there are new ones
      return;
    }
    let placed = false;
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
        if (column.index[at] !== now && ["ports", "rack", "su", "pod"].includes(field)) placed = true;
        column.index[at] = now;
      });
    }
    this.#split_ports();
    this.dispatchEvent(new Event(placed ? "placed" : "changed"));
  }
}
