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

from sqlalchemy import Connection, Row, delete, func, insert, inspect, select, text, update

from provisioner.model.events import Event
from provisioner.model.integrations.audit_export import ExportOutcome, ExportStatus
from provisioner.model.integrations.webhook import JournalRow
from provisioner.planning.certification.attestation import NotAnAttestation, parse_envelope
from provisioner.ports.errors import StoreFailed
from provisioner.store.rows.credential_rows import believed
from provisioner.store.rows.records import canonical, clean, parse_object
from provisioner.store.schema.schema import audit_exports as exports
from provisioner.store.schema.schema import journal, journal_base, journal_links
from provisioner.store.signing import Signer, signed

# ------------------------------------------------------------------------------
# Where the live journal begins after rows were archived and removed.
#
# The base names the last row that an archive took over and its digest, from which the chain goes
# on. Rows up to it that live decisions still need stay, each with the digest of the row before it.
# The base and the list of those rows are signed, so that rights on the database alone remove no
# row.


BASE_PAYLOAD = "application/vnd.gpu-provisioner.journal-base.v1+json"
GENESIS = "0" * 64


@dataclass(frozen=True)
class Base:
    """The last row that was archived and removed, and its digest; row 0 is the beginning."""

    through: int = 0
    head: str = GENESIS


def read_base(connection: Connection) -> Base:
    """Return the base; that of an older schema, which has none, is the beginning."""
    if not inspect(connection).has_table(journal_base.name):
        return Base()
    row = connection.execute(select(journal_base)).first()
    return Base() if row is None else Base(row.through, row.head)


def read_newest_base(connection: Connection, base: Base) -> Base:
    """Return the stored base if it is further than one that was read before or is assumed.

    Another process may have pruned since then.
    """
    stored = read_base(connection)
    return stored if stored.through > base.through else base


def is_pruned(connection: Connection, seq: int) -> bool:
    if not 0 < seq <= read_base(connection).through:
        return False
    return connection.scalar(select(journal.c.seq).where(journal.c.seq == seq)) is None


def check_signature(connection: Connection, base: Base) -> str:
    """Return the fault of the base's signed record; "" if it has none."""
    text = connection.scalar(select(journal_base.c.envelope)) or ""
    try:
        envelope = parse_envelope(text)
    except NotAnAttestation as error:
        return str(error)
    if envelope.payload_type != BASE_PAYLOAD or not signed(envelope, believed(connection)):
        return "no key of this site that is believed has signed it"
    if envelope.payload != describe(connection, base):
        return "it differs from the signed content"
    return ""


def describe(connection: Connection, base: Base) -> bytes:
    """Return the signed text: the base, and a digest over the rows that stayed before it."""
    digest = hashlib.sha256()
    count = 0
    for row in read_kept(connection, base):
        digest.update(f"{row.seq} {row.previous} {row.digest}\n".encode())
        count += 1
    document = {
        "through": base.through,
        "head": base.head,
        "kept": count,
        "keptSha256": digest.hexdigest(),
    }
    return json.dumps(document, sort_keys=True).encode()


def read_kept(connection: Connection, base: Base) -> list[Row[tuple[object, ...]]]:
    """Return the rows up to the base that stayed, with `previous`; None for one without a link."""
    joined = journal.outerjoin(journal_links, journal_links.c.seq == journal.c.seq)
    query = select(journal, journal_links.c.previous).select_from(joined)
    return list(
        connection.execute(query.where(journal.c.seq <= base.through).order_by(journal.c.seq))
    )


def write_base(connection: Connection, base: Base, signer: Signer) -> None:
    """Replace the base and sign it anew; no row may be deleted from then on."""
    payload = describe(connection, base)
    row = {
        "id": 1,
        "through": base.through,
        "head": base.head,
        "envelope": signer.seal(BASE_PAYLOAD, payload),
        "pruning": 0,
    }
    connection.execute(delete(journal_base))
    connection.execute(journal_base.insert().values(**row))


def allow_deletion(connection: Connection, base: Base, through: int) -> None:
    """Let this transaction delete rows up to one; `write_base` forbids it again."""
    row = {"id": 1, "through": base.through, "head": base.head, "envelope": "", "pruning": through}
    connection.execute(delete(journal_base))
    connection.execute(journal_base.insert().values(**row))


# ------------------------------------------------------------------------------
# The rows of receivers of the exported journal: how far each has taken it.


def set_receivers(connection: Connection, receivers: Collection[str]) -> None:
    """Forget the positions of other receivers, which would hold rows back from a prune."""
    connection.execute(delete(exports).where(exports.c.receiver.not_in(sorted(receivers))))
    present = set(connection.scalars(select(exports.c.receiver)))
    for receiver in sorted(set(receivers) - present):
        values = {"position": 0, "rejected": 0, "taken_at": 0.0, "failing_since": 0.0}
        connection.execute(insert(exports).values(receiver=receiver, error="", **values))


def read_exports(connection: Connection) -> tuple[ExportStatus, ...]:
    """Return every receiver by name, with the number of rows that it has not taken."""
    waiting = (
        select(func.count())
        .select_from(journal)
        .where(journal.c.seq > exports.c.position)
        .scalar_subquery()
    )
    query = select(exports, waiting.label("waiting")).order_by(exports.c.receiver)
    return tuple(_export(row._mapping) for row in connection.execute(query))


def _export(row: Mapping[Any, Any]) -> ExportStatus:
    """Return a receiver; of one whose row is damaged, that it takes nothing."""
    try:
        return ExportStatus(**row)
    except ValueError:
        name = str(row["receiver"])
        why = "its row is damaged: see `provisioner doctor`"
        return ExportStatus(receiver=name, position=0, waiting=0, failing_since=1.0, error=why)


def read_rows(
    connection: Connection, receiver: str, most: int
) -> tuple[int, tuple[JournalRow, ...]]:
    """Return a receiver's position and its next rows; none of a receiver without a position."""
    position = connection.scalar(select(exports.c.position).where(exports.c.receiver == receiver))
    if position is None:
        return 0, ()
    page = select(journal).where(journal.c.seq > position).order_by(journal.c.seq).limit(most)
    rows = (
        JournalRow(
            seq=row.seq,
            at=row.at,
            kind=row.kind,
            node=row.node,
            detail=parse_object(row.detail, f"journal, {row.seq}"),
            sha256=row.digest,
        )
        for row in connection.execute(page)
    )
    return position, tuple(rows)


def record_taken(
    connection: Connection,
    receiver: str,
    position: int,
    last: int,
    outcome: ExportOutcome,
    now: float,
) -> None:
    """Move a position that is still where its rows were read from."""
    same = (exports.c.receiver == receiver) & (exports.c.position == position)
    values = {
        "position": last,
        "rejected": exports.c.rejected + outcome.rejected,
        "taken_at": now,
        "failing_since": 0.0,
    }
    if outcome.error:
        values["error"] = clean(outcome.error)
    connection.execute(update(exports).where(same).values(**values))


def record_failure(connection: Connection, receiver: str, error: str, now: float) -> None:
    """Record why the last try failed, and since when none has gone well."""
    mine = exports.c.receiver == receiver
    connection.execute(update(exports).where(mine).values(error=clean(error)))
    began = mine & (exports.c.failing_since == 0.0)
    connection.execute(update(exports).where(began).values(failing_since=now))


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
