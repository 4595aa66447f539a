import assert from "node:assert/strict";
import { test } from "node:test";

import { by_word, mark_column, with_word } from "../../../provisioner/api/console/marks_data.js";

const names = ["n1", "n2", "n3"];
const fleet = { size: 3, place: (name) => names.indexOf(name) };
const column = mark_column(fleet, { values: ["FanFailed", "LinkDown"], nodes: ["n2", "gone"], index: [1, 0] });

test("a node without a mark has the first value, which has no word", () => {
  assert.deepEqual(column.values, [[], ["FanFailed"], ["LinkDown"]]);
  assert.deepEqual([...column.index], [0, 2, 0]);
});

test("one word is shown of what the filter picks", () => {
  assert.deepEqual([...with_word(column, "LinkDown", null)], [0, 1, 0]);
  assert.deepEqual([...with_word(column, "", Uint8Array.from([1, 1, 0]))], [1, 0, 0]);
});

test("places come in the order of their words, numbers by size, those without one last", () => {
  const racks = { values: [["rack-10"], [], ["rack-9"]], index: Uint32Array.from([0, 1, 2, 0]) };
  assert.deepEqual(by_word([0, 1, 2, 3], racks, false), [2, 0, 3, 1]);
  assert.deepEqual(by_word([0, 1, 2, 3], racks, true), [1, 0, 3, 2]);
});
