"""A tray whose release was cut off before its proof was stored, and whose manager nobody sets."""

from __future__ import annotations

from typing import Any

from branches import branch, certified_host, restart
from rig import World
from test_handed_over_partitions import Death, host, make_manager, owners, until, write_plan

from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.execution.tenancy.memberships import Memberships
from provisioner.integrations.racks.partitions.handed_over import TrayPartitions
from provisioner.integrations.racks.partitions.nmx_client import NmxClient
from provisioner.model.node import Placement, State
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.tenants import Request
from provisioner.ports import SwitchAddress


async def journey(world: World) -> dict[str, Any]:
    """The daemon dies when the partition was made; its successor knows no manager."""
    manager = make_manager()
    node = await host(world)
    bmc = next(ref.url for ref in node.bmcs if ref.kind == "host")
    plan = write_plan(world.files.overlay.parent, {"t0": bmc})
    wire = Death(manager, [("POST", True)])
    client = NmxClient(wire, SwitchAddress("https://m"), world.clock.sleep)
    beside = TrayPartitions(plan, client, world.clock.sleep)
    world.fabrics = Fabrics(AddressPlan(), memberships=(beside,))
    await restart(world)
    assert world.daemon is not None
    keeper = world.daemon.keeper
    assert keeper is not None
    made = await keeper.create(Request(name="green", nodes=1))
    assert made.tenant is not None, made.blockers
    for _ in range(600):
        if wire.died.is_set():
            break
        await world.clock.sleep(60.0)
    for _ in range(2):
        manager.request("GET", "/nmx/v1/operations", None)  # what it took goes on without us
    cut = await host(world)
    seen: dict[str, Any] = {"cut": (cut.state, cut.placement, cut.beside)}
    seen["proof"] = await world.store.evidence.get_proof(cut.id)
    world.fabrics = Fabrics(AddressPlan())
    await restart(world)
    await world.clock.sleep(1800.0)
    held = await host(world)
    seen["held"] = (held.placement, held.beside, owners(manager, "t0"))
    rows = await world.store.journal.list(0, 1_000_000)
    seen["why"] = f"{held.note} {[r['detail'] for r in rows if r['kind'] == 'waits'][-1:]}"
    world.fabrics = Fabrics(AddressPlan(), memberships=(beside,))
    await restart(world)
    again = await until(world, State.RELEASED)
    seen["again"] = (again.placement, owners(manager, "t0"), list(manager.log))
    seen["violations"] = await world.violations()
    await world.crash()
    return seen


def test_a_release_cut_before_its_proof_holds_its_tray_until_the_manager_is_set_again() -> None:
    seen = branch(certified_host, journey)
    assert seen["cut"] == (State.CERTIFIED, Placement.MIXED, ("nvlink_partition",))
    assert seen["proof"] is None
    assert seen["held"] == (Placement.MIXED, ("nvlink_partition",), {"green.d01"})
    assert "`racks_nvlink_manager` is not set" in seen["why"]
    assert "Set `racks_nvlink_manager` again" in seen["why"]
    pair = ["POST green.d01 4", "DELETE green.d01 0"]  # taken back first, and handed over anew
    assert seen["again"] == (Placement.CUSTOMER, {"green.d01"}, ["PUT Default 12", *pair, pair[0]])
    assert seen["violations"] == []


def test_a_membership_that_the_row_does_not_name_is_not_begun() -> None:
    """A tray that was planned after its release began: its row would owe nothing after a death."""

    async def story(world: World) -> tuple[list[str], list[str]]:
        manager = make_manager()
        node = await host(world)
        bmc = next(ref.url for ref in node.bmcs if ref.kind == "host")
        plan = write_plan(world.files.overlay.parent, {"t0": bmc})
        wire = Death(manager, [])
        client = NmxClient(wire, SwitchAddress("https://m"), world.clock.sleep)
        systems = (TrayPartitions(plan, client, world.clock.sleep),)
        asked = await Memberships(systems, world.store).admit(
            node.model_copy(update={"tenant": "green"})
        )
        return [one.detail for one in asked], manager.log

    told, log = branch(certified_host, story)
    assert log == []
    assert told == [
        "nvlink_partition concerns it since its release began, and its row does not say so yet"
    ]
