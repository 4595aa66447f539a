"""A proof of an NVLink domain's fabric, and the GPUs it was made with."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

from rig import World

from provisioner.integrations.racks.fabric.fabric_proof import FabricProof, keep_proof
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import Node


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
