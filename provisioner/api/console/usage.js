// @ts-check
// Who had the nodes, why, and for how long: the ledger of time as a stacked plot and as sums, a tenant's
// signed statement, and charges at a price.

import { all, ask } from "./api.js";
import { asks } from "./dialog.js";
import { empty, link, made, section, tell } from "./dom.js";
import { save } from "./files.js";
import { listing } from "./listing.js";
import { plot } from "./plots.js";
import { SPANS, hours, share_words, stacked, times_of } from "./usage_data.js";
import { instant, many, now, seconds, when } from "./words.js";

const BY = [["cause", "Cause"], ["what", "What it is about"], ["node", "Node"]];

export async function page({ query, signal, me, go, again }) {
  const staff = me.roles.some((role) => role !== "tenant");
  const tenant = staff ? query.get("tenant") ?? "" : me.tenant;
  const node = query.get("node") ?? "";
  const by = BY.some(([word]) => word === query.get("by")) ? query.get("by") : "cause";
  const times = times_of(query, now());
  const asked = new URLSearchParams({ begins_at: instant(times.begin), ends_at: instant(times.end), ...(tenant ? { tenant } : {}), ...(node ? { node } : {}) });
  const [sums, course, tenants] = await Promise.all([ask(`/usage?${asked}&by=${by}`, { signal }), ask(`/usage/course?${asked}&steps=60`, { signal }), staff ? all("/tenants", { signal }) : []]);
  const name = `${tenant || "site"}-${times.words.replaceAll(" ", "-").toLowerCase()}`;
  return { title: "Usage", beside: spans(query, go), body: made("div", { class: "stack" },
    made("div", { class: "card" }, form({ query, tenant, node, by, times, tenants, staff, go }),
      sums.behind ? made("p", { class: "notice" }, `${many(sums.behind, "event")} of the journal ${sums.behind === 1 ? "is" : "are"} not counted yet: they are within a minute.`) : null),
    course.lines.length ? made("section", { class: "card" }, plot({ title: "Nodes by cause", says: `${when(course.period.begins_at)} to ${when(course.period.ends_at)}`, ...stacked(course, seconds), stacked: true, axis: "nodes", high: 260 })) : null,
    section("Sums", made("div", {}, sums.availability.map((a) => made("p", {}, made("span", { class: "strong" }, a.tenant), `: ${share_words(a)}`))),
      made("div", { class: "buttons" }, files({ asked, tenant, name, staff })), rows_of(sums.items, { by, query, again }))) };
}

/** The usual times, as links that keep the rest. */
function spans(query, go) {
  return made("nav", { class: "choice tabs", "aria-label": "Time" }, SPANS.map(([word, words]) => {
    const kept = new URLSearchParams(query);
    for (const other of ["from", "to"]) kept.delete(other);
    kept.set("time", word);
    return made("a", { href: `#/usage?${kept}`, "aria-current": !query.get("from") && (query.get("time") ?? "month") === word ? "page" : null, on: { click: (event) => { event.preventDefault(); go(["usage"], kept.toString()); } } }, words);
  }));
}

function form({ query, tenant, node, by, times, tenants, staff, go }) {
  const field = (id, words, input) => made("div", { class: "field" }, made("label", { for: id }, words), input);
  const day = (at) => instant(at).slice(0, 10);
  const of_tenant = made("input", { id: "usage-tenant", type: "search", value: tenant, list: "usage-tenants", placeholder: "all", autocomplete: "off" });
  const of_node = made("input", { id: "usage-node", type: "search", value: node, placeholder: "all", autocomplete: "off", spellcheck: "false" });
  const from = made("input", { id: "usage-from", type: "date", value: day(times.begin) });
  const to = made("input", { id: "usage-to", type: "date", value: day(Math.max(times.begin, times.end - 1)) });
  const sums = made("select", { id: "usage-by" }, BY.map(([word, words]) => made("option", { value: word, selected: word === by }, words)));
  return made("form", { class: "toolbar", on: { submit: (event) => {
    event.preventDefault();
    const kept = new URLSearchParams(query);
    const set = (name, value) => { if (value) kept.set(name, value); else kept.delete(name); };
    set("tenant", of_tenant.value.trim());
    set("node", of_node.value.trim());
    set("by", sums.value === "cause" ? "" : sums.value);
    if (from.value !== day(times.begin) || to.value !== day(Math.max(times.begin, times.end - 1))) { set("from", from.value); set("to", to.value); }
    go(["usage"], kept.toString());
  } } }, staff ? [field("usage-tenant", "Tenant", of_tenant), made("datalist", { id: "usage-tenants" }, tenants.map((t) => made("option", { value: t.name })))] : null,
  field("usage-node", "Node", of_node), field("usage-from", "From (UTC)", from), field("usage-to", "To the end of", to), field("usage-by", "Sums by", sums), made("button", { type: "submit", class: "primary" }, "Show"));
}

function rows_of(items, { by, query, again }) {
  if (!items.length) return empty("No node was here in this time.", "Choose another time, tenant or node.");
  const columns = [
    by === "node" ? { head: "Node", cell: (row) => link(["nodes", row.node], row.node), value: (row) => row.node } : null,
    { head: "Tenant", cell: (row) => (row.owner ? link(["tenants", row.owner], row.owner) : "—"), value: (row) => row.owner },
    { head: "Cause", cell: (row) => row.cause },
    by === "what" ? { head: "What", cell: (row) => row.what || "—" } : null,
    { head: "Node-hours", num: true, cell: (row) => hours(row.node_s), value: (row) => row.node_s },
    { head: "GPU-hours", num: true, cell: (row) => hours(row.gpu_s), value: (row) => row.gpu_s },
  ].filter(Boolean);
  return listing({ caption: "Sums of time", columns, rows: items, again, query, name: (row) => `${row.owner} ${row.cause} ${row.node}`, sort: columns.findIndex((c) => c.head === "Node-hours"), down: true });
}

/** What can be taken along: sums, the statement of one tenant, charges. */
function files({ asked, tenant, name, staff }) {
  const statement = new URLSearchParams(asked);
  for (const other of ["tenant", "node"]) statement.delete(other);
  const fetches = (words, make) => {
    const said = made("span", { class: "quiet", role: "status" });
    return made("span", {}, made("button", { type: "button", on: { click: () => make().then(() => { said.textContent = ""; }, (problem) => {
      said.textContent = ` ${problem.title ?? problem}. ${problem.unblock ?? ""}`;
      tell(said.textContent);
    }) } }, words), said);
  };
  return [
    tenant ? fetches("Signed statement", async () => save(`usage-${name}.json`, JSON.stringify((await ask(`/tenants/${encodeURIComponent(tenant)}/usage-statement?${statement}`)).envelope), "application/json"))
      : made("span", { class: "quiet" }, "A statement is of one tenant: name it above."),
    staff ? asks({ words: "Charges (FOCUS)", title: "Charges at a price, as FOCUS 1.2 rows", says: `${when(asked.get("begins_at"))} to ${when(asked.get("ends_at"))}. Only the time that served has a price; each month is a billing period of its own.`,
      fields: [{ name: "price", words: "Price of a GPU-hour", required: true, most: 12 }, { name: "currency", words: "Currency, such as EUR", required: true, most: 3 }, { name: "provider", words: "Who sends the invoice", required: true, most: 128 }],
      send: async ({ price, currency, provider }) => {
        const query = new URLSearchParams(asked);
        query.delete("node");
        for (const [key, value] of Object.entries({ price, currency: currency.toUpperCase(), provider })) query.set(key, value);
        save(`charges-${name}.csv`, (await ask(`/usage/focus?${query}`)).csv, "text/csv");
        return { state: `saved as charges-${name}.csv` };
      } }) : null,
  ];
}
