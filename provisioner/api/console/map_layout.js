// @ts-check
// Where every square of the map is: units beside one another, racks within units, nodes within racks.
// No drawing here: numbers in, numbers out.

import { number } from "./words.js";

const LARGEST = 160; // pixels of a square
const SMALLEST = 5;
const EDGE = 16; // pixels around the whole map
const LAST = ["Switches", "Without a rack", "Without a rail"]; // all others come before, in their order
const order = new Intl.Collator("en", { numeric: true }).compare;

const cached = { fleet: null, by: "", nodes: null, sections: null };

/** The whole map for a width. `zoom` 0: squares as large as fit into the height; `size`: of words. */
export function lay(fleet, by, width, height, zoom, size = 1) {
  const sections = grouped(fleet, by);
  if (zoom) return flow(sections, by, width, zoom, size);
  let squares = 0;
  for (const { groups } of sections) for (const { cells } of groups) squares += cells.length;
  // the largest square with which all of it fits into the box
  let [low, high] = [SMALLEST, Math.max(SMALLEST, Math.min(LARGEST, Math.floor(Math.sqrt((width * height) / Math.max(squares, 1)))))];
  let made = flow(sections, by, width, Math.round(SMALLEST * size), size);
  if (made.height > height) return made; // smaller ones nobody can point at: the map scrolls instead
  while (low < high) {
    const wanted = Math.ceil((low + high) / 2);
    const tried = flow(sections, by, width, Math.round(wanted * size), size);
    if (tried.height <= height) [low, made] = [wanted, tried];
    else high = wanted - 1;
  }
  return made;
}

/** Forget what was grouped: nodes stand otherwise now. */
export function regroup() {
  cached.fleet = null;
}

function grouped(fleet, by) {
  if (cached.fleet === fleet && cached.by === by && cached.nodes === fleet.nodes) return cached.sections;
  const sections = by === "rack" ? by_rack(fleet) : by_rail(fleet);
  Object.assign(cached, { fleet, by, nodes: fleet.nodes, sections });
  return sections;
}

function by_rack(fleet) {
  const parts = new Map();
  for (let i = 0; i < fleet.size; i += 1) {
    const rack = fleet.word("rack", i);
    const unit = `Pod ${fleet.word("pod", i)} · Unit ${fleet.word("su", i)}`;
    if (rack) put(parts, unit, rack, i);
    else if (fleet.word("kind", i) === "switch") put(parts, "Switches", unit, i);
    else put(parts, "Without a rack", unit, i);
  }
  return listed(parts, 4);
}

function by_rail(fleet) {
  const parts = new Map();
  const cabled = new Set();
  const { index, pairs } = fleet.column("ports");
  // hosts of a unit have the same cables: their groups are looked up once
  const lists = pairs.map((ports) => ports.map(([rail, leaf]) => {
    const part = rail < 0 ? "North–south" : `Rail ${rail}`;
    if (!parts.get(part)?.has(leaf)) {
      put(parts, part, leaf);
      if (fleet.place(leaf) >= 0) {
        put(parts, part, leaf, fleet.place(leaf));
        cabled.add(leaf);
      }
    }
    return parts.get(part).get(leaf);
  }));
  for (let i = 0; i < index.length; i += 1) for (const cells of lists[index[i]]) cells.push(i);
  for (let i = 0; i < fleet.size; i += 1) {
    if (!fleet.ports(i).length && !cabled.has(fleet.nodes[i])) put(parts, "Without a rail", fleet.word("kind", i), i);
  }
  return listed(parts, 8);
}

function put(parts, part, group, ...cells) {
  let groups = parts.get(part);
  if (!groups) parts.set(part, (groups = new Map()));
  const known = groups.get(group);
  if (known) known.push(...cells);
  else groups.set(group, cells);
}

function listed(parts, cols) {
  const last = (title) => LAST.indexOf(title);
  const begins = common([...parts.values()].flatMap((groups) => [...groups.keys()]));
  return [...parts.keys()].sort((a, b) => last(a) - last(b) || order(a, b)).map((title) => {
    const groups = parts.get(title);
    const names = [...groups.keys()].filter((name) => groups.get(name).length).sort(order);
    let size = 0;
    const made = names.map((name) => {
      const cells = Uint32Array.from(groups.get(name));
      size += cells.length;
      return { title: name, brief: name.slice(begins), cells, cols: Math.min(cells.length > 4 * cols ? 2 * cols : cols, Math.max(cells.length, 1)) };
    });
    return { title: `${title} (${number(size)})`, groups: made };
  });
}

/** How many characters all names begin with, without a part of a number; 0 where one would have nothing left. */
export function common(names) {
  if (names.length < 2) return 0;
  const [first, last] = [names.reduce((a, b) => (a < b ? a : b)), names.reduce((a, b) => (a > b ? a : b))];
  let n = 0;
  while (n < first.length && n < last.length && first[n] === last[n]) n += 1;
  while (n > 0 && /[0-9]/.test(first[n - 1])) n -= 1; // a number stays whole
  return names.some((name) => name.length <= n) ? 0 : n;
}

function flow(sections, by, width, cell, size) {
  const words = Math.round(11 * size); // pixels of a title
  const gap = cell >= 40 ? 6 : cell >= 20 ? 4 : cell >= 9 ? 2 : 1;
  const step = cell + gap;
  const apart = cell >= 14 ? 14 : cell >= 8 ? 8 : 3; // between groups
  const around = cell >= 14 ? 24 : cell >= 8 ? 16 : 8; // between sections
  const label = cell >= 12 ? Math.round(18 * size) : 0;
  const head = cell >= 7 || by === "rail" ? Math.round(24 * size) : 0;
  const most = by === "rail" ? Infinity : 8;
  const room = Math.max(width - 2 * EDGE, step);
  const placed = [];
  let [x, y, tallest] = [EDGE, EDGE - 2, 0];
  for (const { title, groups } of sections) {
    const made = block(groups, { room, step, gap, apart, label, head, most });
    if (x > EDGE && x + made.width > EDGE + room) {
      x = EDGE;
      y += tallest + around;
      tallest = 0;
    }
    placed.push({ title, x, y, ...made });
    x += made.width + around;
    tallest = Math.max(tallest, made.height);
  }
  return { sections: placed, height: y + tallest + EDGE, cell, step, label, head, words };
}

/** One section: its groups in rows, each row as high as its highest. */
function block(groups, { room, step, gap, apart, label, head, most }) {
  const made = [];
  let [x, y, tallest, widest, in_row] = [0, head, 0, 0, 0];
  for (const group of groups) {
    const cols = Math.min(group.cols, Math.max(1, Math.floor(room / step)));
    const width = cols * step - gap;
    const height = label + Math.ceil(group.cells.length / cols) * step - gap;
    if (in_row && (x + width > room || in_row >= most)) {
      [x, in_row] = [0, 0];
      y += tallest + apart;
      tallest = 0;
    }
    made.push({ title: group.title, brief: group.brief, cells: group.cells, cols, x, y, width, height });
    x += width + apart;
    in_row += 1;
    widest = Math.max(widest, x - apart);
    tallest = Math.max(tallest, height);
  }
  return { groups: made, width: Math.max(widest, head ? 120 : 0), height: y + tallest };
}

/** Which sections may reach into this span: [from, to). They are in rows, ever further down. */
export function rows_between(sections, top, bottom) {
  let [low, high] = [0, sections.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sections[middle].y <= bottom) low = middle + 1;
    else high = middle;
  }
  const to = low;
  let from = to;
  // sections of a row begin at one height, and a row begins below the tallest of the one before
  while (from > 0 && (from === to || sections[from].y > top || sections[from - 1].y === sections[from].y)) from -= 1;
  return [from, to];
}
