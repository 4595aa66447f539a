// Life lines, search, acts, waves and plots decide on records alone: no page and no browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { act_of, acts } from "../../../provisioner/api/console/audit_data.js";
import { wave_rows } from "../../../provisioner/api/console/campaign_line.js";
import { leaves_of, spines_of, units_of } from "../../../provisioner/api/console/fabric_data.js";
import { changes, hours_of } from "../../../provisioner/api/console/home_data.js";
import { life, mark_of, ticks } from "../../../provisioner/api/console/life_data.js";
import { common } from "../../../provisioner/api/console/map_layout.js";
import { best, rank } from "../../../provisioner/api/console/search_data.js";

const at = (row) => row.at;
const state = (seq, from, to, node = "n1") => ({ seq, at: seq * 100, kind: "state", node, detail: { from, to } });

test("a life is spans of states, and marks that stand close are one", () => {
  const rows = [state(1, "discovered", "intake"), state(5, "intake", "released"), { seq: 6, at: 600, kind: "alert_raised", node: "n1", detail: {} }, { seq: 7, at: 601, kind: "alert_raised", node: "n1", detail: {} }, { seq: 9, at: 900, kind: "step", node: "n1", detail: { step: "warm_reboot (1 waiting)" } }];
  const told = life(rows, at, 1000, "released");
  assert.deepEqual(told.states.map((s) => [s.word, s.from, s.to]), [["intake", 100, 500], ["released", 500, 1000]]);
  assert.deepEqual(told.lanes.map(([name, marks]) => [name, marks.map((m) => m.rows.length)]), [["Resets", [1]], ["Faults", [2]]]);
});

test("a life without a change of state is one span, and unknown kinds are no marks", () => {
  assert.deepEqual(life([], at, 50, "intake").states, [{ word: "intake", from: 50, to: 50 }]);
  assert.equal(mark_of({ kind: "token", detail: {} }), null);
  assert.deepEqual(mark_of({ kind: "case_opened", detail: {} }), { lane: "Faults", word: "case" });
});

test("an axis has few round moments", () => {
  assert.deepEqual(ticks(10, 3700, 6), [900, 1800, 2700, 3600]);
  for (const span of [60, 3600, 86400, 30 * 86400, 900 * 86400]) assert.ok(ticks(0, span).length <= 7);
});

test("a whole name comes before a beginning, and that before a part", () => {
  assert.deepEqual(["n01", "n012", "su0-n01", "xn01", "n2"].map((name) => rank(name, "n01")), [4, 3, 2, 1, 0]);
  const found = ["su0-n01", "n01", "n012"].map((name) => ({ kind: "Node", name, to: `#/nodes/${name}` }));
  assert.deepEqual(best(found, "n01").map((e) => e.name), ["n01", "n012", "su0-n01"]);
  assert.equal(best(Array.from({ length: 20 }, (_, i) => ({ kind: "Node", name: `a${i}`, to: `${i}` })), "a").length, 6);
  assert.equal(best([{ kind: "Page", name: "(a+)+$", to: "x" }], "(a+)+").length, 1); // a text is no pattern
});

test("an act is one row with who, what, on which object, before and after", () => {
  const asked = (seq, word) => ({ seq, at: "", kind: "asked", node: "", detail: { id: 3, kind: "campaign.start", subject: "c0001", state: word, asked_by: "ada", by: "ada", agent: "curl", arguments: { confirm: ["x 1"] } } });
  const told = acts([asked(4, "running"), asked(5, "done"), { seq: 6, at: "", kind: "request", node: "n1", detail: { request: "retry", id: 0, by: "bob", why: "again" } }]);
  assert.deepEqual(told.map((a) => [a.act.who, a.act.what, a.act.object, a.act.after, a.act.why, a.rows.length]), [["bob", "retry", "n1", "", "again", 1], ["ada", "campaign.start: done", "c0001", "confirm x 1", "", 2]]);
  const begun = act_of({ seq: 1, at: "", kind: "session", node: "", detail: { begun: { subject: "eve", token: "t1", id: "s1", agent: "Firefox" } } });
  assert.deepEqual([begun.who, begun.what, begun.object], ["eve", "session begun", "t1"]);
  assert.ok(begun.detail.includes("agent: Firefox"));
});

test("numbers of the past are today's, taken back through the changes", () => {
  const summary = { counts: [{ kind: "host", state: "released", nodes: 3 }, { kind: "host", state: "repairing", nodes: 1 }, { kind: "switch", state: "released", nodes: 9 }] };
  const rows = [{ seq: 1, at: 0, kind: "token", node: "", detail: {} }, { ...state(5, "released", "repairing"), at: 500 }, { seq: 6, at: 510, kind: "alert_raised", node: "n1", detail: {} }];
  const told = hours_of(rows, summary, 1000, (t) => t);
  assert.equal(told.hosts, 4);
  assert.deepEqual([told.served[0], told.served.at(-1), told.moving[0], told.moving.at(-1)], [4, 3, 0, 1]);
  assert.equal(told.faults_total, 1);
  assert.deepEqual(changes(rows, 400, (t) => t).map((g) => [g.words, g.nodes]), [["alert", ["n1"]], ["became repairing", ["n1"]]]);
});

test("leaves and spines are told apart by the cables of hosts", () => {
  const nodes = [["h1", "host", [[0, "l0"], [-1, "l9"]], "red"], ["h2", "host", [[0, "l0"]], ""], ["l0", "switch", [], ""], ["s0", "switch", [], ""]];
  const fleet = { size: nodes.length, nodes: nodes.map((n) => n[0]), word: (f, i) => ({ pod: "0", su: "0", kind: nodes[i][1], tenant: nodes[i][3], state: "released" })[f], ports: (i) => nodes[i][2] };
  assert.deepEqual(units_of(fleet), ["pod 0, unit 0"]);
  assert.deepEqual(leaves_of(fleet, "pod 0, unit 0").map((l) => [l.name, l.rail, l.ports.map((p) => p.tenant)]), [["l9", "north–south", ["red"]], ["l0", "rail 0", ["red", ""]]]);
  assert.deepEqual(spines_of(fleet), ["s0"]);
});

test("waves stand as they went, beside the forecast of the start", () => {
  const told = { campaign: { policy: { canary: { size: 1 } } }, nodes: [{ wave: 0, node: "a", state: "done", admitted_at: "2027-01-01T00:00:00Z", finished_at: "2027-01-01T01:00:00Z" }, { wave: 1, node: "b", state: "admitted", admitted_at: "2027-01-01T02:00:00Z", finished_at: null }] };
  const course = { waves: [{ planned_begins_at: "2027-01-01T00:00:00Z", planned_ends_at: "2027-01-01T00:30:00Z" }, { planned_begins_at: null, planned_ends_at: null }] };
  const began = Date.parse("2027-01-01T00:00:00Z") / 1000;
  assert.deepEqual(wave_rows(told, course, began + 9000).map((r) => [r.name, r.over, r.from - began, r.to - began, r.ends.length, r.planned && r.planned.to - r.planned.from]), [["Canaries", true, 0, 3600, 1, 1800], ["Wave 1", false, 7200, 9000, 0, null]]);
  assert.equal(wave_rows(told, null, began)[0].planned, null);
});

test("racks keep the part of their names that differs, with whole numbers", () => {
  const cut = (names) => { const n = common(names); return names.map((name) => name.slice(n)); };
  assert.deepEqual(cut(["rack-00-17", "rack-00-18", "rack-01-17"]), ["00-17", "00-18", "01-17"]);
  assert.deepEqual(cut(["a1", "a12"]), ["1", "12"]);
  assert.deepEqual(cut(["same"]), ["same"]);
  assert.deepEqual(cut(["row", "row-1"]), ["row", "row-1"]);
});
