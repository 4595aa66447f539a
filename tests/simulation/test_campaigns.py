"""Campaigns over a fleet of 24 to 48 hosts with their leaves: limits, stops, people, crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from campaign_fleet import Fleet
from given_events import in_state

from provisioner.model.campaign import CampaignState, PinScope, ReleasePin
from provisioner.model.node import State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.certification import DAY_S

QUICK: dict[str, object] = {
    "canary": {"size": 2, "soak_s": 600},
    "waves": [{"upto": {"percent": 25}, "soak_s": 300}, {}],
    "tenants": {"notice_s": 0},
    "limits": {"rack": {"percent": 50}, "tenant": {"percent": 25}, "total": {"percent": 25}},
    "failure_budget": {"count": 2},
}
# a leaf takes the hosts below it along: as many must be allowed to be away
WITH_LEAVES = QUICK | {
    "limits": {"tenant": {"percent": 60}, "total": {"percent": 50}},
    "switch_limits": {"scalable_unit": {"count": 1}, "total": {"count": 1}},
}
HOSTS = "kind=host"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def within(fleet: Fleet, shares: dict[str, float]) -> list[str]:
    """Domains of which more was out of service at once than their share allows."""
    return [
        f"{domain}: {count} of {fleet.sizes[domain]} were out"
        for domain, count in sorted(fleet.worst.items())
        for prefix, share in shares.items()
        if domain.startswith(prefix) and count > max(1, int(fleet.sizes[domain] * share))
    ]


def test_a_campaign_brings_hosts_and_leaves_to_the_release_within_its_limits() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24, units=2, idle=4)
        await fleet.build()
        tenants = {n.id: n.tenant for n in await fleet.store.nodes.list()}

        ended = await fleet.live(await fleet.start(**WITH_LEAVES), hours=200)

        assert (ended.state, ended.reason) == (CampaignState.DONE, "")
        assert await fleet.states(ended) == {"done": 32}
        assert await fleet.releases() == {"next": 32}
        assert {n.id: n.tenant for n in await fleet.store.nodes.list()} == tenants
        assert (fleet.wrong, fleet.worst["leaves"]) == ([], 1)
        assert within(fleet, {"hosts": 0.5, "tenant": 0.6}) == []

    run(scenario())


def test_hosts_that_made_room_for_their_leaf_are_waited_for() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=4, units=1)
        await fleet.build()
        everybody = {"limits": {"total": {"percent": 100}, "tenant": {"percent": 100}}}
        one = {"canary": {"size": 1, "soak_s": 0}, "waves": [{}], "tenants": {"notice_s": 0}}

        ended = await fleet.live(await fleet.start(**everybody, **one), hours=100)

        assert (ended.state, ended.reason) == (CampaignState.DONE, "")
        assert await fleet.states(ended) == {"done": 8}
        assert fleet.wrong == []

    run(scenario())


@pytest.mark.parametrize("crash_every", [0, 1, 7])
def test_limits_hold_and_nobody_is_taken_twice_whenever_the_daemon_dies(crash_every: int) -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=48, units=2, idle=8)
        await fleet.build()
        campaign = await fleet.start(HOSTS, **QUICK)

        ended = await fleet.live(campaign, hours=100, crash_every=crash_every)

        assert await fleet.states(ended) == {"done": 48}
        assert sorted(fleet.began.values()) == [0] * 8 + [1] * 48  # leaves, hosts
        assert (
            within(fleet, {"hosts": 0.25, "tenant": 0.25, "su0-rack": 0.5, "su1-rack": 0.5}) == []
        )

    run(scenario())


def test_a_canary_that_fails_stops_the_campaign_before_anybody_else_is_touched() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24, idle=2)
        await fleet.build()
        fleet.fails = {n.id for n in await fleet.store.nodes.list()}

        ended = await fleet.live(await fleet.start(HOSTS, **QUICK), hours=50)

        assert ended.state is CampaignState.STOPPED
        assert "canar" in ended.reason
        assert await fleet.releases() == {"base": 30, "next": 2}

    run(scenario())


def test_a_release_that_makes_nodes_slower_stops_the_campaign() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24)
        await fleet.build()
        fleet.slow = {n.id for n in await fleet.store.nodes.list()}
        canaries = QUICK | {"canary": {"size": 5, "soak_s": 600}}

        ended = await fleet.live(await fleet.start(HOSTS, **canaries), hours=50)

        assert ended.state is CampaignState.STOPPED
        assert "busbw_gb_s" in ended.reason
        assert "worse than before" in ended.reason
        assert (await fleet.releases())["next"] < 12

    run(scenario())


def test_a_regression_that_a_person_accepts_does_not_stop_it_again() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24)
        await fleet.build()
        fleet.slow = {n.id for n in await fleet.store.nodes.list()}
        canaries = QUICK | {"canary": {"size": 5, "soak_s": 600}}
        stopped = await fleet.live(await fleet.start(HOSTS, **canaries), hours=50)
        for metric in ("busbw_gb_s", "hbm_copy_gb_s"):
            await fleet.requests.accept(stopped.id, metric, by="ann")
        await fleet.requests.resume(stopped.id, by="ann")

        ended = await fleet.live(stopped, hours=100)

        assert (ended.state, ended.reason) == (CampaignState.DONE, "")

    run(scenario())


def test_a_pause_lets_end_what_is_under_way_and_a_resume_goes_on() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24)
        await fleet.build()
        campaign = await fleet.start(HOSTS, **QUICK)
        await fleet.live(campaign, hours=0.6)
        await fleet.requests.pause(campaign.id, "a customer asked", by="ann")
        for _ in range(60):
            await fleet.campaigns.tick()
            await fleet.step()
        paused, begun = await fleet.now(campaign), dict(fleet.began)
        states = await fleet.states(campaign)

        await fleet.requests.resume(campaign.id)
        ended = await fleet.live(campaign, hours=100)

        assert (paused.state, paused.reason) == (CampaignState.PAUSED, "a customer asked")
        assert (sum(begun.values()), states["done"], states["admitted"]) == (2, 2, 0)
        assert await fleet.states(ended) == {"done": 24}

    run(scenario())


def test_an_aborted_campaign_admits_nobody_any_more() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24)
        await fleet.build()
        campaign = await fleet.start(HOSTS, **QUICK)
        await fleet.live(campaign, hours=0.6)
        await fleet.requests.abort(campaign.id, by="ann")
        for _ in range(60):
            await fleet.campaigns.tick()
            await fleet.step()

        again = await fleet.requests.resume(campaign.id)

        assert (await fleet.now(campaign)).state is CampaignState.ABORTED
        assert (await fleet.releases())["next"] == 2
        assert [b.detail for b in again.blockers] == ["it is aborted: resume is not possible"]

    run(scenario())


def test_everything_that_was_moved_goes_back_and_the_rest_is_never_touched() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=24, fails={"su0-n01"})
        await fleet.build()
        loose = QUICK | {"canary": {"size": 2, "soak_s": 600, "failures": 2}}
        campaign = await fleet.start(HOSTS, **loose)
        await fleet.live(campaign, hours=2)
        moved = (await fleet.releases())["next"]

        answer = await fleet.requests.rollback(campaign.id, by="ann")
        ended = await fleet.live(campaign, hours=100)

        assert answer.blockers == ()
        assert 2 < moved < 24
        assert (ended.state, ended.reason) == (CampaignState.ABORTED, "rolled back to base")
        assert await fleet.releases() == {"base": 32}
        assert max(fleet.began.values()) <= 2

    run(scenario())


def test_a_tenant_is_told_first_and_may_put_a_node_off() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1)
        await fleet.build()
        day_s = 86_400
        terms = QUICK | {"tenants": {"notice_s": 2 * day_s}}
        campaign = await fleet.start(HOSTS, **terms)
        began_at = fleet.clock.at
        await fleet.campaigns.tick()
        await fleet.requests.defer(campaign.id, "su0-n03", began_at + 9 * day_s, by="red")
        late = await fleet.requests.defer(campaign.id, "su0-n03", began_at + 99 * day_s)

        half_way = await fleet.live(campaign, hours=8 * 24)
        first = min(
            r.progress.admitted_at
            for r in await fleet.book.list_rows(campaign.id)
            if r.progress.admitted_at
        )
        releases = {n.id: n.release for n in await fleet.store.nodes.list() if n.kind == "host"}
        ended = await fleet.live(half_way, hours=4 * 24)

        assert first - began_at >= 2 * day_s
        assert {n for n, r in releases.items() if r == "base"} == {"su0-n03"}
        assert "at the latest" in late.blockers[0].detail
        assert await fleet.states(ended) == {"done": 8}
        told = [n.node for n in await fleet.book.list_notices("red")]
        assert told == ["su0-n00", "su0-n02", "su0-n04", "su0-n06"] or len(told) == 4

    run(scenario())


def test_a_pinned_node_is_left_alone_and_the_campaign_says_why() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1)
        await fleet.build()
        pin = ReleasePin(
            scope=PinScope.RACK,
            name="su0-rack0",
            release="base",
            reason="a customer's benchmark",
            expires_at=fleet.clock.at + 1e6,
        )
        await fleet.book.put_pin(pin, fleet.clock.at)

        ended = await fleet.live(await fleet.start(HOSTS, **QUICK), hours=100)

        rows = {r.node: r.progress for r in await fleet.book.list_rows(ended.id)}
        assert await fleet.states(ended) == {"done": 4, "skipped": 4}
        assert "a customer's benchmark" in rows["su0-n00"].reason

    run(scenario())


def test_two_campaigns_are_never_about_the_same_node() -> None:
    async def scenario() -> None:
        fleet = Fleet(hosts=8, units=1)
        await fleet.build()
        await fleet.start("node=su0-n00", **QUICK)
        second = await fleet.requests.create("next", HOSTS)
        assert second.campaign is not None

        answer = await fleet.requests.start(second.campaign.id)

        assert [b.subject for b in answer.blockers] == ["su0-n00"]
        assert (await fleet.now(second.campaign)).state is CampaignState.DRAFT

    run(scenario())


@pytest.mark.parametrize(("who", "held"), [("done", True), ("waiting", False), ("both", False)])
def test_a_running_campaign_holds_itself_once_the_nodes_that_it_brought_fail_more_often(
    who: str, held: bool
) -> None:
    """Half are upgraded and soak; of these, of those that wait, or of both in turn nodes fail."""
    soaks = {"waves": [{"upto": {"percent": 50}, "soak_s": 90 * DAY_S}, {}]}

    async def scenario() -> None:
        fleet = Fleet(hosts=24, units=2)
        await fleet.build()
        for node in await fleet.store.nodes.list():  # the ledger knows since when each serves
            await fleet.store.nodes.save(in_state(node, State.CERTIFIED, fleet.clock.now()))
            certified = await fleet.store.nodes.get(node.id)
            assert certified is not None
            await fleet.store.nodes.save(in_state(certified, State.RELEASED, fleet.clock.now()))
        campaign = await fleet.start(HOSTS, **QUICK | soaks)
        await fleet.live(campaign, hours=48)
        releases = {n.id: n.release for n in await fleet.store.nodes.list() if n.ports}
        done = [name for name, release in releases.items() if release == "next"]
        waiting = [name for name in releases if name not in done]
        assert len(done) == len(waiting) == 12
        failing = {"done": done, "waiting": waiting, "both": done + waiting}[who]
        faults = 0
        ended = await fleet.now(campaign)
        while ended.state is CampaignState.STARTED and faults < 60:
            await fail(fleet, failing[faults * 5 % len(failing)])
            faults += 1
            await fleet.campaigns.tick()
            ended = await fleet.now(campaign)

        assert (ended.state is CampaignState.STOPPED) is held, ended.reason
        if held:
            assert 15 < faults < 40
            assert "times as often with host.doca=2.0.0: " in ended.reason
            assert f"{faults} faults in" in ended.reason

    run(scenario())


async def fail(fleet: Fleet, name: str) -> None:
    """A node that serves is out for an hour; the ledger of time learns of it."""
    why = Blocker(reason=Reason.CHECK_FAILED, subject="gpu", detail="Xid 79", unblock="Repair it.")
    states = ((State.QUARANTINED, (why,), 3600.0), (State.RELEASED, (), 7 * 3600.0))
    for state, blockers, lasts_s in states:
        node = await fleet.store.nodes.get(name)
        assert node is not None
        now = fleet.clock.now()
        await fleet.store.nodes.save(in_state(node, state, now, blockers=blockers))
        fleet.clock.at += lasts_s
    while await fleet.store.usage.advance():
        pass
