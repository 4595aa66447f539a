// Times and sums of the page of usage.

import assert from "node:assert/strict";
import { test } from "node:test";

import { stacked, times_of } from "../../../provisioner/api/console/usage_data.js";

const NOW = Date.UTC(2026, 0, 15, 12) / 1000; // in January: the month before is of another year
const asked = (text) => times_of(new URLSearchParams(text), NOW);
const at = (...day) => Date.UTC(...day) / 1000;

test("the usual times are those of UTC, over the turn of a year too", () => {
  assert.deepEqual(asked(""), { begin: at(2026, 0, 1), end: NOW, words: "2026-01" });
  assert.deepEqual(asked("time=before"), { begin: at(2025, 11, 1), end: at(2026, 0, 1), words: "2025-12" });
  assert.equal(asked("time=week").begin, NOW - 7 * 86400);
});

test("days of a person include the last one, and never end after now", () => {
  assert.equal(asked("from=2026-01-02&to=2026-01-03").end, at(2026, 0, 4));
  assert.equal(asked("from=2026-01-02&to=2026-09-01").end, NOW);
  assert.equal(asked("from=2026-01-02&to=2026-01-01").end, NOW);
  assert.equal(asked("from=nonsense").begin, at(2026, 0, 1));
});

test("a stack has its causes from top to bottom, unknown ones too, and draws the last step", () => {
  const course = { times: ["2026-01-01T00:00:00Z"], period: { ends_at: "2026-01-02T00:00:00Z" }, lines: [{ cause: "serving", nodes: [2] }, { cause: "new one", nodes: [1] }, { cause: "fault", nodes: [0.5] }] };
  const drawn = stacked(course, (time) => Date.parse(time) / 1000);
  assert.deepEqual(drawn.series.map((s) => s.name), ["new one", "fault", "serving"]);
  assert.deepEqual(drawn.series[2].values, [2, 2]);
  assert.equal(drawn.times.length, 2);
});
