// @ts-check
// What a node says of itself: logs of its BMCs, its system log, metric reports and NVLink counters.
// Each is read now, searched here, and saved as a file.

import { ask } from "./api.js";
import { chip, empty, link, made } from "./dom.js";
import { save } from "./files.js";
import { listing } from "./listing.js";
import { many, number, seconds, when } from "./words.js";

const SYSLOG_LINES = 2000;

export async function page({ parts, query, signal, me, again, go }) {
  const name = parts[1] ?? "";
  const path = `/nodes/${encodeURIComponent(name)}`;
  const node = await ask(path, { signal });
  const staff = me.roles.some((role) => role !== "tenant");
  const tabs = [...(staff ? [["bmc", "BMC logs"]] : []), ["syslog", "System log"], ...(staff && node.kind === "host" ? [["metrics", "Metric reports"], ["nvlink", "NVLink"]] : [])];
  const show = tabs.some(([word]) => word === query.get("show")) ? query.get("show") : tabs[0][0];
  const bmc = query.get("bmc") ?? node.bmcs?.[0]?.name ?? "";
  const place = made("div", { class: "card" }, made("p", { class: "quiet" }, "It is read now…"));
  const read = { bmc: read_bmc, syslog: read_syslog, metrics: read_metrics, nvlink: read_links }[show];
  const at = (values) => go(["logs", name], new URLSearchParams(Object.entries({ show, bmc, ...values }).filter(([, v]) => v)).toString());
  const nav = made("nav", { class: "choice tabs", "aria-label": "Logs and figures" }, tabs.map(([word, words]) => made("a", { href: `#/logs/${encodeURIComponent(name)}?show=${word}`, "aria-current": word === show ? "page" : null }, words)));
  const choose = show !== "syslog" && (node.bmcs ?? []).length > 1 ? made("div", { class: "field" }, made("label", { for: "bmc" }, "BMC"), made("select", { id: "bmc", on: { change: (event) => at({ bmc: event.target.value }) } }, node.bmcs.map((b) => made("option", { value: b.name, selected: b.name === bmc }, b.name)))) : null;
  read({ path, bmc, query, signal, name, again, at, node }).then((children) => place.replaceChildren(...children.flat().filter(Boolean)), (problem) => {
    if (problem.name !== "AbortError") place.replaceChildren(made("p", { class: "bad" }, `${problem.title}. ${problem.detail}`), made("p", {}, problem.unblock ?? ""), made("button", { type: "button", on: { click: () => again() } }, "Read again"));
  });
  return { title: `Logs of ${name}`, beside: made("div", { class: "buttons" }, link(["nodes", name], "Its page", { class: "button" }), made("button", { type: "button", on: { click: () => again() } }, "Read again")), body: made("div", { class: "stack" }, made("div", { class: "toolbar" }, nav, choose), place) };
}

async function read_bmc({ path, bmc, query, signal, name, again }) {
  const told = await ask(`${path}/logs?bmc=${encodeURIComponent(bmc)}`, { signal });
  const short = (log) => told.logs.find((l) => l.log === log)?.name ?? log.split("/").pop();
  const rows = told.entries.map((e, n) => ({ ...e, n, short: short(e.log) }));
  return [made("p", { class: "quiet" }, `Of ${bmc}, read ${when(told.read_at)}: ${told.logs.map((l) => `${l.name} ${number(l.total)}`).join(", ") || "it has no log"}.`),
    rows.length ? made("div", { class: "buttons" }, made("button", { type: "button", on: { click: () => save(`${name}-${bmc}-logs.jsonl`, told.entries.map((e) => JSON.stringify(e)).join("\n"), "application/jsonl") } }, "Download")) : null,
    listing({ caption: `Log entries of ${bmc}`, rows, again, query, sort: 0, down: true, name: (row) => row.id, nothing: empty("Its logs are empty.", ""), columns: [
      { head: "When", num: true, cell: (row) => (when(row.at) === "—" ? row.at || "—" : when(row.at)), value: (row) => seconds(row.at) || row.n },
      { head: "Log", cell: (row) => row.short }, { head: "Severity", cell: (row) => chip(row.severity || "unknown", "severity") }, { head: "Message", cell: (row) => row.message },
    ] })];
}

async function read_syslog({ path, query, signal, name, again, at }) {
  const filter = ["facility", "program"].map((word) => (query.get(word) ? `&${word}=${encodeURIComponent(query.get(word))}` : "")).join("");
  const told = await ask(`${path}/syslog?limit=${SYSLOG_LINES}${filter}`, { signal });
  const rows = told.lines.map((line, n) => ({ ...line, n }));
  const field = (word, words) => made("div", { class: "field" }, made("label", { for: `of-${word}` }, words), made("input", { id: `of-${word}`, value: query.get(word) ?? "", maxlength: "100", on: { change: (event) => at({ facility: query.get("facility"), program: query.get("program"), [word]: event.target.value.trim(), bmc: "" }) } }));
  return [made("div", { class: "toolbar" }, field("facility", "Part of the system, such as kern"), field("program", "Program")),
    rows.length ? made("div", { class: "buttons" }, made("button", { type: "button", on: { click: () => save(`${name}-syslog.txt`, rows.map((l) => `${when(l.at)} ${l.facility}.${l.severity} ${l.program}: ${l.text}`).join("\n")) } }, "Download")) : null,
    listing({ caption: "Messages", rows, again, query, sort: 0, down: true, name: (row) => String(row.n), nothing: empty("No message is here.", "The setting `log_intake_port` and docs/machine-logs.md say how hosts and switches send theirs."), columns: [
      { head: "When", num: true, cell: (row) => when(row.at), value: (row) => row.n }, { head: "Part", cell: (row) => `${row.facility}.${row.severity}` }, { head: "Program", cell: (row) => row.program || "—" }, { head: "Message", cell: (row) => made("code", {}, row.text), value: (row) => row.text },
    ] })];
}

async function read_metrics({ path, bmc, query, signal, name, again }) {
  const told = await ask(`${path}/metrics?bmc=${encodeURIComponent(bmc)}`, { signal });
  const brief = (text) => text.split("/").pop();
  return [made("p", { class: "quiet" }, `Of ${bmc}, read ${when(told.read_at)}: ${many(told.reports.length, "report")}${told.too_large?.length ? `, ${told.too_large.length} too large to read` : ""}.`),
    told.metrics.length ? made("div", { class: "buttons" }, made("button", { type: "button", on: { click: () => save(`${name}-${bmc}-metrics.jsonl`, told.metrics.map((m) => JSON.stringify(m)).join("\n"), "application/jsonl") } }, "Download")) : null,
    listing({ caption: "Values", rows: told.metrics, again, query, sort: 1, name: (row) => row.name, nothing: empty("It offers no metric report.", ""), columns: [
      { head: "Report", cell: (row) => brief(row.report) }, { head: "Property", cell: (row) => made("span", { title: row.name }, row.name.replace(/^\/redfish\/v1\/(Chassis|Systems)\//, "")), value: (row) => row.name }, { head: "Value", num: true, cell: (row) => Number(row.value.toPrecision(6)).toString(), value: (row) => row.value },
    ] })];
}

async function read_links({ path, bmc, query, signal, again, at, name }) {
  const part = query.get("part") ?? "";
  const told = await ask(`${path}/links?bmc=${encodeURIComponent(bmc)}${part ? `&part=${encodeURIComponent(part)}` : ""}`, { signal });
  const ports = new Map();
  const port_of = (c) => c.port.replace(/\/Metrics$/, "").split("/").pop();
  for (const c of told.counters) ports.set(port_of(c), { ...(ports.get(port_of(c)) ?? { port: port_of(c) }), [c.name]: c.count });
  const names = [...new Set(told.counters.map((c) => c.name))];
  const choose = made("input", { id: "part", value: told.part, maxlength: "100", on: { change: (event) => at({ part: event.target.value.trim() }) } });
  return [made("div", { class: "toolbar" }, made("div", { class: "field" }, made("label", { for: "part" }, "GPU or NVSwitch"), choose), made("p", { class: "quiet" }, `Read ${when(told.read_at)}.`)),
    made("div", { class: "buttons" }, made("button", { type: "button", on: { click: () => save(`${name}-${told.part}-nvlink.jsonl`, told.counters.map((c) => JSON.stringify(c)).join("\n"), "application/jsonl") } }, "Download")),
    listing({ caption: `NVLinks of ${told.part}`, rows: [...ports.values()], again, query, sort: 0, name: (row) => row.port, nothing: empty("It shows no counter.", ""), columns: [
      { head: "Link", cell: (row) => row.port }, ...names.map((word) => ({ head: word.replace(/^NVLinkErrors\./, ""), num: true, cell: (row) => (row[word] === undefined ? "—" : made("span", { class: /Error|CRC|Recovery|Replay/.test(word) && row[word] > 0 ? "bad" : null }, number(row[word]))), value: (row) => row[word] ?? -1 })),
    ] })];
}

