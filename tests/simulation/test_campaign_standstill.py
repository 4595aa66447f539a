"""A campaign whose nodes cannot go is not begun, or says so within a turn, and ends."""

from __future__ import annotations

import asyncio

from campaign_fleet import Fleet
from given_events import in_state

from provisioner.model.adoption.capability import LADDER, Grant, GrantScope
from provisioner.model.campaign import CampaignState, Policy
from provisioner.model.node import Origin, Placement, State
from provisioner.model.outcome import Blocker, Reason

HOUR_S = 3600.0
ONE_IN_A_RACK: dict[str, object] = {
    "canary": {"size": 0},
    "waves": [{}],
    "tenants": {"notice_s": 0},
    "limits": {"rack": {"count": 1}},
    "failure_budget": {"percent": 100},
    "breaker": {"of_last": 100, "failures": 100, "same_reason": 100},
    "standstill_max_s": 6 * 3600,
}
WORN = Blocker(reason=Reason.CHECK_FAILED, subject="nic", detail="d", unblock="u")


async def break_down(fleet: Fleet, *names: str) -> None:
    for name, node in (await fleet.store.nodes.list_named(names)).items():
        assert name == node.id
        broken = in_state(node, State.QUARANTINED, fleet.clock.now(), blockers=(WORN,))
        await fleet.store.nodes.save(broken)


def test_a_campaign_that_its_preview_shows_standing_still_is_not_begun() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1, idle=8)
        await fleet.build()
        await break_down(fleet, "su0-n00", "su0-n04")  # one in each rack
        made = await fleet.requests.create(
            "next", "kind=host", Policy.model_validate(ONE_IN_A_RACK)
        )
        assert made.campaign is not None
        preview = await fleet.requests.preview(made.campaign.id)

        begun = await fleet.requests.start(made.campaign.id)

        assert len(preview.refused) == 8
        assert [b.reason for b in begun.blockers] == [Reason.REFUSED]
        assert "no node would begin" in begun.blockers[0].detail
        assert (await fleet.now(made.campaign)).state is CampaignState.DRAFT

    asyncio.run(scenario())


def test_a_campaign_that_comes_to_stand_still_says_so_within_an_hour_and_ends_with_its_rest() -> (
    None
):
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1, idle=8, fails={"su0-n00", "su0-n04"})
        await fleet.build()
        campaign = await fleet.start("kind=host", **ONE_IN_A_RACK)
        failed_at = still_since = 0.0
        ended = campaign
        for _ in range(100):
            ended = await fleet.live(campaign, 0.1)
            if not failed_at and (await fleet.states(campaign))["failed"] == 2:
                failed_at = fleet.clock.now()
            if ended.still_since:
                still_since = ended.still_since
                assert "rack su0-rack0: 1 out of service, and at most 1 may be" in ended.reason
                assert "Bring a host of them back into service" in ended.reason
            if ended.state is not CampaignState.STARTED:
                break

        assert 0.0 < still_since <= failed_at + HOUR_S
        assert ended.state is CampaignState.DONE
        assert "left: " in ended.reason
        assert "out of service, and at most" in ended.reason
        assert fleet.clock.now() <= still_since + 7 * HOUR_S

    asyncio.run(scenario())


def test_an_adopted_host_without_a_grant_is_left_and_takes_no_place_of_others() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1, idle=8)
        await fleet.build()
        nodes = await fleet.store.nodes.list_named(["su0-n00", "su0-n04"])
        for node in nodes.values():
            adopted = node.model_copy(update={"origin": Origin.ADOPTED})
            await fleet.store.nodes.save(adopted)
        given = [
            Grant(scope=GrantScope.NODE, name="su0-n04", capability=c, granted=True, by="ada")
            for c in LADDER
        ]
        await fleet.store.grants.put(given, fleet.clock.now())

        ended = await fleet.live(await fleet.start("kind=host", **ONE_IN_A_RACK), 100.0)

        assert ended.state is CampaignState.DONE
        assert "1 left: " in ended.reason
        assert "su0-n00 is adopted, and watch, which firmware builds upon" in ended.reason
        assert await fleet.releases() == {"next": 7, "base": 5}
        assert fleet.worst["su0-rack0"] == 1

    asyncio.run(scenario())


def test_an_idle_host_whose_ports_are_not_fenced_is_left_and_takes_no_place_of_others() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1, idle=8)
        await fleet.build()
        (node,) = (await fleet.store.nodes.list_named(["su0-n00"])).values()
        await fleet.store.nodes.save(node.model_copy(update={"placement": Placement.MIXED}))

        ended = await fleet.live(await fleet.start("kind=host", **ONE_IN_A_RACK), 100.0)

        assert ended.state is CampaignState.DONE
        assert "1 left: " in ended.reason
        assert "it is certified with its ports mixed" in ended.reason
        assert await fleet.releases() == {"next": 7, "base": 5}

    asyncio.run(scenario())
