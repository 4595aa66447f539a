import assert from "node:assert/strict";
import { test } from "node:test";

import { read_policy } from "../../../provisioner/api/console/policy_data.js";
import { new_token } from "../../../provisioner/api/console/token_data.js";

const FORM = {
  canaries: "5", canary_soak: "60", first: "10", wave_soak: "30", rack: "50", scalable_unit: "25", tenant: "10", total: "10",
  notice: "24", budget: "2", same_reason: "2", days: "", begins: "22:00", minutes: "360", zone: "", irreversible: false,
};

test("minutes become seconds, shares stay percentages, and no days mean no window", () => {
  const policy = read_policy(FORM);
  assert.deepEqual(policy.canary, { size: 5, soak_s: 3600 });
  assert.deepEqual(policy.waves, [{ upto: { percent: 10 }, soak_s: 1800 }, { upto: { percent: 100 }, soak_s: 0 }]);
  assert.deepEqual(policy.limits.rack, { percent: 50 });
  assert.equal(policy.tenants.notice_s, 86_400);
  assert.deepEqual(policy.windows, []);
});

test("days are read by their beginnings, and a first wave of all is no wave of its own", () => {
  const policy = read_policy({ ...FORM, days: "sat, Sunday", zone: "Europe/Berlin", first: "100" });
  assert.deepEqual(policy.windows, [{ days: [5, 6], start_min: 1320, minutes: 360, zone: "Europe/Berlin" }]);
  assert.equal(policy.waves.length, 1);
});

test("a token is 256 bits of which its digest leaves", async () => {
  const { token, sha256 } = await new_token();
  assert.match(token, /^prv_[A-Za-z0-9_-]{43}$/);
  assert.match(sha256, /^[0-9a-f]{64}$/);
  assert.notEqual((await new_token()).token, token);
});
