"""Waiting for silence, and what calls at one time share: on two small leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from small_site import Asked, SmallSite, ok, play

from provisioner.execution.tenancy.tenancy import Tenancy, is_idle, plan_move
from provisioner.model.location import Bond, Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Reason
from provisioner.ports import HostShell, Reply, Unreachable


def count(site: SmallSite, counters: Mapping[str, tuple[float, float]]) -> None:
    """Let "leaf/port" have sent so many bytes, and go on with so many a second."""
    began = site.clock.now()

    def answer(asked: Asked) -> Reply | None:
        port, _, rest = asked.path.removeprefix("/interface/").partition("/")
        if not rest.startswith("link/stats"):
            return None
        start, rate = counters[f"{asked.switch}/{port}"]
        return ok({"out-bytes": int(start + rate * (site.clock.now() - began))})

    site.transport.answer = answer


def test_each_port_is_compared_with_itself() -> None:
    async def scenario(site: SmallSite) -> Any:
        ports = (*site.ports(1), *site.ports(2))
        names = [f"{p.switch}/{p.interface}" for p in ports]
        count(site, {name: (10.0 ** (12 - 3 * n), 0.0) for n, name in enumerate(names)})
        return await site.tenancy.quiet(ports, 30.0)

    assert play(scenario, switch_poll_s=3.0)


def test_a_little_traffic_is_silence() -> None:
    async def scenario(site: SmallSite) -> Any:
        count(site, {"leaf-0/swp1": (1e10, 60_000.0), "leaf-1/swp1": (0.0, 0.0)})
        return await site.tenancy.quiet(site.ports(), 30.0)

    assert play(scenario, switch_poll_s=3.0, switch_idle_bps=100_000.0)


@pytest.mark.parametrize(
    ("then", "now", "idle"),
    [
        (None, (2.0, 100), False),
        ((1.0, 100), (1.0, 100), False),
        ((2.0, 100), (1.0, 100), False),
        ((1.0, 100), (3.0, 100), True),
        ((1.0, 100), (3.0, 120), True),
        ((1.0, 100), (3.0, 121), False),
    ],
)
def test_a_port_is_idle_by_two_readings_of_which_one_is_newer(then, now, idle) -> None:
    assert is_idle(then, now, 10.0) is idle


def test_a_site_without_a_time_for_silence_asks_nothing() -> None:
    async def scenario(site: SmallSite) -> Any:
        return await site.tenancy.quiet(site.ports(), 0.0), site.lines()

    assert play(scenario) == (False, [])


def test_one_port_that_sends_is_enough_wherever_it_stands() -> None:
    async def scenario(site: SmallSite) -> Any:
        count(site, {"leaf-0/swp1": (0.0, 200_000.0), "leaf-1/swp1": (0.0, 0.0)})
        return await site.tenancy.quiet(site.ports(), 30.0)

    assert not play(scenario, switch_poll_s=3.0, switch_idle_bps=100_000.0)


def test_a_port_that_does_not_count_is_not_waited_for() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda asked: ok({}) if "/link/stats" in asked.path else None
        began = site.clock.now()
        return await site.tenancy.quiet(site.ports(), 30.0), site.clock.now() - began

    quiet, took = play(scenario, switch_poll_s=3.0)

    assert not quiet
    assert took < 3.0


def test_nodes_that_move_at_one_time_share_a_leafs_revision_and_its_look() -> None:
    async def scenario(site: SmallSite) -> Any:
        first, second = site.ports(1)[:1], site.ports(2)[:1]
        moved = await asyncio.gather(
            site.tenancy.move(first, "RED"), site.tenancy.move(second, "BLUE")
        )
        posted = site.lines("POST")
        before = len(site.lines())
        await asyncio.gather(site.tenancy.look(first), site.tenancy.look(second))
        shared = site.lines()[before:]
        return [m.revisions for m in moved], posted, len(shared) - len(set(shared))

    assert play(scenario) == ([("leaf-0:1",)] * 2, ["POST /revision"], 0)


def test_ports_without_addresses_are_fenced_without_a_look_at_routes() -> None:
    async def scenario(site: SmallSite) -> Any:
        ports = tuple(p.model_copy(update={"address": ""}) for p in site.ports())
        outcome = await site.tenancy.move(ports, "MAINT")
        return outcome.blockers, [line for line in site.lines() if "/vrf" in line]

    assert play(scenario) == ((), [])


def test_a_move_that_fails_and_cannot_be_read_tells_both() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("apply_fails")
        silent = Unreachable("connection refused", maybe_executed=False)

        def answer(asked: Asked) -> Exception | None:
            return silent if asked.path.endswith("rev=startup") else None

        site.transport.answer = answer
        return await site.tenancy.move(site.ports()[:1], "RED")

    reasons = [b.reason for b in play(scenario).blockers]

    assert reasons == [Reason.SWITCH_REFUSED, Reason.UNREACHABLE]


def test_the_plan_is_there_for_those_who_ask_what_a_tenant_may_have() -> None:
    async def scenario(site: SmallSite) -> Any:
        plan: Any = object()
        return Tenancy(site.effects, site.store, plan).plan is plan

    assert play(scenario)


def test_no_look_outlives_the_close() -> None:
    async def scenario(site: SmallSite) -> Any:
        looking = asyncio.create_task(site.tenancy.look(site.ports()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        began = {t.get_name() for t in asyncio.all_tasks()}
        await site.tenancy.close()
        left = {t.get_name() for t in asyncio.all_tasks()}
        await asyncio.wait([looking])
        looks = {"look at leaf-0", "look at leaf-1"}
        return began & looks, left & looks, looking.cancelled(), site.lines()

    began, left, cancelled, lines = play(scenario)

    assert (len(began), left, cancelled, lines) == (2, set(), True, [])


@pytest.mark.parametrize("made", [False, True])
def test_a_bond_goes_along_where_the_daemon_makes_it_and_not_where_the_site_does(
    made: bool,
) -> None:
    bond = Bond(name="bond1", members=("swp1",), made=made)
    plain = Port(switch="leaf-0", interface="bond1", rail=-1, nic_slot="NIC_0")

    assert plan_move(plain, "RED", "", None, None).bond is None
    bonded = plan_move(plain.model_copy(update={"bond": bond}), "RED", "", None, None)
    assert bonded.bond == (bond if made else None)


def test_a_site_without_shared_storage_has_nothing_of_it_to_leave_to_judge_or_to_mount() -> None:
    async def scenario(site: SmallSite) -> Any:
        node, shell = (
            Node(id="host-1", kind=NodeKind.HOST),
            cast(HostShell, None),
        )  # nobody is asked
        left = await site.tenancy.leave(node)
        return (
            left,
            await site.tenancy.judge_beside(node),
            await site.tenancy.try_mounts(node, shell),
        )

    assert play(scenario) == ((), (), ())
