"""A node that waits says for what: a host without SSH, a machine that no profile fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import rig
import virtual_time
from rig import MATRIX, World

from provisioner import components
from provisioner.control.node.explaining import read_situation
from provisioner.daemon.data import read_matrix
from provisioner.integrations.twin.hosts import MemoryShell
from provisioner.model.outcome import Reason
from provisioner.planning.lifecycle.explain import Explanation, explain
from provisioner.planning.path.planner import PlanCache
from provisioner.ports import ShellCommand, ShellOutput, Unreachable

HOST = "su0-n00"


class SilentHosts(MemoryShell):
    """Hosts on which no sshd listens."""

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        raise Unreachable(f"{host}: connection refused", maybe_executed=False)


async def wait_for_an_hour(directory: Path, *, fits: bool) -> tuple[World, Explanation]:
    world = World(directory, nodes=1, seed=3)
    if not fits:
        overlay = json.loads(world.files.overlay.read_text())
        profiles = overlay["releases"]["spectrum-x-1.3.0"]["profiles"]
        profiles["hgx-h100-bf3"]["match"] = {"kind": "host", "models": ["Another*"]}
        world.files.overlay.write_text(json.dumps(overlay))
    await world.take_in()
    await world.start()
    try:
        await world.clock.sleep(600.0)
        node = await world.store.nodes.get(HOST)
        assert node is not None
        plans = PlanCache(
            read_matrix([MATRIX, world.files.overlay]), components.ALL, production=False
        )
        return world, explain(await read_situation(world.store, node, plans, world.clock.now()))
    finally:
        await world.crash()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig, "MemoryShell", SilentHosts)


def test_a_node_that_waits_for_ssh_says_what_would_help(tmp_path: Path, silent: None) -> None:
    async def main() -> None:
        _, told = await wait_for_an_hour(tmp_path, fits=True)

        assert any("connection refused" in line for line in told.why)
        assert any("check network and power" in line for line in told.unblock)

    virtual_time.run(main())


def test_a_machine_that_no_profile_fits_is_named_before_its_host_can_be_asked(
    tmp_path: Path, silent: None
) -> None:
    async def main() -> None:
        world, told = await wait_for_an_hour(tmp_path, fits=False)
        node = await world.store.nodes.get(HOST)
        assert node is not None

        assert any(Reason.NO_PROFILE.value in line for line in told.why)
        assert any("Add a profile" in line for line in told.unblock)

    virtual_time.run(main())
