"""Nothing is written without its file, in a laboratory neither: planned is not carried out."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_hosts import MemoryRunner, MemoryShell
from rig import World
from virtual_time import run

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.executor import Executor
from provisioner.model.inventory import Activation, Inventory
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.runtime.switch_systems import make_switches

METHODS = ("redfish_push", "bluefield_bfb", "playbook_nic_firmware", "nvue_image")


def step(method: str, artifact: str) -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component="any.part",
        slots=("0",),
        from_version="1",
        to_version="2",
        method=method,
        artifact=artifact,
        activation=Activation.COLD_BOOT,
        disruption=Disruption.NONE,
        duration_s=60,
        expected=(),
        reason="a laboratory's plan.",
    )


@pytest.mark.parametrize(
    ("artifact", "remedy"), [("", "Add `artifact`"), ("gone.bin", "Download it")]
)
@pytest.mark.parametrize("method", METHODS)
def test_a_step_without_its_file_is_refused_before_anything_is_asked_of_a_device(
    tmp_path: Path, method: str, artifact: str, remedy: str
) -> None:
    async def main() -> tuple[tuple[Blocker, ...], int, tuple[LedgerEntry, ...]]:
        world = World(tmp_path / "world", nodes=1, seed=1)
        await world.take_in()
        node = (await world.store.nodes.list())[0]
        opened = await world.store.operations.open(node.id, "test", 0.0)
        assert opened is not None
        hold = Hold(world.store, world.clock, await world.store.operations.take(opened.id))
        site = Site(
            clock=world.clock,
            settings=world.settings,
            reach=Reach(world.transport, make_switches(world.switches), world.vault),
            runner=MemoryRunner(world.site),
            shell=MemoryShell(world.site),
            agents=None,
            artifacts=Artifacts(tmp_path),
        )
        asked = world.wire.requests
        nothing = Inventory(node=node.id, vendor="generic")
        told = await Executor(site, {}).execute(hold, node, step(method, artifact), nothing)
        return (
            told,
            world.wire.requests - asked,
            tuple(await world.store.operations.list_entries(node.id)),
        )

    told, asked, ledger = run(main())

    assert [b.reason for b in told] == [Reason.MISSING_ARTIFACT]
    assert told[0].unblock.startswith(remedy)
    assert (asked, ledger) == (0, ())
