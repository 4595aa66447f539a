"""From one tenant to the next: nothing of the first is there when the second comes."""

from __future__ import annotations

import pytest
from branches import branch, certified_host, restart
from returned import HOST, HOUR_S, SECRET
from rig import World

from provisioner.model.node import Node, State
from provisioner.model.tenant import Tenant
from provisioner.planning.lifecycle.operator_requests import reclaim_node


async def wanted(world: World, name: str) -> None:
    """Only this tenant wants a node."""
    for tenant in await world.store.tenants.list():
        asked = 1 if tenant.name == name else 0
        await world.store.tenants.put(Tenant(**{**tenant.model_dump(), "nodes_wanted": asked}))


async def released_to(world: World, name: str) -> Node:
    until = world.clock.now() + 48 * HOUR_S
    while world.clock.now() < until:
        await world.clock.sleep(30.0)
        node = await world.store.nodes.get(HOST)
        assert node is not None
        if node.state is State.RELEASED and node.tenant == name:
            return node
    raise AssertionError(f"{HOST} is {node.state}: {node.note}")


def turned_over(
    second: str, *, for_repair: bool, **settings: object
) -> tuple[Node, list[str], bool, list[str]]:
    """Blue's node after it went to `second`: what was erased, whether blue's data is left."""

    async def main(world: World) -> tuple[Node, list[str], bool, list[str]]:
        if settings:
            await restart(world, **settings)
        await wanted(world, "blue")
        first = await released_to(world, "blue")
        disks = world.site.machines[HOST].disks.values()
        for disk in disks:
            disk.content, disk.holds = SECRET, "tenant"
        await wanted(world, second)
        since = world.clock.now()
        back = reclaim_node(first, since, for_repair=for_repair)
        assert isinstance(back, Node)
        await world.store.nodes.save(back)
        again = await released_to(world, second)
        log = world.site.machines[HOST].log
        erased = [e.subject for e in log if e.kind == "erase" and e.time > since]
        left = any(SECRET in disk.content for disk in disks)
        wrong = await world.violations()
        await world.crash()
        return again, sorted(erased), left, wrong

    return branch(certified_host, main)


def test_another_tenant_gets_a_node_of_which_every_disk_was_erased() -> None:
    node, erased, left, wrong = turned_over("red", for_repair=False)

    assert erased == ["NVMe_0", "NVMe_1", "NVMe_2", "NVMe_3"]
    assert not left
    assert (node.vrf, node.served) == ("RED", "red")
    assert wrong == []


@pytest.mark.long
def test_a_repaired_node_goes_back_to_its_tenant_with_its_data_where_the_site_allows_it_only() -> (
    None
):
    kept = turned_over("blue", for_repair=True, erase_same_tenant_may_skip=True)
    strict = turned_over("blue", for_repair=True)

    assert (kept[1], kept[2], kept[3]) == ([], True, [])
    assert (len(strict[1]), strict[2], strict[3]) == (4, False, [])
    assert {kept[0].vrf, strict[0].vrf} == {"BLUE"}
