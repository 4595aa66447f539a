// @ts-check
// Draws the fleet: one square for each node (by rack), or for each cable (by rail). Only what is
// seen is drawn, so that 65,536 nodes scroll as smoothly as 64. `fleet.js` has the same as a table.

import { tame } from "./dom.js";
import { lay, rows_between } from "./map_layout.js";

const NAMED_FROM = 60; // pixels; larger squares have the node's name in them
const ROUND_FROM = 12; // pixels; smaller squares are written as pixels, which costs a tenth

/** Black or white, whichever is read better on a colour (WCAG 2.2, relative luminance). */
function upon(colour) {
  const n = Number.parseInt(colour.slice(1), 16);
  const part = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = 0.2126 * part(n >> 16) + 0.7152 * part((n >> 8) & 0xff) + 0.0722 * part(n & 0xff);
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#0b1118" : "#ffffff";
}

/** "#2f9e5b" as a pixel of an image: A, B, G, R. */
function pixel(colour) {
  const n = Number.parseInt(colour.slice(1), 16);
  return (0xff000000 | ((n & 0xff) << 16) | (n & 0xff00) | (n >> 16)) >>> 0;
}

export class FleetMap {
  #layout = null;
  #frame = 0;
  #hover = null;
  #at = null;
  #zoom = 0;
  #image = null;

  /** `opened(name)` is called for a chosen node, `pointed(place)` for one that is pointed at. */
  constructor(box, { opened, pointed }) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.room = box.querySelector(".map-room");
    this.mark = box.querySelector(".map-mark");
    this.opened = opened;
    this.pointed = pointed;
    /** @type {{fleet: any, by: string, field: string, picked: Uint8Array | null, colour: (word: string) => string}} */
    this.view = { fleet: null, by: "rack", field: "state", picked: null, colour: () => "#888" };
    this.sizes = new ResizeObserver(() => this.relay());
    this.sizes.observe(box);
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    box.addEventListener("pointermove", (e) => this.#point(this.#under(e)));
    box.addEventListener("pointerleave", () => this.#point(this.#at));
    box.addEventListener("click", (e) => this.#open(this.#under(e)));
    box.addEventListener("keydown", (e) => this.#key(e));
    box.addEventListener("focus", () => this.#point((this.#at ??= this.#first())));
    box.addEventListener("blur", () => this.#point(null));
  }

  end() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  show(changes) {
    Object.assign(this.view, changes);
    this.relay();
  }

  /** Larger or smaller squares; 0 fits them. */
  zoom(by) {
    this.#zoom = by === 0 ? 0 : Math.min(64, Math.max(3, (this.#zoom || this.#layout?.cell || 8) + by));
    this.relay();
    return this.#zoom;
  }

  /** The size of the squares that the first layout has; 0: as large as fits. */
  start_zoom(size) {
    this.#zoom = size;
  }

  get cell() {
    return this.#layout?.cell ?? 0;
  }

  /** Place everything anew. */
  relay() {
    if (!this.view.fleet || !this.box.clientWidth) return;
    const size = Number.parseFloat(getComputedStyle(this.box).fontSize) / 15; // a wall screen has larger words
    this.#layout = lay(this.view.fleet, this.view.by, this.box.clientWidth, this.box.clientHeight, this.#zoom, size);
    this.room.style.height = `${this.#layout.height}px`;
    this.#at = null;
    this.#point(null);
    this.draw();
  }

  /** Tell again of what is pointed at: it is otherwise now. */
  repoint() {
    if (this.#hover) this.pointed(this.#group(this.#hover).cells[this.#hover.k], this.#group(this.#hover));
  }

  draw() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    if (!this.#layout) return; // it was never shown: the page began as a table
    const { box, canvas, view } = this;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [w, h] = [box.clientWidth, box.clientHeight];
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
      canvas.style.width = `${w}px`;
      canvas.style.height = `${h}px`;
    }
    const ink = getComputedStyle(box);
    const g = canvas.getContext("2d", { alpha: true });
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    const seen = this.#seen(box.scrollTop, h);
    const { index, values } = view.fleet.column(view.field);
    const paint = values.map((v) => view.colour(v[0] ?? ""));
    const off = ink.getPropertyValue("--cell-off").trim();
    if (this.#layout.cell < ROUND_FROM) this.#pixels(g, seen, ratio, index, paint.map(pixel), pixel(off));
    else this.#squares(g, seen, index, paint, off);
    if (this.#layout.cell >= NAMED_FROM * this.#layout.words / 11) this.#names(g, seen, ink, index, paint);
    else this.#signs(g, seen, ink);
    this.#words(g, box.scrollTop, h, ink);
  }

  /** Squares as pixels of one image: 20,000 of them in a millisecond or two. */
  #pixels(g, seen, ratio, index, paint, off) {
    const { width, height } = this.canvas;
    if (this.#image?.width !== width || this.#image.height !== height) this.#image = g.createImageData(width, height);
    const dots = new Uint32Array(this.#image.data.buffer);
    dots.fill(0);
    const { picked } = this.view;
    const { cell, step } = this.#layout;
    const side = Math.round(cell * ratio);
    for (const [group, x0, y0] of seen) {
      const { cells, cols } = group;
      for (let k = 0; k < cells.length; k += 1) {
        const i = cells[k];
        const colour = picked && !picked[i] ? off : paint[index[i]];
        const left = Math.round((x0 + (k % cols) * step) * ratio);
        const top = Math.round((y0 + Math.floor(k / cols) * step) * ratio);
        const end = Math.min(top + side, height);
        for (let y = Math.max(top, 0); y < end; y += 1) {
          const from = y * width + left;
          for (let x = from; x < from + side; x += 1) dots[x] = colour;
        }
      }
    }
    g.putImageData(this.#image, 0, 0);
  }

  #squares(g, seen, index, paint, off) {
    const { cell, step } = this.#layout;
    const by_colour = new Map();
    for (const [group, x0, y0] of seen) {
      for (let k = 0; k < group.cells.length; k += 1) {
        const i = group.cells[k];
        const colour = this.view.picked && !this.view.picked[i] ? off : paint[index[i]];
        let path = by_colour.get(colour);
        if (!path) by_colour.set(colour, (path = new Path2D()));
        path.roundRect(x0 + (k % group.cols) * step, y0 + Math.floor(k / group.cols) * step, cell, cell, Math.min(6, cell / 5));
      }
    }
    for (const [colour, path] of by_colour) {
      g.fillStyle = colour;
      g.fill(path);
    }
  }

  /** What needs a person has a sign of its own: colour alone says nothing to some of us. */
  #signs(g, seen, ink) {
    const { cell, step } = this.#layout;
    const { index, values } = this.view.fleet.column("state");
    const bad = values.findIndex((v) => v[0] === "quarantined");
    if (bad < 0) return;
    g.strokeStyle = ink.getPropertyValue("--cell-sign");
    g.lineWidth = Math.max(1, cell / 12);
    g.lineCap = "round";
    g.beginPath();
    const r = cell < 9 ? cell / 2.5 : cell / 5.5; // a small cross takes the whole square
    for (const [group, x0, y0] of seen) {
      for (let k = 0; k < group.cells.length; k += 1) {
        if (index[group.cells[k]] !== bad || (this.view.picked && !this.view.picked[group.cells[k]])) continue;
        const [x, y] = [x0 + (k % group.cols) * step + cell / 2, y0 + Math.floor(k / group.cols) * step + cell / 2];
        g.moveTo(x - r, y - r);
        g.lineTo(x + r, y + r);
        g.moveTo(x + r, y - r);
        g.lineTo(x - r, y + r);
      }
    }
    g.stroke();
  }

  /** Names, and of what needs a person the state in words. */
  #names(g, seen, ink, index, paint) {
    const { cell, step, words } = this.#layout;
    const { fleet, picked } = this.view;
    g.textBaseline = "alphabetic";
    for (const [group, x0, y0] of seen) {
      for (let k = 0; k < group.cells.length; k += 1) {
        const i = group.cells[k];
        const [x, y] = [x0 + (k % group.cols) * step + words / 2, y0 + Math.floor(k / group.cols) * step];
        g.fillStyle = picked && !picked[i] ? ink.getPropertyValue("--quiet") : upon(paint[index[i]]);
        g.font = `600 ${words}px ${ink.fontFamily}`;
        this.#write(g, fleet.nodes[i], x, y + cell - words * 0.75, cell - words, 2);
        if (fleet.word("state", i) === "quarantined") {
          g.font = `700 ${Math.round(words * 1.6)}px ${ink.fontFamily}`;
          g.fillText("✕", x, y + words * 1.9);
        }
      }
    }
  }

  /** [group, x, y] of the groups that are seen; y is that of their first square. */
  #seen(top, h) {
    const found = [];
    const { sections, label } = this.#layout;
    const [from, to] = rows_between(sections, top - 40, top + h);
    for (let s = from; s < to; s += 1) {
      const part = sections[s];
      const y = part.y - top;
      if (y > h || y + part.height < 0) continue;
      for (const group of part.groups) {
        if (y + group.y <= h && y + group.y + group.height >= 0) found.push([group, part.x + group.x, y + group.y + label]);
      }
    }
    return found;
  }

  /** The titles of what is seen. */
  #words(g, top, h, ink) {
    const { sections, head, label, words } = this.#layout;
    const quiet = ink.getPropertyValue("--quiet");
    const [from, to] = rows_between(sections, top - 40, top + h);
    for (let s = from; s < to; s += 1) {
      const part = sections[s];
      const y = part.y - top;
      if (y > h || y + part.height < 0) continue;
      if (head) {
        g.font = `600 ${words + 1}px ${ink.fontFamily}`;
        g.fillStyle = ink.color;
        this.#write(g, part.title, part.x, y + words + 4, part.width);
      }
      if (!label) continue;
      g.font = `${words}px ${ink.fontFamily}`;
      g.fillStyle = quiet;
      for (const group of part.groups) {
        const gy = y + group.y;
        if (gy <= h && gy + group.height >= 0) this.#label(g, group, part.x + group.x, gy + label - 6);
      }
    }
  }

  /** The title of a group: without what all of its section begin with where it is too long, and then its end. */
  #label(g, group, x, y) {
    const whole = tame(group.title);
    const brief = tame(group.brief);
    let text = g.measureText(whole).width <= group.width ? whole : brief;
    while (text.length > 1 && g.measureText(text).width > group.width) text = text.slice(1);
    g.fillText(text, x, y);
  }

  #write(g, words, x, y, room, most = 3) {
    let text = tame(words);
    if (g.measureText(text).width > room) {
      let keep = Math.floor((text.length * room) / g.measureText(text).width) - 1;
      while (keep > 2 && g.measureText(`${text.slice(0, keep)}…`).width > room) keep -= 1;
      if (keep < most) return;
      text = `${text.slice(0, keep)}…`;
    }
    g.fillText(text, x, y);
  }

  #under(event) {
    const box = this.box.getBoundingClientRect();
    return this.#hit(event.clientX - box.left, event.clientY - box.top + this.box.scrollTop);
  }

  /** {section, group, k} at a point of the whole map, or null. */
  #hit(x, y) {
    if (!this.#layout) return null;
    const { sections, step, label } = this.#layout;
    const [from, to] = rows_between(sections, y, y + 1);
    for (let s = from; s < to; s += 1) {
      const part = sections[s];
      if (x < part.x || x > part.x + part.width || y < part.y || y > part.y + part.height) continue;
      for (let n = 0; n < part.groups.length; n += 1) {
        const group = part.groups[n];
        const [col, row] = [Math.floor((x - part.x - group.x) / step), Math.floor((y - part.y - group.y - label) / step)];
        if (col < 0 || col >= group.cols || row < 0) continue;
        const k = row * group.cols + col;
        if (k < group.cells.length) return { s, n, k };
      }
    }
    return null;
  }

  #first() {
    return this.#layout?.sections[0]?.groups[0]?.cells.length ? { s: 0, n: 0, k: 0 } : null;
  }

  #group(spot) {
    return this.#layout.sections[spot.s].groups[spot.n];
  }

  #point(spot) {
    this.#hover = spot;
    this.mark.hidden = !spot;
    if (!spot) {
      this.pointed(-1, null);
      return;
    }
    const [x, y] = this.#corner(spot);
    const c = this.#layout.cell;
    Object.assign(this.mark.style, { width: `${c + 4}px`, height: `${c + 4}px`, transform: `translate(${x - 2}px, ${y - 2}px)` });
    this.pointed(this.#group(spot).cells[spot.k], this.#group(spot));
  }

  #corner({ s, n, k }) {
    const part = this.#layout.sections[s];
    const group = part.groups[n];
    const { step, label } = this.#layout;
    return [part.x + group.x + (k % group.cols) * step, part.y + group.y + label + Math.floor(k / group.cols) * step];
  }

  #open(spot) {
    if (spot) this.opened(this.view.fleet.nodes[this.#group(spot).cells[spot.k]]);
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const spot = this.#at ?? this.#first();
    if (!spot) return;
    const moves = {
      ArrowRight: () => this.#along(spot, 1),
      ArrowLeft: () => this.#along(spot, -1),
      ArrowDown: () => this.#across(spot, 1),
      ArrowUp: () => this.#across(spot, -1),
      PageDown: () => this.#section(spot, 1),
      PageUp: () => this.#section(spot, -1),
      Home: () => this.#first(),
      End: () => {
        const s = this.#layout.sections.length - 1;
        const n = this.#layout.sections[s].groups.length - 1;
        return { s, n, k: this.#layout.sections[s].groups[n].cells.length - 1 };
      },
    };
    if (event.key === "Enter") this.#open(spot);
    else if (moves[event.key]) {
      this.#at = moves[event.key]() ?? spot;
      const y = this.#corner(this.#at)[1];
      const { scrollTop, clientHeight } = this.box;
      if (y < scrollTop + 8) this.box.scrollTop = y - 60;
      else if (y + this.#layout.cell > scrollTop + clientHeight - 8) this.box.scrollTop = y - clientHeight + this.#layout.cell + 20;
      this.#point(this.#at);
    } else return;
    event.preventDefault();
  }

  #along({ s, n, k }, by) {
    const group = this.#group({ s, n });
    if (group.cells[k + by] !== undefined) return { s, n, k: k + by };
    const next = this.#layout.sections[s].groups[n + by] ? [s, n + by]
      : this.#layout.sections[s + by] ? [s + by, by > 0 ? 0 : this.#layout.sections[s + by].groups.length - 1] : null;
    if (!next) return null;
    return { s: next[0], n: next[1], k: by > 0 ? 0 : this.#group({ s: next[0], n: next[1] }).cells.length - 1 };
  }

  #across(spot, by) {
    const [x, y] = this.#corner(spot);
    const { cell, step, height } = this.#layout;
    for (let at = y + cell / 2 + by * step; at > 0 && at < height; at += by * Math.max(2, step / 2)) {
      const found = this.#hit(x + cell / 2, at);
      if (found) return found;
    }
    return null;
  }

  #section({ s }, by) {
    return this.#layout.sections[s + by] ? { s: s + by, n: 0, k: 0 } : null;
  }
}
