"""Who had each node, and why, second by second: folded from the journal. Pure.

A node has exactly one open span from its discovery or adoption on; one that retired has a span of
that kind, which no sum counts. An event that changes its use closes the span at the event's time
and opens the next one at the same time, so that the spans of a node have neither gap nor overlap
and sum to the wall.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.events import EventKind
from provisioner.model.node import NodeKind, State
from provisioner.model.times.instant import Instant
from provisioner.planning.lifecycle.timeline import DAY_S

USAGE_PAYLOAD = "application/vnd.gpu-provisioner.usage.v1+json"  # of a signed statement
WHAT_MAX = 200  # characters of what a span is about
HOUR_S = 3600.0


class Cause(StrEnum):
    """Why a node is used as it is; each second of a node has exactly one."""

    SERVING = "serving"  # it serves its tenant, and nothing is known against it
    DEGRADED = "degraded"  # it serves, with a fault that its tenant may feel
    ADOPTED = "adopted"  # it served when it was adopted, and was never handed over here
    DRAINING = "draining"  # it still belongs to its tenant, and leaves it
    HANDOVER = "handover"  # it is allocated, and its network is being moved
    FREE = "free"  # certified, and nobody has it
    INTAKE = "intake"
    FIRMWARE = "firmware"  # it moves to a release
    VALIDATION = "validation"
    FAULT = "fault"  # quarantined
    CASE = "case"  # in repair, by the program
    PEOPLE = "people"  # in repair or parked, and waits for a person
    RETIRED = "retired"  # it left; not counted
    SWITCH = "switch"  # a switch; not counted


UNCOUNTED = frozenset({Cause.RETIRED, Cause.SWITCH})
# what a tenant's promise counts as not served, and what it leaves out of the count
UNSERVED = frozenset({Cause.DEGRADED})
EXCLUDED = frozenset({Cause.DRAINING, Cause.ADOPTED})
OWNED = (State.RELEASED.value, State.DRAINING.value)


class Standing(Record):
    """What the events so far say of a node, as far as its use depends on it."""

    state: str
    tenant: str = ""  # that it is allocated to
    adopted: bool = False  # and not handed over since
    part: str = ""  # what a fault is about
    stage: str = ""  # of its open case
    people: bool = False  # a person is waited for
    attention: str = ""  # what is known against a node that serves
    release: str = ""  # that it moves to


class Use(NamedTuple):
    """Who has a node, why, and what that is about: a release, a part, a stage of a case."""

    owner: str  # a tenant, or empty: the provider
    cause: Cause
    what: str


class Span(NamedTuple):
    """A use that lasted."""

    node: str
    begins_at: float
    ends_at: float
    use: Use


class Opened(NamedTuple):
    """The use of a node that goes on."""

    begins_at: float
    use: Use
    standing: Standing


FOLLOWED = frozenset(
    {
        EventKind.DISCOVERED,
        EventKind.ADOPTED,
        EventKind.STATE,
        EventKind.ALLOCATED,
        EventKind.RELEASED,
        EventKind.ATTENTION,
        EventKind.PARKED,
        EventKind.CASE_OPENED,
        EventKind.CASE_REMEDY,
        EventKind.CASE_HARDWARE,
        EventKind.CASE_RETURNED,
        EventKind.CASE_CLOSED,
        EventKind.RETIRED,
    }
)


_SWITCH = Standing(state="switch")


def follow_event(before: Standing | None, kind: str, detail: Mapping[str, Any]) -> Standing | None:
    """Return what is known of a node after an event; None: nothing was known, and nothing is."""
    if before is not None and before.state == _SWITCH.state:
        return before
    if detail.get("kind") == NodeKind.SWITCH.value and kind in (
        EventKind.DISCOVERED,
        EventKind.ADOPTED,
    ):
        return _SWITCH
    if kind == EventKind.DISCOVERED:
        here = before is not None and before.state != State.RETIRED.value
        return before if here else Standing(state=State.DISCOVERED.value)
    if kind == EventKind.ADOPTED:
        tenant = _text(detail.get("tenant"))
        state = State.RELEASED if tenant else State.DISCOVERED
        return Standing(state=state.value, tenant=tenant, adopted=True)
    if kind == EventKind.STATE:
        return _enter(before, detail)
    if before is None:
        return None
    if kind == EventKind.RETIRED:
        return Standing(state=State.RETIRED.value)
    return before.model_copy(update=_change(before, kind, detail))


def _enter(before: Standing | None, detail: Mapping[str, Any]) -> Standing:
    state = _text(detail.get("to"))
    if state == State.RETIRED.value:
        return Standing(state=state)
    known = before or Standing(state=state)
    keeps = state in OWNED or state == State.CERTIFIED.value == known.state
    return known.model_copy(
        update={
            "state": state,
            "tenant": known.tenant if keeps else "",
            "adopted": known.adopted and state in OWNED,
            "part": _first_blocker(detail),
            "attention": "",
            "people": known.people and bool(known.stage),
            "release": _text(detail.get("release")) or known.release,
        }
    )


def _change(before: Standing, kind: str, detail: Mapping[str, Any]) -> dict[str, Any]:
    match kind:
        case EventKind.ALLOCATED:
            return {"tenant": _text(detail.get("tenant"))}
        case EventKind.RELEASED:
            return {"tenant": _text(detail.get("tenant")), "adopted": False}
        case EventKind.ATTENTION:
            return {"attention": _first_blocker(detail)}
        case EventKind.PARKED:
            return {"people": True, "part": before.part or _text(detail.get("why"))}
        case EventKind.CASE_OPENED:
            return {"stage": "opened"}
        case EventKind.CASE_REMEDY:
            return {"stage": _text(detail.get("remedy")) or "remedy", "people": False}
        case EventKind.CASE_HARDWARE:
            return {"stage": "hardware", "people": True}
        case EventKind.CASE_RETURNED:
            return {"stage": "returned", "people": False}
        case EventKind.CASE_CLOSED:
            return {"stage": "", "people": False}
    return {}


def name_use(standing: Standing) -> Use:
    """Return the owner and the cause of a standing; every standing has exactly one."""
    if standing.state in OWNED:
        return Use(standing.tenant, *_serving(standing))
    if standing.state in (State.RETIRED.value, _SWITCH.state):
        return Use("", Cause(standing.state), "")
    if standing.people:
        return Use("", Cause.PEOPLE, standing.stage or standing.part)
    if standing.stage or standing.state == State.REPAIRING.value:
        return Use("", Cause.CASE, standing.stage)
    match standing.state:
        case State.CERTIFIED.value if standing.tenant:
            return Use("", Cause.HANDOVER, standing.tenant)
        case State.CERTIFIED.value:
            return Use("", Cause.FREE, "")
        case State.CONVERGING.value:
            return Use("", Cause.FIRMWARE, standing.release)
        case State.VALIDATING.value:
            return Use("", Cause.VALIDATION, "")
        case State.QUARANTINED.value:
            return Use("", Cause.FAULT, standing.part)
    return Use("", Cause.INTAKE, "")


def _serving(standing: Standing) -> tuple[Cause, str]:
    if standing.state == State.DRAINING.value:
        return Cause.DRAINING, standing.stage
    if standing.attention:
        return Cause.DEGRADED, standing.attention
    return (Cause.ADOPTED, "") if standing.adopted else (Cause.SERVING, "")


def _first_blocker(detail: Mapping[str, Any]) -> str:
    blockers = detail.get("blockers") or ()
    first = blockers[0] if isinstance(blockers, list | tuple) and blockers else None
    if not isinstance(first, Mapping):
        return ""
    return _text(f"{first.get('reason', '')} {first.get('subject', '')}".strip())


def _text(value: object) -> str:
    return str(value or "")[:WHAT_MAX]


def fold_journal(rows: Iterable[Mapping[str, Any]], opened: dict[str, Opened]) -> list[Span]:
    """Return the spans that these rows closed; `opened`, by node, is carried on in place.

    Rows come in the journal's order. A clock that went back makes no negative span: the row counts
    from where the open span began.
    """
    closed: list[Span] = []
    for row in rows:
        node = str(row["node"])
        if not node or row["kind"] not in FOLLOWED:
            continue
        before = opened.get(node)
        standing = follow_event(before and before.standing, row["kind"], row["detail"])
        if standing is None:
            continue
        use = name_use(standing)
        if before is None:
            opened[node] = Opened(float(row["at"]), use, standing)
        elif before.use == use:
            opened[node] = before._replace(standing=standing)
        else:
            at = max(float(row["at"]), before.begins_at)
            if at > before.begins_at:
                closed.append(Span(node, before.begins_at, at, before.use))
            opened[node] = Opened(at, use, standing)
    return closed


# ------------------------------------------------------------------------------
# Sums over a time, for people, tenants and bills.


class UsageRow(Record):
    """Node-seconds of one owner, cause and, where asked for, one node."""

    owner: str = Field(description="The tenant that had the nodes; empty: the provider.")
    cause: Cause = Field(description="Why: each second of a node has exactly one cause.")
    what: str = Field("", description="What it is about: a release, a part, a stage of a case.")
    node: str = Field("", description="The node, where the answer is by node.")
    node_s: float = Field(description="Seconds, summed over the nodes.")
    gpu_s: float = Field(description="The same, times the GPUs of each node's newest inventory.")


class Availability(Record):
    """How much of the time that counts a tenant's nodes served."""

    tenant: str = Field(description="Name of the tenant.")
    served_s: float = Field(description="Node-seconds that served without a known fault.")
    unserved_s: float = Field(description="Node-seconds with a fault that the tenant may feel.")
    excluded_s: float = Field(
        description="Node-seconds that do not count: adopted nodes, and nodes that were drained."
    )
    share: float | None = Field(description="Served of all that counts; null: nothing counts.")


class Period(Record):
    """The time that sums are over."""

    begins_at: Instant = Field(description="Its begin.")
    ends_at: Instant = Field(description="Its end.")


def measure_availability(rows: Iterable[UsageRow]) -> tuple[Availability, ...]:
    """Return the availability of each tenant in the rows, by name."""
    sums: dict[str, list[float]] = {}
    for row in rows:
        if row.owner:
            kind = 1 if row.cause in UNSERVED else 2 if row.cause in EXCLUDED else 0
            sums.setdefault(row.owner, [0.0, 0.0, 0.0])[kind] += row.node_s
    return tuple(
        Availability(
            tenant=tenant,
            served_s=served,
            unserved_s=unserved,
            excluded_s=excluded,
            share=served / (served + unserved) if served + unserved else None,
        )
        for tenant, (served, unserved, excluded) in sorted(sums.items())
    )


class CourseLine(Record):
    """How one cause went over the time."""

    cause: Cause = Field(description="Why the nodes were where they were.")
    nodes: tuple[float, ...] = Field(description="Nodes of it, on average of each step.")


def draw_course(
    sums: Sequence[Mapping[str, float]], edges: Sequence[float]
) -> tuple[CourseLine, ...]:
    """Return a line for each cause, in the order of causes: node-seconds by step, as nodes."""
    steps = [end - begin for begin, end in pairwise(edges)]
    return tuple(
        CourseLine(
            cause=cause,
            nodes=tuple(row.get(cause.value, 0.0) / s for row, s in zip(sums, steps, strict=True)),
        )
        for cause in Cause
        if any(cause.value in row for row in sums)
    )


class Price(Record):
    """What the site asks for one GPU-hour; the ledger itself knows no prices."""

    per_gpu_hour: float = Field(ge=0.0)
    currency: str = Field(pattern="^[A-Z]{3}$")  # ISO 4217
    provider: str = Field(min_length=1, max_length=128)


# FinOps Open Cost and Usage Specification 1.2, https://focus.finops.org/focus-specification/v1-2/
# (read 2026-11-29): its mandatory columns, and those whose condition holds here
FOCUS_COLUMNS = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart"),
    *("ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice"),
    *("EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId"),
    *("ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory"),
    *("SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags"),
)
_SAME_IN_EVERY_CHARGE = {
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ChargeFrequency": "Usage-Based",
    "ConsumedUnit": "GPU-Hours",
    "PricingCategory": "Standard",
    "PricingUnit": "GPU-Hours",
    "ResourceType": "GPU server",
    "ServiceCategory": "Compute",
    "ServiceName": "GPU cluster",
    "ServiceSubcategory": "Virtual Machines",
    "Tags": "{}",
}


def split_months(period: Period) -> tuple[Period, ...]:
    """Return the parts of a period in each month of it, in UTC."""
    parts = []
    begin = period.begins_at
    while begin < period.ends_at:
        end = min(_start_of_next_month(begin), period.ends_at)
        parts.append(Period(begins_at=begin, ends_at=end))
        begin = end
    return tuple(parts)


def write_focus(charged: Sequence[tuple[Period, Sequence[UsageRow]]], price: Price) -> str:
    """Return the tenants' rows as CSV in the form of FOCUS 1.2, one charge for each node and cause.

    Each period lies within one month, its billing period (`split_months`). What is degraded or
    leaves its tenant is listed at no cost: whether it is billed is a contract's matter, and a site
    that bills it changes the row.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, FOCUS_COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for period, rows in charged:
        shared = {
            **_SAME_IN_EVERY_CHARGE,
            "BillingCurrency": price.currency,
            "BillingPeriodStart": _focus_time(start_of_month(period.begins_at)),
            "BillingPeriodEnd": _focus_time(_start_of_next_month(period.begins_at)),
            "ChargePeriodStart": _focus_time(period.begins_at),
            "ChargePeriodEnd": _focus_time(period.ends_at),
            "InvoiceIssuerName": price.provider,
            "ProviderName": price.provider,
            "PublisherName": price.provider,
        }
        writer.writerows({**shared, **_build_charge(row, price)} for row in rows if row.owner)
    return out.getvalue()


def _build_charge(row: UsageRow, price: Price) -> dict[str, object]:
    hours = row.gpu_s / HOUR_S
    unit = price.per_gpu_hour if row.cause is Cause.SERVING else 0.0
    costs = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
    return {
        **dict.fromkeys(costs, round(hours * unit, 6)),
        **dict.fromkeys(("ListUnitPrice", "ContractedUnitPrice"), unit),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), round(hours, 6)),
        **dict.fromkeys(("BillingAccountId", "BillingAccountName"), row.owner),
        **dict.fromkeys(("SubAccountId", "SubAccountName"), row.owner),
        **dict.fromkeys(("ResourceId", "ResourceName"), row.node),
        "ChargeDescription": f"{row.cause} {row.what}".strip(),
        "SkuId": f"gpu-{row.cause}",
        "SkuPriceId": f"gpu-{row.cause}-hour",
    }


def start_of_month(at: float) -> float:
    """Return the begin of the month in UTC."""
    day = datetime.fromtimestamp(at, UTC)
    return day.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()


def _start_of_next_month(at: float) -> float:
    return start_of_month(start_of_month(at) + 32 * DAY_S)


def _focus_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
