"""Moves of many at one leaf: shared, refused, objected to, given up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from small_site import (
    LOST,
    NOT_SENT,
    RED,
    SAVED,
    Asked,
    SmallSite,
    described,
    ok,
    play,
    replacing,
)

from provisioner.model.location import Bond
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Move
from provisioner.ports import NotGranted, Reply

# --- many at one time


def test_a_fence_at_the_same_time_makes_no_bond_pass_that_cannot_be_made() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf, bond = site.leaf(), Bond(name="swbond", members=("swp2",), made=True)
        into_red = Move("vlan101", "RED", bond=bond)
        moves = leaf.move([Move("swp1", "MAINT")]), leaf.move([into_red])
        return *await asyncio.gather(*moves), site.vrf("swp1")

    fence, refused, vrf = play(scenario)

    assert (fence.blockers, vrf) == ((), "MAINT")
    assert described(refused) == [(Reason.SWITCH_REFUSED, "leaf-0")]
    assert "takes no bond of this name" in refused.blockers[0].detail


def test_a_port_that_is_applied_is_fenced_although_its_bond_cannot_be_made() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.applied["interface"]["vlan101"] = {"type": "svi", "ip": {"vrf": "RED"}}
        bond = Bond(name="swbond", members=("swp2",), made=True)
        await site.leaf().move([Move("vlan101", "MAINT", bond=bond)])
        return site.vrf("vlan101")

    assert play(scenario) == "MAINT"


def test_a_fence_that_stands_is_not_written_again_for_a_bond_that_cannot_be_made() -> None:
    async def scenario(site: SmallSite) -> Any:
        for tree in (site.switch.operational, site.switch.applied, site.switch.startup):
            tree["interface"]["vlan101"] = {"type": "svi", "ip": {"vrf": "MAINT"}}
        bond = Bond(name="swbond", members=("swp2",), made=True)
        outcome = await site.leaf().move([Move("vlan101", "MAINT", bond=bond)])
        return outcome.revision, site.lines("POST")

    assert play(scenario) == ("", [])


def test_a_port_that_only_its_bond_would_make_is_refused_and_nothing_is_written() -> None:
    async def scenario(site: SmallSite) -> Any:
        bond = Bond(name="swbond", members=("swp2",), made=True)
        outcome = await site.leaf().move([Move("vlan101", "MAINT", bond=bond)])
        return described(outcome), site.lines("POST", "PATCH")

    assert play(scenario) == ([(Reason.SWITCH_REFUSED, "leaf-0")], [])


BOND = Bond(name="bond1", members=("swp2",), made=True)


def prepare_bond(site: SmallSite, vrf: str) -> None:
    """The bond's port is bare, and a VLAN of the leaf is in this VRF."""
    for tree in (site.switch.operational, site.switch.applied, site.switch.startup):
        tree["interface"]["swp2"] = {"type": "swp"}
        tree["interface"]["vlan101"] = {"type": "svi", "ip": {"vrf": vrf}}


@pytest.mark.parametrize("trouble", [LOST, NOT_SENT])
def test_a_bond_that_could_not_be_read_once_is_made_with_the_next_try(trouble: Exception) -> None:
    async def scenario(site: SmallSite) -> Any:
        troubles = [trouble]
        prepare_bond(site, "MAINT")

        def answer(asked: Asked) -> Exception | None:
            return troubles.pop() if troubles and asked.line == SAVED[0] else None

        site.transport.answer = answer
        outcome = await site.leaf().move([Move("vlan101", "RED", bond=BOND)])
        return outcome.blockers, site.vrf("vlan101"), troubles

    assert play(scenario) == ((), "RED", [])


def without_bonds(site: SmallSite) -> None:
    """From now on the leaf refuses each change that makes a bond."""

    def answer(asked: Asked) -> Reply | None:
        refused = asked.method == "PATCH" and '"bond"' in json.dumps(asked.body)
        return Reply(400, {}, b"{}") if refused else None

    site.transport.answer = answer


def test_a_leaf_that_makes_no_bond_fences_the_port_and_says_that_its_host_may_be_elsewhere() -> (
    None
):
    async def scenario(site: SmallSite) -> Any:
        prepare_bond(site, "RED")
        without_bonds(site)
        outcome = await site.leaf().move([Move("vlan101", "MAINT", bond=BOND)])
        return outcome.blockers, site.vrf("vlan101")

    (refused,), vrf = play(scenario)

    assert (refused.reason, refused.subject, vrf) == (Reason.ISOLATION, "leaf-0", "MAINT")
    assert refused.detail == "the leaf has not made its bond"


def test_a_tenants_port_without_the_bond_that_was_asked_for_is_no_move() -> None:
    async def scenario(site: SmallSite) -> Any:
        prepare_bond(site, "MAINT")
        without_bonds(site)
        label = "host-1 [node n0, port 1]"
        outcome = await site.leaf().move([Move("vlan101", "RED", bond=BOND, description=label)])
        return described(outcome), site.vrf("vlan101")

    assert play(scenario) == ([(Reason.SWITCH_REFUSED, "leaf-0")], "MAINT")


def test_moves_that_come_together_share_a_revision() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        moves = [leaf.move([Move(f"swp{n}", "RED")]) for n in (1, 2)]
        outcomes = await asyncio.gather(*moves)
        return outcomes, site.lines("POST"), site.vrf("swp1"), site.vrf("swp2")

    outcomes, posted, first, second = play(scenario)

    assert [o.revision for o in outcomes] == ["1", "1"]
    assert (posted, first, second) == (["POST /revision"], "RED", "RED")


def test_a_leaf_waits_a_fifth_for_more_and_never_longer_than_all_of_it() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf, began = site.leaf(), site.clock.now()
        tasks = []
        for number in range(1, 20):
            tasks.append(asyncio.create_task(leaf.move([Move(f"swp{number % 4 + 1}", "RED")])))
            await site.clock.sleep(0.15)
        await asyncio.gather(*tasks)
        alone_at = site.clock.now()
        asked = len(site.transport.asked)
        await leaf.move([Move("swp1", "BLUE")])
        first = site.transport.asked
        return round(first[0].at - began, 3), round(first[asked].at - alone_at, 3)

    assert play(scenario, switch_gather_s=1.0) == (1.0, 0.2)


def test_two_who_want_one_port_in_two_networks_have_their_turns_in_order() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        first = leaf.move([Move("swp1", "RED"), Move("swp2", "RED")])
        second = leaf.move([Move("swp2", "BLUE")])
        third = leaf.move([Move("swp3", "BLUE")])
        outcomes = await asyncio.gather(first, second, third)
        return [o.revision for o in outcomes], [site.vrf(f"swp{n}") for n in (1, 2, 3)]

    assert play(scenario) == (["1", "2", "1"], ["RED", "BLUE", "BLUE"])


def test_one_bad_port_is_refused_alone() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        bad = Move("swp99", "RED")
        site.transport.answer = lambda asked: (
            ok({}) if asked.path.startswith("/interface/swp99") else None
        )
        outcomes = await asyncio.gather(leaf.move([RED]), leaf.move([bad]))
        return outcomes, site.vrf(), len(site.lines("POST"))

    (good, bad), vrf, posted = play(scenario)

    assert (good.blockers, vrf) == ((), "RED")
    assert [b.reason for b in bad.blockers] == [Reason.SWITCH_REFUSED]
    assert posted == 3  # together, then each by itself


def test_a_port_of_a_node_that_nobody_granted_holds_up_no_other() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()

        def withhold(asked: Any) -> Exception | None:
            body = json.dumps(asked.body or {})
            return NotGranted("nobody granted it") if "swp2" in body else None

        site.transport.answer = withhold
        outcomes = await asyncio.gather(leaf.move([RED]), leaf.move([Move("swp2", "RED")]))
        return outcomes, site.vrf(), site.vrf("swp2")

    (good, withheld), moved, kept = play(scenario)

    assert (good.blockers, moved, kept) == ((), "RED", "default")
    assert [b.reason for b in withheld.blockers] == [Reason.NOT_GRANTED]


def test_a_leaf_whose_answer_was_lost_is_looked_up_again_for_the_next_try() -> None:
    async def scenario(site: SmallSite) -> Any:
        lost: list[str] = []

        def lose(asked: Any) -> Exception | None:
            first = asked.method == "POST" and not lost
            lost.extend([asked.path] * first)
            return LOST if first else None

        site.transport.lose = lose
        return await site.leaf().move([RED]), site.vrf(), len(site.looked_up)

    outcome, vrf, looked_up = play(scenario)

    assert (outcome.blockers, vrf, looked_up) == ((), "RED", 2)


def test_one_refused_move_is_not_made_twice() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("apply_fails")
        await site.leaf().move([RED])
        return len(site.lines("POST"))

    assert play(scenario) == 1


def test_an_obstacle_of_the_whole_leaf_is_not_tried_for_each() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.password_expired = True
        leaf = site.leaf()
        outcomes = await asyncio.gather(leaf.move([RED]), leaf.move([Move("swp2", "RED")]))
        return outcomes, site.lines()

    outcomes, lines = play(scenario)

    assert [described(o) for o in outcomes] == [[(Reason.LOGIN_REFUSED, "leaf-0")]] * 2
    assert lines == ["GET /revision"]


def test_whoever_gave_up_is_not_moved_and_the_others_are() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        gone = asyncio.create_task(leaf.move([RED]))
        stays = asyncio.create_task(leaf.move([Move("swp2", "RED")]))
        await asyncio.sleep(0)
        gone.cancel()
        outcome = await stays
        return outcome.blockers, site.vrf("swp1"), site.vrf("swp2"), gone.cancelled()

    assert play(scenario) == ((), "default", "RED", True)


# --- objections


BLOCKER = Blocker(reason=Reason.TRESPASS, subject="node", detail="revoked", unblock="wait")


def test_a_move_with_an_objection_sends_nothing_and_stops_nobody_else() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()

        async def objects() -> tuple[Blocker, ...]:
            return (BLOCKER,)

        async def agrees() -> tuple[Blocker, ...]:
            return ()

        outcomes = await asyncio.gather(
            leaf.move([RED], objects), leaf.move([Move("swp2", "RED")], agrees)
        )
        alone = await leaf.move([RED], objects)
        return outcomes, alone, site.vrf("swp1"), site.vrf("swp2")

    (refused, moved), alone, first, second = play(scenario)

    assert (refused.revision, refused.blockers) == ("", (BLOCKER,))
    assert (alone.revision, alone.blockers) == ("", (BLOCKER,))
    assert (moved.blockers, first, second) == ((), "default", "RED")


def test_objections_are_read_again_before_each_try() -> None:
    async def scenario(site: SmallSite) -> Any:
        asked = 0

        async def later() -> tuple[Blocker, ...]:
            nonlocal asked
            asked += 1
            return (BLOCKER,) if asked == 2 else ()

        site.transport.answer = replacing({"POST /revision": NOT_SENT})
        return await site.leaf().move([RED], later), asked, site.lines("POST")

    outcome, asked, posted = play(scenario)

    assert (outcome.blockers, asked, posted) == ((BLOCKER,), 2, ["POST /revision"])


# --- ends


def test_a_bug_is_told_to_all_who_wait_and_the_next_move_works() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()

        async def bug() -> tuple[Blocker, ...]:
            raise ValueError("a bug")

        moves = (leaf.move([RED], bug), leaf.move([Move("swp2", "RED")]))
        moves = (*moves, leaf.move([Move("swp1", "BLUE")]))  # of a later batch
        problems = await asyncio.gather(*moves, return_exceptions=True)
        after = await leaf.move([RED])
        return [str(p) for p in problems], after.blockers

    assert play(scenario) == (["a bug"] * 3, ())


def test_to_close_ends_the_writer_and_whoever_waits() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        await leaf.close()
        moves = [asyncio.create_task(leaf.move([m])) for m in (RED, Move("swp1", "BLUE"))]
        await site.clock.sleep(1.0)
        reading = asyncio.create_task(leaf.routes())
        await asyncio.sleep(0)
        await leaf.close()
        asked = len(site.transport.asked)
        ends = await asyncio.gather(*moves, reading, return_exceptions=True)
        await site.clock.sleep(60.0)
        return [type(e).__name__ for e in ends], len(site.transport.asked) - asked

    assert play(scenario) == (["CancelledError"] * 3, 0)


def test_a_port_that_cannot_be_read_is_refused_alone() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        unreadable = replacing(
            {f"GET /interface/swp2?rev={t}": ok([]) for t in ("applied", "operational")}
        )
        site.transport.answer = unreadable
        outcomes = await asyncio.gather(leaf.move([RED]), leaf.move([Move("swp2", "RED")]))
        return [[b.reason for b in o.blockers] for o in outcomes], site.vrf()

    assert play(scenario) == ([[], [Reason.MALFORMED]], "RED")


def test_whoever_gives_up_while_it_has_its_own_turn_harms_nobody() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        bad = asyncio.create_task(leaf.move([Move("swp99", "RED")]))
        good = asyncio.create_task(leaf.move([RED]))
        site.transport.answer = lambda asked: (
            ok({}) if asked.path.startswith("/interface/swp99") else None
        )
        while len(site.lines("POST")) < 2:  # the bad one has its own turn now
            await site.clock.sleep(0.1)
        bad.cancel()
        return (await good).blockers, bad.cancelled(), site.vrf()

    assert play(scenario) == ((), True, "RED")


def test_a_bug_is_told_to_those_who_still_wait() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        gone: list[asyncio.Task[Any]] = []

        async def bug() -> tuple[Blocker, ...]:
            gone[0].cancel()
            await asyncio.sleep(0)
            raise ValueError("a bug")

        gone.append(asyncio.create_task(leaf.move([Move("swp2", "RED")])))
        await asyncio.sleep(0)
        moves = [asyncio.create_task(leaf.move([RED], bug))]
        moves.append(asyncio.create_task(leaf.move([Move("swp3", "RED")])))
        problems = await asyncio.gather(*moves, return_exceptions=True)
        await asyncio.gather(*gone, return_exceptions=True)
        return [str(p) for p in problems], gone[0].cancelled()

    assert play(scenario) == (["a bug"] * 2, True)


def test_a_leaf_that_is_closed_does_nothing_any_more() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        moving = asyncio.create_task(leaf.move([RED]))
        await site.clock.sleep(1.0)
        await leaf.close()
        left = [t for t in asyncio.all_tasks() if t.get_name() == "moves on leaf-0"]
        await asyncio.gather(moving, return_exceptions=True)
        return len(left)

    assert play(scenario) == 0
