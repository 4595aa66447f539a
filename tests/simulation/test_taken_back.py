"""A reading of ports fences a tenant's node at once, and never erases its data by itself.

One leaf that shows other networks for a moment (a late start of its configuration, a replaced
switch, ports swapped between two tenants) was enough to lose the disks of every node behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from branches import branch
from rig import World

from provisioner.integrations.sim.site.truth import list_placements
from provisioner.model.node import Node, NodeKind, Placement, State, TenantData
from provisioner.planning.lifecycle.operator_requests import retry_node

HOSTS = 3
WATCH_S = 300.0
OTHER = {"RED": "BLUE", "BLUE": "RED"}


def put(world: World, node: Node, vrf: str, rails: range) -> None:
    """Put ports of a host into a VRF, in every tree that the leaf shows."""
    place = world.site.places[node.id]
    for rail in rails:
        leaf = world.site.switches[place.name_leaf(rail)]
        for tree in (leaf.operational, leaf.applied, leaf.startup):
            tree["interface"][place.interface].setdefault("ip", {})["vrf"] = vrf


async def serve(folder: Path) -> World:
    """Return a world whose hosts serve two tenants, with data on every disk."""
    world = World(folder, nodes=HOSTS, seed=3, watch_ports_s=WATCH_S)
    world.cases = world.store.cases
    await world.take_in()
    for tenant in await world.store.tenants.list():
        wanted = 2 if tenant.name == "red" else 1
        await world.store.tenants.put(tenant.model_copy(update={"nodes_wanted": wanted}))
    await world.start()
    await world.settle(30 * 3600.0)
    for host in await serving(world):
        for disk in world.site.machines[host.id].disks.values():
            disk.content = b"a tenant's data"
            disk.holds = "tenant"
    return world


async def serving(world: World) -> list[Node]:
    hosts = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
    assert {n.state for n in hosts} == {State.RELEASED}
    return hosts


def holders(world: World, node: str) -> set[str]:
    return {disk.holds for disk in world.site.machines[node].disks.values()}


async def wait_for(world: World, node: str, *states: State) -> Node:
    for _ in range(20_000):
        now = await world.store.nodes.get(node)
        assert now is not None
        if now.state in states:
            return now
        await world.clock.sleep(10.0)
    raise AssertionError(f"{node} is {now.state}: {now.note}")


SHOWN: Mapping[str, tuple[str, range]] = {
    "all ports in no VRF, as on a blank leaf": ("default", range(8)),
    "one port in no VRF": ("default", range(1)),
    "all ports in maintenance": ("MAINT", range(8)),
    "one port in the other customer's VRF": ("other", range(1)),
    "all ports in the other customer's VRF": ("other", range(8)),
}


@pytest.mark.long  # the life below has a reading of each kind
@pytest.mark.parametrize("shown", SHOWN)
def test_no_reading_of_ports_erases_a_tenants_disks(shown: str) -> None:
    vrf, rails = SHOWN[shown]

    async def live(world: World) -> None:
        hosts = await serving(world)
        for host in hosts:
            put(world, host, OTHER[host.vrf] if vrf == "other" else vrf, rails)
        await world.clock.sleep(3600.0)

        for host in hosts:
            now = await world.store.nodes.get(host.id)
            assert now is not None
            assert holders(world, host.id) == {"tenant"}
            assert now.placement is Placement.MAINTENANCE  # fenced, whatever was right
            assert set(list_placements(world.site, host.id).values()) == {"MAINT"}
            assert now.tenant == host.tenant
            assert now.tenant_data is TenantData.ASKED
            assert await world.store.cases.get_open(host.id) is not None
        await world.crash()

    branch(serve, live)


@pytest.mark.slow
def test_a_person_decides_of_each_node_and_a_leaf_that_is_right_again_cost_nobody_any_data() -> (
    None
):
    """One life of three hosts: shown in no VRF and kept, shown in another customer's and erased,
    and a reading that was wrong for a moment. Until a person decides, nothing is lost."""

    async def live(world: World) -> None:
        kept, erased, passing = await serving(world)
        put(world, kept, "default", range(8))
        put(world, erased, OTHER[erased.vrf], range(8))
        put(world, passing, "default", range(1))
        await world.clock.sleep(WATCH_S)
        right = await world.store.nodes.get(passing.id)
        assert right is not None
        if right.state is State.RELEASED:
            put(world, passing, passing.vrf, range(1))
        for host, decision in ((kept, TenantData.KEEP), (erased, TenantData.ERASE)):
            asked = await wait_for(world, host.id, State.QUARANTINED, State.REPAIRING)
            while asked.tenant_data is not TenantData.ASKED or asked.placement is Placement.MIXED:
                await world.clock.sleep(10.0)
                asked = await wait_for(world, host.id, State.QUARANTINED, State.REPAIRING)
            assert holders(world, host.id) == {"tenant"}
            assert set(list_placements(world.site, host.id).values()) == {"MAINT"}
            assert asked.tenant == host.tenant
            assert await world.store.cases.get_open(host.id) is not None
            assert isinstance(retry_node(asked, world.clock.now()), str)  # undecided
            decided = retry_node(asked, world.clock.now(), tenant_data=decision)
            assert isinstance(decided, Node)
            await world.store.nodes.save(decided)
        for host in (kept, erased):
            back = await wait_for(world, host.id, State.RELEASED)
            assert (back.tenant, back.tenant_data) == (host.tenant, TenantData.SETTLED)
        await world.clock.sleep(3600.0)

        assert "tenant" in holders(world, kept.id)
        assert "tenant" not in holders(world, erased.id)
        assert holders(world, passing.id) == {"tenant"}
        await world.crash()

    branch(serve, live)


def test_data_is_kept_for_the_tenant_alone_whose_it_is() -> None:
    asked = Node(
        id="n0",
        kind=NodeKind.HOST,
        state=State.QUARANTINED,
        placement=Placement.MAINTENANCE,
        profile="hgx-h100",
        tenant="red",
        served="red, VRF BLUE",
        tenant_data=TenantData.ASKED,
    )
    orphaned = asked.model_copy(update={"tenant": ""})
    moving = asked.model_copy(update={"placement": Placement.MIXED})
    settled = asked.model_copy(update={"tenant_data": TenantData.SETTLED})

    kept = retry_node(asked, 1.0, tenant_data=TenantData.KEEP)

    assert isinstance(kept, Node)
    assert (kept.state, kept.served) == (State.CONVERGING, "red")
    for node in (orphaned, moving, settled):
        assert isinstance(retry_node(node, 1.0, tenant_data=TenantData.KEEP), str)
