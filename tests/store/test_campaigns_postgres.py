"""Campaigns with their rows on PostgreSQL: the same that hold on a file."""

from __future__ import annotations

import asyncio

import pytest
from campaign_fleet import Fleet
from rig import World
from test_campaign_daemon import lived

from provisioner.integrations.twin.loop import run
from provisioner.model.campaign import CampaignState
from provisioner.model.node import State
from provisioner.store import open_store

POLICY: dict[str, object] = {
    "canary": {"size": 2, "soak_s": 600},
    "waves": [{"upto": {"percent": 25}, "soak_s": 300}, {}],
    "tenants": {"notice_s": 0},
    "limits": {"tenant": {"percent": 60}, "total": {"percent": 50}},
    "switch_limits": {"scalable_unit": {"count": 1}, "total": {"count": 1}},
    "failure_budget": {"count": 2},
}


@pytest.mark.parametrize("crash_every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_campaign_on_postgresql_keeps_its_limits_though_the_daemon_dies(
    database: str, crash_every: int
) -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24, units=2, idle=4, file=database)
        try:
            await fleet.build()

            campaign = await fleet.start(**POLICY)
            ended = await fleet.live(campaign, hours=200, crash_every=crash_every)

            assert (ended.state, ended.reason) == (CampaignState.DONE, "")
            assert await fleet.states(ended) == {"done": 32}
            assert await fleet.releases() == {"next": 32}
            assert (fleet.wrong, fleet.worst["leaves"]) == ([], 1)
        finally:
            await fleet.store.close()

    asyncio.run(scenario())


@pytest.mark.long
def test_the_whole_daemon_upgrades_a_host_on_postgresql_though_it_dies(
    database: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, store = World.__init__, open_store(database, inline=True)

    def on_the_server(self: World, *given: object, **more: object) -> None:
        made(self, *given, **more)  # type: ignore[arg-type]
        self.store = store

    monkeypatch.setattr(World, "__init__", on_the_server)
    try:
        ended, host, admitted, wrong = run(lived(tmp_path))
    finally:
        asyncio.run(store.close())

    assert (ended.state, ended.reason) == (CampaignState.DONE, "")
    assert (host.state, admitted, wrong) == (State.RELEASED, ["su0-n00"], [])
