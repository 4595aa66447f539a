"""Fewer requests are under way while turns of the loop take long, and all again afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from provisioner.runtime import event_loop
from provisioner.runtime.event_loop import PACED_MIN, PacedSlots

MOST = 3 * PACED_MIN
TURN_MAX_S = 0.008


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "TURN_MAX_S", TURN_MAX_S)


def _work(cpu_s: float) -> None:
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


async def _count_under_way(
    slots: PacedSlots, requests: int, one: Callable[[], Awaitable[None]]
) -> list[int]:
    """Return how many were under way as each of so many requests left."""
    under_way, seen = 0, []

    async def request() -> None:
        nonlocal under_way
        async with slots:
            under_way += 1
            seen.append(under_way)
            await one()
            under_way -= 1

    await asyncio.gather(*(request() for _ in range(requests)))
    return seen


def test_a_loop_with_time_gives_all_places_and_never_more() -> None:
    async def slow_device() -> None:
        await asyncio.sleep(0.002)

    seen = asyncio.run(_count_under_way(PacedSlots(MOST), 40 * MOST, slow_device))

    assert len(seen) == 40 * MOST
    assert max(seen) == MOST


def test_long_turns_take_places_away_down_to_the_least_and_short_ones_bring_them_back() -> None:
    async def scenario() -> tuple[list[int], list[int]]:
        slots = PacedSlots(MOST)

        async def slow_device() -> None:
            await asyncio.sleep(0.002)

        async def much_work() -> None:
            await asyncio.sleep(0)
            _work(TURN_MAX_S / PACED_MIN * 1.5)

        await _count_under_way(slots, 40 * MOST, slow_device)
        busy = await _count_under_way(slots, 8 * MOST, much_work)
        return busy, await _count_under_way(slots, 40 * MOST, slow_device)

    busy, after = asyncio.run(scenario())

    assert PACED_MIN <= max(busy[-2 * PACED_MIN :]) < MOST / 2
    assert max(after) == MOST


def test_after_a_calm_no_more_than_the_least_begin_at_once() -> None:
    async def scenario() -> int:
        slots, under_way = PacedSlots(MOST), 0
        begun, answered = asyncio.Event(), asyncio.Event()

        async def slow_device() -> None:
            await asyncio.sleep(0.002)

        async def silent_device() -> None:
            nonlocal under_way
            under_way += 1
            begun.set()
            await answered.wait()

        assert max(await _count_under_way(slots, 40 * MOST, slow_device)) == MOST
        for _ in range(3):
            await _count_under_way(slots, 1, slow_device)
        burst = asyncio.create_task(_count_under_way(slots, MOST, silent_device))
        await begun.wait()
        at_once = under_way
        answered.set()
        await burst
        return at_once

    assert asyncio.run(scenario()) == PACED_MIN


def test_few_places_are_all_given_however_long_a_turn_takes() -> None:
    async def much_work() -> None:
        await asyncio.sleep(0)
        _work(TURN_MAX_S * 1.2)

    assert max(asyncio.run(_count_under_way(PacedSlots(2), 6, much_work))) == 2


def test_who_is_cancelled_while_it_waits_or_as_it_is_let_in_keeps_no_place() -> None:
    async def scenario() -> list[int]:
        slots, done = PacedSlots(1), []

        async def request(number: int) -> None:
            async with slots:
                await asyncio.sleep(0)
                done.append(number)

        async with asyncio.timeout(60):
            async with slots:
                tasks = [asyncio.create_task(request(n)) for n in range(4)]
                await asyncio.sleep(0)
                tasks[0].cancel()  # waits
            tasks[1].cancel()  # has been given the place, and has not run yet
            await asyncio.wait(tasks)
        return done

    assert asyncio.run(scenario()) == [2, 3]
