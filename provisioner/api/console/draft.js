// @ts-check
// Drafts a campaign: a release from the list with its difference from what runs, the picked nodes
// as a live picture, the policy as a form, and the preview as if every one-way step were agreed to.

import { ask, maybe } from "./api.js";
import { forecast } from "./campaigns.js";
import { ask_proved, operation_words, row } from "./dialog.js";
import { blockers, chip, empty, made, section, table, tell } from "./dom.js";
import { NodePicker } from "./node_picker.js";
import { read_policy } from "./policy_data.js";
import { append_blockers, wrong_words } from "./problem_words.js";
import { approval_words, read_values, watch_dry } from "./proposal.js";
import { many, number } from "./words.js";

const TRIED_MAX = 6; // releases whose moves are asked for, until one fits
const COMPARED_MAX = 4; // releases that run on the picked nodes, each compared with the new one
const SHARE = { kind: "number", most: 6 };
const POLICY = [
  { name: "canaries", words: "Canaries", kind: "number", value: "5" },
  { name: "canary_soak", words: "Their soak, minutes", kind: "number", value: "60" },
  { name: "first", words: "First wave up to, percent", kind: "number", value: "10" },
  { name: "wave_soak", words: "Its soak, minutes", kind: "number", value: "30" },
  { name: "rack", words: "At once of a rack, percent", ...SHARE, value: "50" },
  { name: "scalable_unit", words: "At once of a unit, percent", ...SHARE, value: "25" },
  { name: "tenant", words: "At once of a tenant, percent", ...SHARE, value: "10" },
  { name: "total", words: "At once of all, percent", ...SHARE, value: "10" },
  { name: "notice", words: "Notice to tenants, hours", kind: "number", value: "24" },
  { name: "budget", words: "Stops above failed nodes, percent", ...SHARE, value: "2" },
  { name: "same_reason", words: "Stops at failures of one reason", kind: "number", value: "2" },
  { name: "days", words: "Window: days (such as Mon Tue; empty: always)", proposed: ["Mon Tue Wed Thu Fri", "Sat Sun", "Mon Tue Wed Thu Fri Sat Sun"] },
  { name: "begins", words: "Window begins", kind: "time", value: "22:00" },
  { name: "minutes", words: "Window lasts, minutes", kind: "number", value: "360" },
  { name: "zone", words: "Its time zone (such as Europe/Berlin; empty: UTC)", most: 64, proposed: Intl.supportedValuesOf("timeZone") },
  { name: "irreversible", words: "Also nodes that could not be rolled back", kind: "check" },
];

export async function page({ query, signal, me, go }) {
  if (!me.roles.includes("operator")) return { title: "New campaign", body: made("p", {}, "An operator drafts campaigns.") };
  const { items } = await ask("/releases", { signal });
  const newest = [...items].reverse();
  const fields = [{ name: "release", words: "Release", kind: "select", options: newest.map((r) => [r.name, `${r.name}${r.ready ? "" : " (not ready for production)"}`]), value: query.get("release") ?? newest[0]?.name },
    { name: "select", words: "Which nodes, such as rack=su0-* and kind=host", required: true, most: 2000, value: query.get("where") ?? "kind=host" }, ...POLICY];
  const inputs = new Map();
  const rows = new Map(fields.map((f) => [f.name, row(f, `draft-${f.name}`, inputs)]));
  const plan = made("div", { class: "plan", role: "status", "aria-label": "Dry run" });
  const changes = made("div", {});
  const said = made("div", { role: "alert" });
  const yes = made("button", { type: "submit", class: "primary", disabled: true }, "Draft");
  const picture = new NodePicker();
  const about = { verb: "POST", path: "/campaigns", fields, show: shown, refuses, body: (v) => ({ release: v.release, select: v.select, policy: read_policy(v) }) };
  const policy = made("details", {}, made("summary", {}, "Canaries, waves, limits, windows, notice, stops"), made("div", { class: "form-grid" }, POLICY.map((f) => rows.get(f.name))));
  const form = made("form", { novalidate: true, class: "stack" },
    section("Release and nodes", rows.get("release"), rows.get("select"), picture.body), section("Difference from what runs", changes), section("Policy", policy),
    section("Preview", plan, said, made("div", { class: "buttons end" }, yes)));
  const watch = watch_dry(form, about, inputs, plan, (good) => { yes.disabled = !good; });
  const shows = { releases: {}, asked: new AbortController() };
  const look = async () => {
    shows.asked.abort();
    const asked = new AbortController();
    shows.asked = asked;
    try {
      const where = inputs.get("select").value;
      const selection = await picture.show(where, asked.signal).catch((problem) => {
        if (problem.name !== "AbortError") picture.said.replaceChildren(...wrong_words(where, problem));
        return null;
      });
      if (!selection || asked.signal.aborted) return;
      shows.releases = selection.releases;
      const told = await differences(selection.releases, inputs.get("release").value, asked.signal);
      if (!asked.signal.aborted) changes.replaceChildren(...told);
    } catch (problem) {
      if (signal.aborted || asked.signal.aborted) return; // the page was left, or another one is asked for
      changes.replaceChildren();
      append_blockers(changes, problem);
    }
  };
  let timer = 0;
  for (const name of ["release", "select"]) {
    inputs.get(name).addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 150); });
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      const operation = await ask_proved(about, { verb: "POST", body: about.body(read_values(inputs)) });
      tell(operation_words(operation));
      if (operation.result?.campaign) go(["campaigns", operation.result.campaign]);
      else said.replaceChildren(made("p", { class: "notice" }, operation_words(operation)));
    } catch (problem) {
      said.replaceChildren();
      append_blockers(said, problem);
      yes.disabled = false;
    }
  });
  await picture.load(signal);
  await look();
  if (!query.get("release")) {
    const fits = await fitting(shows.releases, newest, signal);
    if (fits !== inputs.get("release").value) {
      inputs.get("release").value = fits;
      await look();
    }
  }
  watch.look();
  return { title: "New campaign", body: form, shown: () => picture.draw(), end: () => { clearTimeout(timer); shows.asked.abort(); watch.end(); picture.end(); } };
}

// A draft without a node would wait for nothing.
function refuses(result) {
  const preview = result?.preview;
  return preview && !preview.waves.length ? { title: "It would upgrade no node", detail: preview.unchanged.length ? `${many(preview.unchanged.length, "node")} run that release already.` : Object.keys(preview.refused).length ? "Every picked node is refused; the reasons stand above." : "The expression picks no node.", unblock: "Choose another release, or other nodes." } : null;
}

/** The newest release to which the picked nodes can go: they do not all run it, and a way leads there. */
async function fitting(counts, releases, signal) {
  const running = Object.entries(counts).filter(([name]) => name).sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const later = []; // those that supersede what runs on most, the nearest first: the way back is open there; the others after them
  for (let next = running[0]; next && later.length < releases.length; ) {
    next = releases.find((release) => release.supersedes === next && !later.includes(release.name))?.name;
    if (next) later.push(next);
  }
  for (const name of [...new Set([...later.slice(0, TRIED_MAX), ...releases.slice(0, TRIED_MAX).map((release) => release.name)])]) {
    if (running.length === 1 && running[0] === name) continue;
    const moves = running[0] && running[0] !== name ? await maybe(`/releases/${encodeURIComponent(running[0])}/moves/${encodeURIComponent(name)}`, { signal }).catch(() => null) : null;
    if (!running.length || moves?.profiles.some((m) => !m.blockers.length && m.steps.length)) return name;
  }
  return later[0] ?? releases[0]?.name ?? "";
}

function shown(result) {
  return [result.preview ? forecast(result.preview) : made("p", {}, "A draft touches nothing."), approval_words(result)];
}

/** What would change on the picked nodes: one table for each release that runs on them. */
async function differences(released, newer, signal) {
  const counts = Object.entries(released).filter(([name]) => name && name !== newer).sort((a, b) => b[1] - a[1]);
  if (!counts.length) return [empty("Every picked node runs that release, or none is picked.", "")];
  return Promise.all(counts.slice(0, COMPARED_MAX).map(async ([older, nodes]) => {
    const moves = await maybe(`/releases/${encodeURIComponent(older)}/moves/${encodeURIComponent(newer)}`, { signal });
    return made("details", { open: counts.length === 1 }, made("summary", {}, `${many(nodes, "node")} on ${older}`), moves?.profiles.length ? moves.profiles.map(move) : empty("The two releases have no profile in common.", ""));
  }));
}

function move(m) {
  return [made("p", { class: "strong" }, m.profile, " ", chip(m.blockers.length ? "not met" : "met", "fact")), made("p", { class: "quiet" }, `${many(m.steps.length, "step")}, ${many(m.resets, "reset")}, about ${number(m.minutes)} min a node`),
    table(`Versions of ${m.profile}`, [["Component"], ["Runs", "num"], ["Then", "num"]], m.changes.map((c) => [c.kind, c.before || "—", c.after || "—"])), m.blockers.length ? blockers(m.blockers) : null];
}
