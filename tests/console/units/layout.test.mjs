import assert from "node:assert/strict";
import { test } from "node:test";

import { FleetColumns } from "../../../provisioner/api/console/fleet_columns.js";
import { lay, regroup, rows_between } from "../../../provisioner/api/console/map_layout.js";

/** A fleet of so many hosts, four in a rack and 32 in a unit. */
function fleet(size) {
  const nodes = Array.from({ length: size }, (_, i) => `n${i}`);
  const by = (make) => {
    const values = [...new Set(nodes.map((_, i) => make(i)))];
    const at = new Map(values.map((value, i) => [value, i]));
    return { values: values.map((value) => [value]), index: nodes.map((_, i) => at.get(make(i))) };
  };
  const columns = new FleetColumns();
  const fields = { kind: by(() => "host"), pod: by(() => "0"), su: by((i) => String(i >> 5)), rack: by((i) => `r${i >> 2}`) };
  const ports = { values: [["0 leaf"]], index: nodes.map(() => 0) };
  columns.take({ nodes, seq: 1, change: 1, fields: { ...fields, ports } });
  regroup();
  return columns;
}

const places = (layout) => layout.sections.flatMap((part) => part.groups.flatMap((group) => [...group.cells])).sort((a, b) => a - b);

test("every node has one square, in whatever width", () => {
  for (const width of [320, 768, 3840]) {
    assert.deepEqual(places(lay(fleet(200), "rack", width, 800, 0)), Array.from({ length: 200 }, (_, i) => i));
  }
});

test("a small fleet uses the room: its squares are larger than those of a large one", () => {
  const [small, large] = [lay(fleet(16), "rack", 1440, 800, 0), lay(fleet(4096), "rack", 1440, 800, 0)];
  assert.ok(small.cell >= 60, String(small.cell)); // large enough for names
  assert.ok(large.cell < small.cell);
  assert.ok(small.height <= 800);
});

test("labels come with the size of the squares", () => {
  assert.equal(lay(fleet(64), "rack", 1440, 800, 6).label, 0);
  assert.ok(lay(fleet(64), "rack", 1440, 800, 24).label > 0);
});

test("the sections of a span are those that reach into it", () => {
  const { sections, height } = lay(fleet(4096), "rack", 1440, 800, 12);
  for (let top = 0; top < height; top += 500) {
    const [from, to] = rows_between(sections, top, top + 300);
    const shown = sections.filter((part) => part.y <= top + 300 && part.y + part.height >= top);
    for (const part of shown) assert.ok(sections.indexOf(part) >= from && sections.indexOf(part) < to);
  }
});
