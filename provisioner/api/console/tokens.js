// @ts-check
// Tokens: listed, made, revoked; and the sessions of browsers. A token is made in this page; the server
// gets its SHA-256 only.

import { ask } from "./api.js";
import { asks } from "./dialog.js";
import { at, chip, empty, made, section } from "./dom.js";
import { listing } from "./listing.js";
import { new_token } from "./token_data.js";
import { seconds } from "./words.js";

const BOUNDS = [["racks", "su0-*"], ["releases", "site-2026.*"], ["tenants", "red"]]; // with an example
const ROLES = ["viewer", "operator", "approver", "tenant"].map((role) => [role, role]);

export async function page({ signal, me, again }) {
  const [tokens, sessions, people] = await Promise.all([ask("/tokens", { signal }), ask("/sessions", { signal }), ask("/people", { signal })]);
  const shown = made("div", { role: "alert" });
  const place = made("div");
  const draw = (rows) => place.replaceChildren(listing({
    caption: "Tokens", rows, again, sort: 4, down: true, name: (row) => `${row.id} of ${row.subject}`,
    columns: [
      { head: "Token", cell: (row) => row.id },
      { head: "Holder", cell: (row) => row.subject },
      { head: "Role", cell: (row) => (row.tenant ? `${row.role} of ${row.tenant}` : row.role) },
      { head: "Only for", cell: (row) => bounds(row.scope) || "—" },
      { head: "Good", cell: (row) => chip(row.good ? "yes" : "no", "fact") },
      { head: "Expires", num: true, cell: (row) => at(row.expires_at), value: (row) => seconds(row.expires_at) },
      { head: "Made", num: true, cell: (row) => at(row.made_at), value: (row) => seconds(row.made_at) },
      { head: "Revoked", num: true, cell: (row) => at(row.revoked_at), value: (row) => seconds(row.revoked_at) },
    ],
    bulk: me.roles.includes("operator") ? [{ words: "Revoke", danger: true, each: true, fits: (row) => row.good, says: (chosen) => `${chosen.map((row) => row.subject).join(", ")}: refused from now on. Event streams end.`,
      request: (row) => ({ path: `/tokens/${encodeURIComponent(row.id)}/revoke` }) }] : [],
  }));
  draw(tokens.items);
  const create = me.roles.includes("operator") && asks({
    words: "New token", says: "It is made in this browser and shown once. The server gets its SHA-256 only.", title: "Make a token",
    fields: [{ name: "subject", words: "Holder", required: true }, { name: "role", words: "Role", kind: "choice", options: ROLES, value: "viewer" }, { name: "tenant", words: "Tenant (for the role tenant)" }, { name: "days", words: "Days", kind: "number", required: true, value: "90" },
      ...BOUNDS.map(([name, example]) => ({ name, words: `Changes only these ${name} (such as ${example}; empty: all)`, most: 1000 }))],
    send: async (values, request) => {
      const { token, sha256 } = await new_token();
      const operation = await request("/tokens", { verb: "POST", body: { sha256, subject: values.subject, role: values.role, tenant: values.tenant, days: Number(values.days), ...Object.fromEntries(BOUNDS.map(([name]) => [name, split(values[name])])) } });
      shown.replaceChildren(made("p", { class: "notice" }, "The token, shown this once: ", made("code", {}, token)));
      draw((await ask("/tokens", { signal })).items); // the page is not drawn anew: it has the token
      return operation;
    },
  });
  return { title: "Tokens and sessions", beside: create, body: made("div", { class: "stack" }, shown, section("All tokens", place), section("Sessions of browsers", sessions_of(sessions.items, me, again)), section("People of the identity provider", people_of(people.items, again))) };
}

const split = (text) => text.split(/[\s,]+/).filter(Boolean);
const bounds = (scope) => BOUNDS.map(([name]) => (scope?.[name]?.length ? `${name} ${scope[name].join(", ")}` : "")).filter(Boolean).join("; ");

// Only the provider changes them (SCIM): whoever is not active has nothing here any more.
function people_of(rows, again) {
  return listing({
    caption: "People", rows, again, sort: 4, down: true, name: (row) => row.name, nothing: empty("No provider told of people.", "See access, people who left."),
    columns: [
      { head: "Person", cell: (row) => row.name },
      { head: "Standing", cell: (row) => chip(row.standing, "fact") },
      { head: "Groups", cell: (row) => row.groups.join(", ") || "—" },
      { head: "Told of", num: true, cell: (row) => at(row.made_at), value: (row) => seconds(row.made_at) },
      { head: "Left", num: true, cell: (row) => at(row.left_at), value: (row) => seconds(row.left_at) },
    ],
  });
}

function sessions_of(rows, me, again) {
  return listing({
    caption: "Sessions", rows, again, sort: 3, down: true, name: (row) => `session of ${row.subject}`, nothing: empty("No browser is signed in.", ""),
    columns: [
      { head: "Person", cell: (row) => row.subject },
      { head: "Roles", cell: (row) => `${row.roles.join(", ")}${row.tenant ? ` of ${row.tenant}` : ""}` },
      { head: "By", cell: (row) => (row.issuer ? row.issuer : `token ${row.token}`) },
      { head: "Used", num: true, cell: (row) => at(row.used_at), value: (row) => seconds(row.used_at) },
      { head: "Began", num: true, cell: (row) => at(row.made_at), value: (row) => seconds(row.made_at) },
      { head: "Ends", num: true, cell: (row) => at(row.expires_at), value: (row) => seconds(row.expires_at) },
    ],
    bulk: me.roles.includes("operator") ? [{ words: "End", each: true, title: "End sessions", danger: true, says: (chosen) => `${chosen.map((row) => row.subject).join(", ")}: signed out at once.`,
      request: (row) => ({ path: `/sessions/${encodeURIComponent(row.id)}/end` }) }] : [],
  });
}
