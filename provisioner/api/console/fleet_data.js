// @ts-check
// The fleet as the map has it: one request brings the columns of all nodes, and the stream of events
// those of the nodes that changed since.

import { ask, Problem } from "./api.js";
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

const ENCODED_MAX = 6000; // bytes of an expression in an address, of which a server reads 8 KiB

/** What an expression selects, by the server: {total, nodes, releases, ...}. Throws Problem, with the place of a mistake. */
export async function select(where, signal) {
  const text = where.trim();
  if (encodeURIComponent(text).length > ENCODED_MAX) {
    throw new Problem(400, { title: "The expression is too long", detail: `It is too long, with ${text.length} characters`, unblock: "Leave terms out, or join some by * and ?." });
  }
  return ask(`/selection?where=${encodeURIComponent(text)}`, { signal });
}
