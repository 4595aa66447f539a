import assert from "node:assert/strict";
import { test } from "node:test";

import { WIDE, ends, place, where, words_of } from "../../../provisioner/api/console/suspects_data.js";

test("equal rates stand at one place, twice and half are as far from it, and what is beyond stands at the end", () => {
  assert.equal(Math.round(place(2) - place(1)), Math.round(place(1) - place(0.5)));
  assert.equal(place(1000), WIDE);
  assert.equal(place(0), 0);
  assert.deepEqual(ends({ low: null, high: null }), [0, WIDE]);
});

test("evidence is said in words, also without an end", () => {
  assert.equal(words_of({ ratio: 2.5, low: 1.25, high: 14.4 }), "2.50 times the faults of alike nodes, 95 % between 1.25 and 14");
  assert.equal(words_of({ ratio: null, low: null, high: null }), "nothing could be compared");
  assert.match(words_of({ ratio: 3, low: null, high: 9 }), /between unknown and 9\.00/);
});

test("a suspect leads to its nodes", () => {
  assert.equal(where("hgx.gpu.driver=580.95"), 'hgx.gpu.driver="580.95"');
  assert.equal(where('rack=r"7'), 'rack="r?7"');
  assert.equal(where("a whole set"), "");
  assert.equal(where("pdu=p7"), "");
});
