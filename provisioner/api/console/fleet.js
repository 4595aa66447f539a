// @ts-check
// The fleet: a map by rack or by rail, coloured by state or by release, filtered, and as a table.

import { remember } from "./address.js";
import { made, chip, empty, tame, tell } from "./dom.js";
import { Fleet, select } from "./fleet_data.js";
import { FleetMarks, MARKS, is_mark } from "./fleet_marks.js";
import { FleetMap } from "./map.js";
import { regroup } from "./map_layout.js";
import { by_word, with_word } from "./marks_data.js";
import { colours } from "./palette.js";
import { wrong_words } from "./problem_words.js";
import { Rows } from "./rows.js";
import { many, number } from "./words.js";

// as it was left; `only`: the one word of a mark that is shown, which the filter has no field for
const BEGIN = { by: "rack", field: "state", as: "map", where: "", only: null, sort: "", down: false, zoom: 0 };
const kept = { ...BEGIN };
const CHOICES = { by: ["rack", "rail"], as: ["map", "table"] };
const LEGEND_MAX = 12; // entries before one asks for all
const FIELDS = ["state", "release", "tenant", "reason", ...MARKS.map(([name]) => name)];
const AGAIN_MS = 4000; // between two selections that changes of nodes ask for
const HEADS = [["Node", "node"], ["State", "state"], ["Blocked by", "reason"], ["Release", "release"], ["Tenant", "tenant"], ["Rack", "rack"], ["Unit", "su"], ["Rails", ""]];

/** The page; `where` is a filter to begin with. */
export async function page({ query, signal, me, go }) {
  if ([...query.keys()].length) read_address(query);
  const fleet = new Fleet();
  await fleet.load(signal);
  const staff = me.roles.some((role) => role !== "tenant");
  if (!staff && is_mark(kept.field)) kept.field = "state"; // another person signed in
  const view = new View(fleet, go, staff);
  return { title: "Fleet", body: view.body, wide: true, shown: () => view.update(), end: () => view.end() };
}

// An address that says something says all of it: the same for everybody who opens it.
function read_address(query) {
  Object.assign(kept, BEGIN);
  for (const name of ["where", "sort"]) if (query.has(name)) kept[name] = query.get(name);
  for (const [name, values] of Object.entries(CHOICES)) if (values.includes(query.get(name))) kept[name] = query.get(name);
  if (FIELDS.includes(query.get("colour"))) kept.field = query.get("colour");
  if (query.has("only")) kept.only = query.get("only");
  if (!HEADS.some(([, field]) => field === kept.sort)) kept.sort = "";
  kept.down = query.get("down") === "1";
  kept.zoom = Math.max(0, Math.min(64, Number.parseInt(query.get("zoom") ?? "0", 10) || 0));
}

function write_address() {
  remember({ where: kept.where.trim(), by: kept.by === BEGIN.by ? "" : kept.by, colour: kept.field === BEGIN.field ? "" : kept.field, as: kept.as === BEGIN.as ? "" : kept.as,
    only: kept.only, sort: kept.sort, down: kept.down ? "1" : "", zoom: kept.zoom || "" });
}

class View {
  #picked = null;
  #all_words = false;
  #timer = 0;
  #selected = null; // names that the filter selects; null: all
  #asked = new AbortController();
  #again = 0;

  constructor(fleet, go, staff) {
    this.fleet = fleet;
    this.marks = new FleetMarks(fleet);
    this.filter = made("input", {
      type: "search", id: "where", value: kept.where, placeholder: "Filter: rack=su0-*", spellcheck: "false",
      autocomplete: "off", autocapitalize: "off", "aria-describedby": "where-said",
    });
    this.acting = made("a", { href: "#/nodes" }, "Act on these nodes");
    this.said = made("p", { id: "where-said", class: "said", role: "status" });
    this.bar = made("div", { class: "stackbar", role: "img" });
    this.legend = made("ul", { class: "legend", "aria-label": "Legend: choose one to see only these" });
    this.pointed = made("p", { class: "pointed", "aria-live": "polite", "aria-atomic": "true" });
    this.box = made("div", {
      class: "map", tabindex: "0", role: "application", "aria-roledescription": "map of nodes",
      "aria-label": "Fleet. Arrow keys move from node to node, Enter opens one. The table has the same.",
    }, made("div", { class: "map-stick" }, made("canvas", { "aria-hidden": "true" })), made("div", { class: "map-room" }), made("div", { class: "map-mark", hidden: true }));
    this.sorts = new Map();
    this.rows = new Rows(HEADS.map(([words, field]) => this.#head(words, field)), () => this.#row());
    this.map = new FleetMap(this.box, {
      opened: (name) => go(["nodes", name]),
      pointed: (i, group) => this.#point(i, group),
    });
    const zooms = made("div", { class: "buttons", role: "group", "aria-label": "Size of the squares" },
      [["−", "Smaller", -2], ["Fit", "As large as fits", 0], ["+", "Larger", 2]].map(([sign, words, by]) => made("button", {
        type: "button", class: "small", "aria-label": words, title: words, on: { click: () => { kept.zoom = this.map.zoom(by); write_address(); } },
      }, sign)));
    this.zooms = zooms;
    this.body = made("div", { class: "fleet" },
      made("div", { class: "toolbar" },
        this.#choice("Arrange", "by", [["rack", "Rack"], ["rail", "Rail"]]),
        this.#choice("Colour", "field", [["state", "State"], ["release", "Release"], ["tenant", "Tenant"], ["reason", "Blocked by"], ...(staff ? MARKS : [])]),
        this.#choice("Show", "as", [["map", "Map"], ["table", "Table"]]),
        zooms,
        made("div", { class: "grow filter" }, made("label", { for: "where", class: "visually-hidden" }, "Filter: an expression over nodes"), this.filter)),
      made("div", { class: "said-row" }, this.said, this.acting), this.bar, this.legend, this.box, this.rows.body, this.pointed);
    this.map.start_zoom(kept.zoom);
    this.marks.choose(kept.field);
    this.#show_sort();
    this.filter.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.update(), 150);
    });
    fleet.addEventListener("changed", () => { this.#select_again(); this.#paint(); });
    fleet.addEventListener("placed", () => { regroup(); this.#select_again(); this.#relay(); });
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.#paint();
    this.dark.addEventListener("change", this.repaint);
    document.addEventListener("theme", this.repaint);
  }

  end() {
    this.fleet.end();
    this.marks.end();
    this.map.end();
    this.rows.end();
    this.#asked.abort();
    clearTimeout(this.#timer);
    clearTimeout(this.#again);
    this.dark.removeEventListener("change", this.repaint);
    document.removeEventListener("theme", this.repaint);
  }

  #choice(title, name, options) {
    const group = made("fieldset", { class: "choice" }, made("legend", { class: "visually-hidden" }, title));
    for (const [value, words] of options) {
      const input = made("input", { type: "radio", name, value, id: `${name}-${value}`, checked: kept[name] === value });
      input.addEventListener("change", () => {
        kept[name] = value;
        if (name === "field") {
          kept.only = null;
          this.marks.choose(value);
        }
        this.update();
      });
      group.append(input, made("label", { for: `${name}-${value}` }, words));
    }
    return group;
  }

  update() {
    kept.where = this.filter.value;
    write_address();
    this.acting.setAttribute("href", `#/nodes${kept.where.trim() ? `?where=${encodeURIComponent(kept.where.trim())}` : ""}`);
    this.#select();
    this.#relay();
  }

  /** What the filter selects is asked of the server: the language has one reader. */
  async #select() {
    this.#asked.abort();
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    const where = kept.where.trim();
    try {
      const selected = where ? (await select(where, signal)).nodes : null;
      if (signal.aborted) return;
      this.#selected = selected;
      this.said.classList.remove("bad");
      this.filter.removeAttribute("aria-invalid");
      this.#relay();
    } catch (problem) {
      if (problem.name === "AbortError" || signal.aborted) return;
      this.said.replaceChildren(...wrong_words(where, problem));
      this.said.classList.add("bad");
      this.filter.setAttribute("aria-invalid", "true");
    }
  }

  /** Nodes changed: the filter may pick others now. */
  #select_again() {
    if (!kept.where.trim() || this.#again) return;
    this.#again = setTimeout(() => { this.#again = 0; this.#select(); }, AGAIN_MS);
  }

  #relay() {
    this.box.hidden = kept.as !== "map" || !this.fleet.size;
    this.zooms.hidden = this.box.hidden;
    this.rows.body.hidden = kept.as !== "table" || !this.fleet.size;
    this.#paint();
    this.map.relay();
  }

  /** Colours, numbers and rows as they are now. */
  #paint() {
    this.#picked = this.#pick();
    const counts = this.fleet.counts(kept.field, this.#picked);
    const colour = colours(kept.field, [...this.fleet.counts(kept.field, null).keys()]);
    const shown = [...counts.values()].reduce((a, b) => a + b, 0);
    if (!this.said.classList.contains("bad")) this.#say(shown); // what is wrong with the filter stays
    this.#legend(counts, colour);
    this.map.view = { fleet: this.fleet, by: kept.by, field: kept.field, picked: this.#picked, colour };
    this.map.draw();
    this.map.repoint();
    if (kept.as !== "table") return;
    const places = [];
    for (let i = 0; i < this.fleet.size; i += 1) if (!this.#picked || this.#picked[i]) places.push(i);
    this.rows.show(kept.sort ? this.#sorted(places) : places);
  }

  #say(shown) {
    if (!this.fleet.size) this.said.replaceChildren(empty("There is no node yet.", "Take some in: `provisioner intake SITE.yaml --data var`, then start `provisioner serve`."));
    else if (this.#picked && !shown) this.said.textContent = "No node is like that. Change the filter, or clear it.";
    else this.said.textContent = this.#picked ? `${number(shown)} of ${many(this.fleet.size, "node")}` : many(this.fleet.size, "node");
  }

  /** A byte for each node that the filter, and the chosen word of a mark, pick; null: all. */
  #pick() {
    const picked = this.#selected && this.fleet.bytes_of(this.#selected);
    return kept.only === null ? picked : with_word(this.fleet.column(kept.field), kept.only, picked);
  }

  #sorted(places) {
    const names = this.fleet.nodes;
    if (kept.sort === "node") return places.sort((a, b) => (kept.down === names[a] < names[b] ? 1 : -1));
    return by_word(places, this.fleet.column(kept.sort), kept.down);
  }

  /** A head of the table that sorts by its column. */
  #head(words, field) {
    if (!field) return words;
    const sign = made("span", { "aria-hidden": "true" });
    const button = made("button", { type: "button", class: "sort", on: { click: () => {
      kept.down = kept.sort === field && !kept.down;
      kept.sort = field;
      this.#show_sort();
      write_address();
      this.#paint();
    } } }, words, sign);
    this.sorts.set(field, { button, sign });
    return button;
  }

  #show_sort() {
    for (const [field, { button, sign }] of this.sorts) {
      const here = field === kept.sort;
      sign.textContent = here ? (kept.down ? " ↓" : " ↑") : "";
      button.parentElement?.setAttribute("aria-sort", here ? (kept.down ? "descending" : "ascending") : "none");
    }
  }

  #legend(counts, colour) {
    const words = [...counts].sort((a, b) => b[1] - a[1]);
    this.bar.setAttribute("aria-label", words.map(([word, n]) => `${number(n)} ${word || "none"}`).join(", ") || "nothing");
    this.bar.replaceChildren(...words.map(([word, n]) => {
      const part = made("span");
      part.style.flexGrow = String(n);
      part.style.background = colour(word);
      return part;
    }));
    const entries = words.slice(0, this.#all_words ? words.length : LEGEND_MAX).map(([word, n]) => {
      const swatch = made("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = colour(word);
      return made("li", {}, made("button", {
        type: "button", class: "entry", on: { click: () => this.#only(word) }, title: `Show only ${word || "those without"}`,
      }, swatch, made("span", {}, word.replaceAll("_", " ") || "none"), made("span", { class: "count" }, number(n))));
    });
    if (words.length > entries.length) {
      entries.push(made("li", {}, made("button", { type: "button", class: "entry", on: { click: () => { this.#all_words = true; this.#paint(); } } }, `All ${number(words.length)}`)));
    }
    this.legend.replaceChildren(...entries);
  }

  #only(word) {
    if (is_mark(kept.field)) {
      kept.only = kept.only === word ? null : word;
      this.update();
      tell(this.said.textContent);
      return;
    }
    const term = `${kept.field}="${word.replaceAll('"', "?")}"`;
    this.filter.value = this.filter.value.trim() === term ? "" : term;
    this.update();
  }

  #point(i, group) {
    if (i < 0) {
      this.pointed.replaceChildren("Point at a square, or move with the arrow keys.");
      return;
    }
    const f = this.fleet;
    const told = [f.word("state", i), f.word("tenant", i) && `tenant ${f.word("tenant", i)}`, f.word("release", i), is_mark(kept.field) && f.word(kept.field, i), group?.title];
    this.pointed.replaceChildren(made("span", { class: "strong" }, f.nodes[i]), ` · ${told.filter(Boolean).join(" · ")}`);
  }

  #row() {
    const name = made("a", {}, "");
    const state = chip("none");
    const texts = ["reason", "release", "tenant", "rack", "unit", "rails"].map(() => document.createTextNode(""));
    const fill = (i) => {
      const f = this.fleet;
      const rails = f.ports(i).map(([rail]) => rail).filter((r) => r >= 0);
      name.setAttribute("href", `#/nodes/${encodeURIComponent(f.nodes[i])}`);
      name.textContent = tame(f.nodes[i]);
      state.dataset.word = f.word("state", i);
      state.textContent = tame(f.word("state", i).replaceAll("_", " "));
      const words = [f.word("reason", i).replaceAll("_", " "), f.word("release", i), f.word("tenant", i), f.word("rack", i), `${f.word("pod", i)}/${f.word("su", i)}`, rails.length ? `${Math.min(...rails)}–${Math.max(...rails)}` : ""];
      texts.forEach((text, n) => { text.data = tame(words[n]) || "—"; });
    };
    return { cells: [name, state, ...texts], fill };
  }
}
