"""A campaign rehearsed on a twin: recorded versions, the real daemon, virtual time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rig import MATRIX, World

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.context import Context
from provisioner.daemon.data import read_matrix
from provisioner.integrations.twin import rehearsal_process
from provisioner.integrations.twin.fleet_twin import RecordedFleet, Twin
from provisioner.integrations.twin.loop import run
from provisioner.integrations.twin.recorded import add_simulated_images
from provisioner.integrations.twin.rehearsal import prepare_rehearsal, run_rehearsal
from provisioner.model.campaign import Campaign, Policy

BASE, NEXT = "spectrum-x-1.2.0", "spectrum-x-1.3.0"
SELECT = "kind=host or node=leaf-su0-r0"  # the host leaves service while its leaf is down
POLICY = {
    "canary": {"size": 1, "soak_s": 600},
    "waves": [{}],
    "tenants": {"notice_s": 3600},
    "limits": {"total": {"percent": 100}},
    "switch_limits": {"total": {"count": 1}},
    "allow_irreversible": True,
}


def fleet(folder: Path, nodes: int) -> tuple[Campaign, RecordedFleet, int]:
    """A released fleet on the first release, and the draft of a campaign; nothing is begun."""

    async def lived() -> tuple[Campaign, RecordedFleet, int]:
        world = World(folder, nodes=nodes, seed=3, certify_gates="ab", poll_s=120.0, production=0.0)
        listed = json.loads(world.files.expected.read_text())
        world.files.expected.write_text(json.dumps(listed | {"release": BASE}))
        await world.take_in()
        await world.start()
        assert await world.settle(20 * 3600.0)
        book, matrix = (
            world.store.campaigns,
            read_matrix([MATRIX, world.files.overlay]),
        )
        requests = CampaignRequests(Context(world.store, world.clock, world.settings), book, matrix)
        made = await requests.create(NEXT, SELECT, Policy.model_validate(POLICY))
        assert made.campaign is not None, made.blockers
        before = await world.store.nodes.list()
        found = await requests.survey(made.campaign)
        recorded, of = await prepare_rehearsal(world.store, made.campaign, found.rows, most=8)
        assert list(await world.store.nodes.list()) == list(before)
        await world.crash()
        return made.campaign, recorded, of

    return run(lived())


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, RecordedFleet, int]:
    return fleet(tmp_path_factory.mktemp("fleet"), nodes=1)


@pytest.mark.slow
def test_a_rehearsal_brings_the_twin_to_the_release_and_reports_as_the_campaign_would(
    drafted: tuple[Campaign, RecordedFleet, int], tmp_path: Path
) -> None:
    world = World(tmp_path, nodes=1, seed=3)
    matrix = read_matrix([MATRIX, world.files.overlay])

    found = run_rehearsal(*drafted, matrix, world.settings)

    assert found.blockers == ()
    assert (found.report.state, found.report.states) == ("done", {"done": 2})
    assert found.violations == ()
    assert (found.hosts, found.of) == (1, 1)
    assert found.report.minutes_median > 10
    assert found.report.ended_at - found.report.began_at > 600
    assert not any("did not come into service" in s for s in found.assumed)


def test_a_twin_stands_at_the_versions_that_were_recorded(
    drafted: tuple[Campaign, RecordedFleet, int], tmp_path: Path
) -> None:
    _, recorded, _ = drafted
    name, inventory = next((n, i) for n, i in recorded.inventories.items() if n.startswith("su"))
    older = inventory.model_copy(
        update={
            "components": tuple(
                c.model_copy(update={"version": "32.42.1000"})
                if c.kind in ("supernic.nic", "bluefield.nic")
                else c
                for c in inventory.components
            )
        }
    )
    changed = RecordedFleet(recorded.nodes, {**recorded.inventories, name: older}, recorded.tenants)
    world = World(tmp_path / "again", nodes=1, seed=3)
    matrix = read_matrix([MATRIX, world.files.overlay])

    twin = Twin(changed, add_simulated_images(matrix, (BASE, NEXT)), world.settings, tmp_path)

    machine = twin.site.machines[twin.names.twin[name]]
    assert {f.running for (_, i), f in machine.firmware.items() if i == "DPU_NIC"} == {"32.42.1000"}


@pytest.mark.long
def test_the_process_that_the_daemon_starts_says_what_a_rehearsal_says(
    drafted: tuple[Campaign, RecordedFleet, int], tmp_path: Path
) -> None:
    campaign, recorded, of = drafted
    world = World(tmp_path, nodes=1, seed=3)
    given = rehearsal_process.RehearsalInput(
        campaign=campaign,
        nodes=tuple(recorded.nodes),
        inventories=recorded.inventories,
        tenants=tuple(recorded.tenants),
        of=of,
        matrix=read_matrix([MATRIX, world.files.overlay]),
        settings=world.settings,
    )

    process = [sys.executable, "-m", rehearsal_process.__name__]
    ran = subprocess.run(process, input=given.model_dump_json(), capture_output=True, text=True,
                         check=False)  # fmt: skip

    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout)
    assert told["report"]["state"] == "done"
    assert told["violations"] == []
    nonsense = subprocess.run(process, input="{}", capture_output=True, text=True, check=False)
    assert (nonsense.returncode, nonsense.stdout) == (1, "")
