"""From a request to the leaves and back: one transaction, all devices or a named reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text
from worlds import World, run

from provisioner.model.node import Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.tenancy.tenants import Request
from provisioner.ports import StaleWrite

ASKED = Request(name="green", nodes=1)


class Killed(Exception):
    """The process is gone."""


def test_a_tenant_lives_from_create_to_delete():
    async def scenario(world: World) -> None:
        made = await world.keeper.create(ASKED)
        assert made.blockers == ()
        assert made.tenant is not None
        assert (made.tenant.phase, len(made.steps)) == (Phase.READY, 8)
        assert world.leaves_with("GREEN") == 8

        done = world.writes()
        again = await world.keeper.create(ASKED)
        assert (again.tenant, again.steps, world.writes()) == (made.tenant, (), done)
        grown = await world.keeper.change(Request(name="green", nodes=2))
        assert grown.tenant is not None
        assert (grown.tenant.nodes_wanted, grown.tenant.phase) == (2, Phase.READY)
        assert (await world.keeper.audit()).steps == ()

        gone = await world.keeper.delete("green")
        assert (gone.tenant, gone.blockers) == (None, ())
        assert world.leaves_with("GREEN") == 0
        assert await world.row("green") is None
        assert [
            r["detail"]["request"]
            for r in await world.rig.store.journal.list()
            if r["kind"] == "tenant"
        ] == [*("create", "ready", "change", "delete", "gone")]
        assert (await world.keeper.delete("green")).blockers == ()

    run(scenario)


def test_a_dry_run_shows_each_leaf_s_lines_and_writes_nothing():
    async def scenario(world: World) -> None:
        found = await world.keeper.create(ASKED, dry_run=True)

        assert {s.device for s in found.steps} == {f"leaf-su0-r{r}" for r in range(8)}
        assert all("VRF GREEN: add L3VNI 4001" in s.lines for s in found.steps)
        assert world.writes() == 0
        assert await world.row("green") is None

    run(scenario)


def test_a_silent_leaf_keeps_every_leaf_as_it_is_and_the_wish_is_not_forgotten():
    async def scenario(world: World) -> None:
        silent = world.rig.site.nvue["leaf-su0-r5"]
        silent.reachable = lambda: False
        found = await world.keeper.create(ASKED)

        assert [b.reason for b in found.blockers] == [Reason.UNREACHABLE]
        assert (world.writes(), world.leaves_with("GREEN")) == (0, 0)
        row = await world.row("green")
        assert row is not None
        assert row.phase is Phase.MAKING

        silent.reachable = lambda: True
        settled = await world.new_keeper().settle("green")
        assert settled.tenant is not None
        assert settled.tenant.phase is Phase.READY
        assert world.leaves_with("GREEN") == 8

    run(scenario)


def test_sessions_that_are_there_are_not_waited_for_and_a_leaf_that_is_proved_is_not_asked_again():
    async def scenario(world: World) -> None:
        made = await world.keeper.create(ASKED)
        assert made.tenant is not None
        fabric, clock, calls = await world.fabric(), world.rig.clock, world.rig.switches.calls

        async def look() -> tuple[list[str], float, int]:
            began, before = clock.now(), len(calls)
            missing = await world.sessions.missing(made.tenant, fabric)
            asked = sum(switch == "leaf-su0-r0" for switch, _, _ in calls[before:])
            return [b.subject for b in missing], clock.now() - began, asked

        (none, took_s, once) = await look()
        assert (none, took_s) == ([], 0.0)
        world.rig.site.nvue["leaf-su0-r5"].reachable = lambda: False
        (missing, took_s, asked) = await look()
        assert (set(missing), asked) == ({"leaf-su0-r5"}, once)
        assert took_s >= 60.0  # `switch_apply_limit_s`

    run(scenario)


@pytest.mark.parametrize("at", [1, 2, 3, 9, 20])
def test_whoever_is_interrupted_goes_on_where_the_leaves_are(at):
    async def scenario(world: World) -> None:
        count = 0
        passed = world.rig.switches.request

        async def request(*given: Any) -> Any:
            nonlocal count
            answer = await passed(*given)
            count += given[1].method != "GET"
            if count >= at:
                raise Killed  # the process is gone; the request was carried out
            return answer

        world.rig.switches.request = request  # type: ignore[method-assign]
        with pytest.raises(Killed):
            await world.keeper.create(ASKED)
        world.rig.switches.request = passed  # type: ignore[method-assign]

        again = await world.new_keeper().create(ASKED)

        assert again.blockers == ()
        assert again.tenant is not None
        assert again.tenant.phase is Phase.READY
        assert world.leaves_with("GREEN") == 8

    run(scenario)


def test_a_tenant_with_a_port_in_its_network_is_not_deleted_whatever_the_rows_say():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        ports = world.rig.nodes["su0-n00"].ports
        await world.rig.tenancy.move(ports, "GREEN")

        found = await world.keeper.delete("green")

        assert {b.reason for b in found.blockers} == {Reason.ISOLATION}
        assert len(found.blockers) == 8
        assert world.leaves_with("GREEN") == 8
        assert world.rig.truth("su0-n00") == {"GREEN"}

    run(scenario)


def test_shrinking_writes_tenant_and_nodes_together_or_neither():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        store = world.rig.store
        node = await store.nodes.save(
            world.rig.nodes["su0-n00"].model_copy(
                update={
                    "tenant": "green",
                    "vrf": "GREEN",
                    "state": State.RELEASED,
                    "placement": Placement.CUSTOMER,
                }
            )
        )
        row = await world.row("green")
        assert row is not None
        stale = node.model_copy(update={"generation": node.generation - 1})
        with pytest.raises(StaleWrite):
            await store.tenants.save(
                row.model_copy(update={"nodes_wanted": 0}),
                new=False,
                nodes=(stale,),
                request="shrink",
                now=1.0,
            )
        assert await world.row("green") == row

        found = await world.keeper.shrink("green", 0)

        assert [n.id for n in found.nodes] == ["su0-n00"]
        left = await store.nodes.get("su0-n00")
        assert left is not None
        assert (left.state, left.tenant, left.served) == (State.DRAINING, "", "green")
        assert [b.reason for b in (await world.keeper.delete("green")).blockers] == [
            Reason.ISOLATION
        ]

    run(scenario)


def test_a_node_that_is_given_during_a_shrink_is_neither_kept_nor_lost():
    """Whichever is stored first, the other one sees that it decided by an older row."""

    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        store = world.rig.store
        row = await world.row("green")
        assert row is not None
        certified = world.rig.nodes["su0-n00"].model_copy(update={"state": State.CERTIFIED})
        node = await store.nodes.save(certified)
        assert (await world.keeper.shrink("green", 0)).blockers == ()
        with pytest.raises(StaleWrite, match="green"):  # the shrink was first
            await store.tenants.allocate(node, row, 2.0)
        left = await store.nodes.get("su0-n00")
        assert left is not None
        assert left.tenant == ""

        grown = await world.keeper.change(Request(name="green", nodes=1))
        assert grown.tenant is not None
        await store.tenants.allocate(left, grown.tenant, 3.0)
        smaller = grown.tenant.model_copy(update={"nodes_wanted": 0})
        with pytest.raises(StaleWrite, match="su0-n00"):  # the node was first
            await store.tenants.save(
                smaller, new=False, nodes=(), request="shrink", now=4.0, known=()
            )
        assert await world.row("green") == grown.tenant
        shrunk = await world.keeper.shrink("green", 0)  # reads both anew
        assert (shrunk.blockers, [n.tenant for n in shrunk.nodes]) == ((), [""])

    run(scenario)


def test_two_tenants_at_one_time_get_two_numbers():
    async def scenario(world: World) -> None:
        found = await asyncio.gather(
            world.keeper.create(Request(name="a1")), world.new_keeper().create(Request(name="a2"))
        )

        numbers = [a.tenant.number for a in found if a.tenant is not None]
        assert len(set(numbers)) == len(numbers)
        assert len({t.number for t in await world.rig.store.tenants.list()}) == len(
            await world.rig.store.tenants.list()
        )

    run(scenario)


def test_a_listed_tenant_of_the_same_name_does_not_overwrite():
    async def scenario(world: World) -> None:
        made = (await world.keeper.create(ASKED)).tenant
        await world.rig.store.tenants.put(Tenant(name="green", vrf="OTHER"))

        assert await world.row("green") == made
        with pytest.raises(StaleWrite):
            await world.rig.store.tenants.put(Tenant(name="lime", vrf="GREEN"))

    run(scenario)


def test_while_a_tenants_row_is_damaged_no_network_is_written():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        spoil = text("UPDATE tenants SET body = '{' WHERE name = 'green'")
        await world.rig.store.write(lambda c: c.execute(spoil))
        done = world.writes()
        await world.keeper.tick()
        answers = [
            await world.keeper.create(Request(name="brown", nodes=1)),
            await world.keeper.delete("green"),
            await world.keeper.audit(),
        ]

        for answer in answers:
            assert [b.reason for b in answer.blockers] == [Reason.DAMAGED_ROW]
        assert world.writes() == done
        assert world.leaves_with("GREEN") == 8
        assert await world.row("brown") is None

    run(scenario)
