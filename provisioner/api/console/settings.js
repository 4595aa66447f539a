// @ts-check
// The settings as they are in force: those that this site changed first, all others by their subject.

import { ask } from "./api.js";
import { made, section, table } from "./dom.js";
import { remember } from "./address.js";
import { many } from "./words.js";

const FEW = 3; // subjects with fewer settings stand together

export async function page({ signal, query }) {
  const { items } = await ask("/settings", { signal });
  const filter = made("input", { type: "search", "aria-label": "Filter: Settings in force", placeholder: "Filter", value: query.get("filter") ?? "", spellcheck: "false", autocomplete: "off" });
  const place = made("div", { class: "stack" });
  const draw = () => {
    const text = filter.value.trim().toLowerCase();
    remember({ filter: text });
    const fitting = items.filter((row) => !text || `${row.name} ${row.value} ${row.about}`.toLowerCase().includes(text));
    const changed = fitting.filter((row) => row.changed);
    const groups = new Map();
    for (const row of fitting) groups.set(subject(row.name), [...(groups.get(subject(row.name)) ?? []), row]);
    const others = [...groups].filter(([, rows]) => rows.length < FEW).flatMap(([, rows]) => rows);
    const large = [...groups].filter(([, rows]) => rows.length >= FEW).sort((a, b) => a[0].localeCompare(b[0]));
    place.replaceChildren(
      section(`Changed here (${changed.length})`, changed.length ? rows_of("Changed settings", changed) : made("p", { class: "quiet" }, text ? "No changed setting is like that." : "Every setting has its default.")),
      made("section", { class: "card", "aria-label": "All settings by subject" }, made("p", { class: "quiet", role: "status" }, many(fitting.length, "setting")), [...large, ...(others.length ? [["others", others]] : [])].map(([name, rows]) => made("details", { open: text !== "" }, made("summary", {}, `${name.replaceAll("_", " ")} (${rows.length})`), rows_of(`Settings: ${name}`, rows)))));
  };
  filter.addEventListener("input", draw);
  draw();
  return { title: "Settings", body: made("div", { class: "stack" }, made("div", { class: "toolbar" }, made("div", { class: "grow" }, filter)), place) };
}

const subject = (name) => name.split("_")[0];

function rows_of(caption, rows) {
  return table(caption, [["Setting"], ["Value"], ["Default"], ["Meaning"]], rows.map((row) => [made("code", { class: "setting-name" }, row.name), row.changed ? made("span", { class: "strong setting-value" }, row.value || "empty") : row.value ? made("span", { class: "setting-value" }, row.value) : "—", row.default ? made("span", { class: "setting-value" }, row.default) : "—", made("span", { class: "setting-about" }, row.about)]));
}
