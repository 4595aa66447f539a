"""Pages of rows for lists: by the primary key, so that a page costs the same wherever it begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, select

from provisioner.model.certificate import Certificate
from provisioner.model.node import Node
from provisioner.model.operation import Operation
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows import records
from provisioner.store.rows.evidence_rows import read_revoked_at
from provisioner.store.rows.node_rows import parse_or_stand_in
from provisioner.store.rows.operation_rows import readable_operations
from provisioner.store.rows.records import parse, parse_object
from provisioner.store.schema.schema import certificates, journal, nodes, operations

# a node's columns beside its body, in the order of a fleet's lines
COLUMNS: Mapping[str, Any] = {
    "node": nodes.c.id,
    "kind": nodes.c.kind,
    "state": nodes.c.state,
    "tenant": nodes.c.tenant,
    "release": nodes.c.release,
    "profile": nodes.c.profile,
    "rack": nodes.c.rack,
}
WINDOW = 5000  # rows of the journal that one page looks at


def nodes_page(
    connection: Connection, *, after: str, limit: int, narrowed: Mapping[str, Collection[str]]
) -> tuple[Node, ...]:
    """Return nodes by id, after one. `narrowed`: column of COLUMNS -> its allowed values."""
    query = select(nodes.c.id, nodes.c.body).order_by(nodes.c.id).limit(limit)
    if after:
        query = query.where(nodes.c.id > after)
    for name, values in sorted(narrowed.items()):
        query = query.where(COLUMNS[name].in_(sorted(values)))
    rows = connection.execute(query).all()
    return tuple(parse_or_stand_in(connection, r.id, r.body) for r in rows)


def fleet(connection: Connection, tenant: str | None) -> Sequence[tuple[str, ...]]:
    """Return (id, kind, state, tenant, release, profile, rack) of every node, without its body."""
    columns = [COLUMNS[name] for name in COLUMNS]
    query = select(*columns).order_by(nodes.c.id)
    if tenant is not None:
        query = query.where(nodes.c.tenant == tenant)
    return [_texts(row) for row in connection.execute(query)]


def summary(connection: Connection, tenant: str | None) -> Sequence[tuple[str, str, str, str, int]]:
    """Return (kind, state, release, tenant, how many); read off an index."""
    n = nodes.c
    query = select(n.kind, n.state, n.release, n.tenant, func.count())
    if tenant is not None:
        query = query.where(n.tenant == tenant)
    groups = query.group_by(n.kind, n.state, n.release, n.tenant)
    return [(*_texts(r[:4]), r[4]) for r in connection.execute(groups)]


def _texts(row: Sequence[Any]) -> tuple[Any, ...]:
    """SQLite keeps bytes in a column of texts, if it is given them; told as Python does."""
    return tuple(map(str, row)) if bytes in map(type, row) else tuple(row)


class CertificateRow(NamedTuple):
    """One row of a list. `certificate` None: it cannot be read, for the reason in `damaged`."""

    id: str
    node: str
    issued_at: float
    revoked_at: float | None
    revoked_reason: str
    certificate: Certificate | None
    damaged: str = ""


def certificates_page(
    connection: Connection, *, before: tuple[float, str] | None, limit: int, node: str
) -> tuple[CertificateRow, ...]:
    """Return certificates, the newest first; `node` "": of all. A damaged row is one of them."""
    c = certificates.c
    query: Select[Any] = select(c.body, c.id, c.node, c.issued_at, c.revoked_at, c.revoked_reason)
    if node:
        query = query.where(c.node == node)
    if before is not None:
        at, id_ = before
        query = query.where((c.issued_at < at) | ((c.issued_at == at) & (c.id < id_)))
    rows = connection.execute(query.order_by(c.issued_at.desc(), c.id.desc()).limit(limit))
    return tuple(_read_certificate(connection, row) for row in rows)


def count_certificates(connection: Connection, node: str) -> int:
    """Return the number of certificates of the whole list; `node` "": of all."""
    query = select(func.count()).select_from(certificates)
    return connection.scalar(query.where(certificates.c.node == node) if node else query) or 0


def _read_certificate(connection: Connection, row: Any) -> CertificateRow:
    where = f"certificates, {row.id}"
    certificate: Certificate | None = None
    problem = ""
    try:
        certificate = parse(Certificate, row.body, where)
        if (certificate.id, certificate.node) != (row.id, row.node):
            raise DamagedRow(where, f"its body is certificate {certificate.id[:60]}")
    except DamagedRow as error:
        records.record(connection.engine, str(row.node), error)
        certificate = None
        problem = str(error)
    return CertificateRow(
        id=str(row.id),
        node=str(row.node),
        issued_at=row.issued_at if isinstance(row.issued_at, float) else 0.0,
        revoked_at=read_revoked_at(row),
        revoked_reason=str(row.revoked_reason or ""),
        certificate=certificate,
        damaged=problem,
    )


def operations_page(
    connection: Connection, *, after: str, limit: int, status: str, node: str
) -> tuple[Operation, ...]:
    o = operations.c
    query: Select[Any] = select(operations).order_by(o.id).limit(limit)
    if after:
        query = query.where(o.id > after)
    if status:
        query = query.where(o.status == status)
    if node:
        query = query.where(o.node == node)
    return readable_operations(connection, query)


def journal_head(connection: Connection) -> tuple[int, str]:
    """Return (number, digest) of the newest row; (0, "") of an empty journal."""
    newest = select(journal.c.seq, journal.c.digest).order_by(journal.c.seq.desc()).limit(1)
    row = connection.execute(newest).first()
    return (0, "") if row is None else (row.seq, row.digest)


def journal_page(
    connection: Connection,
    *,
    after: int,
    limit: int,
    kinds: Collection[str] = (),
    node: str = "",
    backwards: bool = False,
) -> tuple[tuple[Mapping[str, Any], ...], int]:
    """Return rows after (backwards: before) a number, and the number of the last one that was read.

    At most WINDOW rows are read, unless a node is named, which has an index.
    """
    j = journal.c
    query: Select[Any] = select(journal)
    if backwards:
        top = after or journal_head(connection)[0] + 1
        query = query.where(j.seq < top).order_by(j.seq.desc())
        edge = max(top - WINDOW, 1)
        query = query if node else query.where(j.seq >= edge)
    else:
        query = query.where(j.seq > after).order_by(j.seq)
        edge = after + WINDOW
        query = query if node else query.where(j.seq <= edge)
    if kinds:
        query = query.where(j.kind.in_(sorted(kinds)))
    if node:
        query = query.where(j.node == node)
    rows = connection.execute(query.limit(limit)).all()
    page = tuple(
        dict(row._mapping) | {"detail": parse_object(row.detail, f"journal, {row.seq}")}
        for row in rows
    )
    if len(page) == limit or node:
        return page, page[-1]["seq"] if page else 0
    if backwards:
        return page, edge if edge > 1 else 0
    return page, min(edge, journal_head(connection)[0])
