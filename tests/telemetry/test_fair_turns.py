"""What comes in at once is worked on in several turns of the loop, and others come between."""

from __future__ import annotations

import asyncio

from provisioner.runtime.event_loop import FairTurns


def test_no_turn_of_the_loop_has_more_than_its_number_and_all_come_in_their_order() -> None:
    done: list[int] = []
    a_turn: list[int] = []

    async def scenario() -> None:
        turns = FairTurns(most=5)

        async def one(number: int) -> None:
            await turns.take()
            done.append(number)

        tasks = [asyncio.create_task(one(n)) for n in range(23)]
        while not all(task.done() for task in tasks):
            before = len(done)
            await asyncio.sleep(0)
            a_turn.append(len(done) - before)

    asyncio.run(scenario())

    assert done == list(range(23))
    assert max(a_turn) == 5


def test_who_comes_later_waits_behind_those_who_wait() -> None:
    done: list[str] = []

    async def scenario() -> None:
        turns = FairTurns(most=2)

        async def one(name: str) -> None:
            await turns.take()
            done.append(name)

        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(one(f"early {number}"))
            await asyncio.sleep(0)
            group.create_task(one("late"))

    asyncio.run(scenario())

    assert done[-1] == "late"


def test_a_waiter_that_is_cancelled_costs_nobody_a_turn() -> None:
    async def scenario() -> int:
        turns = FairTurns(most=1)
        tasks = [asyncio.create_task(turns.take()) for _ in range(6)]
        await asyncio.sleep(0)
        for task in tasks[2:4]:
            task.cancel()
        await asyncio.wait(tasks, timeout=60.0)
        return sum(task.done() and not task.cancelled() for task in tasks)

    assert asyncio.run(scenario()) == 4


def test_a_loop_with_time_lets_everyone_through_at_once() -> None:
    async def scenario() -> int:
        turns, waited = FairTurns(most=1), 0
        for _ in range(3):
            taking = turns.take()
            try:
                taking.send(None)
                waited += 1
                taking.close()
            except StopIteration:
                pass
            await asyncio.sleep(0)
        return waited

    assert asyncio.run(scenario()) == 0
