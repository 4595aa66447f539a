import assert from "node:assert/strict";
import { test } from "node:test";

import { ago, instant, lasts, many, moment, now, seconds, set_clock, short, size_words, when } from "../../../provisioner/api/console/words.js";

test("times are read as text and as seconds, and shown in UTC", () => {
  assert.equal(when("2027-01-15T08:00:00Z"), "15 Jan 2027, 08:00:00 UTC");
  assert.equal(when(1.8e9), when("2027-01-15T08:00:00Z"));
  set_clock("2027-06-15T08:00:00Z", 1);
  assert.equal(moment(1.8e9), "15 Jan, 08:00");
  set_clock("2026-06-15T08:00:00Z", 1);
  assert.equal(moment(1.8e9), "15 Jan 2027, 08:00"); // another year than the site's
  for (const none of ["", 0, null, undefined, "not a time", 1e300]) assert.equal(when(none), "—");
  assert.equal(instant(seconds("2027-01-15T08:00:00Z")), "2027-01-15T08:00:00.000Z");
});

test("the site's clock counts, not the browser's", () => {
  set_clock("2027-01-15T08:00:00Z", 1);
  assert.ok(Math.abs(now() - 1.8e9) < 60);
  assert.match(ago("2027-01-15T06:00:00Z"), /^2 h [01] min ago$/);
  assert.match(ago("2027-01-15T12:30:30Z"), /^in 4 h (29|30) min$/);
  set_clock("no time", 1);
  assert.ok(Math.abs(now() - 1.8e9) < 60);
});

test("lengths, counts and digests are short", () => {
  assert.deepEqual([-3, 59, 60, 3600, 90_000].map(lasts), ["0 s", "59 s", "1 min", "1 h 0 min", "1 d 1 h"]);
  assert.deepEqual([many(1, "node"), many(1200, "switch", "switches")], ["1 node", "1,200 switches"]);
  assert.equal(short("a".repeat(64)), "aaaaaaaaaaaa…");
});

test("a limit is told in the units that it was set in", () => {
  assert.deepEqual([0, 999, 1e6, 1.5e9, 2e14, 3e15].map(size_words), ["0 B", "999 B", "1 MB", "1.5 GB", "200 TB", "3 PB"]);
});
