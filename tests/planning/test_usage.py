"""The ledger of time: each second of a node has one owner and one cause; they sum to the wall."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.node import State
from provisioner.planning.lifecycle.usage import (
    FOLLOWED,
    Cause,
    Opened,
    Period,
    Price,
    Span,
    UsageRow,
    Use,
    draw_course,
    fold_journal,
    measure_availability,
    name_use,
    split_months,
    write_focus,
)

TEN_YEARS_S = 10 * 365 * 86_400.0
STATES = [s.value for s in State]
DETAILS = st.fixed_dictionaries(
    {},
    optional={
        "to": st.sampled_from([*STATES, "no such state"]),
        "tenant": st.sampled_from(["", "red", "blue"]),
        "release": st.sampled_from(["", "r1"]),
        "remedy": st.sampled_from(["reseat", ""]),
        "why": st.text(max_size=10),
        "blockers": st.one_of(
            st.none(),
            st.just("text"),
            st.lists(st.one_of(st.none(), st.just({"reason": "check_failed", "subject": "GPU_1"}))),
        ),
    },
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "node": st.sampled_from(["n1", "n2", ""]),
            "kind": st.sampled_from([*sorted(FOLLOWED), "something else"]),
            "at": st.floats(0, TEN_YEARS_S),
            "detail": DETAILS,
        }
    ),
    max_size=60,
)


def row(at: float, kind: str, **detail: Any) -> dict[str, Any]:
    return {"node": "n1", "kind": kind, "at": at, "detail": detail}


def entered(at: float, state: str, **more: Any) -> dict[str, Any]:
    return row(at, "state", to=state, **more)


LIFE = [
    row(0, "discovered"),
    entered(10, "intake"),
    entered(20, "converging", release="r1"),
    entered(30, "validating"),
    entered(40, "certified"),
    row(50, "allocated", tenant="red"),
    entered(60, "released"),
    row(60, "released", tenant="red"),
    row(70, "attention", blockers=[{"reason": "check_failed", "subject": "GPU_SXM_3"}]),
    entered(80, "draining"),
    row(80, "case_opened"),
    entered(90, "repairing"),
    row(95, "case_hardware", work="exchange"),
    row(120, "case_returned"),
    row(130, "case_closed"),
    entered(130, "validating"),
    entered(140, "quarantined", blockers=[{"reason": "check_failed", "subject": "nvme"}]),
    entered(150, "retired"),
]


def test_a_life_is_told_by_owner_and_cause() -> None:
    opened: dict[str, Opened] = {}
    spans = fold_journal(LIFE, opened)

    assert [(s.begins_at, s.use.owner, s.use.cause.value, s.use.what) for s in spans] == [
        (0, "", "intake", ""),
        (20, "", "firmware", "r1"),
        (30, "", "validation", ""),
        (40, "", "free", ""),
        (50, "", "handover", "red"),
        (60, "red", "serving", ""),
        (70, "red", "degraded", "check_failed GPU_SXM_3"),
        (80, "red", "draining", "opened"),
        (90, "", "case", "opened"),
        (95, "", "people", "hardware"),
        (120, "", "case", "returned"),
        (130, "", "validation", ""),
        (140, "", "fault", "check_failed nvme"),
    ]
    assert spans[-1].ends_at == 150
    assert opened["n1"].use.cause is Cause.RETIRED


def test_an_adopted_node_is_its_tenants_without_a_handover() -> None:
    opened: dict[str, Opened] = {}
    fold_journal([row(5, "adopted", tenant="blue", by="ada")], opened)

    assert opened["n1"].use == Use("blue", Cause.ADOPTED, "")


def test_a_switch_is_no_nodes_time() -> None:
    opened: dict[str, Opened] = {}
    found = {**row(0, "discovered"), "detail": {"kind": "switch"}}
    rows = [found, entered(5, "released"), entered(9, "retired")]

    assert fold_journal(rows, opened) == []
    assert opened["n1"].use.cause is Cause.SWITCH


def test_every_standing_has_exactly_one_use() -> None:
    for state in STATES:
        opened: dict[str, Opened] = {}
        fold_journal([row(0, "discovered"), entered(1, state)], opened)
        assert isinstance(name_use(opened["n1"].standing).cause, Cause)


@given(rows=ROWS, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_spans_sum_to_the_wall_wherever_the_daemon_died_or_was_restored(
    rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    """Ten years; the clock may go back, rows may be of any kind, folding may be cut anywhere."""
    whole: dict[str, Opened] = {}
    spans = fold_journal(rows, whole)
    pieces, opened = list[Span](), dict[str, Opened]()
    begin = 0
    for cut in [*sorted(cuts), len(rows)]:
        died = dict(opened)
        fold_journal(rows[begin:cut][: cut // 2], died)  # rolled back with its transaction
        pieces += fold_journal(rows[begin:cut], opened)
        begin = max(begin, cut)
    of_node: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        of_node[span.node].append(span)

    assert (pieces, opened) == (spans, whole)
    for node, one in whole.items():
        times = [t for s in of_node[node] for t in (s.begins_at, s.ends_at)] + [one.begins_at]
        assert times[1:-1:2] == times[2::2]  # each ends where the next one begins
        assert times == sorted(times)


def test_availability_leaves_out_what_no_promise_covers() -> None:
    rows = [
        UsageRow(owner="red", cause=cause, node_s=seconds, gpu_s=8 * seconds)
        for cause, seconds in ((Cause.SERVING, 990.0), (Cause.DEGRADED, 10.0))
    ]
    rows.append(UsageRow(owner="red", cause=Cause.DRAINING, node_s=500.0, gpu_s=0.0))
    rows.append(UsageRow(owner="", cause=Cause.FREE, node_s=7.0, gpu_s=0.0))
    rows.append(UsageRow(owner="blue", cause=Cause.ADOPTED, node_s=7.0, gpu_s=0.0))

    blue, red = measure_availability(rows)
    assert (red.share, red.excluded_s) == (0.99, 500.0)
    assert blue.share is None


# columns and whether they may be null, retyped from the specification's column definitions,
# https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/tree/v1.2/specification/columns
MANDATORY = {
    "BilledCost": False,
    "BillingAccountId": False,
    "BillingAccountName": True,
    "BillingCurrency": False,
    "BillingPeriodEnd": False,
    "BillingPeriodStart": False,
    "ChargeCategory": False,
    "ChargeClass": True,
    "ChargeDescription": True,
    "ChargePeriodEnd": False,
    "ChargePeriodStart": False,
    "ContractedCost": False,
    "EffectiveCost": False,
    "InvoiceIssuerName": False,
    "ListCost": False,
    "PricingQuantity": True,
    "PricingUnit": True,
    "ProviderName": False,
    "PublisherName": False,
    "ServiceCategory": False,
    "ServiceName": False,
}


@pytest.mark.parametrize(("begin", "month", "after"), [
    (1_790_812_800.0, "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"),
    (1_796_083_200.0, "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
])  # fmt: skip
def test_charges_have_every_mandatory_column_of_focus_1_2(
    begin: float, month: str, after: str
) -> None:
    rows = (
        UsageRow(owner="red", cause=Cause.SERVING, node="n1", node_s=5400.0, gpu_s=43_200.0),
        UsageRow(owner="red", cause=Cause.DEGRADED, node="n1", node_s=3600.0, gpu_s=28_800.0),
        UsageRow(owner="", cause=Cause.FREE, node="n2", node_s=3600.0, gpu_s=28_800.0),
    )
    price = Price(per_gpu_hour=2.5, currency="EUR", provider="Example")
    period = Period(begins_at=begin, ends_at=begin + 9000.0)
    serving, degraded = csv.DictReader(io.StringIO(write_focus([(period, rows)], price)))

    for name, may_be_null in MANDATORY.items():
        assert name in serving, name
        assert serving[name] or may_be_null, name
    assert float(serving["PricingQuantity"]) == 12.0
    assert float(serving["BilledCost"]) == 30.0
    assert float(degraded["BilledCost"]) == 0.0
    assert (serving["BillingPeriodStart"], serving["BillingPeriodEnd"]) == (month, after)
    assert serving["ChargeCategory"] == "Usage"


@given(
    begin=st.floats(1_700_000_000.0, 1_900_000_000.0),
    days=st.floats(0.001, 400.0),
)
def test_every_charge_lies_in_its_billing_period_and_the_months_make_up_the_whole(
    begin: float, days: float
) -> None:
    whole = Period(begins_at=begin, ends_at=begin + days * 86_400.0)
    months = split_months(whole)
    row = UsageRow(owner="red", cause=Cause.SERVING, node="n1", node_s=1.0, gpu_s=8.0)
    price = Price(per_gpu_hour=2.5, currency="EUR", provider="Example")
    table = write_focus([(month, [row]) for month in months], price)
    charges = list(csv.DictReader(io.StringIO(table)))

    assert (months[0].begins_at, months[-1].ends_at) == (whole.begins_at, whole.ends_at)
    assert all(a.ends_at == b.begins_at for a, b in pairwise(months))
    assert len({c["BillingPeriodStart"] for c in charges}) == len(charges) == len(months)
    for charge in charges:
        assert charge["BillingPeriodStart"] <= charge["ChargePeriodStart"]
        assert charge["ChargePeriodEnd"] <= charge["BillingPeriodEnd"]


def test_a_course_has_a_line_for_each_cause_that_its_steps_have() -> None:
    sums = [{"free": 20.0}, {"free": 5.0, "serving": 15.0}]

    serving, free = draw_course(sums, [0.0, 10.0, 20.0])
    assert (serving.cause, serving.nodes) == (Cause.SERVING, (0.0, 1.5))
    assert free.nodes == (2.0, 0.5)
