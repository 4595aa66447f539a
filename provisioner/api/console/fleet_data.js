// @ts-check
// The fleet as the map has it, brought up to date by rows of the journal: one request brings the
// columns of all nodes, and later ones only those of the nodes that changed.

import { ask } from "./api.js";
import { FleetColumns } from "./fleet_columns.js";
import { live } from "./live.js";

const CHANGED_MAX = 5000; // nodes of one answer; the rest is in the next

export class Fleet extends FleetColumns {
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
    this.#renew(await ask("/fleet/map", { signal }));
  }

  end() {
    this.#ended = true;
    clearTimeout(this.#timer);
    if (this.#heard) live.removeEventListener("row", this.#heard);
  }

  #renew(told) {
    this.#change = told.change;
    this.take(told);
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
        if (!this.merge(told)) this.#whole = true; // there are new ones
        this.#change = told.change;
      }
      if (this.#whole && !this.#ended) {
        this.#whole = false;
        this.#renew(await ask("/fleet/map"));
      }
    } catch {
      for (const name of names) this.#dirty.add(name); // the next row tries again
    }
    this.#timer = 0;
    if (this.#dirty.size && !this.#ended) this.#timer = setTimeout(() => this.#look(), 2000);
  }
}
