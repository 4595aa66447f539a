// @ts-check
// The fleet as the map has it: one request brings the columns of all nodes, and the stream of events
// those of the nodes that changed since.

import { ask } from "./api.js";
import { FleetColumns } from "./fleet_columns.js";
import { live } from "./live.js";

export class Fleet extends FleetColumns {
  #heard = null;

  async load(signal) {
    await live.start();
    const whole = await ask("/fleet/map", { signal });
    this.take(whole);
    this.#heard = (event) => this.merge(event.detail);
    live.addEventListener("fleet", this.#heard);
    live.follow_fleet(whole.change);
  }

  end() {
    if (!this.#heard) return;
    live.removeEventListener("fleet", this.#heard);
    this.#heard = null;
    live.leave_fleet();
  }
}
