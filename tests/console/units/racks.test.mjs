import assert from "node:assert/strict";
import { test } from "node:test";

import { HIGH, cut, edge_of, membership_of, top_of, water_of, words_of } from "../../../provisioner/api/console/racks_data.js";

const unit = (about) => ({ name: "t0", kind: "compute-tray", u: 11, member: null, power: null, water: null, latched: false, ...about });

test("the highest unit stands at the top, and each U below it one height lower", () => {
  const top = top_of([unit({ u: 11 }), unit({ u: 40 }), unit({ u: 6 })]);
  assert.equal(top, 40);
  assert.equal(edge_of(40, top), 0);
  assert.equal(edge_of(11, top) - edge_of(12, top), HIGH);
});

test("what is not known is said to be unknown, and never dry, on or as planned", () => {
  assert.equal(words_of(unit({})), "t0, U11, compute tray; as planned: unknown; power unknown; water: unknown");
  assert.equal(water_of(unit({ kind: "power-shelf" })), "none");
  assert.equal(membership_of(unit({ member: true })), "yes");
  assert.equal(membership_of(unit({ member: true, kind: "power-shelf" })), "planned");
  assert.equal(membership_of(unit({ member: false })), "no");
});

test("a unit that is held as wet says so", () => {
  assert.match(words_of(unit({ water: "wet", latched: true })), /water: wet; held as wet until a person clears it$/);
});

test("a long name is cut to the room that a drawing has", () => {
  assert.equal(cut("a".repeat(30), 18).length, 18);
  assert.equal(cut("short", 18), "short");
});
