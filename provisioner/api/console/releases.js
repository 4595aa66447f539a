// @ts-check
// Releases of the matrix: the list, the pins of one, and the difference between two.

import { ask } from "./api.js";
import { blockers, chip, empty, facts, link, made, section, table } from "./dom.js";
import { listing } from "./listing.js";
import { many, number, short } from "./words.js";

export async function page({ parts, signal, again }) {
  if (parts[1] && parts[2]) return difference(parts[1], parts[2], { signal });
  return parts[1] ? one(parts[1], { signal }) : list({ signal, again });
}

async function list({ signal, again }) {
  const [releases, summary] = await Promise.all([ask("/releases", { signal }), ask("/summary", { signal })]);
  const nodes = new Map();
  for (const c of summary.counts) nodes.set(c.release, (nodes.get(c.release) ?? 0) + c.nodes);
  const body = made("div", { class: "card" }, listing({
    caption: "Releases", rows: releases.items, again, name: (row) => row.name, sort: 0,
    columns: [
      { head: "Release", cell: (row) => link(["releases", row.name], row.name), value: (row) => row.name },
      { head: "Nodes", num: true, cell: (row) => number(nodes.get(row.name) ?? 0), value: (row) => nodes.get(row.name) ?? 0 },
      { head: "Supersedes", cell: (row) => (row.supersedes ? link(["releases", row.supersedes], row.supersedes) : "—"), value: (row) => row.supersedes },
      { head: "Difference", cell: (row) => (row.supersedes ? link(["releases", row.supersedes, row.name], "Compare", { "aria-label": `Compare ${row.name} with ${row.supersedes}` }) : "—"), value: () => "" },
      { head: "Profiles", cell: (row) => row.profiles.join(", ") },
      { head: "Complete", cell: (row) => chip(row.ready ? "yes" : "no", "fact") },
    ],
  }), made("p", { class: "quiet" }, "Matrix ", made("code", { title: releases.sha256 }, short(releases.sha256))));
  return { title: "Releases", body };
}

async function one(name, { signal }) {
  const [release, releases] = await Promise.all([ask(`/releases/${encodeURIComponent(name)}`, { signal }), ask("/releases", { signal })]);
  const others = releases.items.map((row) => row.name).filter((other) => other !== name);
  const body = made("div", { class: "stack" },
    made("div", { class: "card" }, facts([["Supersedes", release.supersedes]]), others.length ? made("p", { class: "links" }, made("span", { class: "quiet" }, "Difference from"), others.map((other) => link(["releases", other, name], other, { "aria-label": `Difference from ${other}` }))) : null),
    release.profiles.map((profile) => section(profile.name,
      profile.readiness.unknown.length ? made("p", { class: "notice" }, `Without a published version: ${profile.readiness.unknown.join(", ")}`) : null,
      table(`Pins of ${profile.name}`, [["Component"], ["Version", "num"], ["Also"], ["File"], ["Source"]], Object.entries(profile.pins).map(([kind, pin]) => [
        kind, pin.version, pin.also.join(", ") || "—", pin.artifact ? made("span", { title: pin.sha256 }, pin.artifact) : "—", pin.evidence || "—"])))));
  return { title: name, body };
}

async function difference(older, newer, { signal }) {
  const moves = await ask(`/releases/${encodeURIComponent(older)}/moves/${encodeURIComponent(newer)}`, { signal });
  const body = made("div", { class: "stack" }, moves.profiles.length ? moves.profiles.map((profile) => section(profile.profile,
    made("p", { class: "quiet" }, `${many(profile.changes.length, "change")}, ${many(profile.steps.length, "step")}, ${many(profile.resets, "reset")}, about ${many(profile.minutes, "minute")}.`),
    profile.changes.length ? table(`Changes of ${profile.profile}`, [["Component"], ["Before", "num"], ["After", "num"]], profile.changes.map((c) => [c.kind, c.before || "—", c.after || "—"])) : empty("No version differs.", ""),
    profile.blockers.length ? blockers(profile.blockers) : null,
    profile.steps.length ? made("details", {}, made("summary", {}, many(profile.steps.length, "step")), made("ol", {}, profile.steps.map((step) => made("li", {}, step)))) : null))
    : empty("They have no profile in common.", "Choose two releases for the same hardware."));
  return { title: "Difference", heading: `${older} → ${newer}`, body };
}
