// @ts-check
// Receivers of events: how far each is, and what could not be delivered.

import { ask } from "./api.js";
import { at, chip, empty, section, made } from "./dom.js";
import { asks } from "./dialog.js";
import { listing } from "./listing.js";
import { number, seconds } from "./words.js";

export async function page({ signal, me, again }) {
  const hooks = await ask("/webhooks", { signal });
  const path = (row, verb) => `/webhooks/${encodeURIComponent(row.name)}${verb}`;
  const table = listing({
    caption: "Webhooks", rows: hooks.items, again, name: (row) => row.name, nothing: empty("No system receives events.", "Add one with the button above."),
    columns: [
      { head: "Name", cell: (row) => row.name },
      { head: "State", cell: (row) => chip(row.paused_why ? "paused" : "ready") },
      { head: "To", cell: (row) => row.url },
      { head: "Kinds", cell: (row) => row.kinds.join(", ") },
      { head: "Waiting", num: true, cell: (row) => number(row.pending), value: (row) => row.pending },
      { head: "Undelivered", num: true, cell: (row) => number(row.dead), value: (row) => row.dead },
      { head: "Delivered", num: true, cell: (row) => number(row.delivered), value: (row) => row.delivered },
      { head: "Last", num: true, cell: (row) => at(row.delivered_at), value: (row) => seconds(row.delivered_at) },
      { head: "Why paused", cell: (row) => row.paused_why || "—" },
    ],
    bulk: me.roles.includes("operator") ? [
      { words: "Pause", each: true, fits: (row) => !row.paused_why, says: () => "Events wait until it is resumed.", fields: [{ name: "why", words: "Why", required: true }], request: (row, values) => ({ path: path(row, "/pause"), body: { why: values.why } }) },
      { words: "Resume", each: true, fits: (row) => row.paused_why, says: () => "What waits is sent now.", request: (row) => ({ path: path(row, "/resume") }) },
      { words: "Send again", fits: (row) => row.dead > 0, says: () => "Undelivered events are sent once more.", request: (row) => ({ path: path(row, "/again"), body: {} }) },
      { words: "Remove", danger: true, says: () => "Events that wait for it are lost.", request: (row) => ({ path: path(row, ""), verb: "DELETE" }) },
    ] : [],
  });
  const add = me.roles.includes("operator") && asks({
    words: "New webhook", title: "Send events to a system", says: "Events from now on are posted there, signed with the secret.",
    fields: [{ name: "name", words: "Name", required: true }, { name: "url", words: "URL (https)", required: true, most: 1000 }, { name: "secret", words: "Secret (whsec_…)", kind: "password", required: true }, { name: "kinds", words: "Kinds of events, by comma", value: "*" }],
    send: (values, request) => request(`/webhooks/${encodeURIComponent(values.name)}`, { verb: "PUT", body: { url: values.url, secret: values.secret, kinds: values.kinds.split(",").map((word) => word.trim()).filter(Boolean) } }),
    done: () => again(),
  });
  return { title: "Webhooks", beside: add, body: made("div", { class: "stack" }, section("Receivers", table)) };
}
