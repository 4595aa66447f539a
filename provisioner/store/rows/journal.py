"""The journal: append-only, each row's digest over its content and the digest before it.

A changed, removed or inserted row breaks the chain from there on. A chain cannot show that its end
was cut off: keep a head (`ChainCheck.head`) elsewhere and pass it as `known`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, insert, select, text

from provisioner.model.events import Event
from provisioner.ports.errors import StoreFailed
from provisioner.store.rows.journal_base import (
    GENESIS,
    check_signature,
    is_pruned,
    read_base,
    read_kept,
)
from provisioner.store.rows.records import canonical, clean, parse_object
from provisioner.store.schema.schema import journal

# made once: each row needs the one before
_LAST = select(journal.c.seq, journal.c.digest).order_by(journal.c.seq.desc()).limit(1)
_APPENDED = insert(journal)
# Where several daemons append, in one statement: who looks first would find the row before its own
# to be another one by the time that it is written. The digest is that of `chain`.
_APPENDED_BY_SERVER = text(
    "INSERT INTO journal (seq, at, kind, node, detail, digest) "
    "SELECT l.seq + 1, :at, :kind, :node, :detail, encode(sha256(convert_to("
    "'[\"' || l.digest || '\", ' || (l.seq + 1) || ', ' || :rest, 'UTF8')), 'hex') FROM ("
    "(SELECT seq, digest FROM journal ORDER BY seq DESC LIMIT 1) UNION ALL SELECT 0, :genesis "
    "ORDER BY seq DESC LIMIT 1) l"
)

# One page of `read`: some 5 MB of usual rows, so that no caller fetches years by accident.
LIMIT_MAX = 10_000


@dataclass(frozen=True)
class ChainCheck:
    """Whether the chain holds. `head` is the last digest; `broken_at` the first wrong row."""

    rows: int
    head: str
    broken_at: int | None = None
    problem: str = ""

    @property
    def intact(self) -> bool:
        return self.broken_at is None


def append(connection: Connection, event: Event, now: float, node: str = "") -> None:
    """Append an event; `node` is its subject where the event itself names nothing.

    The caller's transaction is the only writer, so that the numbers are dense.
    """
    content = {
        "at": float(now),
        "kind": str(event.KIND),
        "node": clean(event.about or node),
        "detail": canonical(event.to_detail()),
    }
    if connection.dialect.name == "postgresql":
        rest = json.dumps(list(content.values()), ensure_ascii=True)[1:]
        connection.execute(_APPENDED_BY_SERVER, {**content, "rest": rest, "genesis": GENESIS})
        return
    last = connection.execute(_LAST).first()
    seq, previous = (last.seq + 1, last.digest) if last else (1, GENESIS)
    row = {"seq": seq, **content}
    connection.execute(_APPENDED, {**row, "digest": chain(previous, row)})


async def verify(
    look: Callable[[Callable[[Connection], Any]], Awaitable[Any]], known: tuple[int, str] | None
) -> ChainCheck:
    """Follow the whole chain, a page at a time; `look` runs work on one snapshot.

    `known`: (number of rows, head) of an earlier check, kept elsewhere; without it, rows cut off
    at the end are not noticed.
    """
    if known is not None:
        rows, head = known
        if await look(lambda c: is_pruned(c, rows)):
            problem = "it is in an archive: give the archives to compare it"
            return ChainCheck(0, GENESIS, rows, problem)
        if await look(lambda c: digest_at(c, rows)) != head:
            return ChainCheck(0, GENESIS, rows, "not the known journal")
    while True:
        base = await look(read_base)
        check: ChainCheck = await look(check_beginning)
        more = check.intact
        while more:  # ends with the table: each page begins after the last
            check, more = await look(partial(check_page, so_far=check))
        # rows that another process pruned between two of these snapshots are not missing
        if check.intact or await look(read_base) == base:
            return check


def chain(previous: str, row: Mapping[str, Any]) -> str:
    """Return the SHA-256 over the JSON list [previous digest, seq, at, kind, node, detail], hex.

    `at` is written as Python's shortest float, which gives the same double back.
    """
    content = [previous, row["seq"], row["at"], row["kind"], row["node"], row["detail"]]
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()


def read(connection: Connection, after: int, limit: int) -> Sequence[Mapping[str, Any]]:
    """Return rows with `seq` greater than `after`, oldest first; `detail` is an object again."""
    rows = connection.execute(
        select(journal)
        .where(journal.c.seq > after)
        .order_by(journal.c.seq)
        .limit(max(0, min(limit, LIMIT_MAX)))
    )
    return tuple(_with_detail(row) for row in rows)


def of_node(
    connection: Connection, node: str, since: float, limit: int
) -> Sequence[Mapping[str, Any]]:
    """Return a node's rows since a time (seconds since the epoch), oldest first."""
    mine = (journal.c.node == node) & (journal.c.at >= since)
    rows = connection.execute(select(journal).where(mine).order_by(journal.c.seq).limit(limit))
    return tuple(_with_detail(row) for row in rows)


def of_kinds(
    connection: Connection, kinds: Collection[str], after: int, limit: int
) -> Sequence[Mapping[str, Any]]:
    """Return rows of some kinds with `seq` greater than `after`, oldest first."""
    mine = (journal.c.seq > after) & journal.c.kind.in_(sorted(kinds))
    rows = connection.execute(select(journal).where(mine).order_by(journal.c.seq).limit(limit))
    return tuple(_with_detail(row) for row in rows)


def _with_detail(row: Row[Any]) -> Mapping[str, Any]:
    fields = dict(row._mapping)
    return fields | {"detail": parse_object(fields["detail"], f"journal, {row.seq}")}


def check_beginning(connection: Connection) -> ChainCheck:
    """Return where the chain begins: at row 1, or after rows that were archived and removed.

    Of those, the signed record is checked, and each row that stayed.
    """
    base = read_base(connection)
    if not base.through:
        return ChainCheck(0, GENESIS)
    if why := check_signature(connection, base):
        problem = (
            f"the record of the rows that were removed up to here is not to be believed: {why}"
        )
        return ChainCheck(0, GENESIS, base.through, problem)
    before = 0, GENESIS
    for row in read_kept(connection, base):
        follows = row.seq != before[0] + 1 or row.previous == before[1]
        intact = row.previous is not None and chain(row.previous, dict(row._mapping)) == row.digest
        if not (follows and intact):
            problem = f"row {row.seq}, which was kept from an archive, differs from the written one"
            return ChainCheck(0, GENESIS, row.seq, problem)
        before = row.seq, row.digest
    return ChainCheck(base.through, base.head)


def check_page(connection: Connection, so_far: ChainCheck) -> tuple[ChainCheck, bool]:
    """Follow the chain over the next page; the result, and whether there may be more."""
    page = select(journal).order_by(journal.c.seq).limit(LIMIT_MAX)
    if so_far.rows:  # the first page has no lower bound: a row put before row 1 is found too
        page = page.where(journal.c.seq > so_far.rows)
    rows = connection.execute(page).all()
    count = so_far.rows
    head = so_far.head
    for row in rows:
        if row.seq != count + 1:
            problem = f"row {count + 1} is missing, or row {row.seq} was put in"
            return ChainCheck(count, head, broken_at=count + 1, problem=problem), False
        if chain(head, dict(row._mapping)) != row.digest:
            problem = f"row {row.seq} differs from the written one, or one before it was exchanged"
            return ChainCheck(count, head, broken_at=row.seq, problem=problem), False
        count = row.seq
        head = row.digest
    return ChainCheck(count, head), len(rows) == LIMIT_MAX


def digest_at(connection: Connection, seq: int) -> str:
    """Return the digest of one row, "" if it is not there; row 0 is the beginning."""
    if seq == 0:
        return GENESIS
    digest = connection.scalar(select(journal.c.digest).where(journal.c.seq == seq))
    if digest is not None and not isinstance(digest, str):
        raise StoreFailed(f"journal, {seq}: the digest is not a text")
    return digest or ""
