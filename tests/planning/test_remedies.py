"""The ladder is bounded and rate-limited; parts, offenders and reports say what happened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.case import (
    Case,
    Ending,
    Origin,
    PartClass,
    RemedyKind,
    RemedyOutcome,
    RemedyTry,
    Service,
    Stage,
    StageTime,
    Suspect,
)
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Location, Port
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.planning.certification import regression as parts
from provisioner.planning.erasure.erasure import policy_of as erasure_policy
from provisioner.planning.erasure.erasure import require_erasure
from provisioner.planning.repair import case_joining as offenders
from provisioner.planning.repair import remedies, repair_report
from provisioner.planning.repair.case_joining import Advice, OffenderPolicy
from provisioner.planning.repair.remedies import Later, Limits, People, Try
from provisioner.settings import Settings

NOW = 1_000_000.0
HOUR_S, DAY_S = 3600.0, 86400.0
GPU = Suspect(part="GPU_SXM_1", kind=PartClass.GPU, confidence=0.8, rule="r", why="w")


def case(**more: object) -> Case:
    fields = {"id": "n-c0001", "node": "n", "origin": Origin.CHECK, "reason": "broken",
              "service": Service.CUT_OFF, "suspects": (GPU,), "opened_at": NOW, **more}  # fmt: skip
    return Case.model_validate(fields)


def done(
    remedy: RemedyKind, at: float = NOW, outcome: RemedyOutcome = RemedyOutcome.SAME
) -> RemedyTry:
    return RemedyTry(remedy=remedy, part=GPU.part, kind=GPU.kind, attempt=1, started_at=at,
                     done_at=at, measured_at=at, outcome=outcome)  # fmt: skip


def climbed(tries: tuple[RemedyTry, ...], now: float, resets: int = 4) -> remedies.Choice:
    return remedies.choose_remedy(case(tries=tries), None, (), Limits(resets_per_day=resets), now)


def test_the_ladder_is_climbed_to_people_and_ends() -> None:
    tries: tuple[RemedyTry, ...] = ()
    seen = []
    for _ in range(20):
        choice = climbed(tries, NOW, resets=50)
        if isinstance(choice, People) and choice.rung is None:
            break
        assert not isinstance(choice, Later)
        assert choice.rung is not None
        seen.append(choice.rung.remedy.value)
        tries = (*tries, done(choice.rung.remedy))

    assert seen == ["rerun", "gpu_reset", "gpu_reset", "cold_boot", "reflash", "ac_cycle",
                    "replace", "replace"]  # fmt: skip


def test_what_could_not_be_done_is_not_tried_again() -> None:
    tries = (done(RemedyKind.RERUN), done(RemedyKind.GPU_RESET, outcome=RemedyOutcome.NOT_DONE))

    choice = climbed(tries, NOW)

    assert isinstance(choice, Try)
    assert choice.rung.remedy is RemedyKind.COLD_BOOT


def test_an_earlier_case_counts_within_the_window_and_not_after_it() -> None:
    past = [done(RemedyKind.RERUN, at=NOW - DAY_S)]
    soon = remedies.choose_remedy(case(), None, past, Limits(), NOW)
    later = remedies.choose_remedy(case(), None, past, Limits(), NOW + 8 * DAY_S)

    assert isinstance(soon, Try)
    assert isinstance(later, Try)
    assert (soon.rung.remedy, later.rung.remedy) == (RemedyKind.GPU_RESET, RemedyKind.RERUN)


def test_a_node_is_left_alone_after_too_many_resets_of_a_day() -> None:
    other = [
        done(RemedyKind.COLD_BOOT, at=NOW - n * HOUR_S).model_copy(update={"part": f"P{n}"})
        for n in range(4)
    ]

    choice = remedies.choose_remedy(case(), RemedyKind.COLD_BOOT, other, Limits(), NOW)

    assert isinstance(choice, Later)
    assert choice.at == pytest.approx(NOW - 3 * HOUR_S + DAY_S)


def test_nobody_is_sent_to_replace_what_is_hardly_suspected() -> None:
    doubt = GPU.model_copy(update={"confidence": 0.2})

    choice = remedies.choose_remedy(case(suspects=(doubt,)), RemedyKind.REPLACE, (), Limits(), NOW)

    assert isinstance(choice, People)
    assert choice.work.startswith("Diagnose GPU_SXM_1 before anything is replaced")


TRIES = st.lists(
    st.builds(
        done,
        st.sampled_from(list(RemedyKind)),
        at=st.floats(NOW - 30 * DAY_S, NOW),
        outcome=st.sampled_from(
            [RemedyOutcome.SAME, RemedyOutcome.LESS, RemedyOutcome.WORSE, RemedyOutcome.NOT_DONE]
        ),
    ),
    max_size=20,
)


def test_nobody_is_sent_to_a_part_called_host() -> None:
    nowhere = Suspect(part="host", kind=PartClass.GPU, confidence=0.7, rule="gpu missing", why="x")
    rungs = set(RemedyKind) - {RemedyKind.REPLACE}
    tries = tuple(done(r).model_copy(update={"part": "host"}) for r in sorted(rungs)) * 2
    choice = remedies.choose_remedy(case(suspects=(nowhere,), tries=tries), None, (), Limits(), NOW)

    assert isinstance(choice, People)
    assert choice.work.startswith("Replace GPU (which one: diagnose first)")


@given(TRIES, st.sampled_from(list(PartClass)), st.sampled_from([None, *RemedyKind]))
def test_no_history_makes_a_rung_exceed_its_bound(tries, kind, start) -> None:
    mine = [t.model_copy(update={"kind": kind}) for t in tries]
    suspect = GPU.model_copy(update={"kind": kind})

    choice = remedies.choose_remedy(case(suspects=(suspect,)), start, mine, Limits(), NOW)

    if isinstance(choice, Try | People) and choice.rung is not None:
        since = NOW - choice.rung.window_h * HOUR_S
        used = [t for t in mine if t.remedy is choice.rung.remedy and t.started_at >= since]
        assert len(used) < choice.rung.tries_max
    if isinstance(choice, Try) and choice.rung.remedy in remedies.RESETS:
        day = [t for t in mine if t.remedy in remedies.RESETS and NOW - t.started_at < DAY_S]
        assert len(day) < Limits().resets_per_day


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (("a", "b"), ("a", "b"), RemedyOutcome.SAME),
        (("a", "b"), ("a",), RemedyOutcome.LESS),
        (("a",), ("a", "b"), RemedyOutcome.WORSE),
        (("a",), ("b",), RemedyOutcome.LESS),
        ((), ("b",), RemedyOutcome.WORSE),
    ],
)
def test_the_effect_of_a_remedy_is_measured(before, after, outcome) -> None:
    tried = done(RemedyKind.RERUN).model_copy(
        update={"before": before, "outcome": RemedyOutcome.UNDER_WAY}
    )

    assert remedies.measure_try(tried, after, NOW, well=False).outcome is outcome
    assert remedies.measure_try(tried, (), NOW, well=True).outcome is RemedyOutcome.CURED


def device(slot: str, serial: str | None, part: str = "692") -> Device:
    return Device(kind=DeviceKind.GPU, slot=slot, serial=serial, part=part)


def test_the_difference_in_parts_says_what_was_asked_for_and_what_was_not() -> None:
    was = Inventory(node="n", vendor="v", system_serial="S1", devices=(
        device("A", "1"), device("B", "2"), device("C", "3"), device("D", None)))  # fmt: skip
    now = Inventory(node="n", vendor="v", system_serial="S1", devices=(
        device("A", "9"), device("B", "3"), device("C", "2"), device("D", None)))  # fmt: skip
    asked = done(RemedyKind.REPLACE).model_copy(update={"part": "A"})
    opened = case(parts_before=parts.list_parts(was), system_before="S1", tries=(asked,))

    found = parts.compare_parts(opened, now)

    assert [(c.slot, c.before, c.after, c.moved_from) for c in found.changes] == [
        ("A", "1", "9", ""), ("B", "2", "3", "C"), ("C", "3", "2", "B")]  # fmt: skip
    assert found.unexpected == ("gpu/B", "gpu/C")
    assert (found.missing, found.wrong, found.unknown) == ((), (), ("gpu/D",))
    assert not found.system_changed


def test_a_part_of_another_make_is_wrong_and_one_that_stayed_is_missing() -> None:
    was = Inventory(node="n", vendor="v", devices=(device("A", "1"), device("B", "2")))
    asked = done(RemedyKind.REPLACE).model_copy(update={"part": "A"})
    opened = case(parts_before=parts.list_parts(was), tries=(asked,))

    other = parts.compare_parts(opened, Inventory(node="n", vendor="v", devices=(
        device("A", "9", "900"), device("B", "2"))))  # fmt: skip
    same = parts.compare_parts(opened, was)

    assert other.wrong == ("gpu/A: 900 instead of 692",)
    assert same.missing == ("A",)


def test_another_host_keeps_name_place_and_cables_and_nothing_else() -> None:
    port = Port(switch="leaf", interface="swp1", rail=0, nic_slot="NIC_0")
    bmc = BmcRef(name="host", url="https://x", pin="aa", serial="S1", rotated=True)
    node = Node(id="n", kind=NodeKind.HOST, generation=7, state=State.REPAIRING, ports=(port,),
                placement=Placement.MAINTENANCE, vrf="MAINT", release="r", profile="p",
                tenant="blue", served="blue", certificate="c", erasure="e", os_disk="d",
                attempts=3, location=Location(rack="k"), bmcs=(bmc,))  # fmt: skip

    made = parts.replace_host(node, NOW)

    kept = {"id", "kind", "generation", "placement", "vrf", "release", "location", "ports"}
    fresh = Node(id="n", kind=NodeKind.HOST)
    changed = {f for f in Node.model_fields if getattr(made.node, f) != getattr(fresh, f)}
    assert changed - kept == {"served", "bmcs", "entered_at", "note"}
    assert (made.node.bmcs[0].pin, made.node.bmcs[0].rotated) == ("", False)
    assert made.forget == ("n/host",)
    assert require_erasure(made.node, erasure_policy(Settings(erase_same_tenant_may_skip=True)))


def test_the_third_case_of_a_node_asks_for_every_test_and_then_for_its_end() -> None:
    policy = OffenderPolicy()
    cases = [case(id=f"n-c{n}", opened_at=NOW - n * DAY_S) for n in range(4)]

    one, two, four = (offenders.compute_score("n", cases[:n], NOW, policy) for n in (1, 2, 4))

    assert (one.advice, two.advice, four.advice) == (Advice.NOTHING, Advice.DEEPER, Advice.RETIRE)
    assert four.again == ("GPU_SXM_1",)


def test_old_cases_a_leaf_and_another_host_say_little_against_a_node() -> None:
    policy = OffenderPolicy()
    leaf = GPU.model_copy(update={"kind": PartClass.LEAF, "part": "leaf"})
    cases = [
        case(id="a", opened_at=NOW - 365 * DAY_S),
        case(id="b", suspects=(leaf,)),
        case(id="c", ending=Ending.REPLACED, suspects=()),
    ]

    assert offenders.compute_score("n", cases, NOW, policy).score < 0.1


def test_the_report_tells_times_by_stage_part_and_vendor_and_what_a_tenant_had() -> None:
    stages = (StageTime(stage=Stage.OPENED, at=NOW), StageTime(stage=Stage.HARDWARE, at=NOW + 100),
              StageTime(stage=Stage.RETURNING, at=NOW + 400),
              StageTime(stage=Stage.CLOSED, at=NOW + 500))  # fmt: skip
    closed = case(stages=stages, stage=Stage.CLOSED, closed_at=NOW + 500, vendor="dell",
                  ending=Ending.REPAIRED, tries=(done(RemedyKind.REPLACE),))  # fmt: skip
    rows = [
        {"kind": "released", "node": "n", "at": NOW, "detail": {"tenant": "blue"}},
        {"kind": "request", "node": "n", "at": NOW + 600, "detail": {"request": "repair"}},
        {"kind": "released", "node": "n", "at": NOW + 700, "detail": {"tenant": "blue"}},
        {"kind": "request", "node": "n", "at": NOW + 800, "detail": {"request": "reclaim"}},
    ]

    found = repair_report.make_report([closed], rows, NOW, NOW + 1000)

    assert found.total is not None
    assert found.total.mean_s == 500
    assert {f.name: f.mean_s for f in found.by_stage} == {
        "opened": 100, "hardware": 300, "returning": 100}  # fmt: skip
    assert [(f.name, f.cases) for f in (*found.by_part, *found.by_vendor)] == [
        ("gpu", 1), ("dell", 1)]  # fmt: skip
    assert [(t.tenant, t.owed_s, t.served_s) for t in found.tenants] == [("blue", 800, 700)]
    assert found.tenants[0].availability == pytest.approx(0.875)


def test_a_work_for_people_names_the_part_and_its_serial_inside_its_sentence() -> None:
    rungs = [
        rung for order in remedies.load_escalation_orders().values() for rung in order if rung.work
    ]
    for rung in rungs:
        for serial in ("", "1654917421304"):
            part = GPU.model_copy(update={"serial": serial, "kind": rung.kind})
            work = remedies._people(rung, part, 1, Limits()).work
            assert work.endswith("."), work
            assert "{" not in work, work
            assert work.count(serial) == 1 or not serial, work
            assert not [wrong for wrong in (". (", "..", ",,") if wrong in work], work
    assert len(rungs) > 10
