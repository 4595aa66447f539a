"""A turn of a campaign that somebody has overtaken writes nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from campaign_fleet import Fleet

from provisioner.ports import StaleWrite

POLICY: dict[str, object] = {
    "canary": {"size": 2, "soak_s": 600},
    "waves": [{"upto": {"percent": 25}, "soak_s": 300}, {}],
    "tenants": {"notice_s": 0},
    "limits": {"total": {"percent": 25}},
}
HOSTS = "kind=host"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_turn_that_was_overtaken_by_a_pause_admits_nobody() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1, idle=8)
        await fleet.build()
        campaign = await fleet.start(HOSTS, **POLICY)
        await fleet.requests.pause(campaign.id)

        with pytest.raises(StaleWrite):
            await fleet.book.put_rows(campaign, (), fleet.clock.at)
        await fleet.campaigns.run_turn(campaign)

        assert await fleet.states(campaign) == {"pending": 8}
        assert await fleet.releases() == {"base": 12}

    run(scenario())


def test_a_daemon_that_stood_still_in_a_turn_writes_nothing_once_another_has_taken_over() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1, idle=8)
        await fleet.build()
        before = await fleet.start(HOSTS, **POLICY)
        await fleet.campaigns.run_turn(before)
        rows = await fleet.book.list_rows(before.id)

        other = fleet.daemon()
        await other.take_over()
        with pytest.raises(StaleWrite):
            await fleet.book.put_rows(before, rows, fleet.clock.at)
        now = await fleet.now(before)
        await other.run_turn(now)
        told = await fleet.campaigns.run_turn(await fleet.now(before))  # it reads everything anew

        assert told is not None
        assert not told.admit

    run(scenario())
