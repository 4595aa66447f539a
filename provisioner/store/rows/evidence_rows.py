"""Rows of observations and proofs: inventories, reports, evidence, certificates, proofs, matrices.

Rows are added, never changed; only a certificate's revocation is written onto its row, once.
"""

from __future__ import annotations

import hashlib
import zlib

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from provisioner.model.certificate import Certificate, Revocation
from provisioner.model.health import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.tenant import ReleaseProof
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows.records import clean, parse, parse_inventory
from provisioner.store.schema.schema import (
    certificates,
    evidence,
    inventories,
    matrices,
    proofs,
    reports,
)

# made once: the watch reads a certificate at every look, a turn reads inventories and reports
_CERTIFICATE = select(certificates.c.body).where(certificates.c.id == bindparam("name"))
_NEWEST = (
    select(inventories.c.body)
    .where(inventories.c.node == bindparam("name"))
    .order_by(inventories.c.id.desc())
    .limit(1)
)
_REVOKED = select(certificates.c.revoked_at).where(certificates.c.id == bindparam("name"))
_KEPT = select(evidence.c.size).where(evidence.c.digest == bindparam("wanted"))


def put_inventory(connection: Connection, inventory: Inventory, now: float) -> None:
    """Store an inventory, unless it is equal to the last one."""
    body = inventory.model_dump_json()
    digest = hashlib.sha256(body.encode()).hexdigest()  # as `Record.digest`, without a second dump
    newest = (
        select(inventories.c.digest)
        .where(inventories.c.node == inventory.node)
        .order_by(inventories.c.id.desc())
        .limit(1)
    )
    if connection.scalar(newest) != digest:
        connection.execute(
            insert(inventories).values(node=inventory.node, digest=digest, body=body, seen_at=now)
        )


def read_inventory(connection: Connection, node: str) -> Inventory | None:
    """Return the last observed inventory of a node."""
    body = connection.scalar(_NEWEST, {"name": node})
    try:
        return None if body is None else parse_inventory(body)
    except DamagedRow as error:
        raise DamagedRow(f"inventories, {node}", error.problem) from None


def put_report(connection: Connection, report: HealthReport) -> None:
    """Keep a validation's results beside the earlier ones."""
    connection.execute(
        insert(reports).values(
            node=report.node,
            digest=report.digest(),
            body=report.model_dump_json(),
            ended_at=report.ended_at,
        )
    )


def read_report(connection: Connection, node: str) -> HealthReport | None:
    """Return the results of a node's last validation."""
    body = connection.scalar(
        select(reports.c.body).where(reports.c.node == node).order_by(reports.c.id.desc()).limit(1)
    )
    return None if body is None else parse(HealthReport, body, f"reports, {node}")


def read_reports(connection: Connection, node: str, since: float) -> tuple[HealthReport, ...]:
    """Return the node's reports since a time, the newest first; at most 100."""
    query = (
        select(reports.c.body)
        .where(reports.c.node == node, reports.c.ended_at >= since)
        .order_by(reports.c.id.desc())
        .limit(100)
    )
    rows = connection.scalars(query)
    return tuple(parse(HealthReport, body, f"reports, {node}") for body in rows)


def put_evidence(connection: Connection, digest: str, size: int, packed: bytes) -> None:
    """Keep raw output under its digest; the same output is kept once."""
    if connection.scalar(_KEPT, {"wanted": digest}) is not None:
        return
    try:
        with connection.begin_nested():
            connection.execute(insert(evidence).values(digest=digest, size=size, body=packed))
    except IntegrityError:
        return  # another daemon stored the same text in the meantime


def pack(text: str) -> tuple[str, int, bytes]:
    """Return digest, size in bytes, and compressed form of a text; outside of any transaction."""
    # surrogatepass: a command's output is stored unchanged, even where it is not Unicode
    raw = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest(), len(raw), zlib.compress(raw)


def read_evidence(connection: Connection, digest: str) -> str | None:
    """Return the text with this digest; `DamagedRow` if the stored text has another one."""
    row = connection.execute(
        select(evidence.c.size, evidence.c.body).where(evidence.c.digest == digest)
    ).first()
    if row is None:
        return None
    try:
        raw = zlib.decompressobj().decompress(row.body, row.size + 1)
    except zlib.error:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != digest:
        raise DamagedRow(f"evidence, {digest}", "it differs from the stored text")
    return raw.decode("utf-8", "surrogatepass")


def put_certificate(connection: Connection, certificate: Certificate) -> None:
    """Keep a certificate; its id must be new."""
    connection.execute(
        insert(certificates).values(
            id=certificate.id,
            node=certificate.node,
            body=certificate.model_dump_json(),
            issued_at=certificate.issued_at,
            revoked_reason="",
        )
    )


def read_certificate(connection: Connection, certificate_id: str) -> Certificate | None:
    """Return a certificate, revoked or not: ask `revoked` as well."""
    body = connection.scalar(_CERTIFICATE, {"name": certificate_id})
    return None if body is None else parse(Certificate, body, f"certificates, {certificate_id}")


def revoke(connection: Connection, certificate_id: str, reason: str, now: float) -> None:
    """Revoke for good; the first reason and time stay. A certificate that does not exist changes
    nothing.
    """
    connection.execute(
        update(certificates)
        .where(certificates.c.id == certificate_id, certificates.c.revoked_at.is_(None))
        .values(revoked_at=now, revoked_reason=clean(reason))
    )


def revoked(connection: Connection, certificate_id: str) -> bool:
    """Return whether it is revoked; a certificate that is not in the store counts as revoked."""
    row = connection.execute(_REVOKED, {"name": certificate_id}).first()
    return row is None or row.revoked_at is not None


def read_revocations(connection: Connection) -> tuple[Revocation, ...]:
    """Return all revocations, the oldest first; expired or not."""
    query = (
        select(certificates)
        .where(certificates.c.revoked_at.is_not(None))
        .order_by(certificates.c.revoked_at, certificates.c.id)
    )
    return tuple(
        Revocation(
            certificate=row.id,
            node=row.node,
            # whatever stands in the column of a revocation, the certificate is revoked
            revoked_at=row.revoked_at if isinstance(row.revoked_at, float) else 0.0,
            reason=str(row.revoked_reason or ""),
        )
        for row in connection.execute(query)
    )


def put_proof(connection: Connection, proof: ReleaseProof) -> None:
    """Store the proof of a node's release into a customer VRF."""
    connection.execute(
        insert(proofs).values(
            node=proof.node,
            certificate=proof.certificate,
            tenant=proof.tenant,
            body=proof.model_dump_json(),
            confirmed_at=proof.confirmed_at,
        )
    )


def read_proof(connection: Connection, node: str) -> ReleaseProof | None:
    """Return the proof of a node's last release."""
    body = connection.scalar(
        select(proofs.c.body).where(proofs.c.node == node).order_by(proofs.c.id.desc()).limit(1)
    )
    return None if body is None else parse(ReleaseProof, body, f"proofs, {node}")


def put_matrix(connection: Connection, digest: str, text: str, now: float) -> None:
    """Keep a matrix that was used; the same one is kept once."""
    if connection.scalar(select(matrices.c.digest).where(matrices.c.digest == digest)) is None:
        connection.execute(
            insert(matrices).values(digest=digest, body=clean(text), first_used_at=now)
        )
