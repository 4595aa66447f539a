"""What every `Isolation` promises, on simulated leaves and on a UFM stand-in alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from benches import BLUE, RED, Bench, ethernet, infiniband

from provisioner.model.outcome import Reason
from provisioner.model.tenant import MAINTENANCE_VRF, Phase

BOTH = (RED, BLUE)
LEAVING = (RED.model_copy(update={"phase": Phase.LEAVING}), BLUE)


FABRICS = pytest.mark.parametrize("fabric", [ethernet, infiniband], ids=["vrf", "pkey"])


def run(fabric: Any, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60), fabric() as bench:
            await scenario(bench)

    asyncio.run(bounded())


async def made(bench: Bench, tenants: Any = BOTH) -> None:
    delta = await bench.isolation.delta(tenants)
    assert delta.blockers == ()
    assert await bench.isolation.bring(delta) == ()


@FABRICS
def test_looking_changes_nothing_and_says_what_it_would_do(fabric):
    async def scenario(bench: Bench) -> None:
        before = bench.changes()
        delta = await bench.isolation.delta(BOTH)

        assert delta.blockers == ()
        assert delta.steps
        assert all(step.lines for step in delta.steps)
        assert bench.changes() == before

    run(fabric, scenario)


@FABRICS
def test_what_is_made_is_made_once(fabric):
    async def scenario(bench: Bench) -> None:
        await made(bench)
        done = bench.changes()

        assert (await bench.isolation.delta(BOTH)).steps == ()
        await made(bench)
        assert bench.changes() == done

    run(fabric, scenario)


@FABRICS
def test_members_are_in_one_network_and_then_in_the_next(fabric):
    async def scenario(bench: Bench) -> None:
        await made(bench)
        for vrf in ("RED", "BLUE", MAINTENANCE_VRF):
            assert await bench.isolation.place(bench.members, vrf, BOTH) == ()
            assert [bench.truth(m) for m in bench.members] == [{vrf}, {vrf}]
            where = await bench.isolation.where(bench.members, BOTH)
            assert where == {m: frozenset({vrf}) for m in bench.members}

    run(fabric, scenario)


@FABRICS
def test_placing_where_they_are_changes_nothing(fabric):
    async def scenario(bench: Bench) -> None:
        await made(bench)
        await bench.isolation.place(bench.members, "RED", BOTH)
        done = bench.changes()

        assert await bench.isolation.place(bench.members, "RED", BOTH) == ()
        assert bench.changes() == done

    run(fabric, scenario)


@FABRICS
def test_a_network_with_a_member_in_it_is_not_removed(fabric):
    async def scenario(bench: Bench) -> None:
        await made(bench)
        await bench.isolation.place(bench.members, "RED", BOTH)

        delta = await bench.isolation.delta(LEAVING)

        assert {b.reason for b in delta.blockers} == {Reason.ISOLATION}
        assert bench.truth(bench.members[0]) == {"RED"}

    run(fabric, scenario)


@FABRICS
def test_a_member_that_came_after_the_look_keeps_its_network(fabric):
    async def scenario(bench: Bench) -> None:
        await made(bench)
        delta = await bench.isolation.delta(LEAVING)
        assert delta.blockers == ()
        await bench.isolation.place(bench.members, "RED", BOTH)

        blockers = await bench.isolation.bring(delta)

        assert {b.reason for b in blockers} == {Reason.ISOLATION}
        assert [bench.truth(m) for m in bench.members] == [{"RED"}, {"RED"}]

    run(fabric, scenario)


@FABRICS
def test_a_network_that_was_left_is_removed(fabric):
    async def scenario(bench: Bench) -> None:
        await made(bench)
        await bench.isolation.place(bench.members, "RED", BOTH)
        await bench.isolation.place(bench.members, "BLUE", BOTH)
        await made(bench, LEAVING)

        again = await bench.isolation.delta(LEAVING)
        assert (again.steps, again.blockers) == ((), ())
        assert [bench.truth(m) for m in bench.members] == [{"BLUE"}, {"BLUE"}]

    run(fabric, scenario)


@FABRICS
def test_silence_blocks_everything_and_raises_nothing(fabric):
    async def scenario(bench: Bench) -> None:
        await bench.silence()

        delta = await bench.isolation.delta(BOTH)
        where = await bench.isolation.where(bench.members, BOTH)
        placed = await bench.isolation.place(bench.members, "RED", BOTH)

        assert [b.reason for b in delta.blockers] == [Reason.UNREACHABLE]
        assert delta.steps == () or delta.blockers
        assert getattr(where, "reason", None) is Reason.UNREACHABLE
        assert placed
        assert "RED" not in bench.truth(bench.members[0])

    run(fabric, scenario)


@FABRICS
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_lost_answer_is_repaired_by_looking(fabric, nth):
    async def scenario(bench: Bench) -> None:
        bench.lose(nth)
        await made(bench)
        bench.lose(nth)
        for _ in range(2):  # a second call finds what the first one left
            placed = await bench.isolation.place(bench.members, "RED", BOTH)

        assert placed == ()
        assert [bench.truth(m) for m in bench.members] == [{"RED"}, {"RED"}]
        assert (await bench.isolation.delta(BOTH)).steps == ()

    run(fabric, scenario)


@FABRICS
def test_a_yes_without_an_effect_is_no_success(fabric):
    async def scenario(bench: Bench) -> None:
        delta = await bench.isolation.delta(BOTH)
        bench.deafen()

        assert {b.reason for b in await bench.isolation.bring(delta)} == {Reason.ISOLATION}
        placed = await bench.isolation.place(bench.members, "RED", BOTH)
        assert placed
        assert [bench.truth(m) for m in bench.members] != [{"RED"}, {"RED"}]

    run(fabric, scenario)


@FABRICS
def test_a_network_of_nobody_takes_no_member(fabric):
    async def scenario(bench: Bench) -> None:
        await made(bench)
        before = bench.changes()

        placed = await bench.isolation.place(bench.members, "GREEN", BOTH)
        nothing = await bench.isolation.place((), "RED", BOTH)

        assert [b.reason for b in placed] == [Reason.NOT_EXPECTED]
        assert nothing
        assert bench.changes() == before

    run(fabric, scenario)
