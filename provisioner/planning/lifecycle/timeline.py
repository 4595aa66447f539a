"""Series for pictures: states by day, how long work takes, the life of one node. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from statistics import median
from typing import Any, NamedTuple

from pydantic import Field

from provisioner.model.alert import Alert
from provisioner.model.base import Record
from provisioner.model.case import Case
from provisioner.model.inventory import Activation
from provisioner.model.node import Node, State
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.times.instant import Instant, InstantOrNone

DAY_S = 86_400.0
AT_WORK = (
    State.DISCOVERED,
    State.INTAKE,
    State.CONVERGING,
    State.VALIDATING,
    State.DRAINING,
    State.REPAIRING,
)
SAMPLES_MIN = 3  # stays from which a typical one is told
_RESETS = frozenset({a.value for a in Activation} | {"gpu_reset", "power", "power_cycle"})


class Move(NamedTuple):
    """A node that went from one state to another."""

    at: float
    node: str
    before: str
    after: str


class FleetDay(Record):
    begins_at: Instant = Field(description="Begin of the day or hour.")
    states: dict[str, int] = Field(description="Hosts in each state at its end.")
    opened: int = Field(description="Repair cases that were opened.")
    closed: int = Field(description="Repair cases that were closed.")
    alerts: int = Field(description="Alerts that were raised.")


class WorkingNode(Record):
    node: str = Field(description="Name of the node.")
    state: State = Field(description="Where it is on its journey.")
    since: Instant = Field(description="Time at which it came into this state.")
    ends_at: InstantOrNone = Field(
        description="Expected end of this state, by how long others took; null: not known."
    )
    note: str = Field(description="What it does or waits for now.")


class LifeSpan(Record):
    """Something of a node's life that lasted."""

    lane: str = Field(description="state, case, certificate or alert.")
    what: str = Field(description="The state, or what it is about.")
    begins_at: Instant = Field(description="Its begin.")
    ends_at: InstantOrNone = Field(description="Its end; null: it goes on.")
    detail: str = Field("", description="The reason, in one sentence.")
    id: str = Field("", description="Id of the case or certificate, or name of the alert.")


class LifeMark(Record):
    """Something of a node's life that was done at one time."""

    lane: str = Field(description="reset, firmware or other.")
    what: str = Field(description="The action, as the ledger names it.")
    at: Instant = Field(description="When it began.")
    ended_at: InstantOrNone = Field(description="When its outcome was known; null: not yet.")
    status: ActionStatus = Field(description="Its outcome.")
    id: str = Field(description="Id of the action: `node actions NODE --output ID`.")


def count_days(
    now: float,
    days: int,
    states: Mapping[str, int],
    moves: Mapping[tuple[int, str, str], int],
    others: Mapping[str, Mapping[int, int]],
    span_s: float = DAY_S,
) -> tuple[FleetDay, ...]:
    """Return the last days, the oldest first. `moves`: (days ago, from, to) -> hosts.

    Each lasts `span_s`: an hour counts as a day does.

    The states of earlier days are those of now without the moves since; a host that was taken in
    since is counted where its journey began. `others`: "opened", "closed", "alerts" by days ago.
    """
    counts = Counter(states)
    found = []
    moved: dict[int, list[tuple[str, str, int]]] = {}
    for (day, before, after), number in moves.items():
        moved.setdefault(day, []).append((before, after, number))
    for ago in range(days):
        found.append(
            FleetDay(
                begins_at=start_of_day(now, span_s) - ago * span_s,
                states={state: n for state, n in sorted(counts.items()) if n > 0},
                opened=others.get("opened", {}).get(ago, 0),
                closed=others.get("closed", {}).get(ago, 0),
                alerts=others.get("alerts", {}).get(ago, 0),
            )
        )
        for before, after, number in moved.get(ago, ()):
            counts[after] -= number
            counts[before] += number
    return tuple(reversed(found))


def start_of_day(now: float, span_s: float = DAY_S) -> float:
    """Return the begin of the day in UTC, or of the hour."""
    return now - now % span_s


def measure_stays(moves: Iterable[Move]) -> dict[str, float]:
    """Return how long nodes typically are in each state, in seconds: the median of whole stays."""
    came: dict[str, Move] = {}
    stays: dict[str, list[float]] = {}
    for move in sorted(moves):
        before = came.get(move.node)
        if before is not None and before.after == move.before:
            stays.setdefault(move.before, []).append(move.at - before.at)
        came[move.node] = move
    return {state: median(each) for state, each in stays.items() if len(each) >= SAMPLES_MIN}


def list_working(
    rows: Iterable[tuple[str, str, float, str]], stays: Mapping[str, float], now: float
) -> tuple[WorkingNode, ...]:
    """Return nodes on their way of rows (node, state, since, note), in their order."""
    return tuple(
        WorkingNode(
            node=name,
            state=State(state),
            since=since,
            ends_at=_expect_end(state, since, stays, now),
            note=note,
        )
        for name, state, since, note in rows
    )


def _expect_end(state: str, since: float, stays: Mapping[str, float], now: float) -> float:
    """Return when a stay ends by what is typical; 0: not known, or longer than that already."""
    ends_at = since + stays.get(state, 0.0)
    return ends_at if since and ends_at > now else 0.0


def list_stays(rows: Sequence[Mapping[str, Any]], node: Node) -> list[LifeSpan]:
    """Return the states of a node from its journal's rows, the oldest first."""
    spans = []
    ends = [row["at"] for row in rows[1:]]
    for row, ends_at in zip_longest(rows, ends, fillvalue=0.0):
        assert isinstance(row, Mapping)  # there is one end less than there are rows
        detail = row["detail"]
        spans.append(
            LifeSpan(
                lane="state",
                what=str(detail.get("to", "")),
                begins_at=row["at"],
                ends_at=ends_at,
                detail=str(detail.get("why", ""))[:300],
            )
        )
    if not spans and node.entered_at:
        spans.append(
            LifeSpan(lane="state", what=node.state.value, begins_at=node.entered_at, ends_at=0.0)
        )
    return spans


def list_case_spans(cases: Iterable[Case]) -> list[LifeSpan]:
    return [
        LifeSpan(
            lane="case",
            what=case.stage.value if case.open else str(case.ending or "closed"),
            begins_at=case.opened_at,
            ends_at=case.closed_at,
            detail=case.reason[:300],
            id=case.id,
        )
        for case in cases
    ]


def list_alert_spans(alerts: Iterable[Alert]) -> list[LifeSpan]:
    return [
        LifeSpan(
            lane="alert",
            what=f"{alert.id} {alert.target}".strip(),
            begins_at=alert.since,
            ends_at=0.0 if alert.active else alert.last_at,
            detail=alert.message[:300],
            id=alert.id,
        )
        for alert in alerts
    ]


def list_marks(entries: Iterable[LedgerEntry]) -> list[LifeMark]:
    """Return the actions on a node: resets, firmware and others."""
    return [
        LifeMark(
            lane=_name_lane(entry.action),
            what=entry.action,
            at=entry.intended_at,
            ended_at=entry.settled_at,
            status=entry.status,
            id=name_action(entry),
        )
        for entry in entries
    ]


def _name_lane(action: str) -> str:
    word = action.split(" ", 1)[0]
    if word in ("update", "stage", "install", "reflash"):
        return "firmware"
    return "reset" if word in _RESETS else "other"


def name_action(entry: LedgerEntry) -> str:
    """Return the id of an action: the beginning of a digest, short enough to type."""
    named = f"{entry.operation} {entry.attempt} {entry.action}"
    return hashlib.sha256(named.encode()).hexdigest()[:12]


def find_failed(entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Return the action that failed last, if nothing succeeded since; None otherwise."""
    for entry in reversed(entries):
        if entry.status in (ActionStatus.FAILED, ActionStatus.UNCLEAR):
            return entry
        if entry.status is ActionStatus.CONFIRMED:
            return None
    return None
