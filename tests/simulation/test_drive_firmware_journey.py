"""Firmware of drives in a node's journey: read in the host, written by the play, run by a boot."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World

from provisioner.model.node import NodeKind

MODEL, OLD, NEW = "Simulated NVMe", "E3MQ001", "E3MQ005"
EVIDENCE = "a test's own choice"


def pin_drives(overlay: Path, artifacts: Path) -> None:
    """Pin the simulator's drives to another firmware, and provide its file."""
    image = b"firmware of a drive"
    (artifacts / "drive.bin").write_bytes(image)
    document: dict[str, Any] = json.loads(overlay.read_text())
    pins = document["releases"]["spectrum-x-1.3.0"]["profiles"]["hgx-h100-bf3"]["pins"]
    pins["drive.nvme"] = {"version": f"{MODEL}@{NEW}", "evidence": EVIDENCE}
    document["edges"]["drive.nvme"] = [
        {
            "from": [f"{MODEL}@{OLD}"],
            "to": f"{MODEL}@{NEW}",
            "activates_by": "cold_boot",
            "artifact": "drive.bin",
            "sha256": hashlib.sha256(image).hexdigest(),
            "evidence": EVIDENCE,
        }
    ]
    overlay.write_text(json.dumps(document))


async def lived(folder: Path) -> dict[str, Any]:
    world = World(folder, nodes=1, seed=11)
    pin_drives(world.files.overlay, world.files.artifacts)
    await world.take_in()
    await world.start()
    machine = next(iter(world.site.machines.values()))
    disks = list(machine.disks.values())
    for _ in range(72):
        await world.clock.sleep(600.0)
        if all(disk.firmware == NEW for disk in disks):
            break
    (host,) = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
    for _ in range(12):  # until the daemon has read them again
        inventory = await world.store.evidence.get_inventory(host.id)
        assert inventory is not None
        read = {c.slot: c.version for c in inventory.of_kind("drive.nvme")}
        if set(read.values()) == {f"{MODEL}@{NEW}"}:
            break
        await world.clock.sleep(600.0)
    await world.crash()
    pushes = [e.subject for e in machine.log if e.kind == "push" and e.subject.startswith("drive/")]
    return {"read": read, "pushes": pushes, "serials": [d.device.serial for d in disks]}


@pytest.mark.long
def test_drives_reach_their_pinned_firmware_and_each_is_written_once(tmp_path: Path) -> None:
    ended = virtual_time.run(lived(tmp_path))

    assert ended["read"] == dict.fromkeys(ended["serials"], f"{MODEL}@{NEW}")
    assert sorted(ended["pushes"]) == sorted(f"drive/{s}" for s in ended["serials"])
