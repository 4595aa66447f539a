// @ts-check
// A table of any length: only the rows that are seen are there, each says which of all it is, and
// a row that leaves above comes in again below with other words.

import { made } from "./dom.js";

const BEYOND = 6; // rows above and below, so that Tab finds the next one

export class Rows {
  #places = [];
  #pool = [];
  #frame = 0;
  #high = 0;

  /** `make()` gives the cells of one row and fill(place), which writes what stands in them. */
  constructor(heads, make) {
    this.make = make;
    this.room = made("div", { class: "rows-room", role: "rowgroup" });
    this.head = made("div", { role: "rowgroup", class: "rows-head" },
      made("div", { role: "row", "aria-rowindex": "1", class: "row" }, heads.map((h) => made("div", { role: "columnheader" }, h))));
    this.body = made("div", { class: "rows", role: "table", "aria-label": "Nodes", "aria-colcount": String(heads.length), tabindex: "0" }, this.head, this.room);
    this.body.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.sizes = new ResizeObserver(() => { this.#high = 0; this.#soon(); });
    this.sizes.observe(this.body);
  }

  end() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  /** The rows as they are now: the same places may have other words. */
  show(places) {
    this.#places = places;
    for (const row of this.#pool) row.at = -1;
    this.body.setAttribute("aria-rowcount", String(places.length + 1));
    this.#high = 0;
    this.#soon();
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#fill();
    });
  }

  #row() {
    const { cells, fill } = this.make();
    const element = made("div", { role: "row", class: "row" }, cells.map((cell, c) => made("div", { role: c ? "cell" : "rowheader" }, cell)));
    this.room.append(element);
    return { element, fill, at: -1 };
  }

  #fill() {
    if (this.body.hidden) return;
    if (!this.#high) {
      this.#high = this.head.firstChild.offsetHeight; // a wall screen has larger rows
      this.room.style.height = `${this.#places.length * this.#high}px`;
      for (const row of this.#pool) row.at = -1;
    }
    const high = this.#high;
    const seen = Math.ceil(this.body.clientHeight / high) + 2 * BEYOND;
    const from = Math.max(0, Math.min(Math.floor(this.body.scrollTop / high) - BEYOND, this.#places.length - seen));
    while (this.#pool.length < Math.min(seen, this.#places.length)) this.#pool.push(this.#row());
    for (let n = from; n < from + this.#pool.length; n += 1) {
      const row = this.#pool[n % this.#pool.length];
      const there = n < this.#places.length;
      if (row.element.hidden === there) row.element.hidden = !there;
      if (!there || row.at === n) continue;
      row.at = n;
      row.element.ariaRowIndex = String(n + 2);
      row.element.style.transform = `translateY(${n * high}px)`;
      row.fill(this.#places[n]);
    }
  }
}
