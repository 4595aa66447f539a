import assert from "node:assert/strict";
import { test } from "node:test";

import { is_calm, parties } from "../../../provisioner/api/console/home_data.js";

const NAMES = ["blocked", "cases", "approvals", "alerts", "certificates", "campaigns", "tenants"];

test("nothing that waits makes a calm home, and any of it ends the calm", () => {
  const calm = Object.fromEntries(NAMES.map((name) => [name, []]));
  assert.ok(is_calm(calm));
  for (const name of NAMES) assert.ok(!is_calm({ ...calm, [name]: [{}] }), name);
});

test("cases stand by the party that they wait for, technicians first", () => {
  const cases = [{ party: "person", case: 1 }, { party: "technician", case: 2 }, { party: "person", case: 3 }];
  assert.deepEqual(parties(cases).map(([party, mine]) => [party, mine.map((c) => c.case)]), [["technician", [2]], ["person", [1, 3]]]);
});
