"""A campaign never stands still in silence: nodes outside of it hold others for a time only."""

from __future__ import annotations

import pytest
from campaign_soak import soak
from campaign_worlds import campaign, host, policy, rows

from provisioner.model.campaign import (
    CampaignNode,
    CampaignState,
    Canary,
    Domain,
    Limit,
    Policy,
    Progress,
    TenantTerms,
    Wave,
)
from provisioner.model.outcome import Reason
from provisioner.planning.campaigns.campaign_moves import build_initial_rows, summarize_left
from provisioner.planning.campaigns.campaign_preview import forecast_campaign, preview_campaign
from provisioner.planning.campaigns.campaign_report import find_standstill
from provisioner.planning.campaigns.rollout import decide

DAY_S = 86_400
NO_NOTICE = TenantTerms(notice_s=0)
ONE_IN_A_RACK = {Domain.RACK: Limit(count=1)}


def fleet(hosts: int, broken: set[int]) -> list[CampaignNode]:
    return [host(n, in_service=n not in broken) for n in range(hosts)]


def test_random_campaigns_never_stand_still_and_break_no_limit():
    result = soak(range(80))  # `make soak NAME=campaigns` has 100,000

    assert (result["stood_still"], result["breaches"], result["first"]) == (0, 0, [])
    assert result["finished"]
    assert result["stopped"]


@pytest.mark.parametrize("rack", range(0, 64, 7))
def test_a_rack_with_half_of_its_hosts_in_repair_holds_only_its_own_hosts(rack: int):
    broken = {4 * rack, 4 * rack + 1}
    facts = [n.model_copy(update={"unit": "su0"}) for n in fleet(256, broken)]

    course = forecast_campaign(campaign(Policy(tenants=NO_NOTICE)), facts, 0.0)

    beside = {f"h{4 * rack + n:03d}" for n in (2, 3)}
    assert len(course.back) == 252
    assert {n for n, why in course.skipped.items() if "rack" in why} == beside
    assert course.stopped == ()


def test_canaries_are_not_chosen_where_other_nodes_fill_the_rack():
    facts = fleet(16, {0, 4, 8})
    rules = policy(limits=ONE_IN_A_RACK, canary=Canary(size=3), waves=(Wave(),))

    result = build_initial_rows(campaign(rules), facts)

    assert {n for n, p in result.items() if p.wave == 0} <= {f"h{n:03d}" for n in range(12, 16)}


def test_a_campaign_that_only_waits_for_repairs_says_so_and_ends_after_its_patience():
    facts = fleet(4, {0})
    rules = policy(limits=ONE_IN_A_RACK, standstill_max_s=3600)
    waiting = rows(facts)

    first = decide(campaign(rules), facts, waiting, (), 100.0)
    later = decide(campaign(rules, still_since=100.0), facts, waiting, (), 3600.0)
    ended = decide(campaign(rules, still_since=100.0), facts, waiting, (), 3700.0)

    assert "rack r0: 1 out of service, and at most 1 may be (h000)" in first.standstill
    assert first.next_look_at == 3700.0
    assert (first.finished, later.finished, ended.finished) == (False, False, True)
    assert set(ended.skip) == {"h000", "h001", "h002", "h003"}


def test_the_hosts_follow_as_soon_as_the_one_in_repair_is_back():
    rules = policy(limits=ONE_IN_A_RACK)
    held = decide(campaign(rules), fleet(4, {0}), rows(fleet(4, set())), (), 100.0)
    back = decide(
        campaign(rules, still_since=100.0), fleet(4, set()), rows(fleet(4, set())), (), 200.0
    )

    assert (held.admit, bool(held.standstill)) == ((), True)
    assert len(back.admit) == 1
    assert back.standstill == ""


def test_a_campaign_whose_canaries_lost_their_room_stops_for_a_person():
    facts = fleet(8, {0})
    rules = policy(limits=ONE_IN_A_RACK, canary=Canary(size=1), standstill_max_s=3600)
    waiting = rows(facts)
    waiting |= {"h001": waiting["h001"].model_copy(update={"wave": 0})}

    held = decide(campaign(rules), facts, waiting, (), 100.0)
    ended = decide(campaign(rules, still_since=100.0), facts, waiting, (), 3700.0)

    assert (held.admit, bool(held.standstill)) == ((), True)
    assert ended.stop[0].reason is Reason.NO_ROOM
    assert "Bring a host of them back" in ended.stop[0].unblock


def test_preview_lists_the_hosts_that_stay_and_start_refuses_only_if_none_would_go():
    some, none = fleet(8, {0}), fleet(4, {0})
    rules = policy(limits=ONE_IN_A_RACK)
    draft = campaign(rules, state=CampaignState.DRAFT)

    partly, nothing = (preview_campaign(draft, facts, 0.0) for facts in (some, none))

    assert {n for n, b in partly.refused.items() if b.reason is Reason.NO_ROOM} == {
        "h001",
        "h002",
        "h003",
    }
    assert find_standstill(draft, partly) == []
    (refusal,) = find_standstill(draft, nothing)
    assert "no node would begin" in refusal.detail
    assert "Bring a host of them back" in refusal.unblock


def test_the_end_says_how_many_are_left_and_why():
    facts = fleet(3, set())
    told = rows(facts, h001=Progress.DONE)
    left = {
        n: p.model_copy(update={"state": Progress.SKIPPED, "reason": "it is quarantined"})
        for n, p in told.items()
        if n != "h001"
    }

    assert summarize_left((told | left).values()) == "2 left: 2 because it is quarantined"
    assert summarize_left(rows(facts, h000=Progress.DONE).values()) == ""


def test_a_rollback_counts_a_quarantined_host_as_out_of_service_and_takes_it_at_once():
    facts = [host(0, in_service=False, recalled=True), host(1), host(2)]
    back = campaign(policy(limits=ONE_IN_A_RACK), state=CampaignState.ROLLING_BACK, going_back=True)

    decision = decide(back, facts, rows(facts), (), 0.0)

    assert [a.node for a in decision.admit] == ["h000"]
    assert "rack r0" in decision.hold["h001"].why


def test_racks_that_stand_in_two_units_do_not_merge_the_units():
    facts = [host(n, rack=f"r{(n + 2) // 4}", unit=f"su{n // 8}", leaves=()) for n in range(512)]
    rules = policy(limits={Domain.RACK: Limit(percent=50), Domain.SCALABLE_UNIT: Limit(count=4)})

    decision = decide(campaign(rules), facts, rows(facts), (), 0.0)

    assert len(decision.admit) == 256
