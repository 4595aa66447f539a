"""The work that waits for people, counted by the database: no node leaves it as a record.

65,536 nodes are read in some 0.1 s on the lane of readers; only nodes with a blocker are grouped.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Double, and_, case, cast, func, or_, select

from provisioner.model.alert import ANY
from provisioner.model.node import State
from provisioner.store.rows.json_text import json_text
from provisioner.store.schema.schema import alerts, certificates, nodes, overrides

GROUPS_MAX = 100  # groups of blocked nodes, and of alerts
CERTIFICATES_MAX = 100
RETRIED_MAX = 5000  # nodes of one bulk retry
EXPIRES_SOON_S = 7 * 86400.0
RETRYABLE = (State.QUARANTINED.value, State.REPAIRING.value)

_REASON = json_text(nodes.c.body, "blockers[0].reason")
_UNBLOCK = json_text(nodes.c.body, "blockers[0].unblock")
_IS_BLOCKED = and_(nodes.c.state != State.RETIRED.value, _REASON.is_not(None))


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
    """All of it, as of one moment."""

    blocked: tuple[BlockedGroup, ...]
    alerts: tuple[AlertGroup, ...]
    certificates: tuple[ExpiringCertificate, ...]


def read_waiting(connection: Connection, now: float) -> Waiting:
    """Read everything in one snapshot."""
    return Waiting(
        blocked=_read_blocked(connection),
        alerts=_read_alerts(connection, now),
        certificates=_read_certificates(connection, now),
    )


def _read_blocked(connection: Connection) -> tuple[BlockedGroup, ...]:
    retryable = func.sum(case((nodes.c.state.in_(RETRYABLE), 1), else_=0))
    detail = func.min(json_text(nodes.c.body, "blockers[0].detail"))
    number = func.count()
    query = select(_REASON, _UNBLOCK, number, retryable, func.min(nodes.c.id), detail)
    query = query.where(_IS_BLOCKED).group_by(_REASON, _UNBLOCK)
    rows = connection.execute(query.order_by(number.desc(), _REASON).limit(GROUPS_MAX))
    return tuple(
        BlockedGroup(str(r[0]), r[1] or "", r[2], int(r[3] or 0), r[4], r[5] or "") for r in rows
    )


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
