import assert from "node:assert/strict";
import { test } from "node:test";

import { keep_newest, read_event, within } from "../../../provisioner/api/console/stream_data.js";

test("an event has its number and its row, and a cursor none", () => {
  assert.deepEqual(read_event('id: 7\nevent: state\ndata: {"seq":7,"node":"a: b"}'), { id: 7, row: { seq: 7, node: "a: b" } });
  assert.deepEqual(read_event("id: 9\nevent: cursor\ndata: "), { id: 9, row: null });
  assert.deepEqual(read_event("id: 9\ndata: {half"), { id: 9, row: null });
  assert.equal(read_event(": alive"), null);
  assert.deepEqual(read_event('event: fleet\ndata: {"change":8,"nodes":["a"]}').fleet, { change: 8, nodes: ["a"] });
});

test("a stream that is silent for too long is given up and let go of", async () => {
  let cancelled = 0;
  const cancel = async () => { cancelled += 1; };
  await assert.rejects(within({ read: () => new Promise(() => {}), cancel }, 5), /the stream is silent/);
  assert.equal(cancelled, 1);
});

test("a stream that speaks or fails is passed on", async () => {
  const cancel = async () => { throw new Error("it is gone"); };
  assert.deepEqual(await within({ read: async () => ({ value: "x", done: false }), cancel }, 1000), { value: "x", done: false });
  await assert.rejects(within({ read: async () => { throw new Error("cut off"); }, cancel }, 1000), /cut off/);
});

test("rows are kept in the order of their numbers, each once, and only the newest of them", () => {
  const rows = [];
  const kept = [5, 7, 6, 7, 9, 4].map((seq) => keep_newest(rows, { seq }, 3));
  assert.deepEqual(kept, [true, true, true, false, true, true]);
  assert.deepEqual(rows.map((row) => row.seq), [9, 7, 6]);
});
