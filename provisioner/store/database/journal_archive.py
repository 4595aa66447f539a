"""Archives of the journal: files of rows that the chain of digests and a signature hold together.

The first line is a DSSE envelope whose statement names the rows, the digest of the last row before
them, that of the first row after them, and the SHA-256 of the lines that follow: one row each, as
`[seq, at, kind, node, detail, digest]`. Archives in one directory follow each other without a hole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pydantic import Field, ValidationError
from sqlalchemy import Connection, func, select

from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.planning.certification.attestation import NotAnAttestation, parse_envelope
from provisioner.runtime.whole_files import sync_directory, write_private
from provisioner.store.rows.journal import GENESIS, Base, chain, read_newest_base
from provisioner.store.schema.schema import journal
from provisioner.store.signing import Signer, signed

ARCHIVE_PAYLOAD = "application/vnd.gpu-provisioner.journal-archive.v1+json"
ROWS_MAX = 50_000  # of one archive: what one transaction prunes
LINE_MAX = 64 * 1024 * 1024  # bytes; a row is some 500
PATTERN = "journal-*.jsonl"
Line = tuple[int, float, str, str, str, str]
DIGEST = r"^[0-9a-f]{64}$"


class Statement(Record):
    """The statement that an archive's signature covers."""

    format: int = 1
    first: int = Field(ge=1)
    last: int = Field(ge=1)
    previous: str = Field(pattern=DIGEST)  # digest of the row before the first; zeros before row 1
    head: str = Field(pattern=DIGEST)  # of the last
    next: str = Field(pattern=DIGEST)  # of the row after the last, which remained
    rows_sha256: str = Field(pattern=DIGEST)  # of the lines after the envelope
    made_at: float
    by: str
    program: str


@dataclass(frozen=True)
class Archive:
    """An archive that was verified alone. `digests` are those of its rows, in order."""

    file: Path
    statement: Statement
    sha256: str  # of the whole file
    digests: Sequence[str] = field(repr=False)


def read_span(connection: Connection, base: Base, until: float) -> tuple[int, int]:
    """Return (first, last) of the rows after a base that are not younger than a time.

    The newest row always remains, so that there is one that the archive can name; last is smaller
    than first if there is nothing to archive.
    """
    rows = journal.c
    newest = connection.scalar(select(func.max(rows.seq))) or 0
    younger = select(func.min(rows.seq)).where((rows.seq > base.through) & (rows.at > until))
    stop = connection.scalar(younger) or newest
    return base.through + 1, min(stop, newest) - 1


def read_lines(connection: Connection, first: int, last: int) -> list[Line]:
    """Return rows as an archive holds them, with the row after the last."""
    rows = journal.c
    query = select(rows.seq, rows.at, rows.kind, rows.node, rows.detail, rows.digest)
    within = (rows.seq >= first) & (rows.seq <= last + 1)
    return [tuple(row) for row in connection.execute(query.where(within).order_by(rows.seq))]


def write_archive(
    directory: Path,
    lines: Sequence[Line],
    previous: str,
    signer: Signer,
    asked: tuple[str, float],
    program: str,
) -> Archive:
    """Write the rows but the last into a new file, and read it back. Raises InputError.

    `asked`: who asks, and when. The file has its name only once it is on disk and was verified.
    """
    rows = lines[:-1]
    remaining = lines[-1]
    by, now = asked
    body = "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in rows).encode()
    statement = Statement(
        first=rows[0][0],
        last=rows[-1][0],
        previous=previous,
        head=rows[-1][5],
        next=remaining[5],
        rows_sha256=hashlib.sha256(body).hexdigest(),
        made_at=now,
        by=by,
        program=program,
    )
    envelope = json.loads(signer.seal(ARCHIVE_PAYLOAD, statement.model_dump_json().encode()))
    name = f"journal-{statement.first:012d}-{statement.last:012d}.jsonl"
    target = directory / name
    scratch = directory / f".{name}.{os.getpid()}"
    try:
        scratch.unlink(missing_ok=True)
        write_private(scratch, json.dumps(envelope).encode() + b"\n" + body)
        read_archive(scratch, {signer.key_id: signer.public_key})
        os.link(scratch, target)  # never over a file that is there
    except OSError as error:
        problem = f"the archive cannot be written ({error.strerror})"
        raise InputError(str(target), "", problem, "Name another directory: --out.") from None
    finally:
        scratch.unlink(missing_ok=True)
    sync_directory(directory)
    return read_archive(target, {signer.key_id: signer.public_key})


def read_archive(file: Path, keys: Mapping[str, bytes]) -> Archive:
    """Return an archive that one of the keys signed and whose rows follow each other.

    Raises InputError for any other file.
    """
    whole = hashlib.sha256()
    body = hashlib.sha256()
    try:
        with file.open("rb") as content:
            head = content.readline(LINE_MAX)
            whole.update(head)
            statement = _statement(file, head, keys)
            digests = []
            before = statement.previous
            for number, raw in enumerate(_read_rows(content), statement.first):
                whole.update(raw)
                body.update(raw)
                before = _check_row(file, raw, number, before)
                digests.append(before)
    except OSError as error:
        raise _wrong(file, error.strerror or "it cannot be read") from None
    if len(digests) != statement.last - statement.first + 1 or before != statement.head:
        raise _wrong(file, f"it does not hold rows {statement.first} to {statement.last}")
    if body.hexdigest() != statement.rows_sha256:
        raise _wrong(file, "its rows are not those that were signed")
    return Archive(file, statement, whole.hexdigest(), tuple(digests))


def read_directory(directory: Path, keys: Mapping[str, bytes]) -> Iterator[Archive]:
    """Yield the archives of a directory in their order. Raises InputError at the first that is
    wrong, or does not continue the one before."""
    before: Statement | None = None
    for file in sorted(directory.glob(PATTERN)):
        archive = read_archive(file, keys)
        statement = archive.statement
        if before is not None:
            if statement.first != before.last + 1:
                problem = f"the archive of row {before.last + 1} is missing before it"
                raise _wrong(file, problem)
            if statement.previous != before.head or archive.digests[0] != before.next:
                raise _wrong(file, f"it does not continue the archive that ends at {before.last}")
        elif statement.first == 1 and statement.previous != GENESIS:
            raise _wrong(file, "it does not begin where a journal begins")
        before = statement
        yield archive


def compare_archive(connection: Connection, archive: Archive, base: Base) -> str:
    """Return where the live journal differs from an archive; "" if it does not.

    `base`: as if the archives before were pruned.
    """
    base = read_newest_base(connection, base)
    first = archive.statement.first
    last = archive.statement.last
    rows = journal.c
    within = (rows.seq >= first) & (rows.seq <= last + 1)
    live = {
        r.seq: r.digest for r in connection.execute(select(rows.seq, rows.digest).where(within))
    }
    for seq in range(max(first, base.through + 1), last + 1):
        if seq not in live:
            return f"row {seq} is in no table, although it was never pruned"
    for seq, digest in live.items():
        if digest != (archive.statement.next if seq > last else archive.digests[seq - first]):
            return f"row {seq} is not the one that {archive.file.name} holds or names"
    if first <= base.through <= last and archive.digests[base.through - first] != base.head:
        return f"the live journal goes on from another row {base.through} than the archive's"
    return ""


def _statement(file: Path, head: bytes, keys: Mapping[str, bytes]) -> Statement:
    try:
        envelope = parse_envelope(head.decode())
        if envelope.payload_type != ARCHIVE_PAYLOAD:
            raise _wrong(file, "it is no archive of a journal")
        if not signed(envelope, keys):
            raise _wrong(
                file, f"none of the keys that are believed has signed it: {envelope.key_id}"
            )
        return Statement.model_validate_json(envelope.payload)
    except (NotAnAttestation, ValidationError, UnicodeDecodeError) as error:
        raise _wrong(file, " ".join(str(error).split())[:200]) from None


def _read_rows(content: IO[bytes]) -> Iterator[bytes]:
    while raw := content.readline(LINE_MAX):
        yield raw


def _check_row(file: Path, raw: bytes, number: int, before: str) -> str:
    """Return the digest of one line's row, which follows the row with the digest `before`."""
    try:
        seq, at, kind, node, detail, digest = json.loads(raw)
    except (ValueError, TypeError, RecursionError):
        raise _wrong(file, f"the line of row {number} is not readable") from None
    row: dict[str, Any] = {"seq": seq, "at": at, "kind": kind, "node": node, "detail": detail}
    if seq != number or chain(before, row) != digest:
        raise _wrong(file, f"row {number} differs from the written one, or is missing")
    return str(digest)


def _wrong(file: Path, problem: str) -> InputError:
    return InputError(
        str(file), "", f"this archive is not to be believed: {problem}", "Take another copy of it."
    )
