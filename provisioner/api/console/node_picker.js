// @ts-check
// Picks nodes on the map: a click or Enter takes a square in or out, and a rule picks as many as
// are asked for. Also the picture of nodes that an expression picks, where nothing is clicked.

import { made } from "./dom.js";
import { Fleet, select } from "./fleet_data.js";
import { FleetMap } from "./map.js";
import { is_free } from "./node_choice.js";
import { many } from "./words.js";

export const RULES = [["near", "Close together, by the allocator"], ["unit", "The same unit"], ["rails", "Whole rails: all on the same leaves"], ["map", "Picked on the map"]];
const CHOICES = [["not free"], ["free"], ["picked"]];

/** A small map. `changed(names)` hears of each pick; without it nothing can be picked, and `show(where)` gives the picture. */
const NAMED_MAX = 32; // names that are told; the map has all

export class NodePicker {
  picks = new Set();
  taken = new Set(); // picked for another tenant, which does not have them yet

  constructor(changed = null) {
    this.fleet = new Fleet();
    this.changed = changed;
    this.said = made("p", { class: "quiet", role: "status" });
    this.pointed = made("p", { class: "pointed", "aria-live": "polite" });
    this.box = made("div", { class: "map small-map", tabindex: "0", role: "application", "aria-roledescription": "map of nodes", "aria-label": changed ? "Free nodes. Arrow keys move, Enter picks one or gives it back." : "The nodes that it picks." },
      made("div", { class: "map-stick" }, made("canvas", { "aria-hidden": "true" })), made("div", { class: "map-room" }), made("div", { class: "map-mark", hidden: true }));
    this.body = made("div", {}, this.said, this.box, this.pointed);
    this.redraw = () => this.draw();
  }

  async load(signal) {
    await this.fleet.load(signal);
    this.map = new FleetMap(this.box, {
      opened: (name) => this.toggle(name),
      pointed: (i) => this.pointed.replaceChildren(i < 0 ? "" : `${this.fleet.nodes[i]} · ${this.#word(i)}`),
    });
    this.fleet.addEventListener("changed", this.redraw);
    this.fleet.addEventListener("placed", this.redraw);
  }

  end() {
    this.fleet.end();
    this.map?.end();
  }

  toggle(name) {
    const i = this.fleet.place(name);
    if (!this.changed || (!this.picks.has(name) && !is_free(this.fleet, i, this.taken))) return;
    if (!this.picks.delete(name)) this.picks.add(name);
    this.draw();
    this.map.repoint();
    this.changed([...this.picks]);
  }

  set(names) {
    this.picks = new Set(names);
    this.draw();
  }

  /** Show the nodes that an expression selects, and give that answer. Throws Problem. */
  async show(where, signal) {
    const selection = await select(where, signal);
    this.picks = new Set(selection.nodes);
    this.draw();
    return selection;
  }

  #word(i) {
    return this.picks.has(this.fleet.nodes[i]) ? "picked" : this.changed && is_free(this.fleet, i, this.taken) ? "free" : this.taken.has(this.fleet.nodes[i]) ? "picked for another tenant" : this.fleet.word("tenant", i) ? `tenant ${this.fleet.word("tenant", i)}` : this.fleet.word("state", i);
  }

  draw() {
    const { fleet } = this;
    const index = new Uint32Array(fleet.size);
    let free = 0;
    let count = 0;
    for (let i = 0; i < fleet.size; i += 1) {
      const mine = this.picks.has(fleet.nodes[i]);
      if (is_free(fleet, i, this.taken)) free += 1;
      count += mine ? 1 : 0;
      index[i] = mine ? 2 : this.changed && is_free(fleet, i, this.taken) ? 1 : 0;
    }
    fleet.set_column("choice", CHOICES, index);
    const names = fleet.nodes.filter((_, i) => index[i] === 2);
    const named = names.length ? `: ${names.slice(0, NAMED_MAX).join(", ")}${names.length > NAMED_MAX ? ` and ${names.length - NAMED_MAX} more` : ""}` : "";
    this.said.textContent = this.changed ? `${many(count, "node")} picked${named}; ${many(free, "node")} free` : `${many(count, "node")}${named}`;
    const ink = getComputedStyle(document.documentElement);
    const colour = (word) => ink.getPropertyValue({ free: "--s-certified", picked: "--s-converging" }[word] ?? "--cell-off").trim();
    if (this.box.clientWidth) this.map?.show({ fleet, by: "rack", field: "choice", picked: null, colour });
    return count;
  }
}
