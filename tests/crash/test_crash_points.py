"""Some of the points at which the daemon may die; `make soak NAME=crash-points` has all."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hurt_world import MemoryMark
from lives import explore, seconds
from storage_world import StorageWorld

from provisioner.control.node.observer import Observer
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.execution.tenancy.tenancy import MoveOutcome, Tenancy
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.decide import Placement, View
from provisioner.planning.release.entitlement import mark_served

DEATHS = 2  # each costs some seconds of a core
STORED = 20  # of its points, and more, are within storage
HANDED = 100  # of its 140 others from its certificate on
POINTS = 450  # of its 530 before; the last of each differ by run
LATER = {
    "red": 300,
    "repair": 600,
    "upgrade": 500,
    "exchange": 250,
    "hands": 1000,
    "lapses": 700,
    "restored": 800,
    "misread": 200,
    "slow": 500,
    "half-reach": 500,
}  # so many points, and more, have these legs
SEED = int(os.environ.get("SEED", "8"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
def test_whoever_takes_over_after_a_death_ends_the_journey_without_repeating(
    tmp_path: Path,
) -> None:
    """Its tenants have shared storage: one of the deaths is while that is read or changed."""
    rng = random.Random(SEED)
    most = {"blue": POINTS, "blue, storage": STORED, "blue, handover": HANDED}
    numbers = {leg: rng.randrange(1, points) for leg, points in most.items()}

    def chosen(leg: str, number: int) -> bool:
        return numbers.get(leg) == number

    run = explore(tmp_path, chosen, jobs=2, last="blue", deaths_max=len(most), kind=StorageWorld)

    assert run.wrong == ""
    assert [v for v in run.verdicts.values() if v] == [], f"replay: SEED={SEED}"
    assert len(run.verdicts) == len(most)
    assert len(run.points) >= numbers["blue"]


@pytest.mark.long
@pytest.mark.parametrize("leg", LATER)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
def test_whoever_takes_over_in_a_later_leg_ends_it_without_repeating(
    tmp_path: Path, leg: str
) -> None:
    numbers = random.Random(f"{SEED}/{leg}").sample(range(1, LATER[leg]), DEATHS)

    def chosen(name: str, number: int) -> bool:
        return name == leg and number in numbers

    run = explore(tmp_path, chosen, jobs=2, last=leg, deaths_max=DEATHS)

    assert run.wrong == ""
    assert [v for v in run.verdicts.values() if v] == [], f"replay: SEED={SEED}"
    assert len(run.verdicts) == DEATHS
    assert run.legs[leg] >= max(numbers)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
def test_a_third_daemon_ends_what_a_second_one_had_taken_over(tmp_path: Path) -> None:
    second = seconds(tmp_path, "blue")
    number = random.Random(f"{SEED}/second").randrange(1, POINTS)

    run = explore(tmp_path, lambda _leg, n: n == number, jobs=2, last="blue", second=second)

    assert run.wrong == ""
    assert [v for v in run.verdicts.values() if v] == [], f"replay: SEED={SEED}"
    assert len(run.verdicts) == 1
    assert second.places()  # somebody died behind that death
    assert not {*second.places()} & second.known


async def _count_old_erasures(self: IsolationViolations, node: Node, vrfs: Sequence[str]) -> Node:
    """Owe an erasure without a new stay: what was erased before the isolation violation counts."""
    stored: Node = await self._store.nodes.get(node.id)
    served = mark_served(stored.served, vrfs)
    return await self._store.nodes.save(stored.model_copy(update={"served": served}))


async def _ask_nobody(*_given: object) -> tuple[Blocker, ...]:
    return ()


async def _take_silence_for_a_fence(self: Observer, node: Node, view: View) -> View:
    """A leaf that gives no answer passes for one that shows the maintenance network."""
    placed = await _place(self, node, view)
    if not placed.unseen:
        return placed
    return placed.model_copy(update={"unseen": (), "placement": Placement.MAINTENANCE})


async def _fence_what_answers(self: Tenancy, *given: Any, **named: Any) -> MoveOutcome:
    """A move is over when the leaves that answer have made it."""
    outcome = await _move(self, *given, **named)
    return replace(outcome, blockers=())


_place, _move = Observer._place, Tenancy.move
SPOILT = {  # leg -> what is spoilt: place, name, instead; what the judge says of it
    "hands": ([(IsolationViolations, "_begin_stay", _count_old_erasures)], "was not erased"),
    "lapses": ([(Observer, "objections", _ask_nobody)], "its certificate was revoked"),
    "restored": ([(MemoryMark, "read", lambda _mark: None)], "had settled the restore"),
    # either alone changes nothing: the fence refuses, or the next look does
    "half-reach": (
        [(Observer, "_place", _take_silence_for_a_fence), (Tenancy, "move", _fence_what_answers)],
        "of its leaves gave no answer",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("leg", SPOILT)
def test_a_daemon_that_is_spoilt_on_purpose_is_judged_wrong(
    tmp_path: Path, leg: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt, words = SPOILT[leg]
    for place, name, instead in spoilt:
        monkeypatch.setattr(place, name, instead)

    run = explore(tmp_path, lambda _leg, _number: False, jobs=1, last=leg)

    assert words in run.wrong
