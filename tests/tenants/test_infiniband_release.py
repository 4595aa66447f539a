"""A node is released to a customer by InfiniBand partitions, and comes back: the whole daemon."""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_time
from rig import World
from ufm_standin import Ufm
from ufm_thread import Elsewhere, ufm_over_https

from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.tenant import PKEY_MAINTENANCE, Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.tenants import Request

HOUR_S = 3600.0
DEFAULT = "0x7fff"


def guid(rail: int) -> str:
    return f"506b4b0300a1b2{rail:02x}"


def watched(ufm: Ufm) -> list[str]:
    """Each GUID that was ever in two partitions beside the default one."""
    found: list[str] = []

    def look(_number: int, _method: str) -> bool:
        held = [p["guids"] for key, p in ufm.partitions.items() if key != DEFAULT]
        every = [g for guids in held for g in guids]
        found.extend(g for g in set(every) if every.count(g) > 1)
        return False

    ufm.lose = look
    return found


async def until(world: World, state: State) -> Node:
    """The host when it is in this state, or after some hours as it is."""
    for _ in range(600):
        node = next(n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST)
        if node.state is state:
            return node
        await world.clock.sleep(60.0)
    return node


async def with_guids(world: World) -> None:
    """The host's east-west ports are InfiniBand's; the site's own tenants want nothing."""
    for machine in world.site.machines.values():
        for device in machine.devices.values():
            device.traits["link_layer"] = "InfiniBand"
    for node in await world.store.nodes.list():
        if node.kind is NodeKind.HOST:
            ports = [p.model_copy(update={"guid": guid(i)}) for i, p in enumerate(node.ports)]
            await world.store.nodes.save(node.model_copy(update={"ports": tuple(ports)}))
    for tenant in await world.store.tenants.list():
        await world.store.tenants.put(tenant.model_copy(update={"nodes_wanted": 0}))


async def lived(world: World, ufm: Ufm) -> dict[str, object]:
    """Intake, release, reclaim, and what UFM had at each rest."""
    await world.take_in()
    await with_guids(world)
    await world.start()
    assert world.daemon is not None
    keeper = world.daemon.keeper
    assert keeper is not None
    made = await keeper.create(Request(name="green", nodes=1))
    tenant = made.tenant
    assert isinstance(tenant, Tenant), made.blockers
    released = await until(world, State.RELEASED)
    seen: dict[str, object] = {
        "released": (released.state, released.placement, released.vrf),
        "note": (released.note, released.blockers),
        "red": len(ufm.members(tenant.pkey)),
        "maint then": len(ufm.members(PKEY_MAINTENANCE)),
        "ports": len(released.ports),
    }
    proof = await world.store.evidence.get_proof(released.id)
    assert proof is not None, [(b.subject, b.detail[:200]) for b in released.blockers]
    seen["gate"] = {str(r.check) for r in proof.gate if r.subject == guid(0)}
    await keeper.shrink("green", 0)
    back = await until(world, State.CERTIFIED)
    gone = await keeper.delete("green")
    seen["back"] = (back.state, back.placement)
    seen["maint now"] = len(ufm.members(PKEY_MAINTENANCE))
    seen["red now"] = len(ufm.members(tenant.pkey))
    seen["gone"] = (gone.tenant, gone.blockers)
    await world.daemon.stop()
    return seen


@pytest.mark.slow
def test_a_node_is_a_customers_by_partition_and_in_no_two_of_them(tmp_path: Path):
    with ufm_over_https() as (ufm, partitions):
        twice = watched(ufm)
        seen = virtual_time.run(story(tmp_path, ufm, partitions))

    ports = seen["ports"]
    assert seen["released"] == (State.RELEASED, Placement.CUSTOMER, "GREEN"), seen["note"]
    assert (seen["red"], seen["maint then"]) == (ports, 0)
    assert seen["gate"] == {"port_vrf", "one_vrf"}
    assert seen["back"] == (State.CERTIFIED, Placement.MAINTENANCE)
    assert (seen["red now"], seen["maint now"]) == (0, ports)
    assert seen["gone"] == (None, ())
    assert twice == []


async def story(directory: Path, ufm: Ufm, partitions: Elsewhere) -> dict[str, object]:
    world = World(directory, 1, 7, isolation="infiniband")
    world.fabrics = Fabrics(AddressPlan(), partitions)
    return await lived(world, ufm)
