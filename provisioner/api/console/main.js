// @ts-check
// The shell: who is signed in, which page is shown, what the address says. A page is a function
// that gives {title, body, shown, end}; it is asked for anew with every change of the address.

import { drop_view, read_views } from "./address.js";
import { ask, gone, offline, person, Problem } from "./api.js";
import { ask_proved } from "./dialog.js";
import { append_blockers } from "./problem_words.js";
import { link, made, tell } from "./dom.js";
import { live } from "./live.js";
import { sign_in } from "./login.js";
import { leads_to_search, search_field } from "./search.js";
import { clock_words, now, set_clock } from "./words.js";

const PAGES = {
  home: () => import("./home.js"),
  fleet: () => import("./fleet.js"),
  nodes: () => import("./node.js"),
  actions: () => import("./actions.js"),
  campaigns: () => import("./campaigns.js"),
  cases: () => import("./cases.js"),
  tenants: () => import("./tenants.js"),
  usage: () => import("./usage.js"),
  technician: () => import("./technician.js"),
  onboard: () => import("./onboard.js"),
  draft: () => import("./draft.js"),
  events: () => import("./events.js"),
  alerts: () => import("./alerts.js"),
  approvals: () => import("./approvals.js"),
  releases: () => import("./releases.js"),
  drift: () => import("./drift.js"),
  versions: () => import("./drift.js").then((m) => ({ page: m.versions })),
  checks: () => import("./checks.js"),
  pins: () => import("./pins.js"),
  audit: () => import("./audit.js"),
  tokens: () => import("./tokens.js"),
  credentials: () => import("./credentials.js"),
  certificates: () => import("./certificates.js"),
  console: () => import("./node_console.js"),
  webhooks: () => import("./webhooks.js"),
  settings: () => import("./settings.js"),
  fabric: () => import("./fabric.js"),
  racks: () => import("./racks.js"),
  hardware: () => import("./declared.js").then((m) => ({ page: m.hardware })),
  policies: () => import("./declared.js").then((m) => ({ page: m.policies })),
  matrix: () => import("./declared.js").then((m) => ({ page: m.matrix })),
  images: () => import("./declared.js").then((m) => ({ page: m.images })),
  logs: () => import("./logs.js"),
  cohorts: () => import("./oversight.js").then((m) => ({ page: m.cohorts })),
  operations: () => import("./oversight.js").then((m) => ({ page: m.operations })),
  recovery: () => import("./oversight.js").then((m) => ({ page: m.recovery })),
  watch: () => import("./oversight.js").then((m) => ({ page: m.watch })),
};
const NAV = [["home", "Home"], ["fleet", "Fleet"], ["fabric", "Fabric"], ["campaigns", "Campaigns"], ["cases", "Cases"], ["tenants", "Tenants"], ["alerts", "Alerts"], ["approvals", "Approvals"], ["events", "Events"]];
const MORE = [["releases", "Releases"], ["versions", "Versions"], ["drift", "Drift and debt"], ["checks", "Checks"], ["pins", "Pins"], ["usage", "Usage"], ["certificates", "Certificates"], ["audit", "Audit"],
  ["tokens", "Tokens and sessions"], ["credentials", "Passwords"], ["webhooks", "Webhooks"], ["settings", "Settings"],
  ["hardware", "Hardware list"], ["racks", "Racks"], ["policies", "Policies"], ["matrix", "Matrix files"], ["images", "Images"], ["cohorts", "Cohorts"], ["watch", "Watch"], ["operations", "Operations"], ["recovery", "Recovery"]];
const OF_TENANTS = new Set(["fleet", "cases", "tenants", "events", "usage"]); // the others are the staff's
const PARENTS = { nodes: "fleet", actions: "fleet", console: "fleet", logs: "fleet", technician: "cases", onboard: "tenants", draft: "campaigns" };
const at = (id) => document.getElementById(id);
const AGAIN_MS = 3000;
const CLOCK_MS = 5000;
let clock_timer = 0;
let me = null;
let shown = null;
let cut = null;
let first = true; // nothing takes the focus from a person who has just arrived

/** Go to a page of the console. */
export function go(where, query = "") {
  location.hash = `#/${where.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((p) => {
    try { return decodeURIComponent(p); } catch { return p; }
  });
  return { parts: parts.length ? parts : [is_staff() ? "home" : "fleet"], query: new URLSearchParams(query) };
}

const is_staff = () => me?.roles.some((role) => role !== "tenant");

async function show() {
  cut?.abort();
  cut = new AbortController();
  const { signal } = cut;
  shown?.end?.();
  shown = null;
  const { parts, query } = address();
  const main = at("main");
  main.setAttribute("aria-busy", "true");
  mark(parts[0]);
  let page;
  try {
    const load = Object.hasOwn(PAGES, parts[0]) ? PAGES[parts[0]] : null;
    if (!load) throw new Problem(404, { title: "There is no such page", unblock: "Choose one above." });
    page = await (await load().catch(() => { throw offline(); })).page({ parts, query, signal, me, go, again: () => show() });
  } catch (problem) {
    if (problem.name === "AbortError" || signal.aborted) return;
    page = problem.status === 0 ? waiting(problem, show) : failed(problem);
  }
  if (signal.aborted) {
    page.end?.();
    return;
  }
  shown = page;
  const title = put(page);
  document.title = `${page.title} · Provisioner`;
  if (!first) title.focus({ preventScroll: true });
  first = false;
  page.shown?.();
}

// The page's heading and body, in place of what was there; its heading.
function put(page) {
  const main = at("main");
  const title = made("h1", { tabindex: "-1" }, page.heading ?? page.title);
  main.className = page.wide ? "wide" : "";
  main.replaceChildren(made("div", { class: "title" }, title, page.beside), page.body);
  main.removeAttribute("aria-busy");
  return title;
}

/** @param {() => unknown} again */
function failed(problem, again = show) {
  const body = made("div", { class: "card" });
  append_blockers(body, problem);
  body.append(made("button", { type: "button", on: { click: () => again() } }, "Try again"));
  return { title: problem.title ?? "It failed", body };
}

// The page that says so, and that asks again by itself until it is left.
function waiting(problem, again) {
  const timer = setTimeout(again, AGAIN_MS);
  return { ...failed(problem, () => { clearTimeout(timer); again(); }), end: () => clearTimeout(timer) };
}

function mark(name) {
  for (const a of /** @type {NodeListOf<HTMLElement>} */ (at("bar").querySelectorAll("nav a"))) {
    const mine = a.dataset.page === name || a.dataset.page === PARENTS[name];
    if (mine) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  at("more-button")?.toggleAttribute("data-here", at("more-pages").querySelector("[aria-current]") !== null);
}

let bar_ends = new AbortController(); // a new bar comes with each sign-in

function bar() {
  bar_ends.abort();
  bar_ends = new AbortController();
  const dot = made("span", { class: "live", "data-status": live.status, role: "status" }, made("span", { class: "live-words" }, words_of(live.status)));
  live.addEventListener("status", () => {
    dot.dataset.status = live.status;
    dot.firstChild.textContent = words_of(live.status);
    dot.title = words_of(live.status);
  }, { signal: bar_ends.signal });
  const links = (pages) => pages.filter(([name]) => is_staff() || OF_TENANTS.has(name)).map(([name, words]) => link([name], words, { "data-page": name }));
  const nav = made("nav", { "aria-label": "Pages" }, links(NAV), more(links(MORE)));
  const theme = made("button", { type: "button", class: "small ghost theme", on: { click: turn } }, "");
  const clock = made("time", { class: "clock", title: "The site's time, as all times here" });
  const tick = () => {
    const words = clock_words(now());
    const [day, time] = words.split(", ");
    clock.title = `${words}: the site's time, as all times here`;
    clock.replaceChildren(made("span", { class: "clock-day" }, `${day}, `), time);
  };
  tick();
  clearInterval(clock_timer);
  clock_timer = setInterval(tick, CLOCK_MS);
  at("bar").replaceChildren(
    made("a", { class: "brand", href: "#/" }, made("span", { class: "brand-sign", "aria-hidden": "true" }), made("span", { class: "brand-words" }, "Provisioner")),
    nav, search_field((where) => { location.hash = where; }, () => ({ pages: [...NAV, ...MORE].filter(([name]) => is_staff() || OF_TENANTS.has(name)), staff: is_staff() })),
    made("div", { class: "who" }, views(), clock, dot, made("span", { class: "subject", title: `${me.subject} (${me.roles.join(", ")})` }, me.subject), theme,
      made("button", { type: "button", class: "small ghost", title: `${me.subject} (${me.roles.join(", ")})`, on: { click: leave } }, "Sign out")),
  );
  at("bar").hidden = false;
  label();
}

// Addresses of this person, kept on the server, and those that others share.
function views() {
  const said = made("p", { class: "quiet", role: "status" });
  const list = made("ul", { class: "plain" });
  const name = made("input", { type: "text", "aria-label": "Name of the view", placeholder: "Name of this view", maxlength: "80", autocomplete: "off" });
  const shared = made("input", { type: "checkbox", id: "view-shared" });
  const place = made("div", { class: "others views", id: "views", popover: "auto" },
    made("form", { class: "toolbar", on: { submit: (event) => { event.preventDefault(); keep(); } } }, made("div", { class: "grow" }, name), made("button", { type: "button", on: { click: () => keep() } }, "Keep"),
      made("div", { class: "field check" }, shared, made("label", { for: "view-shared" }, me.tenant ? "Share it with my tenant's people" : "Share it with the staff"))),
    made("button", { type: "button", on: { click: async () => {
      const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
      said.textContent = copied ? "The link is copied: it shows others the same, as far as they may see it." : location.href;
    } } }, "Copy the link to this view"), said, list);
  const path = (view) => `/views/${encodeURIComponent(view)}`;
  const refused = (problem) => { said.textContent = `${problem.title}. ${problem.unblock}`; };
  const keep = async () => {
    const wanted = name.value.trim();
    if (!wanted) return;
    try {
      await ask_proved({ path: path(wanted) }, { verb: "PUT", body: { address: location.hash || "#/", shared: shared.checked } });
      said.textContent = shared.checked ? `Kept as “${wanted}”, for others too.` : `Kept as “${wanted}”.`;
      name.value = "";
      await draw();
    } catch (problem) {
      refused(problem);
    }
  };
  const drop = async (view) => { await ask_proved({ path: path(view) }, { verb: "DELETE" }).then(draw, refused); };
  const line = (view) => made("li", { class: "view" }, made("a", { href: view.address, on: { click: () => place.hidePopover() } }, view.name),
    view.owner === me.subject ? [view.shared ? made("span", { class: "tag" }, "shared") : null, made("button", { type: "button", class: "small ghost", "aria-label": `Remove ${view.name}`, on: { click: () => drop(view.name) } }, "Remove")]
      : made("span", { class: "tag" }, `of ${view.owner}`));
  const draw = async () => {
    const { items } = await ask("/views");
    list.replaceChildren(...[...items].sort((a, b) => Number(b.owner === me.subject) - Number(a.owner === me.subject)).map(line));
    if (!items.length) list.replaceChildren(made("li", { class: "quiet" }, "No view is kept yet."));
  };
  place.addEventListener("beforetoggle", (event) => {
    if (/** @type {ToggleEvent} */ (event).newState !== "open") return;
    said.textContent = "";
    take_over().then(draw).catch(refused);
  });
  return [popper(place, "views-button", "Views"), place];
}

// Views that this browser kept before the server did: handed over once.
async function take_over() {
  for (const row of read_views(me.subject)) {
    await ask(`/views/${encodeURIComponent(row.name)}`, { verb: "PUT", body: { address: row.hash, shared: false } });
    drop_view(me.subject, row.name);
  }
}

// The pages that are not for every day, behind a button that shows them below itself.
function more(links) {
  if (!links.length) return null;
  const others = made("div", { class: "others pages", id: "more-pages", popover: "auto" }, links);
  others.addEventListener("click", (event) => { if (event.target instanceof HTMLAnchorElement) others.hidePopover(); });
  return [popper(others, "more-button", "More"), others];
}

// A button that shows a box below itself.
function popper(place, id, words) {
  const button = made("button", { id, type: "button", class: "small ghost", "aria-expanded": "false", popovertarget: place.id }, words);
  place.addEventListener("beforetoggle", () => {
    const { left, bottom } = button.getBoundingClientRect();
    place.style.left = `${Math.max(8, Math.min(left, innerWidth - 300))}px`;
    place.style.top = `${bottom + 6}px`;
  });
  place.addEventListener("toggle", () => button.setAttribute("aria-expanded", String(place.matches(":popover-open"))));
  return button;
}

const words_of = (status) => ({ live: "Live", waiting: "Reconnecting", off: "Not live" })[status];

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function label() {
  const words = dark() ? "Light" : "Dark";
  const button = at("bar").querySelector(".theme");
  button.textContent = words;
  button.setAttribute("aria-label", `${words} colours`);
}

function turn() {
  const theme = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("theme", theme); } catch { /* it holds for this page */ }
  label();
  document.dispatchEvent(new Event("theme"));
}

async function leave() {
  try {
    await ask("/session", { verb: "DELETE" });
  } catch (problem) {
    if (problem.status !== 401) { // it may go on: whoever leaves has to know that
      tell(`You are not signed out. ${problem.title}. ${problem.unblock}`);
      return;
    }
  }
  out("You are signed out.");
}

// A request that left just before its session was replaced by a newer one is refused, too.
async function leave_if_over() {
  if (!me) return;
  const typed = document.querySelector("dialog[open]");
  if (typed) { // what stands in it is not thrown away: it asks for the token itself
    typed.addEventListener("close", () => leave_if_over(), { once: true });
    return;
  }
  const answer = await fetch("/v1/me", { credentials: "same-origin" }).catch(() => null);
  if (!me) return;
  if (answer?.status === 401) out("Your session is over: sign in again.");
  else live.start();
}

function out(words) {
  live.stop();
  cut?.abort();
  shown?.end?.();
  shown = null;
  me = null;
  at("bar").hidden = true;
  at("mode")?.remove();
  at("main").className = "";
  at("main").removeAttribute("aria-busy");
  document.title = "Sign in · Provisioner";
  at("main").replaceChildren(sign_in(words, begin));
  at("main").querySelector("input").focus();
}

// The line below the bar that says on every page that this daemon changes no device.
async function show_mode() {
  const { mode, why } = await ask("/mode").catch(() => ({ mode: "act" }));
  at("mode")?.remove();
  if (mode === "act") return;
  const words = mode === "observe"
    ? "OBSERVING: this daemon reads everything and changes no device. Pages show what it would do."
    : `READ ONLY: nothing is written to any device. ${why}`;
  at("bar").after(made("p", { id: "mode", class: "notice mode", role: "status" }, words));
}

async function begin(who) {
  set_clock(who.now, who.speed);
  me = who;
  Object.assign(person, { subject: who.subject, tenant: who.tenant });
  bar();
  show_mode();
  live.start();
  await show();
  tell(`Signed in as ${me.subject}`);
}

async function open() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (me) label(); });
  gone.addEventListener("signed-out", leave_if_over);
  window.addEventListener("hashchange", () => { if (me) show(); });
  window.addEventListener("keydown", (event) => {
    if (!me || !leads_to_search(event)) return;
    event.preventDefault();
    at("search")?.focus();
  });
  await arrive();
}

async function arrive() {
  let who;
  try {
    who = await ask("/me");
  } catch (problem) {
    if (problem.status === 401) out("");
    else put(waiting(problem, arrive)); // the session may well be good: nobody is asked for a token
    return;
  }
  await begin(who);
}

open();
