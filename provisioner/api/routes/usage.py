"""Routes of the ledger of time: who had which nodes, why, for how long, and who vouches for it."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, VIEWERS, Nothing, Route
from provisioner.model.base import Record
from provisioner.model.times.instant import Instant
from provisioner.planning.lifecycle.usage import (
    USAGE_PAYLOAD,
    Availability,
    CourseLine,
    Period,
    Price,
    UsageRow,
    draw_course,
    measure_availability,
    split_months,
    start_of_month,
    write_focus,
)
from provisioner.store.repositories.usage import UsageQuery

TAG = "tenants"
STEPS_MAX = 62  # of a course: each is one sum over the spans
MONTHS_MAX = 24  # of one table of charges


class UsageTimes(Nothing):
    """The time that is summed."""

    begins_at: Instant | None = Field(
        None, description="Begin, RFC 3339; without: the begin of the month, UTC."
    )
    ends_at: Instant | None = Field(None, description="End, RFC 3339; without, or later: now.")


class UsageFilter(UsageTimes):
    """The time and the nodes that are summed, and how finely."""

    tenant: str = Field("", max_length=128, description="Only what this tenant had.")
    node: str = Field("", max_length=128, description="Only this node.")
    by: Literal["cause", "what", "node"] = Field(
        "cause", description="Rows by owner and cause, and by what it is about, or by node."
    )


class FocusFilter(UsageTimes):
    """The time, the tenant, and the price that the site asks."""

    tenant: str = Field("", max_length=128, description="Only this tenant; empty: all.")
    price: float = Field(ge=0.0, le=1e6, description="Of one GPU-hour that serves.")
    currency: str = Field(pattern="^[A-Z]{3}$", description="ISO 4217 code, such as EUR.")
    provider: str = Field(min_length=1, max_length=128, description="Who sends the invoice.")


class CourseFilter(UsageTimes):
    """The time, the nodes, and into how many steps the time is cut."""

    tenant: str = Field("", max_length=128, description="Only what this tenant had.")
    node: str = Field("", max_length=128, description="Only this node.")
    steps: int = Field(31, ge=1, le=STEPS_MAX, description="Steps of the same length.")


class UsageCourse(Record):
    """How many nodes each cause had, step by step."""

    period: Period = Field(description="What is drawn: from the first node of the time on.")
    behind: int = Field(description="Events of the journal that are not counted yet; 0: all are.")
    times: tuple[Instant, ...] = Field(description="The begin of each step.")
    lines: tuple[CourseLine, ...] = Field(description="A line for each cause; their sum is all.")


class UsageSums(Record):
    """Node-seconds of a time; all causes of a node sum to the time that it was here."""

    period: Period = Field(description="The time that is summed.")
    behind: int = Field(description="Events of the journal that are not counted yet; 0: all are.")
    items: tuple[UsageRow, ...] = Field(description="Sums by owner and cause.")
    availability: tuple[Availability, ...] = Field(
        description="How much of the time that counts each tenant's nodes served."
    )


class UsageStatement(Record):
    """A tenant's usage, sealed with the site's signing key."""

    envelope: dict[str, Any] = Field(
        description="DSSE envelope; `usage verify` checks it with the site's public keys."
    )


class FocusTable(Record):
    """Charges in the form of FOCUS 1.2."""

    csv: str = Field(description="The table as CSV, with its header.")


async def show_usage(ask: Ask) -> Reply:
    """Return the sums; a tenant sees what it had, and nothing else."""
    tenant = _read_tenant(ask, ask.query.tenant)
    return Reply(await _sum(ask, tenant, ask.query.by, ask.query.node))


async def sign_statement(ask: Ask) -> Reply:
    """Return one tenant's usage by node, signed."""
    tenant = _read_tenant(ask, ask.read_word("tenant"))
    signer = ask.parts.signer
    if signer is None:
        raise refuse_missing("signing key in this process")
    usage = await _sum(ask, tenant, "node", "")
    if usage.behind:
        raise build_refusal(
            409,
            "usage",
            f"{usage.behind} events of the journal are not counted yet",
            "Ask again in a minute: a statement is signed only when it is complete.",
        )
    document = {"tenant": tenant, **usage.model_dump(mode="json")}
    sealed = signer.seal(USAGE_PAYLOAD, json.dumps(document, sort_keys=True).encode())
    return Reply(UsageStatement(envelope=json.loads(sealed)))


async def export_focus(ask: Ask) -> Reply:
    """Return the charges of a time, by node and cause."""
    query = ask.query
    months = split_months(_read_period(ask))
    if len(months) > MONTHS_MAX:
        why = f"it reaches over {len(months)} months, and {MONTHS_MAX} are exported at once"
        raise build_refusal(400, "begins_at", why, "Ask for fewer months at a time.")
    charged = []
    for month in months:
        by_node = UsageQuery(month.begins_at, month.ends_at, query.tenant, by="node")
        charged.append((month, await ask.parts.store.usage.sum_usage(by_node)))
    price = Price(per_gpu_hour=query.price, currency=query.currency, provider=query.provider)
    return Reply(FocusTable(csv=write_focus(charged, price)))


async def show_course(ask: Ask) -> Reply:
    """Return the nodes of each cause over a time; a tenant sees what it had."""
    tenant = _read_tenant(ask, ask.query.tenant)
    period = _read_period(ask)
    query = UsageQuery(period.begins_at, period.ends_at, tenant, ask.query.node)
    store = ask.parts.store
    behind = await store.usage.count_behind()
    first = await store.usage.find_begin(query)
    if first is not None:
        period = Period(begins_at=first, ends_at=period.ends_at)
    length = (period.ends_at - period.begins_at) / ask.query.steps
    edges = [period.begins_at + n * length for n in range(ask.query.steps)]
    sums = await store.usage.sum_steps(query, [*edges, period.ends_at])
    return Reply(
        UsageCourse(
            period=period,
            behind=behind,
            times=tuple(edges),
            lines=draw_course(sums, [*edges, period.ends_at]),
        )
    )


def _read_tenant(ask: Ask, wanted: str) -> str:
    """Return the tenant that is asked for; of a tenant itself always its own."""
    if ask.caller.staff:
        return wanted
    if wanted not in ("", ask.caller.tenant) or not ask.caller.tenant:
        raise refuse_missing("tenant of this name")
    return ask.caller.tenant


async def _sum(ask: Ask, tenant: str, by: str, node: str) -> UsageSums:
    period = _read_period(ask)
    query = UsageQuery(period.begins_at, period.ends_at, tenant, node, by)
    store = ask.parts.store
    behind = await store.usage.count_behind()
    rows = await store.usage.sum_usage(query)
    return UsageSums(
        period=period,
        behind=behind,
        items=rows,
        availability=measure_availability(rows),
    )


def _read_period(ask: Ask) -> Period:
    """Return the time that is asked for. Raises Refused where it is empty."""
    begin = start_of_month(ask.now) if ask.query.begins_at is None else ask.query.begins_at
    end = ask.now if ask.query.ends_at is None else min(ask.query.ends_at, ask.now)
    if begin >= end:
        raise build_refusal(400, "begins_at", "the time is empty", "Begin before its end, and now.")
    return Period(begins_at=begin, ends_at=end)


ROUTES = (
    Route(
        "GET",
        "/usage",
        "show_usage",
        TAG,
        "Show who had the nodes, why, and for how long; each second of a node counts once.",
        ANYBODY,
        show_usage,
        {200: UsageSums},
        query=UsageFilter,
        heavy=True,
    ),
    Route(
        "GET",
        "/usage/course",
        "show_usage_course",
        TAG,
        "Show how many nodes each cause had, step by step through a time.",
        ANYBODY,
        show_course,
        {200: UsageCourse},
        query=CourseFilter,
        heavy=True,
    ),
    Route(
        "GET",
        "/usage/focus",
        "export_usage",
        TAG,
        "Export the tenants' charges at a price as FOCUS 1.2 rows (CSV).",
        VIEWERS,
        export_focus,
        {200: FocusTable},
        query=FocusFilter,
        heavy=True,
    ),
    Route(
        "GET",
        "/tenants/{tenant}/usage-statement",
        "sign_usage",
        TAG,
        "Sign a tenant's usage by node; the tenant verifies it with the site's public keys.",
        ANYBODY,
        sign_statement,
        {200: UsageStatement},
        query=UsageTimes,
        heavy=True,
    ),
)
