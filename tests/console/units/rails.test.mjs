import assert from "node:assert/strict";
import { test } from "node:test";

import { points } from "../../../provisioner/api/console/rails_data.js";

test("a small line has a point for each day that has a value, and lies within its place", () => {
  assert.equal(points([]), "");
  assert.equal(points([0.8]), "");
  assert.equal(points([null, 0.8, null]), ""); // one day shows no trend
  const drawn = points([0.8, null, -2.0, -9.5]).split(" ");
  assert.equal(drawn.length, 3);
  for (const [x, y] of drawn.map((p) => p.split(",").map(Number))) assert.ok(x >= 0 && x <= 120 && y >= 0 && y <= 26, `${x},${y}`);
  assert.ok(Number(drawn[0].split(",")[1]) < Number(drawn.at(-1).split(",")[1])); // less light is lower
});

test("noise below one unit is drawn flat, and no value is drawn as if it were zero", () => {
  const ys = points([0.80, 0.81, 0.79, 0.8]).split(" ").map((p) => Number(p.split(",")[1]));
  assert.ok(Math.max(...ys) - Math.min(...ys) < 1);
  assert.equal(points([undefined, null, 5, 5]).split(" ").length, 2);
});
