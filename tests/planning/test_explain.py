"""What `explain` says of nodes in every kind of trouble, word by word.

`PROVISIONER_GOLDEN=write pytest tests/planning/test_explain.py` writes the texts anew; read them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from explain_situations import GPU, NOW, SILENT, SITUATIONS, node, plan

from provisioner.model.node import State
from provisioner.planning.lifecycle.explain import (
    Situation,
    clean_text,
    explain,
    format_age,
    format_span,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "explain"


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_node_is_told_in_these_words(name: str):
    told = "\n".join(explain(SITUATIONS[name]).format_lines()) + "\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("PROVISIONER_GOLDEN") == "write":
        file.write_text(told)

    assert told == file.read_text()


def test_every_state_has_a_golden_text():
    assert {s.node.state for s in SITUATIONS.values()} == set(State)


def test_no_golden_text_is_left_over():
    assert {p.stem for p in GOLDEN.iterdir()} == set(SITUATIONS)


def test_what_a_device_said_moves_no_cursor_and_has_an_end():
    evil = GPU.model_copy(update={"detail": "\x1b[2J" + "x" * 5000})
    told = "\n".join(
        explain(Situation(node=node(State.CONVERGING, blockers=(evil,)), now=NOW)).format_lines()
    )

    assert "\x1b" not in told
    assert max(map(len, told.splitlines())) < 500


def test_every_remedy_of_a_blocker_is_told_once():
    seen = Situation(
        node=node(State.QUARANTINED, blockers=(GPU, SILENT)), now=NOW, plan=plan(0, GPU)
    )

    unblock = explain(seen).unblock

    assert [s for s in unblock if "Reseat" in s] == [f"{GPU.subject}: {clean_text(GPU.unblock)}."]
    assert any("cable and power" in s for s in unblock)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (86400, "1 d"),
        (180000, "2 d 2 h"),
    ],
)
def test_lengths_of_time_are_told_by_their_largest_units(seconds: float, told: str):
    assert format_span(seconds) == told


def test_a_clock_that_went_back_is_no_past():
    assert format_age(-100) == "just now"
