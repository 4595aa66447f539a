"""A host that arrives with MLNX_OFED, in a daemon's hands: the edge that leads away from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World

OLDER = "MLNX_OFED_LINUX-23.10-0.5.5.0"
DOCA, STACK = "2.10.0-0.5.3", "doca-ofed=2.10.0-0.5.3"
EVIDENCE = "NVIDIA, MLNX_OFED to DOCA-OFED Transition Guide"


def pin_stack(overlay: Path, *, method: str) -> None:
    """Pin the stack of the release's DOCA, with an edge from MLNX_OFED by this method."""
    document: dict[str, Any] = json.loads(overlay.read_text())
    pins = document["releases"]["spectrum-x-1.3.0"]["profiles"]["hgx-h100-bf3"]["pins"]
    pins["host.doca_ofed"] = {"version": STACK, "evidence": EVIDENCE}
    edge = {
        "from": [OLDER], "to": DOCA, "carries": {"host.doca_ofed": STACK}, "method": method,
        "activates_by": "warm_reboot", "evidence": EVIDENCE,
    }  # fmt: skip
    document["edges"].setdefault("host.doca", []).append(edge)
    overlay.write_text(json.dumps(document))


async def lived(folder: Path, method: str) -> dict[str, Any]:
    world = World(folder, nodes=1, seed=11)
    pin_stack(world.files.overlay, method=method)
    machine = next(iter(world.site.machines.values()))
    machine.host.packages["host.doca"] = OLDER
    machine.host.packages.pop("host.doca_ofed", None)
    await world.take_in()
    await world.start()
    nodes = await world.settle(43_200.0)
    await world.crash()
    installed = dict(machine.host.packages)
    host = next(n for n in nodes if n.kind.value == "host")
    return {"installed": installed, "state": host.state.value, "blockers": host.blockers}


@pytest.mark.long
def test_a_host_with_mlnx_ofed_is_migrated_by_an_edge_that_names_it_and_released(tmp_path: Path):
    ended = virtual_time.run(lived(tmp_path, "playbook_ofed_migration"))

    assert ended["installed"]["host.doca"] == DOCA
    assert ended["installed"]["host.doca_ofed"] == STACK
    assert ended["state"] == "released"  # so it was certified with what its profile pins


@pytest.mark.long
def test_an_edge_that_does_not_name_the_removal_changes_nothing(tmp_path: Path):
    ended = virtual_time.run(lived(tmp_path, "playbook_host_software"))

    assert ended["installed"]["host.doca"] == OLDER
    assert ended["state"] == "quarantined"
    assert f"{OLDER} is installed" in str(ended["blockers"])
