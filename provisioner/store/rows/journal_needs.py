"""The rows of the journal that live decisions still need, so that they are not pruned.

By node: since its open operation or case began, since the evidence of its certificate in force was
measured, since it was handed over to its tenant. Beside that: requests without an end, campaigns
that are not over, and rows that webhooks or receivers of the exported journal have not received.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from provisioner.model.access import RequestState
from provisioner.model.campaign import CampaignState
from provisioner.model.certificate import Certificate
from provisioner.model.operation import OperationStatus
from provisioner.store.rows.node_rows import parse_or_stand_in
from provisioner.store.rows.records import parse
from provisioner.store.schema.access_schema import requests
from provisioner.store.schema.campaign_schema import campaigns
from provisioner.store.schema.case_schema import cases
from provisioner.store.schema.journal_schema import audit_exports
from provisioner.store.schema.schema import certificates, nodes, operations, proofs
from provisioner.store.schema.webhook_schema import webhook_deliveries, webhooks

# Checks of a certificate, and steps before a handover, lie within a day before it.
BEFORE_S = 86_400.0
OPEN_REQUESTS = frozenset(
    {
        RequestState.WAITING,
        RequestState.RUNNING,
        RequestState.UNDER_WAY,
        RequestState.UNFINISHED,
    }
)
OVER = frozenset({CampaignState.ABORTED, CampaignState.DONE})
CAMPAIGN_KINDS = frozenset({"campaign", "campaign_node", "pin"})


@dataclass
class Needs:
    """The needed rows. `since`: by node, the time from which on its rows are needed."""

    since: dict[str, float] = field(default_factory=dict)
    requests: frozenset[int] = frozenset()
    campaigns_since: float = float("inf")
    untold_after: float = float("inf")  # rows with a greater number: of a webhook
    deliveries: frozenset[int] = frozenset()
    unexported_after: float = float("inf")  # rows with a greater number: of an audit export

    def keep_from(self, node: str, at: float) -> None:
        """Keep a node's rows from a time on."""
        self.since[node] = min(self.since.get(node, at), at)

    def explain(self, row: Mapping[str, Any]) -> str:
        """Return why a row is needed; "" if it is not."""
        if row["node"] and row["at"] >= self.since.get(row["node"], float("inf")):
            return "operation, case, certificate or handover of its node"
        if row["kind"] in CAMPAIGN_KINDS and row["at"] >= self.campaigns_since:
            return "campaign"
        if row["seq"] > self.untold_after or row["seq"] in self.deliveries:
            return "webhook"
        if row["seq"] > self.unexported_after:
            return "audit export"
        if row["kind"] == "asked" and self.requests:
            return "request" if json.loads(row["detail"]).get("id") in self.requests else ""
        return ""


def read_needs(connection: Connection, now: float) -> Needs:
    """Return the present needs."""
    needs = Needs()
    open_operations = select(operations.c.node, operations.c.opened_at).where(
        operations.c.status != str(OperationStatus.DONE)
    )
    open_cases = select(cases.c.node, cases.c.opened_at).where(cases.c.closed_at == 0.0)
    for query in (open_operations, open_cases):
        for node, at in connection.execute(query):
            needs.keep_from(node, at)
    _keep_certificates(connection, needs, now)
    _keep_handovers(connection, needs)
    waiting = requests.c.state.in_(sorted(str(s) for s in OPEN_REQUESTS))
    needs.requests = frozenset(connection.scalars(select(requests.c.id).where(waiting)))
    going = campaigns.c.state.not_in(sorted(str(s) for s in OVER))
    oldest = connection.scalar(select(func.min(campaigns.c.created_at)).where(going))
    needs.campaigns_since = float("inf") if oldest is None else oldest
    untold = connection.scalar(select(func.min(webhooks.c.position)))
    needs.untold_after = float("inf") if untold is None else untold
    unexported = connection.scalar(select(func.min(audit_exports.c.position)))
    needs.unexported_after = float("inf") if unexported is None else unexported
    needs.deliveries = frozenset(connection.scalars(select(webhook_deliveries.c.seq)))
    return needs


def _keep_certificates(connection: Connection, needs: Needs, now: float) -> None:
    columns = certificates.c
    query = select(columns.id, columns.body).where(columns.revoked_at.is_(None))
    for row in connection.execute(query.execution_options(yield_per=500)):
        certificate = parse(Certificate, row.body, f"certificates, {row.id}")
        if certificate.expires_at > now:
            measured = [gate.proved_at for gate in certificate.gates]
            needs.keep_from(certificate.node, min([certificate.issued_at, *measured]) - BEFORE_S)


def _keep_handovers(connection: Connection, needs: Needs) -> None:
    newest = select(proofs.c.node, func.max(proofs.c.confirmed_at)).group_by(proofs.c.node)
    confirmed = {row[0]: float(row[1]) for row in connection.execute(newest)}
    query = select(nodes.c.id, nodes.c.body).where(nodes.c.tenant != "")
    for row in connection.execute(query):
        node = parse_or_stand_in(connection, row.id, row.body)
        needs.keep_from(
            node.id, min(node.entered_at, confirmed.get(node.id, node.entered_at)) - BEFORE_S
        )
