// @ts-check
// Onboards a tenant: the form, and beside it what each leaf would receive, before anything is done.

import { all } from "./api.js";
import { ask_proved, operation_words, row } from "./dialog.js";
import { facts, made, section, tell } from "./dom.js";
import { choose } from "./node_choice.js";
import { NodePicker, RULES } from "./node_picker.js";
import { append_blockers } from "./problem_words.js";
import { approval_words, difference, read_values, watch_dry } from "./proposal.js";
import { many } from "./words.js";

const FIELDS = [
  { name: "name", words: "Name", required: true, most: 63 },
  { name: "nodes", words: "Nodes", kind: "number", value: "0" },
  { name: "rule", words: "Which nodes", kind: "choice", options: RULES, value: "near" },
  { name: "vrf", words: "VRF (proposed if it is empty)", most: 64 },
  { name: "most_nodes", words: "Quota: nodes", kind: "number" },
  { name: "gpus", words: "Quota: GPUs", kind: "number" },
  { name: "prefixes", words: "Quota: outside prefixes", kind: "number" },
];

const figure = (text) => (text === "" ? null : Number(text));

export async function page({ signal, me, go }) {
  if (!me.roles.includes("operator")) return { title: "New tenant", body: made("p", {}, "An operator onboards tenants.") };
  const inputs = new Map();
  const rows = new Map(FIELDS.map((f) => [f.name, row(f, `onboard-${f.name}`, inputs)]));
  const plan = made("div", { class: "plan", role: "status", "aria-label": "Dry run" });
  const said = made("div", { role: "alert" });
  const yes = made("button", { type: "submit", class: "primary", disabled: true }, "Onboard");
  const picker = new NodePicker((names) => {
    inputs.get("rule").value = "map";
    inputs.get("nodes").value = String(names.length);
    watch.soon();
  });
  const about = {
    verb: "PUT", get path() { return `/tenants/${encodeURIComponent(inputs.get("name").value.trim())}`; }, fields: FIELDS, show: shown,
    body: (v) => ({
      nodes: Number(v.nodes || 0), picked: [...picker.picks], ...(v.vrf ? { vrf: v.vrf } : {}),
      quota: { nodes: figure(v.most_nodes), gpus: figure(v.gpus), prefixes: figure(v.prefixes) },
    }),
  };
  const form = made("form", { novalidate: true, class: "stack" },
    section("Tenant", made("div", { class: "form-grid" }, [...rows.values()])),
    section("Nodes", picker.body),
    section("What would be done", plan, said, made("div", { class: "buttons end" }, yes)));
  const watch = watch_dry(form, about, inputs, plan, (good) => { yes.disabled = !good; });
  form.addEventListener("input", (event) => {
    if (!["rule", "nodes"].includes(event.target.name) || inputs.get("rule").value === "map") return;
    picker.set(choose(picker.fleet, inputs.get("rule").value, Number(inputs.get("nodes").value), picker.taken));
  }, { capture: true });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      const operation = await ask_proved(about, { verb: "PUT", body: about.body(read_values(inputs)) });
      tell(operation_words(operation));
      if (operation.state === "waiting") said.replaceChildren(made("p", { class: "notice" }, operation_words(operation)));
      else go(["tenants", inputs.get("name").value.trim()]);
    } catch (problem) {
      said.replaceChildren();
      append_blockers(said, problem);
      yes.disabled = false;
    }
  });
  picker.taken = new Set((await all("/tenants", { signal })).flatMap((t) => t.picked));
  await picker.load(signal);
  watch.look();
  return { title: "New tenant", body: form, shown: () => { picker.draw(); inputs.get("name").focus(); }, end: () => { watch.end(); picker.end(); } };
}

/** The record and the network of a dry run. */
export function shown(result) {
  const t = result.tenant;
  return [t ? facts([["VRF", t.vrf], ["VNI", t.l3vni || ""], ["Number", t.number], ["InfiniBand partition", t.pkey ? `0x${t.pkey.toString(16)}` : ""], ["Nodes", many(t.nodes_wanted, "node")], ["Picked", t.picked?.join(", ")]], "narrow") : null,
    result.leaving?.length ? made("p", {}, made("span", { class: "strong" }, `${many(result.leaving.length, "node")} leave: `), `${result.leaving.join(", ")}. Each is drained, fenced and erased at once after that: all data on it is lost.`) : null,
    difference(result.steps), approval_words(result)];
}
