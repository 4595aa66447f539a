"""With the gate of destructive acts closed nothing is destroyed, whatever the daemon decides.

That the gate is asked is tried here by the effects: the simulated machines say what reached them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_time
from branches import branch
from rig import World
from test_taken_back import holders, serve, serving

from provisioner.execution.actions import once as gate
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.planning.lifecycle.operator_requests import reclaim_node

HOUR_S = 3600.0
DESTROYED = {"erase", "image_start", "write_start", "push", "wipe", "tpm_clear"}
CLOSED = Blocker(
    reason=Reason.NOT_CONFIRMED, subject="all", detail="it is closed", unblock="Open it."
)


def close(monkeypatch: pytest.MonkeyPatch) -> set[Destruction]:
    """Close the gate; return the acts that were asked for from then on."""
    asked: set[Destruction] = set()

    def refuse(act: Destruction, *_given: object) -> Blocker:
        asked.add(act)
        return CLOSED

    monkeypatch.setattr(gate, "judge_destruction", refuse)
    return asked


@pytest.mark.long
def test_no_disk_of_a_node_that_was_given_up_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def live(world: World) -> None:
        asked = close(monkeypatch)
        host = (await serving(world))[0]
        given_up = reclaim_node(host, world.clock.now())
        assert isinstance(given_up, Node)
        stored = await world.store.nodes.save(given_up)
        operation = await world.store.operations.open(stored.id, "reclaim", world.clock.now())
        assert operation is not None
        assert world.daemon is not None
        await world.daemon.engine.submit(operation.id)
        await world.clock.sleep(2 * HOUR_S)

        now = await world.store.nodes.get(host.id)
        assert now is not None
        assert asked == {Destruction.DISKS}
        assert holders(world, host.id) == {"tenant"}
        assert now.placement is Placement.MAINTENANCE
        assert now.state is State.DRAINING, "it waits, and is not quarantined"
        assert CLOSED.detail in now.note
        await world.crash()

    branch(serve, live)


def test_no_firmware_and_no_image_reaches_a_new_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        world = World(tmp_path, nodes=1, seed=3)
        await world.take_in()
        asked = close(monkeypatch)
        await world.start()
        await world.clock.sleep(HOUR_S / 2)  # a host is certified within 75 minutes

        assert asked == {Destruction.LOGIN, Destruction.SWITCH_IMAGE}, "nothing comes further"
        for machine in world.site.machines.values():
            kinds = {event.kind for event in machine.log}
            assert not kinds & DESTROYED, kinds
        await world.crash()

    virtual_time.run(live())
