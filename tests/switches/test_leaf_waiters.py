"""Who waits for a leaf, gives up or is refused, what it costs the others; limits to the second."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from small_site import NOT_SENT, RED, SmallSite, ok, play, replacing

from provisioner.execution.tenancy.leaf import SharedReading
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Move

BLOCKER = Blocker(reason=Reason.TRESPASS, subject="node", detail="revoked", unblock="wait")


def test_a_shared_reading_begins_when_the_one_before_it_is_over() -> None:
    async def main() -> tuple[list[int], int]:
        reads = most = running = 0

        async def read() -> int:
            nonlocal reads, most, running
            reads, running = reads + 1, running + 1
            most = max(most, running)
            mine = reads
            for _ in range(5):
                await asyncio.sleep(0)
            running -= 1
            return mine

        shared = SharedReading(read, "test")
        first = asyncio.create_task(shared.ask())
        for _ in range(3):
            await asyncio.sleep(0)
        later = await asyncio.gather(shared.ask(), shared.ask())
        return [await first, *later], most

    assert asyncio.run(main()) == ([1, 2, 2], 1)


def test_a_leaf_that_is_closed_ends_the_reading_of_its_ports() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        waiting = asyncio.create_task(leaf.vrfs(["swp1"]))
        await asyncio.sleep(0)
        await leaf.close()
        (ended,) = await asyncio.gather(waiting, return_exceptions=True)
        return isinstance(ended, asyncio.CancelledError), site.lines()

    assert play(scenario) == (True, [])


def test_no_reading_of_a_leaf_is_left_when_it_is_closed() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        waiting = [asyncio.ensure_future(one) for one in (leaf.vrfs(["swp1"]), leaf.routes())]
        for _ in range(3):
            await asyncio.sleep(0)
        await leaf.close()
        left = [t.get_name() for t in asyncio.all_tasks() if t.get_name().endswith(" of leaf-0")]
        await asyncio.gather(*waiting, return_exceptions=True)
        return left

    assert play(scenario) == []


async def objects() -> tuple[Blocker, ...]:
    return (BLOCKER,)


def test_a_leaf_is_asked_for_nothing_where_every_move_is_refused() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        refused = await asyncio.gather(
            leaf.move([RED], objects), leaf.move([Move("swp2", "RED")], objects)
        )
        return [o.blockers for o in refused], site.lines()

    assert play(scenario) == ([(BLOCKER,)] * 2, [])


def test_moves_that_are_all_refused_leave_the_later_ones_alone() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        outcomes = await asyncio.gather(
            leaf.move([RED], objects),
            leaf.move([Move("swp2", "RED")], objects),
            leaf.move([Move("swp2", "BLUE")]),  # of a later batch
        )
        return [o.blockers for o in outcomes], site.vrf("swp1"), site.vrf("swp2")

    assert play(scenario) == ([(BLOCKER,), (BLOCKER,), ()], "default", "BLUE")


def test_one_who_gave_up_holds_up_nobody_who_wants_its_port_elsewhere() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf, began = site.leaf(), site.clock.now()
        gone = asyncio.create_task(leaf.move([RED]))
        stays = asyncio.create_task(leaf.move([Move("swp1", "BLUE")]))
        await asyncio.sleep(0)
        gone.cancel()
        await stays
        return round(site.transport.asked[0].at - began, 3), site.vrf()

    assert play(scenario, switch_gather_s=1.0) == (0.2, "BLUE")


def test_one_who_gives_up_between_two_tries_is_asked_for_no_objections() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf, count = site.leaf(), 0

        async def agrees() -> tuple[Blocker, ...]:
            nonlocal count
            count += 1
            return ()

        site.transport.answer = replacing({"POST /revision": NOT_SENT})
        gone = asyncio.create_task(leaf.move([RED], agrees))
        stays = asyncio.create_task(leaf.move([Move("swp2", "RED")]))
        while not site.lines("POST"):
            await site.clock.sleep(0.1)
        gone.cancel()
        site.transport.answer = lambda _asked: None
        outcome = await stays
        return count, outcome.blockers, site.vrf("swp1"), site.vrf("swp2")

    assert play(scenario) == (1, (), "default", "RED")


# --- limits


def test_a_revision_is_waited_for_until_its_limit_and_no_longer() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("apply_hangs")
        await site.leaf().move([RED])
        return site.times("GET /revision/1")

    times = play(scenario, switch_poll_s=5.0, switch_apply_limit_s=10.0)

    assert times[-1] - times[0] == pytest.approx(10.0)


def test_a_port_that_does_not_follow_is_waited_for_until_its_limit_and_no_longer() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("moves_ignored")
        await site.leaf().move([RED])
        return site.times("GET /interface/swp1?rev=operational")

    _, *times = play(scenario, switch_poll_s=5.0, switch_apply_limit_s=10.0)

    assert times[-1] - times[0] == pytest.approx(10.0)


def test_a_revision_of_another_writer_is_waited_for_until_its_limit_and_no_longer() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.leaf().move([RED])
        before = len(site.times("GET /revision"))
        under_way = ok({"1": {"state": "applied"}, "9": {"state": "apply"}})
        nothing = ok({"ip": {"vrf": "RED"}})
        site.transport.answer = replacing(
            {"GET /revision": under_way, "GET /interface/swp1?rev=9": nothing}
        )
        await site.leaf().move([Move("swp1", "BLUE", "172.16.0.3/31")])
        posted = site.times("POST /revision")[1]
        return posted - site.times("GET /revision")[before]

    waited = play(scenario, switch_poll_s=5.0, switch_apply_limit_s=10.0)
    assert waited == pytest.approx(10.0)
