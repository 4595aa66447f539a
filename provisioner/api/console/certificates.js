// @ts-check
// Certificates: when each ends, and one or several revoked.

import { at, chip, empty, link, made } from "./dom.js";
import { grown, listing } from "./listing.js";
import { ago, now, seconds, short } from "./words.js";

const MOST = 2000; // the newest first

export async function page({ query, signal, me, again }) {
  const state = (row) => (row.revoked_at ? "revoked" : seconds(row.expires_at) < now() ? "expired" : "valid");
  const table = await grown("/certificates", MOST, signal, (rows) => listing({
    caption: "Certificates", rows, again, query, sort: 4, name: (row) => `${row.id} of ${row.node}`,
    nothing: empty("There is no certificate yet.", "One is issued once every check of a node's gates passed."),
    columns: [
      { head: "Node", cell: (row) => link(["nodes", row.node], row.node), value: (row) => row.node },
      { head: "State", cell: (row) => chip(state(row), "fact"), value: state },
      { head: "Release", cell: (row) => row.release },
      { head: "Issued", num: true, cell: (row) => at(row.issued_at), value: (row) => seconds(row.issued_at) },
      { head: "Ends", num: true, cell: (row) => made("span", {}, at(row.expires_at), made("span", { class: "quiet block" }, ago(row.expires_at))), value: (row) => seconds(row.expires_at) },
      { head: "Certificate", cell: (row) => made("code", { title: row.id }, short(row.id)), value: (row) => row.id },
      { head: "Why revoked", cell: (row) => row.revoked_reason || "—" },
    ],
    bulk: me.roles.includes("operator") ? [{
      words: "Revoke", each: true, title: "Revoke certificates", danger: true, fits: (row) => !row.revoked_at, fields: [{ name: "reason", words: "Why (it is kept for good)", required: true }],
      says: (chosen) => `${chosen.map((row) => row.node).slice(0, 5).join(", ")}${chosen.length > 5 ? " and others" : ""}: revoked for good. A node that serves goes on serving without one; another reaches no tenant before it is proved anew.`,
      request: (row, values) => ({ path: `/certificates/${encodeURIComponent(row.id)}/revoke`, body: { reason: values.reason } }),
    }] : [],
  }));
  return { title: "Certificates", body: made("div", { class: "card" }, table) };
}
