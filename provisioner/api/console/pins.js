// @ts-check
// Pinned releases: of a node, a rack or the fleet, each with its reason and end.

import { ask } from "./api.js";
import { asks } from "./dialog.js";
import { at, chip, empty, link, made, section } from "./dom.js";
import { listing } from "./listing.js";
import { instant, now, seconds } from "./words.js";

const SCOPES = [["node", "a node"], ["rack", "a rack"], ["fleet", "the fleet"]];

export async function page({ signal, me, again }) {
  const [pins, releases] = await Promise.all([ask("/pins", { signal }), ask("/releases", { signal })]);
  const table = listing({
    caption: "Pins", rows: pins.items, again, name: (row) => `${row.scope} ${row.name}`, nothing: empty("No release is pinned.", "Nodes follow their campaigns."),
    columns: [
      { head: "Of", cell: (row) => (row.scope === "node" ? link(["nodes", row.name], row.name) : `${row.scope} ${row.name}`.trim()), value: (row) => `${row.scope} ${row.name}` },
      { head: "Release", cell: (row) => link(["releases", row.release], row.release), value: (row) => row.release },
      { head: "Why", cell: (row) => row.reason },
      { head: "Until", num: true, cell: (row) => at(row.expires_at), value: (row) => seconds(row.expires_at) },
      { head: "In force", cell: (row) => chip(row.expired ? "no" : "yes", "fact") },
    ],
    bulk: me.roles.includes("operator") ? [{ words: "Remove", each: true, says: () => "Their nodes follow campaigns again.", request: (row) => ({ path: "/pins/remove", body: { scope: row.scope, name: row.name } }) }] : [],
  });
  const add = me.roles.includes("operator") && asks({
    words: "New pin", title: "Pin a release", says: "Campaigns leave it alone until the pin ends.",
    fields: [{ name: "scope", words: "Of", kind: "select", options: SCOPES, value: "node" }, { name: "name", words: "Name of the node or rack" },
      { name: "release", words: "Release", kind: "select", options: releases.items.map((row) => [row.name, row.name]) },
      { name: "reason", words: "Why", required: true, most: 300 }, { name: "days", words: "Days", kind: "number", required: true, value: "14" }],
    send: (values, request) => {
      const until = instant(now() + Number(values.days) * 86400);
      return request("/pins", { verb: "PUT", body: { scope: values.scope, name: values.name, release: values.release, reason: values.reason, until } });
    },
    done: () => again(),
  });
  return { title: "Pins", beside: add, body: made("div", { class: "stack" }, section("Pinned releases", table)) };
}
