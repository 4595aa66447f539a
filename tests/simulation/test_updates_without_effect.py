"""An update whose play and reset end well, and that changes nothing: it ends with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import virtual_time
from rig import World

from provisioner.integrations.sim.site import control as fault_presets
from provisioner.model.node import NodeKind, State
from provisioner.model.outcome import Reason

HOUR_S = 3600.0


async def lived(folder: Path) -> dict[str, Any]:
    world = World(folder, nodes=1, seed=7)
    await world.take_in()
    (name,) = world.site.machines
    before = world.site.machines[name].host.loaded["host.driver"]
    fault_presets.inject_fault(world.site, "old_driver_starts", name)
    await world.start()
    nodes = await world.settle(60 * HOUR_S)
    (host,) = [n for n in nodes if n.kind is NodeKind.HOST]
    entries = await world.store.operations.list_entries(host.id)
    await world.crash()
    return {
        "host": host,
        "before": before,
        "writes": [e.action for e in entries if e.action.startswith("host.driver ")],
    }


def test_a_driver_that_does_not_start_is_installed_twice_and_then_named(tmp_path: Path) -> None:
    ended = virtual_time.run(lived(tmp_path))

    host = ended["host"]
    assert host.state is State.QUARANTINED
    assert [(b.reason, b.subject) for b in host.blockers] == [
        (Reason.NOT_ACTIVATED, "host.driver/host")
    ]
    assert ended["before"] in host.blockers[0].detail
    assert len(ended["writes"]) == 2
