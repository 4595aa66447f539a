"""Removes rows of the journal that a verified archive holds: one transaction for each archive."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from provisioner.model.access import RequestState
from provisioner.model.campaign import CampaignState
from provisioner.model.certificate import Certificate
from provisioner.model.events.request_events import JournalPruned
from provisioner.model.operation import OperationStatus
from provisioner.ports.errors import StaleWrite
from provisioner.store.rows import journal as chain
from provisioner.store.rows.journal import (
    Base,
    allow_deletion,
    read_base,
    read_newest_base,
    write_base,
)
from provisioner.store.rows.node_rows import parse_or_stand_in
from provisioner.store.rows.records import parse
from provisioner.store.schema.evidence_log_tables import log_place
from provisioner.store.schema.schema import (
    audit_exports,
    campaigns,
    cases,
    certificates,
    journal,
    journal_links,
    nodes,
    operations,
    proofs,
    requests,
    site_state,
    webhook_deliveries,
    webhooks,
)
from provisioner.store.schema.usage_tables import usage_place
from provisioner.store.signing import Signer

# ------------------------------------------------------------------------------
# The rows of the journal that live decisions still need, so that they are not pruned.
#
# By node: since its open operation or case began, since the evidence of its certificate in force
# was measured, since it was handed over to its tenant. Beside that: requests without an end,
# campaigns that are not over, and rows that webhooks or receivers of the exported journal have not
# received.


# Checks of a certificate, and steps before a handover, lie within a day before it.
BEFORE_S = 86_400.0
OPEN_REQUESTS = frozenset(
    {RequestState.WAITING, RequestState.RUNNING, RequestState.UNDER_WAY, RequestState.UNFINISHED}
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
    unexported_after: float = float("inf")  # rows with a greater number: of exports and folds

    def keep_from(self, node: str, at: float) -> None:
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
    folded = connection.scalar(select(usage_place.c.through))
    logged = connection.scalar(select(log_place.c.through))
    positions = [p for p in (unexported, folded, logged) if p is not None]
    needs.unexported_after = min(positions, default=float("inf"))
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


PART = 500  # rows that one statement removes


@dataclass(frozen=True)
class Span:
    """Rows that a verified archive holds: their digests in order, and the digest before them."""

    first: int
    previous: str
    digests: Sequence[str] = field(repr=False)
    sha256: str  # of the archive

    @property
    def last(self) -> int:
        return self.first + len(self.digests) - 1

    def digest_before(self, seq: int) -> str:
        """Return the digest of the row before one of the span's."""
        return self.previous if seq == self.first else self.digests[seq - self.first - 1]


@dataclass(frozen=True)
class Removal:
    """Which rows go, and why which others stay."""

    going: tuple[int, ...]
    staying: tuple[int, ...]
    reasons: Mapping[str, int]


def find_removal(
    connection: Connection, span: Span, needs: Needs, base: Base | None = None
) -> Removal:
    """Return which rows of an archive can go. Raises StaleWrite if the live rows are not its own.

    Nothing can go while a restore is not settled. `base`: as if the archives before were pruned.
    """
    if why := connection.scalar(select(site_state.c.look_only)):
        raise StaleWrite(f"a restore is not settled: {why}")
    base = read_newest_base(connection, base or Base())
    if span.first > base.through + 1:
        raise StaleWrite(f"the archive of row {base.through + 1} is missing")
    columns = journal.c
    within = (columns.seq >= span.first) & (columns.seq <= span.last)
    going: list[int] = []
    staying: list[int] = []
    reasons = Counter[str]()
    unpruned = 0
    for row in connection.execute(select(journal).where(within).order_by(columns.seq)):
        if row.digest != span.digests[row.seq - span.first]:
            raise StaleWrite(f"row {row.seq} is not the one that the archive holds")
        unpruned += row.seq > base.through
        why = needs.explain(dict(row._mapping))
        if why:
            reasons[why] += 1
        (staying if why else going).append(row.seq)
    if unpruned != max(0, span.last - max(base.through, span.first - 1)):
        raise StaleWrite(f"rows between {span.first} and {span.last} are missing")
    return Removal(tuple(going), tuple(staying), dict(reasons))


def prune_unneeded(
    connection: Connection, span: Span, signer: Signer, by: str, now: float
) -> Removal:
    """Remove what nothing needs at this moment, as `prune` does. Raises StaleWrite.

    Needs are read in the transaction that removes: a certificate that was issued a moment before
    rests on rows that no reading before it could keep.
    """
    return prune(connection, span, read_needs(connection, now), signer, by, now)


def prune(
    connection: Connection, span: Span, needs: Needs, signer: Signer, by: str, now: float
) -> Removal:
    """Remove all rows that may go, sign the new beginning of the chain, and record it. Raises
    StaleWrite.
    """
    removal = find_removal(connection, span, needs)
    base = read_base(connection)
    if not removal.going and span.last <= base.through:
        return removal
    after = base
    if span.last > base.through:
        after = Base(span.last, span.digests[-1])
    allow_deletion(connection, base, after.through)
    links = journal_links
    seq = journal.c.seq
    for begin in range(0, len(removal.going), PART):
        part = removal.going[begin : begin + PART]
        connection.execute(delete(journal).where(seq.in_(part)))
        connection.execute(delete(links).where(links.c.seq.in_(part)))
    for number in removal.staying:
        if number > base.through:
            link = {"seq": number, "previous": span.digest_before(number)}
            connection.execute(insert(links).values(**link))
    write_base(connection, after, signer)
    event = JournalPruned(
        by=by,
        first=span.first,
        last=span.last,
        removed=len(removal.going),
        kept=len(removal.staying),
        archive_sha256=span.sha256,
    )
    chain.append(connection, event, now)
    return removal
