"""Who is proved guilty and waits for nothing is looked at when the session ends, not much later."""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_time
from rig import World

from provisioner.integrations.sim.site import control as fault_presets
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason


async def found(directory: Path) -> tuple[Node, float, float]:
    """A bad leaf's row, when its session ended, and when the row said so."""
    world = World(directory, nodes=4, seed=5, certify_gates="abc", watch_s=86_400.0)
    await world.take_in()
    fault_presets.inject_fault(world.site, "leaf_drops", "leaf-su0-r2")
    await world.start()
    until = world.clock.now() + 8 * 3600
    ended = 0.0
    while world.clock.now() < until:
        await world.clock.sleep(5.0)
        outcome = await world.store.fabric.get_outcome("leaf-su0-r2")
        leaf = await world.store.nodes.get("leaf-su0-r2")
        assert leaf is not None
        ended = outcome.ended_at if outcome is not None else 0.0
        if ended and leaf.blockers:
            break
    now = world.clock.now()
    await world.crash()
    return leaf, ended, now


@pytest.mark.long
def test_a_leaf_that_a_session_proves_bad_shows_it_within_a_minute(tmp_path: Path) -> None:
    leaf, ended, now = virtual_time.run(found(tmp_path))

    assert leaf.state is State.RELEASED
    assert leaf.blockers[0].reason is Reason.FABRIC
    assert ended > 0
    assert now - ended < 60.0
