// @ts-check
// A table that is filtered, sorted and selected from, with actions on all that is selected. The rows
// are records of the API; a column says how one shows, by which value it is sorted, and which text of it the filter finds (that value, if it says none).

import { remember } from "./address.js";
import { some } from "./api.js";
import { asks } from "./dialog.js";
import { empty, framed, made, tell } from "./dom.js";
import { matching, sorted } from "./listing_data.js";
import { many, number } from "./words.js";

const SHOWN_MAX = 300; // rows at once in the page; a button shows more

/**
 * @typedef {{head: string, cell: (row: any) => any, value?: (row: any) => any, text?: (row: any) => string, num?: boolean}} Column
 * @typedef {{words: string, title?: string, says: (rows: any[]) => string, fields?: any[], danger?: boolean,
 *   each?: boolean, request?: (row: any, values: any) => Request, together?: (rows: any[], values: any) => Request, fits?: (row: any) => any}} Action
 * @typedef {{path: string, verb?: string, body?: unknown}} Request
 */

/**
 * The table. `bulk` are actions on the selected rows that fit, one request for each or `together` one for all; those with
 * `each` stand in every row that fits, too. `name(row)` identifies one for a person. `group(row)`: rows of one word fold together.
 * @param {{caption: string, columns: Column[], rows: any[], bulk?: Action[], name: (row: any) => string, nothing?: any,
 *   again: () => void, group?: (row: any) => string, filter?: string, sort?: number, down?: boolean, query?: URLSearchParams, key?: string, more?: any}} about
 */
export function listing({ caption, columns, rows, bulk = [], name, nothing, again, group, filter: before = "", sort = 0, down = false, query, key = "", more = null }) {
  const state = { sort, down, text: before, picked: new Set(), shown: SHOWN_MAX, open: new Set() };
  if (query) { // as the address has it
    state.text = query.get(`${key}filter`) ?? before;
    const head_of = columns.findIndex((c) => c.head === query.get(`${key}sort`));
    if (head_of >= 0) Object.assign(state, { sort: head_of, down: query.get(`${key}down`) === "1" });
  }
  const kept = () => { if (query) remember({ [`${key}filter`]: state.text, [`${key}sort`]: state.sort === sort && state.down === down ? "" : columns[state.sort].head, [`${key}down`]: state.down && (state.sort !== sort || state.down !== down) ? "1" : "" }); };
  const said = made("p", { class: "said", role: "status" });
  const place = made("div");
  const actions = made("div", { class: "buttons" });
  const filter = made("input", { type: "search", "aria-label": `Filter: ${caption}`, placeholder: "Filter", spellcheck: "false", autocomplete: "off" });

  const draw = (focus = -1) => {
    const values = columns.map((c) => c.value ?? ((row) => text_of(c.cell(row))));
    const texts = columns.map((c, i) => c.text ?? values[i]);
    const fitting = sorted(matching(rows, texts, state.text), values[state.sort], state.down);
    const shown = fitting.slice(0, state.shown);
    const heads = () => {
      const all = columns.map((c, i) => head(c, i));
      if (bulk.some((action) => action.each)) all.push(made("th", { scope: "col", role: "columnheader" }, made("span", { class: "visually-hidden" }, "Acts")));
      if (bulk.length) all.unshift(made("th", { scope: "col", role: "columnheader" }, tick(`Select all ${number(fitting.length)} that match`, fitting.length > 0 && fitting.every((r) => state.picked.has(r)), (on) => {
        for (const row of fitting) if (on) state.picked.add(row); else state.picked.delete(row);
        draw();
      })));
      return made("tr", { role: "row" }, all);
    };
    place.replaceChildren(...rows.length && group ? folded(shown, heads) : [rows.length ? framed(caption, heads(), shown.map(line)) : nothing ?? empty("There is none.", "")]);
    said.textContent = rows.length ? `${state.text ? `${number(fitting.length)} of ` : ""}${many(rows.length, "row")}${fitting.length > state.shown ? `, the first ${number(state.shown)} shown` : ""}` : "";
    further.hidden = fitting.length <= state.shown;
    if (focus >= 0) place.querySelectorAll("thead button")[focus]?.focus();
    offer();
  };
  // one table for each group; a filter opens those that have what it finds
  const folded = (shown, heads) => {
    const groups = new Map();
    for (const row of shown) groups.set(group(row), [...(groups.get(group(row)) ?? []), row]);
    return [...groups].map(([word, mine]) => made("details", { open: state.text !== "" || groups.size === 1 || state.open.has(word), on: { toggle: (event) => {
      if (state.text) return;
      if (event.target.open) state.open.add(word); else state.open.delete(word);
    } } }, made("summary", {}, `${word} (${number(mine.length)})`), framed(`${caption}: ${word}`, heads(), mine.map(line))));
  };
  const head = (column, i) => {
    const here = state.sort === i;
    const button = made("button", { type: "button", class: "sort", on: { click: () => { state.down = here && !state.down; state.sort = i; kept(); draw(i); } } }, column.head, here ? (state.down ? " ↓" : " ↑") : "");
    return made("th", { scope: "col", role: "columnheader", class: column.num ? "num" : null, "aria-sort": here ? (state.down ? "descending" : "ascending") : "none" }, button);
  };
  const line = (row) => {
    const cells = columns.map((c, i) => {
      const content = c.cell(row);
      return made(i ? "td" : "th", { scope: i ? null : "row", role: i ? "cell" : "rowheader", "data-head": c.head, class: [c.num && "num", content === "—" && "none"].filter(Boolean).join(" ") || null }, made("div", {}, content));
    });
    if (bulk.some((action) => action.each)) cells.push(made("td", { role: "cell", class: "acts" }, made("div", { class: "buttons" }, bulk.filter((action) => action.each && (action.fits?.(row) ?? true)).map((action) => one_of(action, row)))));
    if (bulk.length) cells.unshift(made("td", { role: "cell", class: "tick" }, tick(`Select ${name(row)}`, state.picked.has(row), (on) => { if (on) state.picked.add(row); else state.picked.delete(row); offer(); })));
    return made("tr", { role: "row" }, cells);
  };
  const offer = () => {
    const picked = rows.filter((row) => state.picked.has(row));
    actions.replaceChildren(...(picked.length ? bulk : []).map((action) => act(action, picked.filter((row) => action.fits?.(row) ?? true))).filter(Boolean));
  };
  const one_of = (action, row) => {
    const button = asked(action, [row], action.words);
    button.classList.add("small");
    button.setAttribute("aria-label", `${action.words} ${name(row)}`);
    return button;
  };
  const act = (action, picked) => picked.length > 0 && asked(action, picked, `${action.words} (${number(picked.length)})`);
  const asked = (action, picked, words) => asks({
    words, title: action.title ?? action.words, says: action.says(picked), fields: action.fields ?? [], danger: action.danger,
    send: (values, request, progress) => (action.together ? send_each([picked], (chosen) => action.together(chosen, values), request, () => {})
      : send_each(picked, (row) => action.request(row, values), request, progress)),
    done: ({ state: sent }) => { tell(sent); again(); },
  });
  const further = made("button", { type: "button", on: { click: () => { state.shown += SHOWN_MAX; draw(); } } }, `Show ${SHOWN_MAX} more`);
  filter.addEventListener("input", () => { state.text = filter.value; kept(); draw(); });
  filter.value = state.text;
  draw();
  return made("div", { class: "listing" }, rows.length ? made("div", { class: "toolbar" }, made("div", { class: "grow" }, filter), actions) : null, said, place, further, more);
}

/**
 * A list of the server whose further rows come when they are asked for: it says how many there are, and nothing is cut in silence. All of
 * them are there before "Select all" can mean all. `first`: as `some` gave it; `draw(rows)` makes the table.
 */
export function growing(path, most, { rows, next, total }, signal, draw) {
  const place = made("div");
  const said = made("p", { role: "status" });
  const fetch_more = async (count) => {
    for (const button of buttons) button.disabled = true;
    try {
      const more = await some(path, count, { signal }, next);
      rows = [...rows, ...more.rows];
      ({ next, total } = more);
      show();
    } catch (problem) {
      if (problem.name !== "AbortError") said.textContent = `${problem.title}. ${problem.unblock}`;
    }
    for (const button of buttons) button.disabled = false;
  };
  const buttons = [made("button", { type: "button", on: { click: () => fetch_more(most) } }, `Next ${number(most)}`), made("button", { type: "button", on: { click: () => fetch_more(Infinity) } }, "All of them")];
  const bar = made("div", { class: "notice" }, said, made("div", { class: "buttons" }, buttons));
  const show = () => {
    bar.hidden = !next;
    said.textContent = `${number(rows.length)} ${total === null ? "are here, and there are more" : `of ${number(total)} are here`}; the filter and “Select all” below are of these.`;
    place.replaceChildren(draw(rows));
  };
  show();
  return made("div", {}, bar, place);
}

/** The same with the first rows asked for here. */
export async function grown(path, most, signal, draw) {
  return growing(path, most, await some(path, most, { signal }), signal, draw);
}

function tick(label, on, changed) {
  const box = made("input", { type: "checkbox", "aria-label": label });
  box.checked = on;
  box.addEventListener("change", () => changed(box.checked));
  return box;
}

async function send_each(rows, make, request, progress) {
  let done = 0;
  for (const row of rows) {
    const { path, verb = "POST", body } = make(row);
    await request(path, { verb, body });
    done += 1;
    progress(`${number(done)} of ${number(rows.length)}`);
  }
  return { state: `${number(done)} done` };
}

/** The words of a cell, for its filter and its order. */
function text_of(cell) {
  if (cell instanceof Node) return cell.textContent;
  return Array.isArray(cell) ? cell.map(text_of).join(" ") : String(cell ?? "");
}
