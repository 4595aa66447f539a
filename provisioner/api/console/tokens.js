// @ts-check
// Tokens: listed, made, revoked. A token is made in this page; the server gets its SHA-256 only.

import { ask } from "./api.js";
import { asks } from "./dialog.js";
import { at, chip, made, section } from "./dom.js";
import { listing } from "./listing.js";
import { new_token } from "./token_data.js";
import { seconds } from "./words.js";

const ROLES = ["viewer", "operator", "approver", "tenant"].map((role) => [role, role]);

export async function page({ signal, me, again }) {
  const tokens = await ask("/tokens", { signal });
  const shown = made("div", { role: "alert" });
  const table = listing({
    caption: "Tokens", rows: tokens.items, again, sort: 4, down: true, name: (row) => `${row.id} of ${row.subject}`,
    columns: [
      { head: "Token", cell: (row) => row.id },
      { head: "Holder", cell: (row) => row.subject },
      { head: "Role", cell: (row) => (row.tenant ? `${row.role} of ${row.tenant}` : row.role) },
      { head: "Good", cell: (row) => chip(row.good ? "yes" : "no", "fact") },
      { head: "Expires", num: true, cell: (row) => at(row.expires_at), value: (row) => seconds(row.expires_at) },
      { head: "Made", num: true, cell: (row) => at(row.made_at), value: (row) => seconds(row.made_at) },
      { head: "Revoked", num: true, cell: (row) => at(row.revoked_at), value: (row) => seconds(row.revoked_at) },
    ],
    bulk: me.roles.includes("operator") ? [{ words: "Revoke", danger: true, fits: (row) => row.good, says: (rows) => `${rows.map((row) => row.subject).join(", ")}: refused from now on. Event streams end.`,
      request: (row) => ({ path: `/tokens/${encodeURIComponent(row.id)}/revoke` }) }] : [],
  });
  const create = me.roles.includes("operator") && asks({
    words: "New token", says: "It is made in this browser and shown once. The server gets its SHA-256 only.", title: "Make a token",
    fields: [{ name: "subject", words: "Holder", required: true }, { name: "role", words: "Role", kind: "select", options: ROLES, value: "viewer" }, { name: "tenant", words: "Tenant (for the role tenant)" }, { name: "days", words: "Days", kind: "number", required: true, value: "90" }],
    send: async (values, request) => {
      const { token, sha256 } = await new_token();
      const operation = await request("/tokens", { verb: "POST", body: { sha256, subject: values.subject, role: values.role, tenant: values.tenant, days: Number(values.days) } });
      shown.replaceChildren(made("p", { class: "notice" }, "The token, shown this once: ", made("code", {}, token)));
      return operation;
    },
  });
  return { title: "Tokens", beside: create, body: made("div", { class: "stack" }, shown, section("All tokens", table)) };
}
