"""Calls on rows, epochs and ports have one order, and the search finds those that have none."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from linear_check import Call, check_calls
from test_histories import undisturbed

from provisioner.integrations.cumulus.cumulus_switch import CumulusSwitch
from provisioner.store.repositories.nodes import SqlNodeRepository

ROW = ("row", "n1")
EPOCH = ("epoch", "n1#1")
PORT = ("port", "leaf", "swp1")


def read(answer: Any, begun: int, ended: float, thing: tuple[str, ...] = ROW) -> Call:
    return Call(thing, "read", None, answer, begun, ended, "a")


def write(given: Any, begun: int, ended: float, answer: str = "written") -> Call:
    return Call(ROW, "write", given, answer, begun, ended, "b")


def move(vrf: str, begun: int, ended: float) -> Call:
    return Call(PORT, "move", vrf, None, begun, ended, "b")


def drive(given: Any, begun: int, ended: float, answer: str = "written") -> Call:
    return Call(EPOCH, "write", given, answer, begun, ended, "b")


def take(answer: Any, begun: int, ended: float) -> Call:
    return Call(EPOCH, "take", None, answer, begun, ended, "b")


ORDERED = {
    "one after the other": [read(1, 0, 1), write(1, 2, 3), read(2, 4, 5)],
    "a reading beside a write, before it": [read(1, 0, 1), write(1, 2, 5), read(1, 3, 4)],
    "a reading beside a write, after it": [read(1, 0, 1), write(1, 2, 5), read(2, 3, 4)],
    "a write without an answer that happened": [read(1, 0, 1), write(1, 2, inf), read(2, 8, 9)],
    "one that never happened": [read(1, 0, 1), write(1, 2, inf), read(1, 8, 9)],
    "one of two writers is refused": [
        read(1, 0, 1),
        write(1, 2, 6),
        write(1, 3, 5, "refused"),
        read(2, 7, 8),
    ],
    "a driver is replaced": [
        take((1, 1), 0, 1),
        drive((1, 1), 2, 3),
        take((2, 3), 4, 5),
        drive((1, 2), 6, 7, "refused"),
    ],
    "a port on its way": [
        read(("MAINT",), 0, 1, PORT),
        move("RED", 2, 7),
        read(("MAINT", "RED"), 3, 4, PORT),
        read(("RED",), 8, 9, PORT),
    ],
    "a move that was lost for a while": [
        read(("MAINT",), 0, 1, PORT),
        move("RED", 2, inf),
        read(("MAINT",), 3, 4, PORT),
        read(("RED",), 8, 9, PORT),
    ],
}
PLANTED = {
    "an old row after a new one": [read(2, 0, 1), read(1, 2, 3)],
    "an answered write that is gone": [read(1, 0, 1), write(1, 2, 3), read(1, 4, 5)],
    "two writes at one generation": [read(1, 0, 1), write(1, 2, 6), write(1, 3, 5)],
    "a refusal without a reason": [read(1, 0, 1), write(1, 2, 3, "refused"), read(1, 4, 5)],
    "a write without an answer that comes and goes": [
        read(1, 0, 1),
        write(1, 2, inf),
        read(2, 3, 4),
        read(1, 5, 6),
    ],
    "one epoch for two drivers": [take((1, 1), 0, 5), take((1, 1), 1, 4)],
    "a replaced driver that writes": [
        take((1, 1), 0, 1),
        take((2, 2), 2, 3),
        drive((1, 1), 4, 5),
    ],
    "a port that never came": [
        read(("MAINT",), 0, 1, PORT),
        move("RED", 2, 3),
        read(("MAINT",), 4, 5, PORT),
    ],
    "a port that goes back by itself": [
        read(("MAINT",), 0, 1, PORT),
        move("RED", 2, inf),
        read(("RED",), 3, 4, PORT),
        read(("MAINT",), 5, 6, PORT),
    ],
}


@pytest.mark.parametrize("name", ORDERED)
def test_calls_that_one_copy_would_answer_so_have_an_order(name: str) -> None:
    assert check_calls(ORDERED[name]) == []


@pytest.mark.parametrize("name", PLANTED)
def test_planted_calls_have_none(name: str) -> None:
    [sentence] = check_calls(PLANTED[name])

    assert "is not linearizable" in sentence


def test_many_calls_at_once_are_put_into_one_order() -> None:
    """Twelve writers at one time: each order but one is wrong, and the memory keeps it short."""
    calls = [read(0, 0, 1), *(write(n, 20 - n, 100 + n) for n in range(12)), read(12, 200, 201)]

    assert check_calls(calls) == []


@pytest.mark.long
def test_a_daemon_that_remembers_an_old_fleet_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = SqlNodeRepository.list
    remembered: dict[int, Any] = {}

    async def remember(self: SqlNodeRepository) -> Any:
        nodes = await stored(self)
        return remembered.setdefault(id(self), nodes) if nodes else nodes

    monkeypatch.setattr(SqlNodeRepository, "list", remember)

    wrong = virtual_time.run(undisturbed(tmp_path))

    assert any(s.startswith("row ") and "not linearizable" in s for s in wrong)


@pytest.mark.slow
def test_a_switch_that_reports_a_change_that_it_never_made_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def change_nothing(_self: CumulusSwitch, _change: object) -> str:
        return "1"

    monkeypatch.setattr(CumulusSwitch, "apply_change", change_nothing)

    wrong = virtual_time.run(undisturbed(tmp_path))

    assert any(s.startswith("port ") and "not linearizable" in s for s in wrong)
