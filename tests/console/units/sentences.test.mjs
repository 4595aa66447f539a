import assert from "node:assert/strict";
import { test } from "node:test";

import { sentence } from "../../../provisioner/api/console/sentences.js";

const CASES = [
  [{ to: "rolling_back", why: "two failed" }, "became rolling back; two failed"],
  [{ request: "retry", id: 3, approved: "", by: "ada" }, "request retry; id 3"],
  [{ limit_s: 7200, until: 0, compromised: false }, "limit 2 h 0 min"],
  [{ parts: [{ slot: "G1", found: null }], left: [] }, "parts: slot G1"],
  [{ policy: { waves: { sizes: [1, 2] } } }, "sizes: 1, 2"],
  [{ at_once: true }, "at once"],
  [{ deep: { of: { of: { it: 1 } } } }, "of"],
];

test("a row of the journal is a sentence and no record", () => {
  for (const [detail, words] of CASES) {
    assert.equal(sentence({ detail }), words);
    assert.doesNotMatch(words, /[{}[\]"]/);
  }
});
