// @ts-check
// The settings as they are in force, those that differ from their default first.

import { ask } from "./api.js";
import { chip, made } from "./dom.js";
import { listing } from "./listing.js";

export async function page({ signal, again }) {
  const settings = await ask("/settings", { signal });
  const body = made("div", { class: "card" }, listing({
    caption: "Settings in force", rows: settings.items, again, sort: 3, down: true, name: (row) => row.name,
    columns: [
      { head: "Setting", cell: (row) => made("code", {}, row.name), value: (row) => row.name },
      { head: "Value", cell: (row) => row.value || "—" },
      { head: "Default", cell: (row) => row.default || "—" },
      { head: "Changed", cell: (row) => chip(row.changed ? "yes" : "no", "changed"), value: (row) => (row.changed ? 1 : 0) },
      { head: "Meaning", cell: (row) => row.about },
    ],
  }));
  return { title: "Settings", body };
}
