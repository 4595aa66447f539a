"""Admission keeps its promises in any fleet, under any policy, interleaving and failure."""

from __future__ import annotations

from itertools import combinations

from campaign_strategies import fleets, policies
from campaign_worlds import counts, keys, most_of, out_of
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from provisioner.model.campaign import (
    SETTLED,
    Campaign,
    CampaignNode,
    CampaignState,
    LeafHosts,
    Limit,
    NodeProgress,
    Policy,
    Progress,
)
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.campaign_moves import (
    apply_decision,
    build_initial_rows,
    defer_node,
    record_failure,
    start_soak,
)
from provisioner.planning.campaigns.limits import count_allowed
from provisioner.planning.campaigns.rollout import decide

SLOW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
FAULT = Blocker(reason=Reason.UPDATE_FAILED, subject="hgx.bmc", detail="x", unblock="y")


def _started(rules: Policy) -> Campaign:
    return Campaign(id="c", release="new", select="all", policy=rules, state=CampaignState.STARTED)


def _ripe(nodes: list[CampaignNode], running: Campaign) -> dict[str, NodeProgress]:
    """Everybody was told, long ago."""
    told = ("a", "b")
    return {
        n: p.model_copy(update={"told": told, "notified_at": 1.0, "state": Progress.NOTIFIED})
        for n, p in build_initial_rows(running, nodes).items()
    }


@SLOW
@given(fleets(), policies(), st.data())
def test_limits_hold_under_any_interleaving_and_any_failure(
    facts: list[CampaignNode], rules: Policy, data: st.DataObject
):
    running, now = _started(rules), 1000.0
    rows = build_initial_rows(running, facts)
    for _ in range(data.draw(st.integers(1, 12))):
        before = counts(facts, rows, rules)
        decision = decide(running, facts, rows, (), now)
        rows = rows | apply_decision(decision, rows, now)

        worse = {k: v for k, v in counts(facts, rows, rules).items() if v[0] > before[k][0]}
        assert {k: v for k, v in worse.items() if v[0] > v[1]} == {}
        under = {n for n, p in rows.items() if p.state is Progress.ADMITTED}
        assert [n.name for n in facts if n.name in under and under & set(n.leaves)] == []
        if rules.budget_strict and decision.admit:
            lost = sum(p.state is Progress.FAILED for p in rows.values())
            assert lost + len(under) <= most_of(rules.failure_budget, len(rows))
        facts, rows = _something_happens(facts, rows, rules, now, data)
        now += data.draw(st.sampled_from([1, 50, 700]))


def _something_happens(
    facts: list[CampaignNode],
    rows: dict[str, NodeProgress],
    rules: Policy,
    now: float,
    data: st.DataObject,
) -> tuple[list[CampaignNode], dict[str, NodeProgress]]:
    """Some of what is under way ends or fails, some nodes die or come back, somebody defers."""
    rows = dict(rows)
    lost: set[str] = set()
    for name, row in sorted(rows.items()):
        if row.state is Progress.ADMITTED:
            end = data.draw(st.sampled_from(["ends", "fails", "goes on"]))
            if end == "ends":
                rows[name] = start_soak(row, now)
            elif end == "fails":
                rows[name] = record_failure(row, FAULT, now)
                lost.add(name)
        elif row.state is Progress.NOTIFIED and data.draw(st.integers(0, 9)) == 0:
            later = defer_node(row, now + 300, rules.tenants.deferral_max_s, now)
            assert isinstance(later, NodeProgress)
            rows[name] = later
    struck = data.draw(st.sets(st.sampled_from([n.name for n in facts]), max_size=2))
    changed = [
        n.model_copy(update={"in_service": (n.name in struck) != n.in_service})
        if n.name in struck
        else n.model_copy(update={"in_service": n.in_service and n.name not in lost})
        for n in facts
    ]
    return changed, rows


@SLOW
@given(fleets(nested=True) | fleets(nested=True, switches=False), policies(open_=True), st.data())
def test_more_capacity_never_admits_less(
    facts: list[CampaignNode], rules: Policy, data: st.DataObject
):
    running = _started(rules)
    rows = _ripe(facts, running)
    wider = _started(data.draw(_wider(rules)))

    less = decide(running, facts, rows, (), 1000.0)
    more = decide(wider, facts, rows, (), 1000.0)

    event(f"{len(less.admit)} admitted, then {len(more.admit)}")
    assert len(more.admit) >= len(less.admit)


@st.composite
def _wider(draw: st.DrawFn, rules: Policy) -> Policy:
    """The same policy, and some limits larger or gone."""

    def widen(given: dict) -> dict:  # type: ignore[type-arg]
        found = {}
        for domain, limit in given.items():
            what = draw(st.sampled_from(["same", "more", "gone"]))
            if what == "same":
                found[domain] = limit
            elif what == "more" and limit.count is not None:
                found[domain] = Limit(count=limit.count + draw(st.integers(1, 3)))
            elif what == "more":
                found[domain] = Limit(percent=min(100, limit.percent + 25))
        return found

    free = rules.free_kept
    if free.count:
        free = Limit(count=draw(st.integers(0, free.count)))
    return rules.model_copy(
        update={
            "limits": widen(dict(rules.limits)),
            "switch_limits": widen(dict(rules.switch_limits))
            | {d: n for d, n in rules.switch_limits.items() if d in ("rail", "plane")},
            "free_kept": free,
        }
    )


@SLOW
@given(fleets(), policies(), st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_what_is_told(facts, rules, chance):
    running = _started(rules)
    rows = build_initial_rows(running, facts)
    mixed = list(facts)
    chance.shuffle(mixed)
    other = list(rows.items())
    chance.shuffle(other)

    assert build_initial_rows(running, mixed) == rows
    assert decide(running, mixed, dict(other), (), 9.0) == decide(running, facts, rows, (), 9.0)


@SLOW
@given(fleets(nested=True), policies(open_=True))
def test_if_any_node_may_begin_at_least_one_does(nodes: list[CampaignNode], rules: Policy):
    running = _started(rules)
    rows = _ripe(nodes, running)
    first = min((p.wave for p in rows.values()), default=0)
    open_ = {n for n, p in rows.items() if p.wave == first}

    decision = decide(running, nodes, rows, (), 1000.0)

    may = [
        n.name
        for n in nodes
        if n.name in open_ and n.in_service and _fits(nodes, rows, rules, [n.name])
    ]
    event("some may" if may else "none may")
    assert decision.admit or not may


@SLOW
@given(fleets(nested=True, switches=False), policies(open_=True))
def test_as_many_hosts_are_admitted_as_any_choice_could(nodes: list[CampaignNode], rules: Policy):
    nodes = nodes[:9]
    running = _started(rules)
    rows = _ripe(nodes, running)
    ready = [n.name for n in nodes if n.selected and n.in_service]

    decision = decide(running, nodes, rows, (), 1000.0)

    most = next(
        size
        for size in range(len(ready), -1, -1)
        if any(_fits(nodes, rows, rules, chosen) for chosen in combinations(ready, size))
    )
    assert len(decision.admit) == most
    idle = [n.name for n in nodes if n.name in ready and n.idle]
    first = next(
        size
        for size in range(len(idle), -1, -1)
        if any(_fits(nodes, rows, rules, chosen) for chosen in combinations(idle, size))
    )
    assert sum(a.node in idle for a in decision.admit) == first


def _fits(nodes: list[CampaignNode], rows: dict[str, NodeProgress], rules: Policy, names) -> bool:
    """Whether these may go out of service together, counted one by one."""
    before = counts(nodes, rows, rules)
    state = {n: rows[n].model_copy(update={"state": Progress.ADMITTED}) for n in names}
    tried = counts(nodes, rows | state, rules)
    return all(v[0] <= v[1] or v[0] == before[k][0] for k, v in tried.items())


@given(st.integers(0, 5000), st.sampled_from([0, 0.1, 1, 2.5, 10, 33.3, 50, 99.9, 100]))
def test_a_share_is_rounded_down_and_is_at_least_one(members: int, percent: float):
    limit = Limit(percent=percent)

    assert count_allowed(limit, members) == most_of(limit, members)


@SLOW
@given(fleets(nested=True), policies())
def test_a_campaign_in_which_nothing_fails_comes_to_an_end(
    facts: list[CampaignNode], rules: Policy
):
    running, now = _started(rules), 1000.0
    rows = build_initial_rows(running, facts)
    for _ in range(400):
        decision = decide(running, facts, rows, (), now)
        rows = rows | apply_decision(decision, rows, now)
        if decision.stop or decision.finished:
            break
        ends = [n for n, p in rows.items() if p.state is Progress.ADMITTED]
        if not decision.admit and not ends and not decision.next_look_at:
            break
        for name in ends:
            rows[name] = start_soak(rows[name], now)
        now = max(now, decision.next_look_at if not ends else now)

    waiting = [p for p in rows.values() if p.state not in SETTLED]
    event("ended" if not waiting else "held for ever")
    closed = {k for k, (_, may) in counts(facts, rows, rules).items() if may == 0}
    by_name = {n.name: n for n in facts}
    drained = rules.leaf_hosts is LeafHosts.DRAIN
    assert (
        waiting == []
        or decision.stop
        or any(
            closed & set(keys(by_name[p.node]))
            or not _fits(facts, rows, rules, [p.node])
            or (drained and by_name[p.node].kind is NodeKind.SWITCH)
            for p in waiting
        )
    )
    assert out_of(facts, rows, rules)[0] == {n.name for n in facts if not n.in_service}
