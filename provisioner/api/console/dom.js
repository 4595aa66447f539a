// @ts-check
// Builds pages. Rule: what a device, a person or the server said becomes text, never markup; there
// is no other way to put words into a page than `made`.

import { moment, seconds, when } from "./words.js";

const OWN = /^(#|\/(console|v1)\/)/;

/** An element. `about`: attributes; `on`: {event: handler}; `class`; null and false are left out. */
export function made(tag, about = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "href") {
      if (OWN.test(value)) element.setAttribute("href", value);
    } else if (name.startsWith("on") || name === "style" || name === "src" || name === "srcdoc") {
      throw new Error(`${name} is never set by words`);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
const GEOMETRY = /^(viewBox|x|y|x1|x2|y1|y2|cx|cy|r|rx|ry|width|height|d|points|transform|class|role|aria-label|aria-hidden|id|preserveAspectRatio|text-anchor|dominant-baseline|tabindex|data-[a-z]+)$/;

/** An element of a drawing, by the same rule: words become text. A link is made with `href` as of `made`. */
export function drawn(tag, about = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (name === "href") { if (OWN.test(value)) element.setAttribute("href", value); }
    else if (name === "colour") element.style.setProperty("--dot", value);
    else if (GEOMETRY.test(name)) element.setAttribute(name, String(value));
    else throw new Error(`${name} is no part of a drawing`);
  }
  append(element, children);
  return element;
}

/** What a drawing says when one points at it. */
export const hint = (words) => drawn("title", {}, words);

function append(element, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : tame(String(child)));
  }
}

/** Text without the characters that turn or hide other text (bidirectional controls, C0, C1). */
export function tame(words) {
  return words.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, "\ufffd");
}

/** A link to another page of the console. */
export function link(where, words, about = {}) {
  return made("a", { href: `#/${where.map(encodeURIComponent).join("/")}`, ...about }, words);
}

/** A table: heads are [words, class]; rows are arrays of children for each cell. */
export function table(caption, heads, rows) {
  // on a narrow screen each row becomes a card: the roles say that it still is a table
  const head = made("tr", { role: "row" }, heads.map((h) => made("th", { scope: "col", role: "columnheader", class: h[1] }, h[0])));
  const body = rows.map((row) => made("tr", { role: "row" }, row.map((cell, i) => made(
    i === 0 ? "th" : "td", {
      scope: i === 0 ? "row" : null, role: i === 0 ? "rowheader" : "cell", class: [heads[i][1], cell === "—" && "none"].filter(Boolean).join(" ") || null, "data-head": heads[i][0],
    }, made("div", {}, cell),
  ))));
  return framed(caption, head, body);
}

/** A table's frame: it scrolls sideways where it has to. */
export function framed(caption, head, body) {
  return made("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    made("table", { role: "table" }, made("caption", { class: "visually-hidden" }, caption),
      made("thead", { role: "rowgroup" }, head), made("tbody", { role: "rowgroup" }, body)));
}

/** Pairs of a name and what it is; pairs without a value are left out. */
export function facts(pairs, kind = "") {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return made("dl", { class: `facts ${kind}` }, shown.map(([name, value]) => made("div", {},
    made("dt", {}, name), made("dd", {}, value))));
}

/** A section with a heading. */
export function section(title, ...children) {
  const id = `s-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return made("section", { class: "card", "aria-labelledby": id },
    made("h2", { id }, title), children);
}

/** A moment, short; the whole of it when pointed at. */
export function at(time) {
  return moment(time) === "—" ? "—" : made("time", { datetime: new Date(seconds(time) * 1000).toISOString(), title: when(time) }, moment(time));
}

/** What stands where there is nothing yet, with what to do. */
export function empty(title, todo) {
  return made("div", { class: "empty" }, made("p", { class: "strong" }, title), todo && made("p", {}, todo));
}

/** A coloured dot with a word: the word says it, the colour helps. */
export function chip(word, kind = "state") {
  return made("span", { class: "chip", "data-kind": kind, "data-word": word }, word.replaceAll("_", " ") || "none");
}

const NAMED = /(`[^`\n]{1,200}`|\b[a-z0-9][a-z0-9._-]*-c\d{4,}\b|\bc\d{4,}\b)/i;

// where the console does what a command does: the object that it names, or its page
const DONE_AT = { node: "nodes", case: "cases", campaign: "campaigns", tenant: "tenants", hardware: "hardware", alert: "alerts", certificate: "certificates", pin: "pins", policy: "policies", matrix: "matrix", image: "images", token: "tokens", webhook: "webhooks", credential: "credentials", release: "releases", recovery: "recovery" };
const OBJECTS = new Set(["node", "case", "campaign", "tenant"]);

/** A command as code; where the console has its object or its page, as a link to that. */
function command(words) {
  const [, subject, object] = /^provisioner ([a-z-]+) [a-z-]+ ?([a-z0-9][\w.-]*)?/.exec(words) ?? [];
  const page = DONE_AT[subject];
  return page ? link(OBJECTS.has(subject) && object ? [page, object] : [page], made("code", {}, words)) : made("code", {}, words);
}

/** Words of a remedy: commands as code, what they are about, cases and campaigns as links. */
export function remedy(words) {
  return words.split(NAMED).filter(Boolean).map((part) => (/^`.*`$/.test(part) ? command(part.slice(1, -1)) : /^[a-z0-9][a-z0-9._-]*-c\d{4,}$/i.test(part) ? link(["cases", part], part) : /^c\d{4,}$/.test(part) ? link(["campaigns", part], part) : part));
}

/** What stands in the way, each with what would take it away. */
export function blockers(rows) {
  const groups = new Map(); // the same of many is said once
  for (const b of rows) {
    const key = JSON.stringify([b.detail, b.reason, b.unblock]);
    groups.set(key, [...(groups.get(key) ?? []), b]);
  }
  return made("ul", { class: "blockers" }, [...groups.values()].map((same) => made("li", {},
    made("p", {}, made("span", { class: "strong" }, same.map((b) => b.subject).join(", ")), ": ", same[0].detail || same[0].reason.replaceAll("_", " ")),
    made("p", { class: "unblock" }, made("span", { class: "tag" }, "To unblock"), " ", same[0].unblock ? remedy(same[0].unblock) : "Nobody knows yet."),
  )));
}

/** Tell whoever does not see the screen. */
export function tell(words) {
  document.getElementById("told").textContent = tame(words);
}
