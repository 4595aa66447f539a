"""A host's baseline and check tools in its journey: pinned, set by plays, read back, drifting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import virtual_time
from rig import World

from provisioner.execution.observe.collector import Collector
from provisioner.model.node import NodeKind
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.planning.certification.host_settings import select_sets

HOUR_S = 3600.0
EVIDENCE = "a test's own choice"
SETS = {
    "roce-1": {
        "rails": "on",
        "roce_trust": "dscp",
        "roce_pfc": "00010000",
        "acs": "off",
        "kernel_arguments": "iommu=pt",
        "fabric_manager": "nvswitch",
        "package:nvidia-container-toolkit": "1.17.4-1",
    },
    "tools-1": {
        "package:datacenter-gpu-manager-4-core": "1:4.2.3-2",
        "package:nccl-tests": "2.14.1-1",
        "service:nvidia-dcgm": "on",
    },
}
PINS = {"host.baseline": "roce-1", "host.check_tools": "tools-1"}


def pin_sets(overlay: Path) -> None:
    """Pin both kinds in the profile of the site's hosts."""
    document: dict[str, Any] = json.loads(overlay.read_text())
    pins = document["releases"]["spectrum-x-1.3.0"]["profiles"]["hgx-h100-bf3"]["pins"]
    for kind, name in PINS.items():
        pins[kind] = {"version": name, "evidence": EVIDENCE}
        ends_by = "warm_reboot" if kind == "host.baseline" else "none"
        document["edges"][kind] = [
            {"from": ["*"], "to": name, "activates_by": ends_by, "evidence": EVIDENCE}
        ]
    document["host_settings"] = SETS
    overlay.write_text(json.dumps(document))


async def lived(folder: Path) -> dict[str, Any]:
    world = World(folder, nodes=1, seed=11)
    pin_sets(world.files.overlay)
    await world.take_in()
    await world.start()
    entries: list[LedgerEntry] = []
    for _ in range(60):  # both are set before the long updates, which this test leaves out
        await world.clock.sleep(HOUR_S / 6)
        (host,) = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
        entries = await world.store.operations.list_entries(host.id)
        mine = [e for e in entries if e.action.startswith(tuple(PINS))]
        if len([e for e in mine if e.status is ActionStatus.CONFIRMED]) == len(PINS):
            break
    daemon = world.daemon
    assert daemon is not None
    collector = Collector(daemon.site, {}, select_sets(daemon.parts.matrix))
    machine = world.site.machines[host.id]
    read = []
    for settings in ({}, {"roce_trust": "pcp"}, {"rails": "off"}, {"service:nvidia-dcgm": "off"}):
        before = dict(machine.host.settings)
        machine.host.settings.update(settings)
        inventory, unseen = await collector.collect(host)
        assert inventory is not None, unseen
        components = [inventory.find_component(kind, "host") for kind in PINS]
        read.append([None if c is None else c.version for c in components])
        machine.host.settings = before
    await world.crash()
    return {"read": read, "written": [e.action for e in mine]}


def test_the_daemon_sets_both_reads_them_back_and_sees_what_drifts(tmp_path: Path) -> None:
    ended = virtual_time.run(lived(tmp_path))

    assert sorted(ended["written"]) == ["host.baseline roce-1", "host.check_tools tools-1"]
    assert ended["read"] == [
        ["roce-1", "tools-1"],
        ["none", "tools-1"],
        ["none", "tools-1"],
        ["roce-1", "none"],
    ]
