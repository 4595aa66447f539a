"""A clock that steps by minutes stops decisions; it comes back by itself, or by a person's word."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from provisioner.control.watch.watch_standing import GAP_MAX_S, LAST, DecidingClock, TimeStanding
from provisioner.runtime.wall_clock import STEP_MAX_S, WallClock
from provisioner.store import SqlStore, open_store
from provisioner.store.rows import agent_rows as clock_rows

HOUR_S = 3600.0
BEGAN = 1_800_000_000.0
Result = TypeVar("Result")


class Machine:
    """Two clocks: the one that can be set, and the one that cannot."""

    def __init__(self) -> None:
        self.boot_s, self.wrong_s = 100.0, 0.0
        self.clock = WallClock(boot=lambda: self.boot_s, machine=self.tell)

    def tell(self) -> float:
        return BEGAN + self.boot_s + self.wrong_s

    def restart(self) -> None:
        self.clock = WallClock(boot=lambda: self.boot_s, machine=self.tell)


def with_store(story: Callable[[Machine, SqlStore], Awaitable[Result]]) -> Result:
    async def main() -> Result:
        store = open_store(":memory:", inline=True)
        try:
            return await story(Machine(), store)
        finally:
            await store.close()

    return asyncio.run(main())


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S, 400 * 86400.0])
def test_one_bad_reading_moves_no_time_and_is_over_with_the_next(step_s: float) -> None:
    machine = Machine()
    before = machine.clock.now()
    machine.wrong_s = step_s
    during, differs = machine.clock.now(), machine.clock.step_s
    machine.wrong_s = 0.0
    machine.boot_s += 10.0

    assert (during, differs) == (before, step_s)
    assert (machine.clock.now(), machine.clock.step_s) == (before + 10.0, 0.0)


@pytest.mark.parametrize("drift_s", [-60.0, 60.0])
def test_a_small_correction_is_followed_forward_only(drift_s: float) -> None:
    machine = Machine()
    before = machine.clock.now()
    machine.wrong_s = drift_s

    assert machine.clock.now() == before + max(drift_s, 0.0)
    assert machine.clock.step_s == 0.0


def test_nothing_is_decided_during_a_step_and_the_journal_says_why() -> None:
    async def story(machine: Machine, store: SqlStore) -> tuple[list[bool], list[str]]:
        standing = TimeStanding(store, machine.clock)
        await standing.begin()
        decides = []
        for wrong_s in (0.0, HOUR_S, HOUR_S + 1.0, 0.0):
            machine.wrong_s = wrong_s
            await standing.compare_clocks()
            decides.append(await goes_on(DecidingClock(machine.clock, standing)))
        rows = await store.journal.list()
        return decides, [str(r["kind"]) for r in rows]

    decides, kinds = with_store(story)

    assert decides == [True, False, False, True]
    assert kinds == ["clock_doubted", "clock_believed"]


async def goes_on(clock: DecidingClock) -> bool:
    waiting = asyncio.create_task(clock.sleep(0.0))
    for _ in range(5):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


def test_a_persons_word_is_asked_for_each_step() -> None:
    async def story(machine: Machine, store: SqlStore) -> list[str]:
        standing = TimeStanding(store, machine.clock)
        await standing.begin()
        whys = []
        for wrong_s in (HOUR_S, 5 * HOUR_S):
            machine.wrong_s = wrong_s
            await standing.compare_clocks()
            whys.append(standing.why)
            at = machine.tell()
            await store.write(lambda c, at=at: clock_rows.put_mark(c, clock_rows.ACCEPTED, at))
            await standing.compare_clocks()
            assert standing.why == ""
            assert machine.clock.now() == machine.tell()
        return whys

    first, second = with_store(story)

    assert "forward by 3600 s" in first
    assert "forward by 14400 s" in second


@pytest.mark.parametrize(
    ("away_s", "doubted"),
    [
        (10.0, False),
        (GAP_MAX_S - HOUR_S, False),
        (GAP_MAX_S + HOUR_S, True),
        (-HOUR_S, True),
        (-STEP_MAX_S / 2, False),
    ],
)
def test_a_start_far_from_the_last_time_asks(away_s: float, doubted: bool) -> None:
    async def story(machine: Machine, store: SqlStore) -> tuple[bool, float | None]:
        await TimeStanding(store, machine.clock).begin()
        machine.wrong_s = away_s
        machine.restart()
        standing = TimeStanding(store, machine.clock)
        await standing.begin()
        return bool(standing.why), await store.clock_marks.get(LAST)

    asks, last = with_store(story)

    assert asks is doubted
    assert (last == BEGAN + 100.0) is doubted or away_s < 0  # the doubted time is not kept


def test_a_clock_that_is_set_right_after_a_bad_start_needs_no_word() -> None:
    """A real-time clock without a battery, then NTP."""

    async def story(machine: Machine, store: SqlStore) -> tuple[bool, bool, float]:
        await TimeStanding(store, machine.clock).begin()
        machine.wrong_s = -400 * 86400.0
        machine.restart()
        standing = TimeStanding(store, machine.clock)
        await standing.begin()
        at_start = bool(standing.why)
        machine.wrong_s = 20.0
        await standing.compare_clocks()
        return at_start, bool(standing.why), machine.clock.now() - machine.tell()

    assert with_store(story) == (True, False, 0.0)
