import assert from "node:assert/strict";
import { test } from "node:test";

import { matching, sorted } from "../../../provisioner/api/console/listing_data.js";

const ROWS = [["n10", 3], ["n2", 20], ["m1", 100]];
const name = (row) => row[0];
const size = (row) => row[1];

test("a filter takes the rows with every word, of any column and in any case", () => {
  assert.deepEqual(matching(ROWS, [name, size], "N 0").map(name), ["n10", "n2"]);
  assert.equal(matching(ROWS, [name, size], "  "), ROWS);
  assert.deepEqual(matching(ROWS, [name], "100"), []);
});

test("the order is that of numbers, in words too, and equal rows stay in theirs", () => {
  assert.deepEqual(sorted(ROWS, name, false).map(name), ["m1", "n2", "n10"]);
  assert.deepEqual(sorted(ROWS, size, true).map(name), ["m1", "n2", "n10"]);
  assert.deepEqual(sorted(ROWS, () => 0, true).map(name), ["n10", "n2", "m1"]);
});
