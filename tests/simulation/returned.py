"""A node that has just come back from a tenant, whose data is on every disk: where erasure begins.

It is brought there without the weeks before: taken in, fenced, and then told that it served.
"""

from __future__ import annotations

from given_events import in_state
from rig import World

from provisioner.model.node import Boots, Node, State
from provisioner.model.tenant import Tenant

HOUR_S = 3600.0
HOST = "su0-n00"
TENANT = "blue"
SECRET = b"what the tenant left behind"


async def give_back(world: World) -> Node:
    """The node, draining and fenced, as it is stored; no daemon runs."""
    await world.take_in()
    for tenant in await world.store.tenants.list():
        await world.store.tenants.put(Tenant(**{**tenant.model_dump(), "nodes_wanted": 0}))
    await world.start()
    for _ in range(20_000):
        if (await node_of(world)).state is State.CONVERGING:
            break
        await world.clock.sleep(0.05)
    node = await node_of(world)
    assert node.state is State.CONVERGING, node.note
    return await take_from_tenant(world)


async def take_from_tenant(world: World) -> Node:
    """The fenced node as if it had served until now, as it is stored; no daemon runs."""
    await world.crash()
    for disk in world.site.machines[HOST].disks.values():
        disk.content, disk.holds = SECRET, "tenant"
    node = await node_of(world)
    return await world.store.nodes.save(
        in_state(node, State.DRAINING, world.clock.now(), served=TENANT)
    )


async def node_of(world: World) -> Node:
    """The host as it is stored now."""
    node = await world.store.nodes.get(HOST)
    assert node is not None
    return node


def holds(world: World) -> dict[str, str]:
    """What is truly on each disk, by slot."""
    return {slot: d.holds for slot, d in world.site.machines[HOST].disks.items()}


async def until_settled(world: World, limit_s: float = 24 * HOUR_S) -> Node:
    """Until the node is clean and runs its new system, or is quarantined, or time is over."""
    until = world.clock.now() + limit_s
    while world.clock.now() < until:
        await world.clock.sleep(10.0)
        node = await node_of(world)
        if node.state is State.QUARANTINED or came_back(node):
            return node
    return await node_of(world)


def came_back(node: Node) -> bool:
    """Whether erasure and deployment are behind it."""
    return node.state is State.CONVERGING and not node.served and node.boots is Boots.SYSTEM
