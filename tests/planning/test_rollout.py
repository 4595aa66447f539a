"""A campaign, told as a person would: canaries, waves, tenants, windows, stops, previews."""

from __future__ import annotations

from datetime import datetime

from campaign_worlds import campaign, host, leaf, policy, rows

from provisioner.model.campaign import (
    AtDeadline,
    Breaker,
    Campaign,
    CampaignNode,
    CampaignState,
    Canary,
    Decision,
    Domain,
    Freeze,
    LeafHosts,
    Limit,
    NodeProgress,
    Progress,
    TenantTerms,
    Wave,
    Window,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_moves import (
    apply_decision,
    build_initial_rows,
    record_failure,
    start_soak,
)
from provisioner.planning.campaigns.campaign_policy_text import NEVER, find_begin, find_openings
from provisioner.planning.campaigns.campaign_preview import preview_campaign
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.campaigns.waves import assign_waves

DAY = 86_400
MONDAY = 4 * DAY  # 5 January 1970
HOSTS = [host(n) for n in range(16)]
FAULT = Blocker(reason=Reason.UPDATE_FAILED, subject="hgx.bmc", detail="x", unblock="y")


def names(decision: Decision) -> list[str]:
    return sorted(a.node for a in decision.admit)


def ask(c: Campaign, facts: list[CampaignNode], p: dict[str, NodeProgress], now=0.0) -> Decision:
    return decide(c, facts, p, (), now)


def test_canaries_cover_profiles_and_revisions_then_racks_and_idle_ones_go_first() -> None:
    odd = host(13, revision="B", tenant="a")
    facts = [host(n, tenant="a" if n < 8 else "") for n in range(16) if n != 13] + [odd]

    waves = assign_waves(campaign(policy(canary=Canary(size=3))), facts)

    chosen = [h for h in facts if waves[h.name] == 0]
    assert odd in chosen
    assert {h.rack for h in chosen} == {"r2", "r3"}  # those with idle hosts
    assert [h.tenant for h in chosen if h is not odd] == ["", ""]


def test_the_wave_behind_the_canaries_waits_until_they_are_soaked() -> None:
    c = campaign(policy(canary=Canary(size=2, soak_s=600)))
    p = build_initial_rows(c, HOSTS)
    first = ask(c, HOSTS, p)
    p |= apply_decision(first, p, 0.0)
    for name in names(first):
        p[name] = start_soak(p[name], 100.0)
    watched = ask(c, HOSTS, p, 200.0)
    p |= apply_decision(ended := ask(c, HOSTS, p, 700.0), p, 700.0)

    assert len(first.admit) == 2
    assert (watched.admit, watched.next_look_at) == ((), 700.0)
    assert sorted(ended.done) == names(first)
    assert len(ended.admit) == 14


def test_a_canary_that_falls_out_of_service_in_its_soak_has_failed_and_stops_the_campaign() -> None:
    c = campaign(policy(canary=Canary(size=1, soak_s=600)))
    p = build_initial_rows(c, HOSTS)
    p |= apply_decision(ask(c, HOSTS, p), p, 0.0)
    (canary,) = (n for n, row in p.items() if row.state is Progress.ADMITTED)
    p[canary] = start_soak(p[canary], 10.0)
    facts = [n.model_copy(update={"in_service": n.name != canary}) for n in HOSTS]
    p |= apply_decision(ask(c, facts, p, 20.0), p, 20.0)

    assert [b.reason for b in ask(c, facts, p, 30.0).stop] == [Reason.BUDGET]


def test_idle_hosts_begin_before_those_of_tenants() -> None:
    facts = [host(n, tenant="a" if n % 2 else "") for n in range(8)]
    c = campaign(policy(limits={Domain.TOTAL: Limit(count=3)}))

    assert all(
        not host_.tenant for host_ in facts if host_.name in names(ask(c, facts, rows(facts)))
    )


def test_free_capacity_is_kept() -> None:
    facts = [host(n) for n in range(4)]

    assert len(ask(campaign(policy(free_kept=Limit(percent=60))), facts, rows(facts)).admit) == 1


def test_a_tenant_is_told_first_and_its_host_begins_when_the_notice_is_over() -> None:
    c = campaign(policy(tenants=TenantTerms(notice_s=DAY)))
    facts = [host(0, tenant="a")]
    p = build_initial_rows(c, facts)
    told = ask(c, facts, p, 10.0)
    p |= apply_decision(told, p, 10.0)

    assert [(n.tenant, n.earliest_at) for n in told.notices] == [("a", 10.0 + DAY)]
    assert told.next_look_at == 10.0 + DAY
    assert ask(c, facts, p, 11.0).hold["h000"].until == 10.0 + DAY
    assert names(ask(c, facts, p, 10.0 + DAY)) == ["h000"]


def test_a_host_that_changed_hands_after_its_notice_needs_a_new_one() -> None:
    p = rows([host(0, tenant="a")])

    decision = ask(campaign(), [host(0, tenant="b")], p)

    assert decision.admit == ()
    assert [n.tenant for n in decision.notices] == ["b"]


def test_what_happens_when_a_deferral_is_used_up_is_the_policys() -> None:
    facts = [host(0, tenant="a")]
    used = rows(facts)["h000"].model_copy(
        update={"state": Progress.DEFERRED, "deferred_until": 1.0 + 14 * DAY}
    )

    def then(what: AtDeadline) -> Decision:
        c = campaign(policy(tenants=TenantTerms(at_deadline=what)))
        return ask(c, facts, {"h000": used}, 2.0 + 14 * DAY)

    early = ask(campaign(), facts, {"h000": used}, 5.0)
    assert early.hold["h000"].until == used.deferred_until
    assert [a.retire for a in then(AtDeadline.PROCEED).admit] == [False]
    assert [a.retire for a in then(AtDeadline.RETIRE).admit] == [True]
    assert list(then(AtDeadline.SKIP).skip) == ["h000"]


def test_a_deferred_canary_does_not_hold_up_others_but_one_must_have_come_through() -> None:
    c = campaign(policy(canary=Canary(size=2, soak_s=0)))
    p = build_initial_rows(c, HOSTS)
    one, two = (n for n, row in p.items() if row.wave == 0)
    p[one] = p[one].model_copy(update={"state": Progress.DEFERRED, "deferred_until": 999.0})
    alone = ask(c, HOSTS, p)
    p[two] = p[two].model_copy(update={"state": Progress.DONE})

    assert names(alone) == [two]
    assert len(ask(c, HOSTS, p).admit) == 14


def test_two_leaves_of_a_rail_never_go_down_together_nor_a_leaf_with_its_hosts() -> None:
    facts = [leaf(u, r) for u in range(2) for r in range(2)] + HOSTS
    p = build_initial_rows(campaign(), facts)
    first = ask(campaign(), facts, p)
    p |= apply_decision(first, p, 0.0)
    second = ask(campaign(), facts, p)

    assert [n.rails for n in facts if n.name in names(first)] == [(0,), (1,)]
    both = {*names(first), *names(second)}
    assert [h.name for h in HOSTS if h.name in both and both & set(h.leaves)] == []


def test_a_leaf_takes_its_tenants_hosts_with_it_and_they_count() -> None:
    facts = [leaf(0, 0), *(host(n, tenant="a", selected=False) for n in range(8))]
    p = {"leaf-0-0": NodeProgress(node="leaf-0-0", wave=1, told=("a",), notified_at=1.0)}
    tight = policy(limits={Domain.TENANT: Limit(count=7)})
    kept = tight.model_copy(update={"leaf_hosts": LeafHosts.KEEP})

    (taken,) = ask(campaign(), facts, p).admit
    assert len(taken.displaces) == 8
    refused = ask(campaign(tight), facts, p)
    assert refused.finished
    assert "tenant a allows 7" in refused.skip["leaf-0-0"]
    assert ask(campaign(kept), facts, p).admit[0].displaces == ()


def test_hosts_that_need_newer_leaves_come_in_a_later_layer() -> None:
    facts = [leaf(0, 0), host(0, after=("leaf-0-0",))]
    c = campaign(policy(canary=Canary(size=1, soak_s=0)))
    p = build_initial_rows(c, facts)
    p |= apply_decision(ask(c, facts, p), p, 0.0)
    waits = ask(c, facts, p).hold["h000"]
    p["leaf-0-0"] = p["leaf-0-0"].model_copy(update={"state": Progress.DONE})

    assert p["leaf-0-0"].wave < p["h000"].wave
    assert waits.unblock
    assert names(ask(c, facts, p)) == ["h000"]


def test_a_host_behind_a_leaf_that_failed_is_left_and_told() -> None:
    facts = [leaf(0, 0), host(0, after=("leaf-0-0",)), host(9)]
    p = rows(facts, **{"leaf-0-0": Progress.FAILED, "h009": Progress.DONE})
    c = campaign(judged_from=1.0)

    decision = ask(c, facts, p)

    assert decision.finished
    assert "leaf-0-0 must be upgraded first" in decision.skip["h000"]


def test_a_budget_a_cluster_of_failures_and_a_regression_each_stop_it() -> None:
    three = dict.fromkeys(("h000", "h001", "h002"), Progress.ADMITTED)
    p = rows(HOSTS, **three)
    for at, name in enumerate(three, start=1):
        p[name] = record_failure(p[name], FAULT, float(at))
    many = policy(failure_budget=Limit(count=2), breaker=Breaker(failures=9, same_reason=9))
    alike = policy(breaker=Breaker(same_reason=3, failures=9))
    worse = Blocker(reason=Reason.CHECK_FAILED, subject="busbw_gb_s", detail="5 %", unblock="-")

    assert "the budget is 2" in ask(campaign(many), HOSTS, p).stop[0].detail
    assert "in one way" in ask(campaign(alike), HOSTS, p).stop[0].detail
    assert decide(campaign(), HOSTS, rows(HOSTS), (worse,), 0.0).stop == (worse,)
    assert decide(campaign(accepted=("busbw_gb_s",)), HOSTS, rows(HOSTS), (worse,), 0.0).admit
    assert ask(campaign(many, judged_from=9.0), HOSTS, p).stop == ()


def test_a_campaign_that_does_not_run_admits_nobody_and_says_why() -> None:
    for state in set(CampaignState) - {CampaignState.STARTED, CampaignState.ROLLING_BACK}:
        decision = ask(campaign(state=state, reason="lunch"), HOSTS, rows(HOSTS))

        assert decision.admit == ()
        assert "lunch" in decision.hold["h000"].why


def test_one_way_steps_wait_for_a_persons_word() -> None:
    facts = [host(0, one_way=("hgx.erot 2",)), host(1)]
    confirmed = campaign(one_way_confirmed=("hgx.erot 2",))

    assert names(ask(campaign(), facts, rows(facts))) == ["h001"]
    assert names(ask(confirmed, facts, rows(facts))) == ["h000", "h001"]


def test_work_begins_only_if_it_ends_in_the_window_and_outside_of_freezes() -> None:
    night = Window(start_min=22 * 60, minutes=240, days=(0,))
    frozen = Freeze(begins_at=MONDAY + 23 * 3600, ends_at=MONDAY + 2 * DAY, reason="x")
    at_22 = MONDAY + 22 * 3600

    assert find_begin([(night,)], (), 60, MONDAY) == at_22
    assert find_begin([(night,)], (), 60, at_22 + 3 * 3600) == at_22 + 3 * 3600
    assert find_begin([(night,)], (), 61, at_22 + 3 * 3600) == at_22 + 7 * DAY
    assert find_begin([(night,)], (), 241, MONDAY) == NEVER
    assert find_begin([(night,)], (frozen,), 60, at_22) == at_22
    assert find_begin([(night,)], (frozen,), 61, at_22) == at_22 + 7 * DAY
    assert find_begin([(night,), (Window(start_min=0, minutes=60),)], (), 60, MONDAY) == (
        MONDAY + DAY
    )


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_window_in_a_zone_follows_its_summer_time() -> None:
    """Europe/Oslo went to UTC+2 on 29 March 2026 at 02:00 and back on 25 October 2026 at 03:00."""
    night = Window(start_min=22 * 60, minutes=360, zone="Europe/Oslo")
    winter = find_openings([night], at("2026-01-10T12:00Z"), at("2026-01-11T12:00Z"))
    summer = find_openings([night], at("2026-07-10T12:00Z"), at("2026-07-11T12:00Z"))
    spring = find_openings([night], at("2026-03-28T12:00Z"), at("2026-03-29T12:00Z"))
    autumn = find_openings([night], at("2026-10-24T12:00Z"), at("2026-10-25T12:00Z"))

    assert winter == [(at("2026-01-10T21:00Z"), at("2026-01-11T03:00Z"))]
    assert summer == [(at("2026-07-10T20:00Z"), at("2026-07-11T02:00Z"))]
    assert spring == [(at("2026-03-28T21:00Z"), at("2026-03-29T02:00Z"))]
    assert autumn == [(at("2026-10-24T20:00Z"), at("2026-10-25T03:00Z"))]


def test_a_window_in_the_hour_that_is_skipped_or_shown_twice_opens_once() -> None:
    hour = Window(start_min=2 * 60 + 30, minutes=60, zone="Europe/Oslo")

    skipped = find_openings([hour], at("2026-03-29T00:00Z"), at("2026-03-29T12:00Z"))
    repeated = find_openings([hour], at("2026-10-25T00:00Z"), at("2026-10-25T12:00Z"))

    assert skipped == []  # 02:30 is 03:30 after the jump, and so is the end
    assert repeated == [(at("2026-10-25T00:30Z"), at("2026-10-25T02:30Z"))]


def test_work_waits_for_a_window_of_a_zone_far_east() -> None:
    morning = Window(start_min=60, minutes=120, days=(0,), zone="Pacific/Kiritimati")  # UTC+14

    assert find_begin([(morning,)], (), 60, at("2026-06-06T00:00Z")) == at("2026-06-07T11:00Z")


def test_a_preview_tells_waves_cost_blast_radius_and_every_refusal() -> None:
    facts = [
        *(host(n, tenant="a" if n < 4 else "") for n in range(8)),
        host(8, in_service=False),
        host(9, blockers=(FAULT,)),
        host(10, steps=0),
        host(11, one_way=("hgx.erot 2",)),
        leaf(0, 0),
    ]
    c = campaign(
        policy(
            canary=Canary(size=2, soak_s=60),
            waves=(Wave(upto=Limit(percent=50)), Wave()),
            limits={Domain.TOTAL: Limit(count=5)},  # one is out already
        ),
        state=CampaignState.DRAFT,
    )

    seen = preview_campaign(c, facts, 1000.0)

    assert seen.unchanged == ("h010",)
    assert set(seen.refused) == {"h008", "h009"}
    assert seen.refused["h009"] == FAULT
    assert seen.one_way == {"hgx.erot 2": ("h011",)}
    assert seen.to_confirm == ("hgx.erot 2",)
    assert (seen.blast.hosts, seen.blast.switches, seen.blast.rails) == (9, 1, (0,))
    assert (seen.blast.gpus, seen.blast.tenants) == (72, ("a",))
    assert (seen.steps, seen.resets, seen.minutes) == (28, 10, 560)
    assert seen.at_once.hosts == 4
    assert sum(len(w.nodes) for w in seen.waves) == 10
    assert all(w.begins_s is not None for w in seen.waves)
    assert seen.lasts_s > 2 * 3600
    assert " is back last: it waits (" in seen.bound_by


def test_one_way_steps_are_previewed_as_if_they_were_confirmed_and_do_not_start_alone() -> None:
    """What a person agrees to is what the preview showed."""
    plain = [host(n, tenant="a") for n in range(4)]
    one_way = [host(n, tenant="a", one_way=("hgx.erot 2", "host.bios 3")) for n in range(4)]
    c = campaign(policy(), state=CampaignState.DRAFT)
    half = c.model_copy(update={"one_way_confirmed": ("host.bios 3",)})

    expected, seen = preview_campaign(c, plain, 1000.0), preview_campaign(c, one_way, 1000.0)

    listed = {"one_way": seen.one_way, "to_confirm": ("hgx.erot 2", "host.bios 3")}
    assert seen == expected.model_copy(update=listed)
    assert seen.blast.hosts == 4
    assert preview_campaign(half, one_way, 1000.0).to_confirm == ("hgx.erot 2",)
