"""Who is tested with whom for gate C, and what a session's verdicts mean, by tables."""

from __future__ import annotations

import pytest

from provisioner.control.fabric.fabric import policy_of
from provisioner.model.cohort import CheckResult, Gate, HealthReport, Verdict
from provisioner.model.fabric_session import (
    FabricMember,
    FabricOutcome,
    FabricRun,
    FabricSession,
    RailRun,
)
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location import fabric_rounds as tests_of
from provisioner.planning.fault_location import fabric_session as rules
from provisioner.planning.fault_location.fabric_verdicts import (
    find_blockers,
    list_partners,
    summarize_verdicts,
)
from provisioner.planning.fault_location.isolation_words import FabricTest, Round, Verdicts
from provisioner.settings import Settings

POLICY = rules.SessionPolicy(gather_s=600.0)
RAILS = 4
NOW = 10_000.0


def ports(leaves: str = "leaf") -> tuple[Port, ...]:
    return tuple(
        Port(switch=f"{leaves}{r}", interface="swp1", rail=r, nic_slot=f"NIC_{r}")
        for r in range(RAILS)
    )


def host(name: str, state: State = State.VALIDATING, **more: object) -> Node:
    node = Node(
        id=name,
        kind=NodeKind.HOST,
        state=state,
        entered_at=5_000.0,
        placement=Placement.MAINTENANCE,
        vrf="MAINT",
        release="r",
        profile="p",
        ports=ports(),
        certificate="c1" if state is State.CERTIFIED else "",
    )
    return node.model_copy(update=dict(more))


def report(name: str, ended_at: float = 9_000.0, **more: object) -> HealthReport:
    passed = CheckResult(check="gpus", gate=Gate.A, verdict=Verdict.PASS)
    found = HealthReport(
        node=name,
        inventory_digest=f"d-{name}",
        started_at=6_000.0,
        ended_at=ended_at,
        results=(passed,),
        fabric=True,
    )
    return found.model_copy(update=dict(more))


def seekers(count: int, ended_at: float = 9_000.0) -> list[rules.Seeker]:
    return [(host(f"n{i}"), report(f"n{i}", ended_at)) for i in range(count)]


def formed(found: list[rules.Seeker], others: list[Node], **more: object) -> list[list[str]]:
    """Names of each session that can begin; a lent node in brackets."""
    nodes = [n for n, _ in found] + others
    taken = more.get("taken", ())
    assert isinstance(taken, tuple)
    sessions = rules.form_sessions(found, nodes, taken, POLICY, NOW)
    return [[m.node if m.seeks else f"({m.node})" for m in members] for members in sessions]


CERTIFIED = [host(f"c{i}", State.CERTIFIED) for i in range(3)]


def test_nodes_that_wait_long_enough_are_tested_together() -> None:
    assert formed(seekers(4), [host("late", State.CONVERGING)]) == [["n0", "n1", "n2", "n3"]]


def test_a_node_that_is_on_the_way_is_waited_for_a_while() -> None:
    fresh = seekers(4, ended_at=NOW - 10)

    assert formed(fresh, [host("late", State.CONVERGING)]) == []
    assert formed(fresh, []) == [["n0", "n1", "n2", "n3"]]


def test_with_fewer_than_three_partners_nothing_begins() -> None:
    assert formed(seekers(3), []) == []
    assert rules.count_partners(host("n0"), [host("n0"), host("n1"), host("n2")]) == 2
    assert rules.describe_wait(2, 3) == "gate C waits for partners: 2 of at least 3 are there"


def test_idle_certified_nodes_are_lent() -> None:
    assert formed(seekers(1), CERTIFIED) == [["n0", "(c0)", "(c1)", "(c2)"]]


@pytest.mark.parametrize(
    "why_not",
    [
        {"tenant": "red"},
        {"placement": Placement.MIXED},
        {"placement": Placement.CUSTOMER, "vrf": "RED"},
        {"state": State.RELEASED},
        {"state": State.DRAINING},
        {"certificate": ""},
        {"release": "other"},
        {"profile": "other"},
        {"vrf": "MAINT2"},
    ],
)
def test_a_node_that_is_not_idle_or_not_alike_is_never_lent(why_not: dict[str, object]) -> None:
    others = [*CERTIFIED[:2], CERTIFIED[2].model_copy(update=why_not)]

    assert formed(seekers(1), others) == []


def test_nobody_is_in_two_sessions() -> None:
    assert formed(seekers(2), CERTIFIED, taken=("n0", "c0")) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"fabric": False}, False),
        ({"started_at": 4_000.0}, False),  # of an earlier stay
        (
            {"results": (CheckResult(check="x", gate=Gate.A, verdict=Verdict.SKIPPED),)},
            False,
        ),
        (
            {"results": (CheckResult(check="rdma_pair", gate=Gate.C, verdict=Verdict.PASS),)},
            False,
        ),
    ],
)
def test_a_node_waits_once_everything_before_gate_c_passed(
    changes: dict[str, object], expected: bool
) -> None:
    assert rules.needs_session(host("n0"), report("n0", **changes), None) is expected


def test_an_outcome_answers_only_for_the_same_parts_and_the_same_validation() -> None:
    outcome = FabricOutcome(
        node="n0", session="s", bound="d-n0", began_at=9_500.0, ended_at=NOW, partners=()
    )

    assert not rules.needs_session(host("n0"), report("n0"), outcome)
    for other in ({"bound": "d-other"}, {"began_at": 5_500.0}):
        assert rules.needs_session(host("n0"), report("n0"), outcome.model_copy(update=other))


def test_a_wait_ends() -> None:
    late = rules.find_overdue_wait(host("n0"), report("n0"), 2, POLICY, NOW + POLICY.wait_s)

    assert rules.find_overdue_wait(host("n0"), report("n0"), 2, POLICY, NOW) is None
    assert late is not None
    assert late.reason is Reason.TIME_LIMIT
    assert late.detail.startswith("no 3 partners in ")


def test_who_has_partners_waits_until_they_are_gathered() -> None:
    begun = report("n0").ended_at

    def after(waited_s: float) -> Blocker | None:
        return rules.find_overdue_wait(host("n0"), report("n0"), 117, POLICY, begun + waited_s)

    assert after(POLICY.wait_s + POLICY.gather_s) is None
    late = after(POLICY.wait_s + POLICY.gather_s + 1.0)
    assert late is not None
    assert late.detail == "no session in 6 hours, though 117 partners are there"


# --- a session's tests, answered by a table of what is broken


def session(nodes: int, units: int = 1) -> FabricSession:
    members = tuple(
        FabricMember(
            node=f"n{i:02d}",
            seeks=i != 1,
            bound="b",
            entered_at=0.0,
            ports=ports(f"su{i % units}-leaf"),
        )
        for i in range(nodes)
    )
    return FabricSession(
        id="s", vrf="MAINT", release="r", profile="p", opened_at=0.0, members=members
    )


def lived(begun: FabricSession, broken: set[tuple[str, int]]) -> tuple[FabricSession, Verdicts]:
    """To its verdicts; a cell in `broken` (node or leaf, rail) is slow with everybody."""
    for _ in range(60):
        step = tests_of.decide_next(begun, POLICY, {})
        if isinstance(step, Verdicts):
            return begun, step
        runs = tuple(_run(begun, test, step.number, broken) for test in step.tests)
        begun = begun.model_copy(update={"runs": (*begun.runs, *runs)})
    raise AssertionError("it does not end")


def _run(
    begun: FabricSession, test: FabricTest, number: int, broken: set[tuple[str, int]]
) -> FabricRun:
    leaves = {(m.node, p.rail): p.switch for m in begun.members for p in m.ports}
    results = []
    for rail in test.rails:
        slow = any({(n, rail), (n, -1), (leaves[n, rail], rail)} & broken for n in test.nodes)
        results.append(RailRun(rail=rail, shown="pass", gbit_s=500.0 if slow else 778.0))
    return tests_of.record_not_run(test, number).model_copy(update={"results": tuple(results)})


def judged(nodes: int, broken: set[tuple[str, int]]) -> dict[str, tuple[Reason, str]]:
    """Who has a blocker: its reason and the part it names."""
    ended, verdicts = lived(session(nodes), broken)
    found = find_blockers(ended, verdicts, tests_of.fabric_of(ended, {}))
    return {n: (b[0].reason, b[0].subject) for n, b in found.items() if b}


def test_nobody_is_blamed_in_a_sound_fabric() -> None:
    assert judged(8, set()) == {}


@pytest.mark.parametrize("nodes", [5, 6, 8])
def test_a_bad_link_is_named_and_all_others_pass(nodes: int) -> None:
    assert judged(nodes, {("n04", 2)}) == {"n04": (Reason.CABLING, "n04/rail2")}


def test_among_four_nodes_a_bad_link_is_proved_by_meeting_its_partners_again() -> None:
    assert judged(4, {("n02", 2)}) == {"n02": (Reason.CABLING, "n02/rail2")}


def test_among_three_nodes_a_bad_link_is_held_but_not_proved() -> None:
    assert judged(3, {("n02", 2)}) == {"n02": (Reason.CHECK_SKIPPED, "n02/gate C")}


@pytest.mark.parametrize("nodes", [4, 5, 8])
def test_a_bad_node_is_named_and_all_others_pass(nodes: int) -> None:
    assert judged(nodes, {("n03", -1)}) == {"n03": (Reason.CHECK_FAILED, "n03/fabric")}


def test_a_lent_node_is_accused_too_if_it_is_proved_guilty() -> None:
    assert judged(8, {("n01", -1)}) == {"n01": (Reason.CHECK_FAILED, "n01/fabric")}


def test_a_bad_leaf_is_named_to_everybody_on_it_but_not_held_against_a_lent_node() -> None:
    found = judged(8, {("su0-leaf3", 3)})

    assert set(found.values()) == {(Reason.FABRIC, "su0-leaf3")}
    assert set(found) == {"su0-leaf3", *(f"n{i:02d}" for i in range(8) if i != 1)}


def test_tests_with_who_left_tell_nothing() -> None:
    ended, _ = lived(session(8), {("n04", -1)})

    without = ended.model_copy(update={"gone": ("n04",)})

    assert all("n04" not in o.test.nodes for o in tests_of.list_observations(without))
    assert "n04" not in {n.name for n in tests_of.fabric_of(without, {}).nodes}


def test_a_member_that_is_not_what_it_was_has_left() -> None:
    begun = session(3)
    nodes = {m.node: host(m.node, entered_at=0.0, ports=m.ports) for m in begun.members if m.seeks}
    nodes["n01"] = host("n01", State.CERTIFIED, entered_at=0.0, certificate="b")
    reports = {n: report(n, inventory_digest="b") for n in nodes}

    assert rules.find_departed(begun, nodes, reports) == ()
    for name, change in (
        ("n00", {"state": State.CONVERGING, "entered_at": 1.0}),
        ("n00", {"placement": Placement.MIXED}),
        ("n01", {"tenant": "red"}),
        ("n01", {"certificate": "another"}),
    ):
        other = {**nodes, name: nodes[name].model_copy(update=change)}
        assert rules.find_departed(begun, other, reports) == (name,)
    assert rules.find_departed(begun, nodes, {**reports, "n02": report("n02")}) == ("n02",)


def test_racks_and_feeds_of_some_members_are_parts_that_may_be_at_fault() -> None:
    places = [("r0", "a"), ("r0", "a"), ("r1", "b"), ("r1", "a"), ("r2", "b")]
    begun = session(5)
    members = tuple(
        m.model_copy(update={"rack": rack, "pdus": (pdu, f"{rack}-pdu", "hall")})
        for m, (rack, pdu) in zip(begun.members, places, strict=True)
    )

    parts = tests_of.list_shared_parts(members)

    nodes = {p.name: sorted({node for node, _ in p.cells}) for p in parts}
    # r2 has one node, and the hall's PDU feeds all of them
    assert nodes == {
        "rack r0": ["n00", "n01"],
        "rack r1": ["n02", "n03"],
        "power feed a": ["n00", "n01", "n03"],
        "power feed b": ["n02", "n04"],
    }


def test_a_bad_power_feed_is_named_to_the_members_that_depend_on_it() -> None:
    begun = session(16)
    members = tuple(
        m.model_copy(update={"pdus": (f"pdu-{n % 4}", f"pdu-{4 + n // 4}")})
        for n, m in enumerate(begun.members)
    )
    fed = {m.node for m in members if "pdu-3" in m.pdus}

    ended, verdicts = lived(begun.model_copy(update={"members": members}), {(n, -1) for n in fed})

    blockers = find_blockers(ended, verdicts, tests_of.fabric_of(ended, {}))
    found = {n: b[0].subject for n, b in blockers.items() if b}
    assert found == dict.fromkeys(fed, "power feed pdu-3")


def test_a_session_looks_for_the_rate_of_the_settings_and_its_note_repeats_it() -> None:
    _, verdicts = lived(session(8), set())

    assert policy_of(Settings(fabric_rate_min=0.3)).isolation.screening_rounds == 9
    assert policy_of(Settings()).isolation == POLICY.isolation
    assert summarize_verdicts(verdicts) == (
        f"{verdicts.rounds} rounds, {verdicts.node_minutes:.0f} node-minutes; 32 links cleared; "
        "one that fails less than 100% of its tests may be among them"
    )


def test_who_could_not_be_tested_at_all_is_said_so() -> None:
    begun = session(6)
    for _ in range(60):
        step = tests_of.decide_next(begun, POLICY, {})
        if not isinstance(step, Round):
            break
        runs = tuple(
            tests_of.record_not_run(t, step.number)
            if "n05" in t.nodes
            else _run(begun, t, step.number, set())
            for t in step.tests
        )
        begun = begun.model_copy(update={"runs": (*begun.runs, *runs)})
    assert isinstance(step, Verdicts)
    found = find_blockers(begun, step, tests_of.fabric_of(begun, {}))

    assert [(b.reason, b.subject) for b in found["n05"]] == [(Reason.UNREACHABLE, "n05/gate C")]
    assert all(not found[f"n{i:02d}"] for i in range(5))
    assert list_partners(begun, "n05") == ()
