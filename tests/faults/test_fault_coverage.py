"""The table of faults and acts is whole, agrees with the catalogue, and is what is played."""

from __future__ import annotations

import re

import pytest
from fault_coverage import ACTS, NOT_MET, TABLE, Cell, draw_table, play_cell
from test_catalogue import CASES

ROWS = {
    name: dict(zip(ACTS, cells.split(" | "), strict=True))
    for name, cells in re.findall(
        r"^\| \w+ \| `(\w+)` \| (.*) \|$", TABLE.read_text(), re.MULTILINE
    )
}


def test_each_fault_is_played_in_each_act() -> None:
    assert list(ROWS) == list(CASES)


def test_the_table_agrees_with_the_catalogue() -> None:
    shown = {name: ROWS[name][case.act] for name, case in CASES.items()}
    cells = {name: Cell.of(case.outcomes) for name, case in CASES.items()}

    assert {n: s for n, s in shown.items() if s not in (cells[n].outcome, NOT_MET)} == {}


@pytest.mark.parametrize("name", ["busy_as_400"])
def test_a_row_is_what_is_played(name: str) -> None:
    assert {act: play_cell(name, act).outcome for act in ACTS} == ROWS[name]


# each once cost a failed login, left a session behind, or ended with a reason that was not true
MENDED = {
    "flapping_service": ("boot", "media", "password"),
    "etag_refused": ("password",),
    "busy_as_400": ("password",),
    "post_lost_after": ("media",),
    "token_expires": ("boot", "media", "password"),
    "refresh_fails": ("media",),
    "drops_connections": ("boot", "password"),
}


@pytest.mark.parametrize(("name", "act"), [(n, a) for n, acts in MENDED.items() for a in acts])
def test_a_passing_fault_leaves_no_failed_login_and_no_session(name: str, act: str) -> None:
    cell = play_cell(name, act)

    assert cell.left == ""
    assert cell.outcome == ROWS[name][act]
    assert re.fullmatch(r"unreachable \(lasts\)|(.*, )?done", cell.outcome)


@pytest.mark.long
def test_the_whole_table_is_what_is_played() -> None:
    cells = {(name, act): play_cell(name, act) for name in CASES for act in ACTS}

    assert draw_table(cells) == TABLE.read_text()
