"""A node comes to a tenant with storage on Lustre and goes back, by the whole daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lctl_rig
import pytest
import virtual_time
from rig import World
from test_handover import addresses_of, host, in_vrf, until

from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.integrations.sim.storage.lctl import SimulatedMgs
from provisioner.model.node import Placement, State
from provisioner.model.storage import Export, FileStorage
from provisioner.model.tenant import Phase
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.tenants import Request
from provisioner.settings.fabric import StorageSystem

STORAGE = FileStorage(exports=(Export(name="scratch", path="/scratch"),))
SYSTEM = StorageSystem(provider="lustre", address="mgs.test")
OWN = "/tenants/green/scratch"


async def journey(directory: Path) -> dict[str, Any]:
    mgs = SimulatedMgs()
    world = World(directory, 1, 7, storage=SYSTEM, watch_storage_s=300.0)
    world.fabrics = Fabrics(AddressPlan(), spaces=lctl_rig.open_simulated(mgs, world.clock))
    await world.take_in()
    for tenant in await world.store.tenants.list():
        await world.store.tenants.put(tenant.model_copy(update={"nodes_wanted": 0}))
    await world.start()
    node = await host(world)
    wrong: list[str] = []

    def judge() -> None:
        """At each command: who may read has all its ports in the tenant's VRF."""
        for address in addresses_of(node):
            read = mgs.list_readable(address)
            whole = in_vrf(world, node, "GREEN") == len(node.ports)
            if read and (read != {OWN} or not whole):
                wrong.append(f"{address} may read {read}")

    mgs.on_change.append(judge)
    assert world.daemon is not None
    keeper = world.daemon.keeper
    assert keeper is not None
    made = await keeper.create(Request(name="green", nodes=1, file_storage=STORAGE))
    assert made.tenant is not None, made.blockers
    assert made.tenant.phase is Phase.READY, made.blockers
    released = await until(world, State.RELEASED)
    seen: dict[str, Any] = {"released": released.state, "why": released.blockers}
    seen["readable"] = [mgs.list_readable(a) for a in addresses_of(released)]
    green = mgs.nodemaps["green"]
    held = list(green.ranges)
    green.ranges.append(mgs._range("10.6.6.[0-255]@tcp"))  # a foreign hand
    await world.clock.sleep(900.0)
    seen["mended"] = green.ranges == held
    mgs.silent = True
    await keeper.shrink("green", 0)
    await world.clock.sleep(1800.0)
    stuck = await host(world)
    seen["stuck"] = (stuck.state, in_vrf(world, stuck, "GREEN") == len(stuck.ports))
    mgs.silent = False
    back = await until(world, State.CERTIFIED)
    seen["back"] = (back.state, back.placement)
    seen["closed"] = [mgs.list_readable(a) for a in addresses_of(back)]
    gone = await keeper.delete("green")
    seen["gone"] = (gone.tenant, gone.blockers, "green" in mgs.nodemaps)
    seen["wrong"] = wrong
    await world.crash()
    return seen


@pytest.mark.long
def test_lustre_is_part_of_a_handover_and_of_a_reclaim(tmp_path: Path) -> None:
    seen = virtual_time.run(journey(tmp_path))

    assert seen["released"] is State.RELEASED, seen["why"]
    assert all(readable == {OWN} for readable in seen["readable"])
    assert seen["mended"]
    assert seen["stuck"] == (State.DRAINING, True)
    assert seen["back"] == (State.CERTIFIED, Placement.MAINTENANCE)
    assert not any(seen["closed"])
    assert seen["gone"] == (None, (), False)
    assert seen["wrong"] == []
