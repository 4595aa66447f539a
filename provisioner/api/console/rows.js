// A table of any length: only the rows that are seen are there, and each says which of all it is.

import { made } from "./dom.js";

const ROW_PX = 40;
const BEYOND = 6; // rows above and below, so that Tab finds the next one

export class Rows {
  #places = [];
  #frame = 0;

  /** `cells(place)`: what stands in the columns. */
  constructor(heads, cells) {
    this.cells = cells;
    this.room = made("div", { class: "rows-room", role: "rowgroup" });
    this.head = made("div", { role: "rowgroup", class: "rows-head" },
      made("div", { role: "row", "aria-rowindex": "1", class: "row" }, heads.map((h) => made("div", { role: "columnheader" }, h))));
    this.body = made("div", { class: "rows", role: "table", "aria-label": "Nodes", "aria-colcount": String(heads.length), tabindex: "0" }, this.head, this.room);
    this.body.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.sizes = new ResizeObserver(() => this.#soon());
    this.sizes.observe(this.body);
  }

  end() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  show(places) {
    this.#places = places;
    this.body.setAttribute("aria-rowcount", String(places.length + 1));
    this.room.style.height = `${places.length * ROW_PX}px`;
    this.#soon();
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#fill();
    });
  }

  #fill() {
    if (this.body.hidden) return;
    const from = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - BEYOND);
    const to = Math.min(this.#places.length, from + Math.ceil(this.body.clientHeight / ROW_PX) + 2 * BEYOND);
    const focused = this.room.contains(document.activeElement) ? document.activeElement.closest("[role=row]")?.ariaRowIndex : null;
    const rows = [];
    for (let n = from; n < to; n += 1) {
      const row = made("div", { role: "row", class: "row", "aria-rowindex": String(n + 2) },
        this.cells(this.#places[n]).map((cell, c) => made("div", { role: c ? "cell" : "rowheader" }, cell)));
      row.style.transform = `translateY(${n * ROW_PX}px)`;
      rows.push(row);
    }
    this.room.replaceChildren(...rows);
    if (focused) this.room.querySelector(`[aria-rowindex="${Number(focused)}"] a`)?.focus({ preventScroll: true });
  }
}
