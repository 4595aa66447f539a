"""Where the live journal begins after rows were archived and removed.

The base names the last row that an archive took over and its digest, from which the chain goes on.
Rows up to it that live decisions still need stay, each with the digest of the row before it. The
base and the list of those rows are signed, so that rights on the database alone remove no row.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from sqlalchemy import Connection, Row, delete, inspect, select

from provisioner.planning.certification.attestation import NotAnAttestation, parse_envelope
from provisioner.store.rows.signing_key_rows import believed
from provisioner.store.schema.journal_schema import journal_base, journal_links
from provisioner.store.schema.schema import journal
from provisioner.store.signing import Signer, signed

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
    """Return whether a row was archived and removed."""
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
