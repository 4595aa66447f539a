"""A reset of the BIOS is proved by what it changed, never by the answer to the request."""

from __future__ import annotations

import pytest

from provisioner.model.erasure import Result
from provisioner.model.machine.settings import BiosState
from provisioner.planning.erasure.bmc_defaults import judge_defaults

BEFORE = BiosState(names=("Sriov", "Smt", "Vtd"), digests=("a", "b", "c"))
AFTER = BiosState(names=("Sriov", "Smt", "Vtd"), digests=("a", "b", "x"))
EMPTY = BiosState(names=(), digests=())
CASES = {
    "one attribute changed": (BEFORE, AFTER, None, Result.DONE, "1 attributes changed: Vtd"),
    "the state of an earlier reset": (AFTER, AFTER, AFTER, Result.DONE, "as after the last reset"),
    "nothing changed": (BEFORE, BEFORE, None, Result.NOT_DONE, "dropped the reset"),
    "nothing changed, another state is known": (
        BEFORE,
        BEFORE,
        AFTER,
        Result.NOT_DONE,
        "dropped the reset",
    ),
    "other attributes, as of another version": (
        BEFORE,
        BiosState(names=("New",), digests=("z",)),
        AFTER,
        Result.NOT_DONE,
        "dropped the reset",
    ),
    "it still waits": (
        BEFORE,
        AFTER.model_copy(update={"waiting": ("Smt",)}),
        AFTER,
        Result.NOT_DONE,
        "still wait: Smt",
    ),
    "nothing is shown afterwards": (BEFORE, None, AFTER, Result.NOT_DONE, "unknown"),
    "nothing was shown before": (EMPTY, AFTER, None, Result.NOT_DONE, "unknown"),
}


@pytest.mark.parametrize("case", CASES)
def test_defaults_are_judged(case: str) -> None:
    before, after, known, result, named = CASES[case]
    verdict, sentence = judge_defaults(before, after, known)
    assert verdict is result
    assert named in sentence
