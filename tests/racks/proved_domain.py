"""An NVLink domain's switches, a proof of its fabric, and the GPUs that it was made with."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

from rig import World

from provisioner.integrations.demo.rack_site import OURS, RackWires
from provisioner.integrations.racks.fabric.fabric_proof import FabricProof, keep_proof
from provisioner.integrations.racks.fabric.switch_looks import build_login
from provisioner.integrations.racks.partitions.handed_over import TrayPartitions
from provisioner.integrations.racks.partitions.nmx_client import NmxClient
from provisioner.integrations.sim.racks.rack import Rack
from provisioner.integrations.sim.racks.switch import Switch
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import Node

SWITCHES = {"s0": 30, "s1": 31}  # their slots
LOGIN = build_login("admin", OURS)


def make_switches(chassis: str = "C1") -> RackWires:
    """NVOS of two simulated switches; the first one's controller is configured since long."""
    rack = Rack()
    rack.now = 1e6
    for n, (name, slot) in enumerate(SWITCHES.items()):
        rack.units[name] = Switch(rack, name, slot, n, chassis, {}, "nvos-25.02.4317", OURS)
        rack.hosts[f"https://nvos-{name}.test"] = (name, "nvos")
    return RackWires(rack)


def plan_switches() -> list[str]:
    """Their lines in a rack of the plan."""
    return [
        f"      - {{name: {name}, kind: nvlink-switch, u: {31 + n}, slot: {slot}, tray_index: {n}, "
        f'nvos: "https://nvos-{name}.test"}}\n'
        for n, (name, slot) in enumerate(SWITCHES.items())
    ]


def make_beside(world: World, plan: Path, client: NmxClient) -> TrayPartitions:
    """What hands trays over beside such switches, on a world's clock."""
    clock = world.clock
    return TrayPartitions(plan, client, clock.sleep, make_switches(), LOGIN, clock.now)


def serials(tray: str) -> tuple[str, ...]:
    """Of a tray's GPUs."""
    return tuple(f"16500{tray}{n}" for n in range(4))


def see(tray: str) -> Inventory:
    """What the BMC of a tray says of its GPUs."""
    gpus = [Device(kind=DeviceKind.GPU, slot=s[-1], serial=s) for s in serials(tray)]
    return Inventory(node=f"n-{tray}", vendor="nvidia_openbmc", devices=tuple(gpus))


def keep(folder: Path, trays: Mapping[str, tuple[str, ...]]) -> None:
    """Keep the proof of domain d01, made now."""
    keep_proof(folder, "d01", FabricProof(domain="d01", trays=trays, judged_at=time.time()))


async def prove(world: World, node: Node, folder: Path, trays: Collection[str]) -> None:
    """Keep the proof with the GPUs that the BMC of a node, which is t0, says."""
    seen = await world.store.evidence.get_inventory(node.id)
    assert seen is not None
    gpus = tuple(str(d.serial) for d in seen.devices if d.kind is DeviceKind.GPU)
    keep(folder, {tray: serials(tray) for tray in trays} | {"t0": gpus})
