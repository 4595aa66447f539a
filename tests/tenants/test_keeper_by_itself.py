"""Tenants that nobody waits for any more, what "made" means, and who else writes to a leaf."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from worlds import World, run

from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.integrations.cumulus.tenant_networks import read_states, read_targets
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Outside, Phase, Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy import vrf_plan as rules
from provisioner.planning.tenancy.tenants import Request
from provisioner.planning.tenancy.vrf_plan import FabricPlan

ASKED = Request(name="green", nodes=1)
SESSION = Outside(switch="leaf-su0-r0", peer="192.0.2.1", remote_as=64500, accepts=("10.0.0.0/8",))


class Killed(Exception):
    """The process is gone."""


async def phase(world: World, name: str = "green") -> Phase | None:
    row = await world.row(name)
    return None if row is None else row.phase


def kill_at(world: World, nth: int) -> Any:
    """After the n-th request that changes something, the process is gone; the old way to ask."""
    passed = world.rig.switches.request
    count = 0

    async def request(*given: Any) -> Any:
        nonlocal count
        answer = await passed(*given)
        count += given[1].method != "GET"
        if count >= nth:
            raise Killed
        return answer

    world.rig.switches.request = request  # type: ignore[method-assign]
    return passed


@pytest.mark.parametrize("nth", [1, 4, 17])
def test_a_tenant_that_was_left_in_the_making_is_made_without_anybody_asking(nth):
    async def scenario(world: World) -> None:
        passed = kill_at(world, nth)
        with pytest.raises(Killed):
            await world.keeper.create(ASKED)
        world.rig.switches.request = passed  # type: ignore[method-assign]
        assert await phase(world) is Phase.MAKING

        await world.new_keeper().tick()

        assert await phase(world) is Phase.READY
        assert world.leaves_with("GREEN") == 8

    run(scenario)


@pytest.mark.parametrize("nth", [1, 4, 17])
def test_a_tenant_that_was_left_while_leaving_is_gone_without_anybody_asking(nth):
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        passed = kill_at(world, nth)
        with pytest.raises(Killed):
            await world.keeper.delete("green")
        world.rig.switches.request = passed  # type: ignore[method-assign]
        assert await phase(world) is Phase.LEAVING

        await world.new_keeper().tick()

        assert await phase(world) is None
        assert world.leaves_with("GREEN") == 0

    run(scenario)


def test_a_changed_tenant_is_brought_to_all_leaves_when_the_silent_one_is_back():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        silent = world.rig.site.nvue["leaf-su0-r5"]
        silent.reachable = lambda: False
        changed = await world.keeper.change(Request(name="green", outside=(SESSION,)))
        assert changed.blockers
        keeper = world.new_keeper()
        await keeper.tick()
        assert await phase(world) is Phase.MAKING

        silent.reachable = lambda: True
        await keeper.tick()

        assert await phase(world) is Phase.READY
        held = world.rig.site.switches["leaf-su0-r0"].operational["vrf"]["GREEN"]
        assert list(held["router"]["bgp"]["neighbor"]) == ["192.0.2.1"]

    run(scenario)


def test_a_look_at_tenants_that_are_ready_asks_no_leaf():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        before = len(world.rig.switches.calls)

        await world.keeper.tick()

        assert len(world.rig.switches.calls) == before

    run(scenario)


def foreign_target(leaf: Switch) -> None:
    leaf.planted.targets["4001"] = {"64999:7"}


def silent_router(leaf: Switch) -> None:
    leaf.planted.peers["GREEN", SESSION.peer] = {"state": "active"}


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (foreign_target, "64999:7"),
        (silent_router, "session to 192.0.2.1 is active"),
    ],
)
def test_a_tenant_is_made_when_its_routes_and_sessions_are_there(plant, said):
    async def scenario(world: World) -> None:
        leaf = world.rig.site.switches["leaf-su0-r0"]
        plant(leaf)
        made = await world.keeper.create(Request(name="green", outside=(SESSION,)))

        assert {b.reason for b in made.blockers} == {Reason.ISOLATION}
        assert said in made.blockers[0].detail
        assert await phase(world) is Phase.MAKING

        leaf.planted.targets.clear()
        leaf.planted.peers.clear()
        await world.keeper.tick()
        assert await phase(world) is Phase.READY

    run(scenario)


def test_a_target_or_a_session_too_many_is_told_and_what_cannot_be_read_is_no_pass():
    async def scenario(world: World) -> None:
        await world.keeper.create(ASKED)
        row = await world.row("green")
        assert row is not None
        mine = frozenset({"a:1"})

        def said(*seen: Any) -> list[str]:
            return [b.detail for b in rules.find_leaf_differences(row, "leaf-su0-r0", "a:1", *seen)]

        assert said((mine, mine), {}) == []
        assert said((mine | {"b:2"}, mine), {}) == ["it imports a:1, b:2, not a:1 alone"]
        assert said((mine, mine), {"192.0.2.9": "idle"}) == ["it has a session to 192.0.2.9"]
        assert len(said(None, None)) == 2

    run(scenario)
    assert read_targets({"import-route-target": "a:1"}) is None
    assert read_states({"192.0.2.1": {"state": 7}}) is None


def test_a_tenant_s_revision_and_moves_of_ports_take_turns_on_a_leaf():
    async def scenario(world: World) -> None:
        rig = world.rig
        await world.keeper.create(ASKED)
        writing: dict[str, int] = {}
        crowded: list[str] = []
        passed = rig.switches.request

        async def request(*given: Any) -> Any:
            name = given[0].url.split("//")[1].split(".")[0]
            answer = await passed(*given)
            if given[1].method == "POST":
                writing[name] = writing.get(name, 0) + 1
                if writing[name] > 1:
                    crowded.append(name)
            states = [r.state for r in rig.site.switches[name].revisions.values()]
            if not any(s in ("pending", "verifying", "reloading") for s in states):
                writing[name] = 0
            return answer

        rig.switches.request = request  # type: ignore[method-assign]
        effects = rig.effects
        tenancy = Tenancy(effects, rig.store)
        vrfs = VrfIsolation(
            rig.store, AddressPlan(), effects.reach, effects.clock, effects.settings, tenancy
        )
        ports = [node.ports for node in rig.nodes.values() if node.ports]
        made, *moved = await asyncio.gather(
            world.new_keeper().create(Request(name="blue")),
            *(tenancy.move(mine, "GREEN") for mine in ports),
        )
        await tenancy.close()

        assert made.blockers == ()
        assert [m.blockers for m in moved] == [(), ()]
        assert crowded == []
        assert world.leaves_with("BLUE") == 8
        assert all(rig.truth(name) == {"GREEN"} for name in ("su0-n00", "su0-n01"))
        assert (await vrfs.delta(await rig.store.tenants.list())).steps == ()

    run(scenario)


class Settling:
    """A fabric on which another keeper ends the same request just before it is answered."""

    def __init__(self, world: World, inner: VrfIsolation) -> None:
        self.world, self.inner = world, inner

    async def delta(self, *given: Any) -> Any:
        return await self.inner.delta(*given)

    async def bring(self, delta: Any) -> Any:
        blockers = await self.inner.bring(delta)
        await self.world.new_keeper().tick()
        return blockers

    async def close(self) -> None:
        await self.inner.close()


def keeper_that_is_second(world: World) -> TenantKeeper:
    effects = world.rig.effects
    vrfs = VrfIsolation(
        world.rig.store, AddressPlan(), effects.reach, effects.clock, effects.settings
    )
    return TenantKeeper(world.rig.store, world.rig.clock, [Settling(world, vrfs)], vrfs.fabric)


def test_a_request_that_the_daemon_ended_first_is_answered_as_done():
    async def scenario(world: World) -> None:
        made = await keeper_that_is_second(world).create(ASKED)
        gone = await keeper_that_is_second(world).delete("green")

        assert made.blockers == ()
        assert made.tenant is not None
        assert made.tenant.phase is Phase.READY
        assert made.steps
        assert (gone.tenant, gone.blockers) == (None, ())

    run(scenario)


def test_a_tenant_that_a_person_changed_meanwhile_is_not_answered_as_done():
    async def scenario(world: World) -> None:
        async def change(_tenant: Tenant, _fabric: FabricPlan) -> tuple[Blocker, ...]:
            row = await world.row("green")
            assert row is not None
            grown = row.model_copy(update={"nodes_wanted": 2})
            await world.rig.store.tenants.save(
                grown, new=False, nodes=(), request="change", now=world.rig.clock.now()
            )
            return ()

        effects = world.rig.effects
        vrfs = VrfIsolation(
            world.rig.store, AddressPlan(), effects.reach, effects.clock, effects.settings
        )
        keeper = TenantKeeper(world.rig.store, world.rig.clock, [vrfs], vrfs.fabric, change)

        answer = await keeper.create(ASKED)

        assert [b.reason for b in answer.blockers] == [Reason.PRECONDITION]

    run(scenario)
