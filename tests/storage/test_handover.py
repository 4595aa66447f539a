"""A node comes to a tenant with storage and goes back, by the whole daemon: storage opens last,
and closes first.
"""

from __future__ import annotations

from typing import Any

import pytest
from branches import branch, certified_host, restart
from rig import World
from vms_rig import open_simulated

from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.model.events.event import EventKind
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.storage import Export, FileStorage
from provisioner.model.tenant import Phase
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.storage import list_client_addresses
from provisioner.planning.tenancy.tenants import Request
from provisioner.settings.fabric import StorageSystem

STORAGE = FileStorage(exports=(Export(name="scratch", path="/scratch", quota_bytes=1000),))
SYSTEM = StorageSystem(provider="vast", address="https://vms.test", username="admin")


async def opened(world: World, vms: SimulatedVms) -> None:
    """A daemon with storage, on a site whose host is certified and whose tenants want none."""
    world.fabrics = Fabrics(AddressPlan(), spaces=open_simulated(vms, world.clock)[0])
    await restart(world, storage=SYSTEM, watch_storage_s=300.0)


async def host(world: World) -> Node:
    return next(n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST)


async def until(world: World, state: State, minutes: int = 600) -> Node:
    for _ in range(minutes):
        node = await host(world)
        if node.state is state:
            return node
        await world.clock.sleep(60.0)
    return node


def addresses_of(node: Node) -> tuple[str, ...]:
    listed = list_client_addresses(node)
    assert isinstance(listed, tuple)
    return listed


def in_vrf(world: World, node: Node, vrf: str) -> int:
    return sum(world.site.switches[p.switch].get_vrf(p.interface) == vrf for p in node.ports)


async def tell(world: World, kind: EventKind) -> list[dict[str, Any]]:
    rows = await world.store.journal.list(0, 1_000_000)
    return [dict(r["detail"]) for r in rows if r["kind"] == kind.value]


async def why(world: World) -> list[Any]:
    rows = await world.store.journal.list(0, 1_000_000)
    return [(r["kind"], r["detail"]) for r in rows[-6:]]


async def journey(world: World) -> dict[str, Any]:
    vms = world.site.vms = SimulatedVms()
    await opened(world, vms)
    node = await host(world)
    wrong: list[str] = []

    def judge() -> None:
        """At each change of the storage: who may read has all its ports in the tenant's VRF."""
        for address in addresses_of(node):
            if vms.list_readable(address) and in_vrf(world, node, "GREEN") != len(node.ports):
                wrong.append(f"{address} may read, and its node is not in GREEN")

    vms.on_change.append(judge)
    assert world.daemon is not None
    keeper = world.daemon.keeper
    assert keeper is not None
    made = await keeper.create(Request(name="green", nodes=1, file_storage=STORAGE))
    assert made.tenant is not None, made.blockers
    assert made.tenant.phase is Phase.READY, made.blockers
    assert made.tenant.space_handle
    released = await until(world, State.RELEASED)
    proof = await world.store.evidence.get_proof(released.id)
    seen: dict[str, Any] = {"released": released.state, "why": released.blockers}
    seen["readable"] = [vms.list_readable(a) for a in addresses_of(released)]
    seen["gate"] = (
        []
        if proof is None
        else [(str(r.check), str(r.verdict)) for r in proof.gate if "storage" in str(r.check)]
    )
    tenant = vms.find("tenants", "green")
    assert tenant is not None
    held = list(tenant["client_ip_ranges"])
    tenant["client_ip_ranges"] = [*held, ["10.6.6.6", "10.6.6.6"]]  # a foreign hand
    await world.clock.sleep(900.0)
    seen["mended"] = tenant["client_ip_ranges"] == held
    seen["foreign"] = await tell(world, EventKind.SPACE_FOREIGN)
    vms.silent = True
    await keeper.shrink("green", 0)
    await world.clock.sleep(1800.0)
    stuck = await host(world)
    seen["stuck"] = (stuck.state, stuck.placement)
    seen["stuck why"] = f"{stuck.note} {stuck.blockers} {await why(world)}"
    seen["stuck whole"] = in_vrf(world, stuck, "GREEN") == len(stuck.ports)
    vms.silent = False
    back = await until(world, State.CERTIFIED)
    seen["back"] = (back.state, back.placement)
    seen["closed"] = [vms.list_readable(a) for a in addresses_of(back)]
    gone = await keeper.delete("green")
    seen["gone"] = (gone.tenant, gone.blockers, vms.find("tenants", "green"))
    seen["wrong"] = wrong
    await world.crash()
    return seen


@pytest.mark.slow
def test_storage_is_part_of_a_handover_and_of_a_reclaim() -> None:
    seen = branch(certified_host, journey)

    assert seen["released"] is State.RELEASED, seen["why"]
    assert all(readable == {("green", "/scratch")} for readable in seen["readable"])
    # by the rules that were read back, then by the host's own mount
    rules = [("storage_open", "pass"), ("storage_shut", "pass")]
    assert seen["gate"] == [*rules, ("storage_open", "pass")]
    assert seen["mended"]
    assert any("10.6.6.6" in e["text"] for e in seen["foreign"])
    assert seen["stuck"] == (State.DRAINING, Placement.CUSTOMER)
    assert "VMS does not answer" in seen["stuck why"]
    assert seen["stuck whole"]
    assert seen["back"] == (State.CERTIFIED, Placement.MAINTENANCE)
    assert not any(seen["closed"])
    assert seen["gone"] == (None, (), None)
    assert seen["wrong"] == []
