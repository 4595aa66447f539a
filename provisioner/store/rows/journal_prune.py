"""Removes rows of the journal that a verified archive holds: one transaction for each archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, insert, select

from provisioner.model.events.request_events import JournalPruned
from provisioner.ports.errors import StaleWrite
from provisioner.store.rows import journal as chain
from provisioner.store.rows.journal_base import (
    Base,
    allow_deletion,
    read_base,
    read_newest_base,
    write_base,
)
from provisioner.store.rows.journal_needs import Needs, read_needs
from provisioner.store.schema.journal_schema import journal_links
from provisioner.store.schema.recovery_schema import site_state
from provisioner.store.schema.schema import journal
from provisioner.store.signing import Signer

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
        """Return the number of the last row."""
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
