"""A campaign by the whole daemon on a simulated site, with the daemon dying in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rig import MATRIX, World

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.context import Context
from provisioner.daemon.data import read_matrix
from provisioner.integrations.twin.loop import run
from provisioner.model.campaign import Campaign, CampaignState, Policy
from provisioner.model.node import Node, State

BASE, NEXT = "spectrum-x-1.2.0", "spectrum-x-1.3.0"
POLICY = {
    "canary": {"size": 1, "soak_s": 600},
    "waves": [{}],
    "tenants": {"notice_s": 3600},
    "allow_irreversible": True,
}


async def lived(folder: Path) -> tuple[Campaign, Node, list[str], list[str]]:
    world = World(
        folder,
        nodes=1,
        seed=4,
        certify_gates="ab",
        poll_s=120.0,
        production=0.0,
        erase_same_tenant_may_skip=1.0,
    )
    listed = json.loads(world.files.expected.read_text())
    world.files.expected.write_text(json.dumps(listed | {"release": BASE}))
    await world.take_in()
    await world.start()
    await world.settle(20 * 3600.0)
    book, matrix = world.store.campaigns, read_matrix([MATRIX, world.files.overlay])
    requests = CampaignRequests(Context(world.store, world.clock, world.settings), book, matrix)
    made = await requests.create(NEXT, "kind=host", Policy.model_validate(POLICY))
    assert made.campaign is not None, made.blockers
    found = await requests.survey(made.campaign)
    steps = sorted({s for r in found.rows for s in r.facts.one_way})
    begun = await requests.start(made.campaign.id, "ann", steps)
    assert begun.blockers == ()
    for _ in range(4):
        await world.clock.sleep(1500.0)
        await world.crash()
        await world.clock.sleep(100.0)
        await world.start()
    ended = begun.campaign
    for _ in range(100):
        await world.clock.sleep(600.0)
        ended = await requests.find_campaign(made.campaign.id)
        if ended.state is not CampaignState.STARTED:
            break
    assert ended is not None
    host = await world.store.nodes.get("su0-n00")
    assert host is not None
    admitted = [
        str(row["node"])
        for row in await world.store.journal.list(limit=100_000)
        if row["kind"] == "campaign_node" and row["detail"]["progress"] == "admitted"
    ]
    wrong = await world.violations()
    await world.crash()
    return ended, host, admitted, wrong


@pytest.mark.long  # test_campaigns.py has deaths of a daemon, test_fleet_campaign.py a whole one
def test_a_campaign_ends_well_whenever_the_daemon_dies(tmp_path: Path) -> None:
    ended, host, admitted, wrong = run(lived(tmp_path))

    assert (ended.state, ended.reason) == (CampaignState.DONE, "")
    assert (host.state, host.release, host.tenant) == (State.RELEASED, NEXT, "blue")
    assert admitted == ["su0-n00"]
    assert wrong == []
