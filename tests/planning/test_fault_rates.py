"""Rates of faults: what they accuse, what they do not, and what they cannot tell apart."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from math import log

import pytest

from provisioner.model.campaign import Campaign, CampaignNode, CampaignRow, NodeProgress
from provisioner.planning.certification.certification import DAY_S
from provisioner.planning.certification.fault_rates import (
    ALPHA_HOLD,
    FAULT_RATE,
    MARKS_MAX,
    RATIOS,
    FaultEvidence,
    FaultSuspect,
    Interval,
    Stay,
    find_bar,
    find_brought,
    find_suspects,
    judge_fault_rate,
    weigh_campaign,
    weigh_faults,
)

SETS: Mapping[str, Mapping[str, str]] = {
    "old": {"driver": "570", "vbios": "A", "doca": "2.9"},
    "new": {"driver": "580", "vbios": "A", "doca": "2.9"},
    "both": {"driver": "580", "vbios": "B", "doca": "2.9"},
}


def live(
    versions: Mapping[str, str], rates: Mapping[str, float], days: float, seed: int
) -> Iterator[Stay]:
    """Yield the stays of nodes that fail at a rate per day and are repaired within one."""
    rng = random.Random(seed)
    for node, digest in versions.items():
        at = 0.0
        while at < days * DAY_S:
            end = at + rng.expovariate(rates[digest]) * DAY_S
            last = min(end, days * DAY_S)
            yield Stay(node, at, last, end <= days * DAY_S, digest)
            at = last + DAY_S


def fleet(*digests: str) -> dict[str, str]:
    return {f"n{i}": digests[i % len(digests)] for i in range(240)}


def test_a_driver_that_doubles_the_faults_is_accused_and_nothing_else() -> None:
    stays = list(live(fleet("old", "new"), {"old": 0.02, "new": 0.04}, 60, seed=1))

    found = find_suspects(stays, SETS, {f"n{i}": [f"rack=r{i % 8}"] for i in range(240)})

    first = found[0]
    assert first.what == ("driver=580",)
    assert first.evidence.ratio is not None
    assert first.evidence.low is not None
    assert first.evidence.high is not None
    assert first.evidence.low < 2.0 < first.evidence.high
    assert [s.what for s in found if s.accused] == [("driver=580",)]


def test_two_versions_that_always_come_together_are_named_together_with_what_would_tell() -> None:
    stays = list(live(fleet("old", "both"), {"old": 0.02, "both": 0.05}, 60, seed=2))

    accused = [s for s in find_suspects(stays, SETS, {}) if s.accused]

    assert [s.what for s in accused] == [("driver=580", "vbios=B")]
    assert accused[0].decided_by == ("driver=580", "vbios=A")


def test_a_third_set_tells_them_apart() -> None:
    rates = {"old": 0.02, "new": 0.02, "both": 0.05}
    stays = list(live(fleet("old", "new", "both"), rates, 90, seed=3))

    accused = [s.what for s in find_suspects(stays, SETS, {}) if s.accused]

    assert accused == [("vbios=B",)]


def test_a_bad_rack_is_accused_and_not_the_version() -> None:
    racks = {f"n{i}": [f"rack=r{i // 30}"] for i in range(240)}

    assert accuse("rack=r3", racks) == [("rack=r3",)]


def accuse(guilty: str, marks: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    return [s.what for s in find_all(guilty, marks) if s.accused]


def find_all(guilty: str, marks: Mapping[str, Collection[str]]) -> tuple[FaultSuspect, ...]:
    """Return the suspects where nodes with this mark fail three times as often."""
    quick = {n: "new" for n, has in marks.items() if guilty in has}
    stays = [
        *live({n: "new" for n in marks if n not in quick}, {"new": 0.02}, 60, seed=4),
        *live(quick, {"new": 0.06}, 60, seed=5),
    ]
    return find_suspects(stays, SETS, marks)


@pytest.mark.parametrize("guilty", ["pdu=p2", "model=SSD 7", "tag=cdu-1", "leaf=leaf-2"])
def test_a_bad_feed_or_lot_that_crosses_racks_is_accused_and_no_rack(guilty: str) -> None:
    """What else stands at the same nodes, as coolant or age, is a tag that people give them."""
    marks = {
        f"n{i}": [f"rack=r{i // 30}", *([guilty] if i % 5 == 2 else [f"{guilty} of others"])]
        for i in range(240)
    }

    [accused] = accuse(guilty, marks)

    assert accused == (guilty,)


def test_a_feed_and_a_rack_of_the_same_nodes_are_named_together() -> None:
    marks = {f"n{i}": [f"rack=r{i // 30}", f"pdu=p{i // 30}"] for i in range(240)}

    assert accuse("pdu=p3", marks) == [("pdu=p3", "rack=r3")]


def test_of_many_racks_the_worst_are_weighed_and_the_others_count_against_each_accusation() -> None:
    """Time grows with the nodes alone; what is not weighed accuses nobody and excuses nobody."""
    marks = {f"n{i}": [f"rack=r{i % 300}"] for i in range(600)}
    marks |= {f"m{i}": ["rack=bad"] for i in range(30)}

    found = find_all("rack=bad", marks)

    assert [s.what for s in found if s.accused] == [("rack=bad",)]
    assert len(found) == MARKS_MAX
    assert find_bar([9.0, 1.0, 0.0], left_out=100) == 9.0
    assert find_bar([7.0, 1.0, 0.0]) == 7.0
    assert find_bar([7.0, 1.0, 0.0], left_out=100) == float("inf")


def test_a_heat_wave_that_hits_all_accuses_nothing() -> None:
    """The rate triples for everybody while the new version is rolled out."""
    stays: list[Stay] = []
    for stay in live(fleet("old"), {"old": 0.02}, 30, seed=6):
        stays.append(stay)
    for stay in live(fleet("new", "old"), {"old": 0.06, "new": 0.06}, 30, seed=7):
        later = 30 * DAY_S
        stays.append(stay._replace(begins_at=stay.begins_at + later, ends_at=stay.ends_at + later))

    assert not [s for s in find_suspects(stays, SETS, {}) if s.accused]


@pytest.mark.parametrize(
    "intervals",
    [
        [],
        [Interval(0.0, 1.0, failed=False, suspect=True)],
        [Interval(0.0, 1.0, failed=True, suspect=True)],
        [Interval(0.0, 1.0, failed=True, suspect=True), Interval(2.0, 3.0, True, False)],
        [Interval(0.0, 2.0, True, True, "a"), Interval(0.0, 2.0, True, False, "b")],
        [Interval(1.0, 1.0, True, True), Interval(1.0, 1.0, True, False)],
    ],
)
def test_where_nothing_can_be_compared_nothing_is_known(intervals: list[Interval]) -> None:
    told = weigh_faults(intervals)

    assert (told.ratio, told.log_e) == (None, 0.0)


def test_evidence_does_not_depend_on_the_order_and_a_fault_compares_with_itself_at_risk() -> None:
    stays = list(live(fleet("old", "new"), {"old": 0.02, "new": 0.05}, 20, seed=8))
    random.Random(1).shuffle(stays)
    intervals = [Interval(s.begins_at, s.ends_at, s.failed, s.versions == "new") for s in stays]

    assert weigh_faults(intervals) == weigh_faults(sorted(intervals))
    pair = [Interval(0.0, 1.0, True, True), Interval(0.0, 2.0, False, False)]
    ratio = weigh_faults(pair).ratio
    assert ratio is not None
    assert ratio > 1e4  # one fault, and it hit the suspect


def test_the_evidence_is_coxs_partial_likelihood_counted_by_hand() -> None:
    """Also where nodes begin, end and fail at one moment."""
    rng = random.Random(9)
    judged = 0
    for _ in range(200):
        spells = []
        for _ in range(rng.randint(2, 30)):
            begins_at = float(rng.randint(0, 9))
            ends_at = begins_at + rng.randint(0, 5)
            failed, suspect = rng.random() < 0.4, rng.random() < 0.5
            spells.append(Interval(begins_at, ends_at, failed, suspect, rng.choice("ab")))
        likely = [1.0] * len(RATIOS)
        for fault in (s for s in spells if s.failed and s.ends_at > s.begins_at):
            at = fault.ends_at
            risk = [s for s in spells if s.begins_at < at <= s.ends_at]
            alike = [s for s in risk if s.stratum == fault.stratum]
            having = sum(s.suspect for s in alike)
            if 0 < having < len(alike):
                judged += 1
                for place, (ratio, _) in enumerate(RATIOS):
                    even = (ratio if fault.suspect else 1.0) * len(alike)
                    likely[place] *= even / (having * ratio + len(alike) - having)
        by_hand = sum(weight * each for (_, weight), each in zip(RATIOS, likely, strict=True))
        assert weigh_faults(spells).log_e == pytest.approx(log(by_hand), abs=1e-9)
    assert judged > 300


def test_the_bar_is_that_of_e_bh() -> None:
    assert find_bar([]) == float("inf")
    assert find_bar([log(39.0), 0.0]) == float("inf")  # two suspects: 2 / 0.05 = 40
    assert find_bar([log(41.0), 0.0]) == pytest.approx(log(41.0))
    assert find_bar([log(21.0), log(21.0)]) == pytest.approx(log(21.0))


def _row(node: str, finished_at: float) -> CampaignRow:
    facts = CampaignNode(name=node, profile="h100")
    return CampaignRow(
        campaign="c1",
        facts=facts,
        progress=NodeProgress(node=node, finished_at=finished_at),
    )


def campaign_world(factor: float, seed: int) -> FaultEvidence:
    """400 nodes, of which ten a day are upgraded; faults at one in fifty days, times `factor`."""
    rng = random.Random(seed)
    rows = {f"n{i}": _row(f"n{i}", (i / 10) * DAY_S) for i in range(1, 401)}
    stays = []
    for node, row in rows.items():
        since = row.progress.finished_at
        before = list(live({node: "x"}, {"x": 0.02}, since / DAY_S, rng.randrange(2**32)))
        stays += before
        rate = {"x": 0.02 * factor}
        for stay in live({node: "x"}, rate, (40 * DAY_S - since) / DAY_S, rng.randrange(2**32)):
            stays.append(
                stay._replace(begins_at=stay.begins_at + since, ends_at=stay.ends_at + since)
            )
    return weigh_campaign(stays, rows)


def test_a_campaign_whose_nodes_fail_more_often_is_held_and_an_accepted_one_is_not() -> None:
    campaign = Campaign(id="c1", release="r2", select="all")
    worse = campaign_world(3.0, seed=9)

    (held,) = judge_fault_rate(campaign, worse)
    assert held.subject == FAULT_RATE
    assert "times as often" in held.detail
    assert judge_fault_rate(campaign.model_copy(update={"accepted": (FAULT_RATE,)}), worse) == ()
    assert judge_fault_rate(campaign.model_copy(update={"going_back": True}), worse) == ()


def test_what_a_held_campaign_brought_is_named_and_what_ran_before_is_not() -> None:
    """Nodes under way, and sets that are not known, say nothing."""
    progress = {"admitted_at": 2.0, "finished_at": 4.0}
    rows = {name: _row(name, 0.0) for name in ("waits", "soaks")} | {"done": _row("done", 4.0)}
    for name in ("done", "soaks"):
        told = rows[name].progress.model_copy(
            update=progress if name == "done" else {"admitted_at": 2.0}
        )
        rows[name] = rows[name].model_copy(update={"progress": told})
    stays = [
        Stay("waits", 0.0, 9.0, False, "old"), Stay("done", 0.0, 2.0, True, "old"),
        Stay("done", 3.0, 4.0, False, "both"), Stay("done", 4.0, 9.0, True, "both"),
        Stay("soaks", 3.0, 9.0, False, "new"), Stay("done", 9.0, 10.0, True, "unknown"),
        Stay("stranger", 0.0, 9.0, False, "both"),
    ]  # fmt: skip

    assert find_brought(stays, rows, SETS) == ("driver=580", "vbios=B")
    assert find_brought([], rows, SETS) == ()
    evidence = weigh_faults(
        [Interval(0.0, 1.0 + n, True, n % 2 == 0) for n in range(2)]
        + [Interval(0.0, 100.0, n < 60, n < 60) for n in range(120)]
    )
    campaign = Campaign(id="c1", release="r", select="all", baseline="b")
    [held] = judge_fault_rate(campaign, evidence, [f"part{n}=1" for n in range(9)])
    assert (
        "often with part0=1, part1=1, part2=1, part3=1, part4=1, part5=1 and 3 more: "
        in held.detail
    )


def test_no_campaign_is_held_where_nothing_changed_or_it_became_better() -> None:
    campaign = Campaign(id="c1", release="r2", select="all")

    for seed in range(8):
        for factor in (1.0, 0.3):
            evidence = campaign_world(factor, seed)
            assert judge_fault_rate(campaign, evidence) == ()
            assert evidence.log_e < -log(ALPHA_HOLD)
