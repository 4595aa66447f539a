import assert from "node:assert/strict";
import { test } from "node:test";

import { FleetColumns } from "../../../provisioner/api/console/fleet_columns.js";
import { choose } from "../../../provisioner/api/console/node_choice.js";

const NAMES = ["a0", "a1", "b0", "b1", "b2"];

/** Five hosts of two units, packed as the API packs them; a0 serves a tenant. */
function answer() {
  const one = (value) => ({ values: [[value]], index: NAMES.map(() => 0) });
  return {
    nodes: NAMES, seq: 9, change: 4,
    fields: {
      kind: one("host"), profile: one("p"), release: one("r1"), vrf: one(""), placement: one(""), site: one("s"), pod: one("0"), tag: one(""),
      state: { values: [["released"], ["certified"]], index: [0, 1, 1, 1, 1] }, tenant: { values: [["blue"], [""]], index: [0, 1, 1, 1, 1] },
      su: { values: [["0"], ["1"]], index: [0, 0, 1, 1, 1] }, rack: { values: [["r0"], ["r1"]], index: [0, 0, 1, 1, 1] },
      ports: { values: [["0 leaf-a", "1 leaf-b"], ["0 leaf-c", "-1 mgmt"]], index: [0, 0, 1, 1, 1] }, reason: { values: [[]], index: NAMES.map(() => 0) },
    },
  };
}

function fleet() {
  const columns = new FleetColumns();
  columns.take(answer());
  return columns;
}

/** The changed columns of one node, as `?since=` answers. */
const change = (node, fields) => ({
  nodes: [node], change: 5, fields: Object.fromEntries(Object.entries({ ...fields }).map(([field, value]) => [field, { values: [value], index: [0] }])),
});

test("columns are counted, of the nodes that were selected too", () => {
  const columns = fleet();
  assert.deepEqual([...columns.counts("state", null)], [["released", 1], ["certified", 4]]);
  assert.deepEqual([...columns.counts("state", columns.bytes_of(["a0", "a1", "gone"]))], [["released", 1], ["certified", 1]]);
});

test("a change of some nodes is merged, and says whether they stand otherwise", () => {
  const columns = fleet();
  const events = [];
  for (const kind of ["changed", "placed"]) columns.addEventListener(kind, () => events.push(kind));
  columns.merge(change("a0", { state: ["draining"] }));
  columns.merge(change("a0", { rack: ["r9"] }));
  assert.equal(columns.word("state", 0), "draining");
  assert.equal(columns.word("rack", 0), "r9");
  assert.deepEqual(events, ["changed", "placed"]);
});

test("a node that is new comes after the others, in every column, and no whole fleet is needed", () => {
  const columns = fleet();
  const events = [];
  for (const kind of ["changed", "placed"]) columns.addEventListener(kind, () => events.push(kind));
  columns.set_column("choice", [["no"], ["yes"]], Uint32Array.from([1, 1, 1, 1, 1]));
  columns.merge(change("c0", { state: ["intake"], su: ["2"], ports: ["3 leaf-d"], tenant: [""] }));
  columns.merge({ nodes: [], change: 5, fields: {} });
  assert.deepEqual([columns.size, columns.place("c0"), columns.word("state", 5), columns.word("choice", 5)], [6, 5, "intake", "no"]);
  assert.deepEqual(columns.ports(5), [[3, "leaf-d"]]);
  assert.deepEqual([...columns.bytes_of(["c0", "a1"])], [0, 1, 0, 0, 0, 1]);
  assert.deepEqual(events, ["placed"]);
});

test("a rule picks free nodes of the unit, or of the leaves, with the fewest that suffice", () => {
  const columns = fleet();
  assert.deepEqual(choose(columns, "unit", 1), ["a1"]);
  assert.deepEqual(choose(columns, "unit", 2), ["b0", "b1"]);
  assert.deepEqual(choose(columns, "unit", 2, new Set(["b0"])), ["b1", "b2"]);
  assert.deepEqual(choose(columns, "rails", 3), ["b0", "b1", "b2"]);
  assert.deepEqual(choose(columns, "unit", 4), []);
  assert.deepEqual(choose(columns, "near", 2), []);
});
