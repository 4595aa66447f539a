// Life lines, search, acts, waves and plots decide on records alone: no page and no browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { act_of, acts } from "../../../provisioner/api/console/audit_data.js";
import { wave_rows } from "../../../provisioner/api/console/campaign_line.js";
import { bmc_of, entry_of, ports_of } from "../../../provisioner/api/console/hardware_data.js";
import { leaves_of, spines_of, units_of } from "../../../provisioner/api/console/fabric_data.js";
import { changes, course_of, hosts_of } from "../../../provisioner/api/console/home_data.js";
import { life, ticks } from "../../../provisioner/api/console/life_data.js";
import { common } from "../../../provisioner/api/console/map_layout.js";
import { best, rank } from "../../../provisioner/api/console/search_data.js";

const at_of = (time) => time ?? 0;
const state = (seq, from, to, node = "n1") => ({ seq, at: seq * 100, kind: "state", node, detail: { from, to } });

test("a life is spans and lanes, and marks that stand close are one", () => {
  const span = (lane, what, begins_at, ends_at) => ({ lane, what, begins_at, ends_at });
  const told = { spans: [span("state", "intake", 100, 500), span("state", "released", 500, null), span("case", "closed", 600, 700), span("certificate", "A", 500, 9000)], marks: [{ lane: "reset", what: "warm_reboot", at: 900 }, { lane: "reset", what: "warm_reboot", at: 901 }] };
  const shown = life(told, at_of, 1000);
  assert.deepEqual(shown.states.map((s) => [s.what, s.from, s.to]), [["intake", 100, 500], ["released", 500, 1000]]);
  assert.deepEqual(shown.lanes.map((l) => [l.name, l.spans.map((s) => s.to), l.marks.map((m) => m.rows.length)]), [["Resets", [], [2]], ["Proof", [1000], []], ["Cases", [700], []]]);
  assert.deepEqual(life({ spans: [], marks: [] }, at_of, 50), { from: 50, to: 50, states: [], lanes: [] });
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
  const asked = (seq, state, before) => ({ seq, kind: "asked", who: "ada", what: "campaign.start", on: "c0001", state, before, after: "confirm=x", why: "", detail: { id: 3, agent: "curl", arguments: { confirm: ["x"] } } });
  const told = acts([asked(4, "running", ""), asked(5, "done", "state=draft"), { seq: 6, kind: "request", who: "bob", what: "retry", on: "n1", state: "", before: "", after: "", why: "again", detail: { request: "retry", id: 0 } }]);
  assert.deepEqual(told.map(({ act, rows }) => [act.who, act.what, act.object, act.before, act.after, act.why, rows.length]), [["bob", "retry", "n1", "", "", "again", 1], ["ada", "campaign.start: done", "c0001", "state=draft", "confirm=x", "", 2]]);
  assert.deepEqual(told[1].act.detail, ["agent: curl"]);
  assert.equal(act_of({ ...asked(7, "", "x".repeat(500)), detail: {} }).before.length, 161);
});

test("plots begin where the journal does, and end now", () => {
  const day = (begins_at, states, opened = 0, alerts = 0) => ({ begins_at, states, opened, alerts });
  const told = course_of({ at: 350, since: 150, days: [day(0, { released: 9 }), day(100, { released: 4 }), day(200, { released: 2, repairing: 1, quarantined: 1 }, 1, 2), day(300, { released: 3, repairing: 1 })] }, at_of);
  assert.deepEqual(told, { times: [200, 300, 350], served: [4, 2, 3], moving: [0, 1, 1], faults: [0, 3, 0], total: 3 });
  assert.deepEqual(hosts_of({ days: [day(0, { certified: 1, intake: 2, retired: 5 })] }), { by: [["retired", 5], ["intake", 2], ["certified", 1]], hosts: 3, served: 1, moving: [["intake", 2]] });
  assert.deepEqual(hosts_of({ days: [] }), { by: [], hosts: 0, served: 0, moving: [] });
  const rows = [state(5, "released", "repairing"), { seq: 6, at: 510, kind: "alert_raised", node: "n1", detail: {} }, { seq: 1, kind: "token", node: "", detail: {} }];
  assert.deepEqual(changes(rows).map((g) => [g.words, g.nodes]), [["alert", ["n1"]], ["became repairing", ["n1"]]]);
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

test("an entry of the hardware list is made of its form, and refused words go to the server as they are", () => {
  assert.deepEqual(["10.0.0.9", "fd00::9", "aa:bb:cc:dd:ee:ff", "https://bmc.example", "SN-12", ""].map(bmc_of), [{ url: "https://10.0.0.9" }, { url: "https://[fd00::9]" }, { mac: "aa:bb:cc:dd:ee:ff" }, { url: "https://bmc.example" }, { serial: "SN-12" }, {}]);
  const ports = ports_of("leaf-1  swp3s0 2 NIC_2\n\nleaf-9 swp1 - \n");
  assert.deepEqual(ports, [{ switch: "leaf-1", interface: "swp3s0", rail: 2, nic_slot: "NIC_2" }, { switch: "leaf-9", interface: "swp1", rail: -1 }]);
  const host = entry_of({ kind: "host", bmc: "SN-1", rack: "r1", pod: "", unit: "2", index: "x", user: "root", password: "p", vendor: "nvidia", ports: "" });
  assert.deepEqual([host.location, host.factory_credentials, host.login], [{ rack: "r1", pod: 0, scalable_unit: 2, index: "x" }, { nvidia: { username: "root", password: "p" } }, undefined]);
  assert.deepEqual(entry_of({ kind: "switch", user: "cumulus", password: "p" }).login, { username: "cumulus", password: "p" });
});
