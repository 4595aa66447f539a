"""Rows of the evidence log: entries made from the journal, and the hashes that prove them.

The place in the journal moves in the transaction that writes the entries, so that a crash or a
second leader writes none twice and leaves none out.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, func, insert, select, tuple_, update

from provisioner.model.certificate import Certificate
from provisioner.model.events import EventKind
from provisioner.planning.certification.attestation import write_statement
from provisioner.planning.certification.evidence_log import (
    ENTRIES_MAX,
    KINDS,
    LogEntry,
    ProvenEntry,
    Range,
    build_entry,
    encode_entry,
    fold_subtrees,
    hash_leaf,
    hash_pair,
    list_subtrees,
    plan_consistency,
    plan_inclusion,
)
from provisioner.ports.errors import DamagedRow
from provisioner.store.database.transactions import Transactions
from provisioner.store.repositories.usage import read_details
from provisioner.store.rows.records import parse, parse_each
from provisioner.store.schema.evidence_log_tables import log_entries, log_hashes, log_place
from provisioner.store.schema.schema import certificates, journal

SALT = re.compile(r"[0-9a-f]{64}")
HASH_BYTES = hashlib.sha256().digest_size
ROWS_MAX = 1_000  # of the journal in one transaction


class LogState(NamedTuple):
    """The log as it stands; `size` 0 and no origin: nothing was ever written."""

    origin: str
    secret: str
    size: int
    behind: int  # rows of the journal that are not in it yet


class SqlEvidenceLogRepository:
    """The evidence log on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def advance(self) -> bool:
        """Write entries for the journal's next rows; return whether there are more."""
        return await self._transactions.write(advance_log)

    async def read_state(self) -> LogState:
        return await self._transactions.read(read_state)

    async def read_root(self, size: int) -> bytes:
        """Return the root over the first `size` entries."""
        read = partial(_read_ranges, ranges=((0, size),))
        return (await self._transactions.read(read))[0]

    async def prove_growth(self, old: int, size: int) -> tuple[str, ...]:
        """Return the path from the head at `old` entries to the one at `size`."""
        read = partial(_read_ranges, ranges=plan_consistency(old, size))
        return tuple(step.hex() for step in await self._transactions.read(read))

    async def list_entries(self, node: str, size: int) -> list[tuple[int, LogEntry]]:
        """Return a node's newest entries within the first `size`, the oldest first."""
        return await self._transactions.read(partial(_list_entries, node=node, size=size))

    async def prove_entries(
        self, found: Sequence[tuple[int, LogEntry]], size: int
    ) -> tuple[ProvenEntry, ...]:
        """Return entries with their paths to the head at `size`."""
        return await self._transactions.read(partial(_prove, found=found, size=size))


def advance_log(connection: Connection) -> bool:
    """Write entries for the next rows after the stored place; return whether there are more."""
    place = connection.execute(select(log_place)).first()
    through = _through(place)
    newest = connection.scalar(select(func.max(journal.c.seq))) or 0
    if through >= newest:
        return False
    if place is None:
        if _read_size(connection):
            raise DamagedRow("log_place", "it is missing, and the log has entries")
        first = connection.scalar(select(journal.c.digest).order_by(journal.c.seq).limit(1)) or ""
        values = {
            "origin": f"gpu-provisioner/{hashlib.sha256(first.encode()).hexdigest()[:16]}",
            "salt": secrets.token_hex(32),
        }
        connection.execute(insert(log_place).values(id=1, through=0, **values))
        place = connection.execute(select(log_place)).one()
    columns = (journal.c.seq, journal.c.at, journal.c.kind, journal.c.node, journal.c.detail)
    found = connection.execute(
        select(*columns, journal.c.digest)
        .where(journal.c.seq > through, journal.c.kind.in_(sorted(KINDS)))
        .order_by(journal.c.seq)
        .limit(ROWS_MAX)
    ).all()
    rows = read_details(found)
    _append(connection, rows, place.salt)
    more = len(found) == ROWS_MAX
    through = found[-1].seq if more else newest
    connection.execute(update(log_place).values(through=through))
    return more


def _through(place: Row[Any] | None) -> int:
    """Return the number of the last row of the journal that is in the log."""
    if place is None:
        return 0
    if not isinstance(place.through, int) or place.through < 0:
        raise DamagedRow("log_place", "through is no number of a row")
    if not isinstance(place.salt, str) or not SALT.fullmatch(place.salt):
        raise DamagedRow("log_place", "salt is no secret of ours")
    return place.through


def _append(connection: Connection, rows: Sequence[dict[str, Any]], secret: str) -> None:
    size = _read_size(connection)
    last = _read_last(connection, {row["node"] for row in rows})
    statements = _digest_statements(connection, rows)
    leaves: list[dict[str, Any]] = []
    for row in rows:
        entry = build_entry(row, last.get(row["node"], -1), secret, statements)
        if entry is not None:
            last[entry.node] = size + len(leaves)
            leaf = encode_entry(entry).decode()
            leaves.append({"place": last[entry.node], "node": entry.node, "leaf": leaf})
    if not leaves:
        return
    connection.execute(insert(log_entries), leaves)
    grown = _grow(_read_edge(connection, size), [hash_leaf(e["leaf"].encode()) for e in leaves])
    values = [{"level": level, "place": at, "hash": h} for (level, at), h in grown.items()]
    connection.execute(insert(log_hashes), values)


def _grow(
    edge: dict[tuple[int, int], bytes], leaves: Iterable[bytes]
) -> dict[tuple[int, int], bytes]:
    """Return the hashes that leaves add, given the complete subtrees at the edge."""
    size = sum(1 << level for level, _ in edge)
    known = dict(edge)
    for leaf in leaves:
        level = 0
        place = size
        known[level, place] = leaf
        while place & 1:
            pair = hash_pair(known[level, place - 1], known[level, place])
            level += 1
            place >>= 1
            known[level, place] = pair
        size += 1
    return {key: value for key, value in known.items() if key not in edge}


def _read_size(connection: Connection) -> int:
    newest = connection.scalar(select(func.max(log_entries.c.place)))
    return 0 if newest is None else newest + 1


def _read_last(connection: Connection, nodes: set[str]) -> dict[str, int]:
    """Return the index of the newest entry of each node."""
    query = select(log_entries.c.node, func.max(log_entries.c.place)).where(
        log_entries.c.node.in_(sorted(nodes))
    )
    rows = connection.execute(query.group_by(log_entries.c.node)).all()
    return {row[0]: row[1] for row in rows}


def _digest_statements(connection: Connection, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the digests of certificates; a damaged one has none, and stops no other's entry."""
    wanted = [r["detail"].get("certificate") for r in rows if r["kind"] == EventKind.CERTIFIED]
    columns = (certificates.c.id, certificates.c.node, certificates.c.body)
    found = connection.execute(select(*columns).where(certificates.c.id.in_(wanted)))
    bodies = ((row.id, row.node, row.body) for row in found)
    return {
        one.id: hashlib.sha256(write_statement(one)).hexdigest()
        for one in parse_each(connection, Certificate, "certificates", bodies)
    }


def _read_edge(connection: Connection, size: int) -> dict[tuple[int, int], bytes]:
    return _read_hashes(connection, list_subtrees(0, size))


def _read_hashes(
    connection: Connection, keys: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    columns = tuple_(log_hashes.c.level, log_hashes.c.place)
    found: dict[tuple[int, int], bytes] = {}
    for first in range(0, len(keys), 400):  # SQLite takes some thousand values in one statement
        query = select(log_hashes).where(columns.in_(keys[first : first + 400]))
        rows = connection.execute(query)
        found |= {(r.level, r.place): r.hash for r in rows if is_hash(r.hash)}
    for level, place in keys:  # without one nothing can be proved, nor written after it
        if (level, place) not in found:
            raise DamagedRow(f"log_hashes, {level} {place}", "the hash is missing or none")
    return found


def is_hash(stored: object) -> bool:
    return isinstance(stored, bytes) and len(stored) == HASH_BYTES


def _read_ranges(connection: Connection, ranges: Sequence[Range]) -> list[bytes]:
    """Return the hash of each range of leaves."""
    trees = [list_subtrees(begin, end) for begin, end in ranges]
    hashes = _read_hashes(connection, sorted({key for tree in trees for key in tree}))
    return [fold_subtrees([hashes[key] for key in tree]) for tree in trees]


def read_state(connection: Connection) -> LogState:
    """Return the log's name, size and how far it is behind the journal."""
    place = connection.execute(select(log_place)).first()
    through = _through(place)
    waiting = select(func.count()).where(journal.c.seq > through, journal.c.kind.in_(sorted(KINDS)))
    behind = connection.scalar(waiting) or 0
    if place is None:
        return LogState("", "", 0, behind)
    return LogState(place.origin, place.salt, _read_size(connection), behind)


def _list_entries(connection: Connection, node: str, size: int) -> list[tuple[int, LogEntry]]:
    query = (
        select(log_entries)
        .where(log_entries.c.node == node, log_entries.c.place < size)
        .order_by(log_entries.c.place.desc())
        .limit(ENTRIES_MAX)
    )
    rows = connection.execute(query).all()
    for row in rows:
        if row.place < 0:
            raise DamagedRow(f"log_entries, {row.place}", "it has no place in the log")
    return [(r.place, parse(LogEntry, r.leaf, f"log_entries, {r.place}")) for r in reversed(rows)]


def _prove(
    connection: Connection, found: Sequence[tuple[int, LogEntry]], size: int
) -> tuple[ProvenEntry, ...]:
    plans = [plan_inclusion(index, size) for index, _ in found]
    ranges = sorted({step for plan in plans for step in plan})
    hashes = dict(zip(ranges, _read_ranges(connection, ranges), strict=True))
    return tuple(
        ProvenEntry(index=index, entry=entry, path=tuple(hashes[step].hex() for step in plan))
        for (index, entry), plan in zip(found, plans, strict=True)
    )
