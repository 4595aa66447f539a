"""Cosignatures and policies, held against a checkpoint that four public witnesses cosigned.

The checkpoint is one of Let's Encrypt's staging log Arche (arche2025h1.staging.ct), of 2026-05; the
keys are those that the witnesses publish (witness-network.org), lines of policies are the examples
of c2sp.org/tlog-policy.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.integrations.signed_files.witnessing import (
    BadPolicy,
    parse_policy,
    read_cosignatures,
    read_own_lines,
    write_submission,
)

HERE = Path(__file__).parent
NOTE = (HERE / "witnessed_checkpoint.txt").read_text(encoding="utf-8")
POLICY = (HERE / "witness_policy.txt").read_text(encoding="utf-8")
REMORA, LOG = (
    next(w for line in POLICY.splitlines() for w in line.split() if w.startswith(f"{name}+"))
    for name in ("remora.n621.de", "arche2025h1.staging.ct.transparency.dev")
)
AT = 1_779_573_024  # 0x6a122120


def test_four_public_witnesses_cosigned_a_checkpoint_and_the_quorum_is_reached() -> None:
    policy = parse_policy(POLICY)
    cosigned = read_cosignatures(NOTE, policy)

    assert cosigned == {"X1": AT, "X2": AT, "Y1": AT, "Y2": AT}  # navigli did not
    assert policy.is_met(cosigned)
    assert not policy.is_met({"X1": AT, "Y1": AT, "Y2": AT})
    assert not policy.is_met({"X1": AT, "X2": AT})
    assert policy.witnesses["X1"].url == "https://witness.stagemole.eu"
    assert policy.logs[0][0] == NOTE.split("\n")[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [("1432088532", "1432088533"), ("U7WM", "V7WM"), ("AABqEiEgPlfF", "AABqEiEhPlfF")],
    ids=["another size", "another root", "another time of remora"],
)
def test_a_checkpoint_that_was_changed_is_malformed(old: str, new: str) -> None:
    with pytest.raises(BadPolicy, match="does not hold"):
        read_cosignatures(NOTE.replace(old, new), parse_policy(POLICY))


def test_lines_of_strangers_count_for_nobody_and_only_the_own_line_is_kept() -> None:
    policy = parse_policy(f"witness w {REMORA}\nquorum w\n")
    lines = NOTE.rpartition("\n\n")[2]
    own = read_own_lines(lines, NOTE, policy, "w")

    assert read_cosignatures(NOTE, policy) == {"w": AT}
    assert own.startswith("— remora.n621.de ")
    assert own.count("\n") == 1
    assert read_own_lines("", NOTE, policy, "w") == ""
    assert read_own_lines("— x\nno line\n\x00", NOTE, policy, "w") == ""
    assert write_submission(3, ["ab" * 32], NOTE).startswith(b"old 3\nq6urq6ur")


def test_no_quorum_is_asked_for_only_where_the_policy_says_so() -> None:
    assert parse_policy("quorum none").is_met({})


def test_groups_may_be_nested_and_no_depth_of_them_ends_in_a_traceback() -> None:
    def nest(depth: int) -> str:
        groups = (f"group g{n} any {f'g{n - 1}' if n else 'w'}\n" for n in range(depth))
        return f"witness w {REMORA}\n{''.join(groups)}quorum g{depth - 1}\n"

    deepest = parse_policy(nest(32))
    assert deepest.is_met({"w": 1})
    assert not deepest.is_met({})
    for depth in (33, 1000):
        with pytest.raises(BadPolicy, match="more than 32 deep"):
            parse_policy(nest(depth))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("", "no `quorum` line"),
        (f"witness w {REMORA}\n", "no `quorum` line"),
        ("quorum w\n", "line 1: w is no witness and no group above"),
        (f"witness w {LOG}\nquorum w", "signature type 1"),
        (f"log {REMORA}\nquorum none", "signature type 4"),
        (f"witness w {REMORA[:-1]}\nquorum w", "no key in the form"),
        (f"witness w {REMORA.replace('da77', 'da78')}\nquorum w", "id is not that"),
        (f"witness w {REMORA}\nwitness v {REMORA}\nquorum w", "stands twice"),
        (f"witness none {REMORA}\nquorum none", "is taken"),
        (f"witness w {REMORA}\ngroup g 2 w\nquorum g", "no threshold"),
        (f"witness w {REMORA}\ngroup g 0 w\nquorum g", "no threshold"),
        (f"witness w {REMORA}\ngroup g any w w\nquorum g", "member twice"),
        (f"witness w {REMORA}\ngroup g any\nquorum g", "is no line"),
        (f"witness w {REMORA}\nquorum w\nquorum w", "or its second"),
        (f"witness w {REMORA} https://a b\nquorum w", "is no line"),
        ("witness w test+5893dc2c+" + "Bg" + "A" * 1750 + "\nquorum w", "signature type 6"),
        ("\n" * 2000, "more than 1024 lines"),
    ],
)
def test_a_policy_that_cannot_be_used_says_where_and_why(policy: str, words: str) -> None:
    with pytest.raises(BadPolicy, match=words):
        parse_policy(policy)
