"""The work that waits for people, of rows: no node leaves the database as a record.

65,536 nodes are read in some 0.1 s on the lane of readers; only nodes with a blocker are grouped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Integer,
    Row,
    Table,
    and_,
    case,
    cast,
    func,
    or_,
    select,
)

from provisioner.model.alert import ANY
from provisioner.model.credential import CredentialSummary
from provisioner.model.integrations.audit_export import ExportStatus
from provisioner.model.node import State
from provisioner.store.rows import credential_rows
from provisioner.store.rows import journal as export_rows
from provisioner.store.rows.node_rows import number_change
from provisioner.store.rows.records import json_text
from provisioner.store.schema.schema import (
    alerts,
    campaign_nodes,
    campaigns,
    cases,
    certificates,
    journal,
    nodes,
    operations,
    overrides,
    requests,
)

# ------------------------------------------------------------------------------
# Figures of the whole fleet for metrics, counted by the database: no row leaves it as a record.
#
# 65,536 nodes are read in some 0.1 s on the lane of readers; parsing them as records takes
# seconds.


DAY_S = 86400.0
# when a certificate in force ends: (name, at the latest after so many seconds)
EXPIRIES = (("expired", 0.0), ("day", DAY_S), ("week", 7 * DAY_S), ("later", float("inf")))


@dataclass(frozen=True)
class StateFigures:
    """Nodes of one kind in one state. Seconds are of the daemon's clock."""

    kind: str
    state: str
    nodes: int
    longest_s: float
    over_limit: int


@dataclass(frozen=True)
class Fleet:
    states: tuple[StateFigures, ...]
    late: tuple[tuple[str, str, float], ...]  # (node, state, seconds over its limit), most first
    blocked: Mapping[str, int]  # reason of the first blocker -> nodes
    operations: Mapping[str, int]  # status -> how many
    certificates: Mapping[str, int]  # as EXPIRIES names them -> nodes
    oldest_certificate_s: float
    alerts: Mapping[str, int]  # id's classification -> how many stand
    cases: Mapping[str, int]  # stage -> open ones
    requests: Mapping[str, int]  # state -> changes that were asked for
    campaigns: Mapping[tuple[str, str], int]  # (campaign, state of its nodes) -> nodes
    journal_rows: int
    logins: CredentialSummary  # of BMCs
    exports: tuple[ExportStatus, ...]  # receivers of the journal


def read_fleet(
    connection: Connection, now: float, limits_s: Mapping[State, float], late_max: int
) -> Fleet:
    """Read everything in one snapshot. `limits_s`: how long a node may be in a state."""
    entered = cast(json_text(nodes.c.body, "entered_at"), Double)
    limit = case({s.value: limits_s[s] for s in State}, value=nodes.c.state, else_=1e12)
    over = now - entered - limit
    counted = select(
        nodes.c.kind,
        nodes.c.state,
        func.count(),
        func.min(entered),
        func.sum(case(((entered > 0) & (over > 0), 1), else_=0)),
    ).group_by(nodes.c.kind, nodes.c.state)
    states = tuple(
        StateFigures(r[0], r[1], r[2], max(0.0, now - r[3]) if r[3] else 0.0, r[4])
        for r in connection.execute(counted)
    )
    worst = select(nodes.c.id, nodes.c.state, over).where((entered > 0) & (over > 0))
    late = connection.execute(worst.order_by(over.desc(), nodes.c.id).limit(late_max))
    reason = json_text(nodes.c.body, "blockers[0].reason")
    expiring, oldest = _certificates(connection, now)
    return Fleet(
        states=states,
        late=tuple((r[0], r[1], float(r[2])) for r in late),
        blocked=_counted(connection, reason, nodes, reason.is_not(None)),
        operations=_counted(
            connection, operations.c.status, operations, operations.c.status != "done"
        ),
        certificates=expiring,
        oldest_certificate_s=oldest,
        alerts=_alerts(connection),
        cases=_counted(
            connection, json_text(cases.c.body, "stage"), cases, cases.c.closed_at == 0.0
        ),
        requests=_counted(connection, requests.c.state, requests, requests.c.state != ""),
        campaigns=_campaigns(connection),
        journal_rows=connection.scalar(select(func.max(journal.c.seq))) or 0,
        logins=credential_rows.summarize(connection, now),
        exports=export_rows.read_exports(connection),
    )


def _counted(
    connection: Connection, what: ColumnElement[Any], table: Table, where: ColumnElement[bool]
) -> dict[str, int]:
    query = select(what, func.count()).select_from(table).where(where).group_by(what)
    return {str(row[0]): row[1] for row in connection.execute(query)}


def _certificates(connection: Connection, now: float) -> tuple[dict[str, int], float]:
    """Return the certificates in force: those that nodes name, and that are not revoked."""
    left_s = cast(json_text(certificates.c.body, "expires_at"), Double) - now
    held = json_text(nodes.c.body, "certificate")
    parts = []
    before = float("-inf")
    for name, until in EXPIRIES:
        upper = left_s <= until if until != float("inf") else left_s > before
        within = upper if before == float("-inf") else upper & (left_s > before)
        parts.append(func.sum(case((within, 1), else_=0)).label(name))
        before = until
    query = select(*parts, func.min(certificates.c.issued_at)).select_from(
        nodes.join(certificates, certificates.c.id == held)
    )
    row = connection.execute(query.where(certificates.c.revoked_at.is_(None))).one()
    counts = {name: int(row[i] or 0) for i, (name, _) in enumerate(EXPIRIES)}
    return counts, max(0.0, now - row[len(EXPIRIES)]) if row[len(EXPIRIES)] else 0.0


def _alerts(connection: Connection) -> dict[str, int]:
    """Return the number of active alerts, by their first classification."""
    first = func.coalesce(json_text(alerts.c.body, "classifications[0]"), "none")
    return _counted(connection, first, alerts, alerts.c.active == 1)


def _campaigns(connection: Connection) -> dict[tuple[str, str], int]:
    """Return the number of nodes of campaigns that are under way."""
    over = ("draft", "done", "aborted")
    c = campaign_nodes.c
    query = select(c.campaign, c.state, func.count()).join(campaigns, campaigns.c.id == c.campaign)
    grouped = query.where(campaigns.c.state.not_in(over)).group_by(c.campaign, c.state)
    return {(r[0], r[1]): r[2] for r in connection.execute(grouped)}


GROUPS_MAX = 100  # groups of blocked nodes, and of alerts
CERTIFICATES_MAX = 100
RETRIED_MAX = 5000  # nodes of one bulk retry
EXPIRES_SOON_S = 7 * 86400.0
RETRYABLE = (State.QUARANTINED.value, State.REPAIRING.value)

_REASON = json_text(nodes.c.body, "blockers[0].reason")
_UNBLOCK = json_text(nodes.c.body, "blockers[0].unblock")
# a node with an open case waits for that, and is listed with it
_HAS_CASE = (
    select(cases.c.node).where(cases.c.node == nodes.c.id, cases.c.closed_at == 0.0).exists()
)
_IS_BLOCKED = and_(nodes.c.state != State.RETIRED.value, _REASON.is_not(None), ~_HAS_CASE)


@dataclass(frozen=True)
class BlockedGroup:
    """Nodes whose first blocker has one reason and one remedy. `example`: one of them."""

    reason: str
    unblock: str
    nodes: int
    retryable: int
    example: str
    detail: str


@dataclass(frozen=True)
class AlertGroup:
    """Active alerts of one name whose effect no person has suspended."""

    id: str
    classification: str
    alerts: int
    nodes: int
    example: str


@dataclass(frozen=True)
class ExpiringCertificate:
    """A certificate in force that ends soon. `left_s` below 0: it has expired."""

    node: str
    certificate: str
    left_s: float


@dataclass(frozen=True)
class Waiting:
    alerts: tuple[AlertGroup, ...]
    certificates: tuple[ExpiringCertificate, ...]


def read_waiting(connection: Connection, now: float) -> Waiting:
    """Read everything in one snapshot."""
    return Waiting(
        alerts=_read_alerts(connection, now),
        certificates=_read_certificates(connection, now),
    )


def group_blocked(
    blocked: Mapping[str, tuple[str, Waits]], with_case: Collection[str]
) -> tuple[BlockedGroup, ...]:
    """Return node -> (state, first blocker) by reason and remedy, what most wait for first; a node
    with an open case waits for that, and is listed with it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(blocked.keys() - set(with_case)):
        waits = blocked[name][1]
        groups.setdefault((waits.reason, waits.unblock), []).append(name)
    found = [
        BlockedGroup(
            reason=reason,
            unblock=unblock,
            nodes=len(names),
            retryable=sum(blocked[name][0] in RETRYABLE for name in names),
            example=names[0],
            detail=min(blocked[name][1].detail for name in names),
        )
        for (reason, unblock), names in groups.items()
    ]
    return tuple(sorted(found, key=lambda g: (-g.nodes, g.reason)))[:GROUPS_MAX]


def list_retryable(connection: Connection, reason: str, unblock: str) -> tuple[str, ...]:
    """Return the nodes of a group that a retry may take out of quarantine, by id."""
    query = select(nodes.c.id).where(
        _IS_BLOCKED, nodes.c.state.in_(RETRYABLE), _REASON.in_([reason]), _UNBLOCK.in_([unblock])
    )
    rows = connection.execute(query.order_by(nodes.c.id).limit(RETRIED_MAX))
    return tuple(r.id for r in rows)


def _read_alerts(connection: Connection, now: float) -> tuple[AlertGroup, ...]:
    suspended = (
        select(overrides.c.node)
        .where(
            overrides.c.node == alerts.c.node,
            overrides.c.until > now,
            or_(overrides.c.id == ANY, overrides.c.id == alerts.c.id),
            or_(overrides.c.target == ANY, overrides.c.target == alerts.c.target),
        )
        .exists()
    )
    first = func.coalesce(func.min(json_text(alerts.c.body, "classifications[0]")), "")
    number = func.count()
    query = select(
        alerts.c.id, first, number, func.count(alerts.c.node.distinct()), func.min(alerts.c.node)
    ).where(alerts.c.active == 1, ~suspended)
    rows = connection.execute(
        query.group_by(alerts.c.id).order_by(number.desc(), alerts.c.id).limit(GROUPS_MAX)
    )
    return tuple(AlertGroup(*row) for row in rows)


def _read_certificates(connection: Connection, now: float) -> tuple[ExpiringCertificate, ...]:
    left_s = cast(json_text(certificates.c.body, "expires_at"), Double) - now
    held = json_text(nodes.c.body, "certificate")
    query = (
        select(nodes.c.id, certificates.c.id, left_s)
        .select_from(nodes.join(certificates, certificates.c.id == held))
        .where(
            certificates.c.revoked_at.is_(None),
            left_s <= EXPIRES_SOON_S,
            nodes.c.state.in_((State.RELEASED.value, State.CERTIFIED.value)),
        )
    )
    rows = connection.execute(query.order_by(left_s, nodes.c.id).limit(CERTIFICATES_MAX))
    return tuple(ExpiringCertificate(r[0], r[1], float(r[2])) for r in rows)


# ------------------------------------------------------------------------------
# Places of nodes and nodes on their way, from their rows without their records.


RAIL = re.compile(r'"rail":\s*(-?\d+)')  # a quote within a text is escaped, so this is a field
_PLACE = (
    nodes.c.changed,
    nodes.c.id,
    nodes.c.kind,
    nodes.c.state,
    nodes.c.tenant,
    json_text(nodes.c.body, "location.pod"),
    json_text(nodes.c.body, "location.scalable_unit"),
    json_text(nodes.c.body, "ports"),
    json_text(nodes.c.body, "blockers[0].reason"),
    json_text(nodes.c.body, "blockers[0].unblock"),
    json_text(nodes.c.body, "blockers[0].detail"),
)


class Place(NamedTuple):
    """Where a node stands and whether it is taken. `unit` None: its body cannot be read."""

    kind: str
    state: str
    taken: bool
    unit: tuple[int, int] | None  # pod, scalable unit
    rails: tuple[int, ...]


class Waits(NamedTuple):
    """The first blocker of a node."""

    reason: str
    unblock: str
    detail: str


class Placed(NamedTuple):
    """One node. `changed`: number of its newest change."""

    changed: int
    node: str
    place: Place
    waits: Waits | None


def read_places(connection: Connection, after: str, limit: int) -> list[Placed]:
    query = select(*_PLACE).where(nodes.c.id > after).order_by(nodes.c.id).limit(limit)
    return [_placed(row) for row in connection.execute(query)]


def read_moved(connection: Connection, after: int, limit: int) -> list[Placed]:
    query = select(*_PLACE).where(nodes.c.changed > after).order_by(nodes.c.changed).limit(limit)
    return [_placed(row) for row in connection.execute(query)]


def _placed(row: Row[Any]) -> Placed:
    changed, name, kind, state, tenant, pod, unit, ports, reason, unblock, detail = tuple(row)
    where = None if pod is None or unit is None else (int(pod), int(unit))
    place = Place(kind, state, bool(tenant), where, _rails(tuple(RAIL.findall(ports or ""))))
    waits = None if reason is None else Waits(str(reason), unblock or "", detail or "")
    return Placed(number_change(changed), name, place, waits)


@lru_cache(maxsize=1024)
def _rails(found: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(map(int, found))))


def read_working(
    connection: Connection, states: Collection[str], limit: int
) -> list[tuple[str, str, float, str]]:
    """Return (node, state, since, note) of nodes in these states, the longest there first."""
    entered = func.coalesce(cast(json_text(nodes.c.body, "entered_at"), Double), 0.0)
    note = func.coalesce(json_text(nodes.c.body, "note"), "")
    query = select(nodes.c.id, nodes.c.state, entered, note).where(nodes.c.state.in_(states))
    rows = connection.execute(query.order_by(entered, nodes.c.id).limit(limit))
    return [(row[0], row[1], row[2], row[3]) for row in rows]


# ------------------------------------------------------------------------------
# The last days and the last hour, counted by the database from the journal's newest rows.


SCANNED_MAX = 300_000  # newest rows of the journal that are looked at: some 0.3 s
STAYS_MAX = 5000  # moves from which typical stays are measured


@dataclass(frozen=True)
class Course:
    """What happened since a time. Spans, of a day or an hour, count backwards from this one, 0.

    `moves`: (span, from, to) -> hosts. `recent`: moves, the newest first. `hour`: kind -> events.
    `since`: how far back the journal was read.
    """

    since: float
    moves: Mapping[tuple[int, str, str], int]
    recent: tuple[tuple[float, str, str, str], ...]
    opened: Mapping[int, int]
    closed: Mapping[int, int]
    alerts: Mapping[int, int]
    hour: Mapping[str, int]


def read_course(
    connection: Connection, today: float, days: int, now: float, span_s: float = DAY_S
) -> Course:
    """Count what happened in the last spans, of a day each. `today`: begin of that of `now`."""
    since = today - (days - 1) * span_s
    head = int(connection.scalar(select(func.max(journal.c.seq))) or 0)
    first = max(find_row(connection, since, head), head - SCANNED_MAX)
    day = _spans_ago(journal.c.at, today, span_s)
    before = json_text(journal.c.detail, "from")
    after = json_text(journal.c.detail, "to")
    of_states = (journal.c.seq > first) & (journal.c.kind == "state")
    moved = (
        select(day, before, after, func.count())
        .select_from(journal.join(nodes, nodes.c.id == journal.c.node))
        .where(of_states, nodes.c.kind == "host")
        .group_by(day, before, after)
    )
    recent = select(journal.c.at, journal.c.node, before, after).where(of_states)
    recent = recent.order_by(journal.c.seq.desc()).limit(STAYS_MAX)
    raised = (journal.c.seq > first) & (journal.c.kind == "alert_raised")
    hour_first = max(find_row(connection, now - 3600.0, head), head - SCANNED_MAX)
    hour = select(journal.c.kind, func.count()).where(journal.c.seq > hour_first)
    reached = connection.scalar(
        select(journal.c.at).where(journal.c.seq > first).order_by(journal.c.seq).limit(1)
    )

    def count(at: ColumnElement[Any], where: ColumnElement[bool]) -> dict[int, int]:
        ago = _spans_ago(at, today, span_s)
        query = select(ago, func.count()).where(where).group_by(ago)
        return {row[0]: row[1] for row in connection.execute(query)}

    return Course(
        since=max(since, reached or since),
        moves={(r[0], str(r[1]), str(r[2])): r[3] for r in connection.execute(moved)},
        recent=tuple((r[0], r[1], str(r[2]), str(r[3])) for r in connection.execute(recent)),
        opened=count(cases.c.opened_at, cases.c.opened_at >= since),
        closed=count(cases.c.closed_at, cases.c.closed_at >= since),
        alerts=count(journal.c.at, raised),
        hour={r[0]: r[1] for r in connection.execute(hour.group_by(journal.c.kind))},
    )


def find_row(connection: Connection, at: float, head: int) -> int:
    """Return the number of the last row before a time; rows are in the order of their times."""
    low = 0
    high = head  # it is from `low` to here
    while low < high:
        middle = (low + high + 1) // 2
        row = connection.execute(
            select(journal.c.seq, journal.c.at)
            .where(journal.c.seq <= middle)
            .order_by(journal.c.seq.desc())
            .limit(1)
        ).first()
        if row is None or row.at < at:
            low = middle
        else:
            high = row.seq - 1
    return low


def _spans_ago(at: ColumnElement[Any], today: float, span_s: float) -> ColumnElement[Any]:
    """Return how many spans before today's a time is; later ones are today's."""
    return case((at >= today, 0), else_=cast(func.floor((today - at) / span_s), Integer) + 1)


def count_campaigns(connection: Connection) -> dict[tuple[str, str], int]:
    """Return (campaign, state of its nodes) -> nodes, of campaigns that are under way."""
    return _campaigns(connection)
