// @ts-check
// One search over nodes, serials, tenants, campaigns, cases, alerts, switches, releases, pages and verbs:
// it suggests while one types, and opens a single match. "/" or Ctrl+K leads to it from everywhere.

import { ask } from "./api.js";
import { made } from "./dom.js";
import { best } from "./search_data.js";

const PAUSE_MS = 150; // after the last key, before the server is asked
const TEXT_MAX = 128;
const LISTS_MS = 30_000; // how long the releases are taken as they were
const VERBS = [["New tenant", "onboard"], ["New campaign", "draft"], ["Take nodes in", "hardware?intake=1"], ["Work at the racks", "technician"]];

let lists = { at: 0, found: Promise.resolve([]) };

const hash = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
const pattern = (text) => `"*${text.replaceAll('"', "?")}*"`;

// Releases are few: they are read once in a while.
function releases(staff) {
  if (!staff) return [];
  if (Date.now() - lists.at < LISTS_MS) return lists.found;
  lists = { at: Date.now(), found: ask("/releases").then((told) => told.items.map((r) => ({ kind: "Release", name: r.name, words: "", to: hash("releases", r.name) })), () => []) };
  return lists.found;
}

const KINDS = { page: "Page", node: "Node", switch: "Switch", serial: "Serial", address: "Address", port: "Port", case: "Case", campaign: "Campaign", tenant: "Tenant", alert: "Alert" };

// What the server finds, pages by what they are for among it; acts are this console's own.
async function asked(text, signal) {
  const { items } = await ask(`/search?q=${encodeURIComponent(text)}&most=40`, { signal }).catch(() => ({ items: [] }));
  return items.filter((hit) => KINDS[hit.kind]).map((hit) => ({ kind: KINDS[hit.kind], ...names_of(hit), to: place_of(hit), sure: true }));
}

function names_of(hit) {
  if (hit.kind !== "page") return { name: hit.id, words: [hit.of, hit.detail].filter(Boolean).join(": ") };
  const [title, ...about] = hit.detail.split(": ");
  return { name: title, words: about.join(": ") };
}

function place_of(hit) {
  if (hit.kind === "page") return hash(hit.id);
  if (hit.kind === "case") return hash("cases", hit.id);
  if (hit.kind === "campaign") return hash("campaigns", hit.id);
  if (hit.kind === "tenant") return hash("tenants", hit.id);
  if (hit.kind === "alert") return `#/alerts?filter=${encodeURIComponent(hit.id)}`;
  return hash("nodes", hit.of || hit.id);
}

/** Everything that fits a text, the best first. */
export async function look_for(text, { pages, staff, signal }) {
  const own = [...pages.map(([name, words]) => ({ kind: "Page", name: words, words: "", to: `#/${name}` })), ...(staff ? VERBS.map(([words, to]) => ({ kind: "Act", name: words, words: "", to: `#/${to}` })) : [])];
  const [nodes, known] = await Promise.all([asked(text, signal), releases(staff)]);
  return best([...nodes, ...known, ...own], text);
}

/** The field with its suggestions. `go_to(address)` opens one; `context()` gives {pages, staff}. */
export function search_field(go_to, context) {
  const input = made("input", { type: "search", id: "search", role: "combobox", "aria-label": "Search", "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list", placeholder: "Search ( / )", maxlength: String(TEXT_MAX), spellcheck: "false", autocomplete: "off", autocapitalize: "off", enterkeyhint: "go" });
  const list = made("ul", { id: "found", class: "found", role: "listbox", "aria-label": "Found", hidden: true });
  const state = { found: [], at: -1, text: "", cut: null, timer: 0 };
  const close = () => {
    list.hidden = true;
    state.at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const open = (entry) => {
    close();
    input.value = "";
    input.blur();
    go_to(entry.to);
  };
  const mark = () => {
    [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === state.at)));
    if (state.at >= 0) input.setAttribute("aria-activedescendant", `found-${state.at}`);
    else input.removeAttribute("aria-activedescendant");
    list.children[state.at]?.scrollIntoView({ block: "nearest" });
  };
  const show = () => {
    list.replaceChildren(...(state.found.length ? state.found.map((entry, n) => made("li", { id: `found-${n}`, role: "option", "aria-selected": "false", on: { pointerdown: (event) => { event.preventDefault(); open(entry); } } },
      made("span", { class: "tag" }, entry.kind), " ", made("span", { class: "strong" }, entry.name), " ", made("span", { class: "quiet" }, entry.words))) : [made("li", { class: "quiet", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "Nothing has that name.")]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark();
  };
  const look = async () => {
    const text = input.value.trim();
    state.cut?.abort();
    if (!text) {
      state.found = [];
      close();
      return;
    }
    const cut = (state.cut = new AbortController());
    const found = await look_for(text, { ...context(), signal: cut.signal }).catch(() => []);
    if (cut.signal.aborted) return;
    Object.assign(state, { found, at: -1, text });
    if (document.activeElement === input) show();
  };
  const enter = async () => {
    const text = input.value.trim();
    if (!text) return;
    clearTimeout(state.timer);
    const chosen = state.text === text ? state.found[state.at] : null;
    if (!chosen && state.text !== text) await look();
    const exact = state.found.filter((entry) => entry.name.toLowerCase() === text.toLowerCase());
    const one = chosen ?? (state.found.length === 1 ? state.found[0] : exact.length === 1 ? exact[0] : null);
    if (one) open(one);
    else if (state.found.some((entry) => entry.kind === "Node" || entry.kind === "Switch")) open({ to: `#/nodes?where=${encodeURIComponent(`node=${pattern(text)}`)}` });
    else show();
  };
  input.addEventListener("input", () => { clearTimeout(state.timer); state.timer = setTimeout(look, PAUSE_MS); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && state.found.length) {
      state.at = (state.at + step + state.found.length + (state.at < 0 && step < 0 ? 1 : 0)) % state.found.length;
      if (list.hidden) show();
      mark();
      event.preventDefault();
    } else if (event.key === "Escape") {
      if (list.hidden) input.blur();
      close();
      event.preventDefault();
    }
  });
  return made("form", { class: "jump", role: "search", on: { submit: (event) => { event.preventDefault(); enter(); } } }, input, list);
}

/** Whether a key leads to the search: "/" outside of a field, Ctrl+K everywhere. */
export function leads_to_search(event) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") return true;
  const { target } = event;
  const typed = target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
  return event.key === "/" && !typed && !event.ctrlKey && !event.metaKey && !event.altKey && !document.querySelector("dialog[open]");
}
