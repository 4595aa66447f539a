// @ts-check
// Colours of the map that are no field of a node: when certificates end, active alerts, waves of
// campaigns. One kind is read when it is chosen, and again after rows of the journal that change it.

import { ask } from "./api.js";
import { follow } from "./live.js";
import { mark_column } from "./marks_data.js";

export const MARKS = [["certificate", "Certificate"], ["alert", "Alert"], ["wave", "Wave"]];
const CHANGED_BY = { certificate: /^(certified|proved|request|state)$/, alert: /^alert_/, wave: /^campaign/ };
const PAUSE_MS = 3000; // between two readings, however many rows come

export const is_mark = (field) => Object.hasOwn(CHANGED_BY, field);

export class FleetMarks {
  #answer = { values: [], nodes: [], index: [] };
  #field = "";
  #end = () => {};

  constructor(fleet) {
    this.fleet = fleet;
    fleet.addEventListener("placed", () => this.#write()); // its columns are new ones
  }

  /** Bring the column of a field; at once an empty one, which is filled when the answer is there. */
  choose(field) {
    if (field === this.#field) return;
    this.end();
    this.#field = is_mark(field) ? field : "";
    if (!this.#field) return;
    this.#answer = { values: [], nodes: [], index: [] };
    this.#write();
    this.#read();
    this.#end = follow((row) => CHANGED_BY[field].test(row.kind), () => this.#read(), PAUSE_MS);
  }

  end() {
    this.#end();
    this.#end = () => {};
    this.#field = "";
  }

  async #read() {
    const field = this.#field;
    const answer = await ask(`/fleet/marks?by=${field}`).catch(() => null); // the next row tries again
    if (!answer || field !== this.#field) return;
    this.#answer = answer;
    this.#write();
    this.fleet.dispatchEvent(new Event("changed"));
  }

  #write() {
    if (!this.#field) return;
    const { values, index } = mark_column(this.fleet, this.#answer);
    this.fleet.set_column(this.#field, values, index);
  }
}
