"""Figures of the whole fleet for metrics, counted by the database: no row leaves it as a record.

65,536 nodes are read in some 0.1 s on the lane of readers; parsing them as records takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, Table, case, cast, func, select

from provisioner.model.credential import CredentialSummary
from provisioner.model.integrations.audit_export import ExportStatus
from provisioner.model.node import State
from provisioner.store.rows import credential_rows, export_rows
from provisioner.store.rows.json_text import json_text
from provisioner.store.schema.access_schema import requests
from provisioner.store.schema.campaign_schema import campaign_nodes, campaigns
from provisioner.store.schema.case_schema import cases
from provisioner.store.schema.schema import alerts, certificates, journal, nodes, operations

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
    """All of it, as of one moment."""

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
