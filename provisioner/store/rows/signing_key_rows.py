"""The public keys that sign or signed certificates, and which of them are believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from provisioner.model.certificate import SigningKey
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows import damage
from provisioner.store.schema.schema import signing_keys
from provisioner.store.signing import key_id

PUBLIC_BYTES = 32


def read_keys(connection: Connection) -> tuple[SigningKey, ...]:
    """Return every key that ever signed here, the newest first; a damaged one is left out and
    recorded: nothing is believed by it.
    """
    query = select(signing_keys).order_by(signing_keys.c.created_at.desc(), signing_keys.c.key_id)
    keys = []
    for row in connection.execute(query):
        problem = _find_problem(row)
        if problem:
            where = f"signing_keys, {row.key_id}"
            damage.record(connection.engine, "", DamagedRow(where, problem))
            continue
        keys.append(
            SigningKey(
                key_id=row.key_id,
                public=row.public,
                created_at=row.created_at,
                signs=row.private is not None,
                withdrawn_at=row.withdrawn_at,
            )
        )
    return tuple(keys)


def _find_problem(row: Any) -> str:
    """Return why a key is not believed: its name is the digest of what it must be."""
    if not isinstance(row.public, bytes) or len(row.public) != PUBLIC_BYTES:
        return "its public half is no Ed25519 key"
    if key_id(row.public) != row.key_id:
        return f"its public half is that of key {key_id(row.public)}"
    times = (row.created_at, row.withdrawn_at if row.withdrawn_at is not None else 0.0)
    return "" if all(isinstance(t, float) for t in times) else "its times are no numbers"


def believed(connection: Connection) -> Mapping[str, bytes]:
    """Return every key whose signatures are believed: key id -> 32 bytes."""
    return {k.key_id: k.public for k in read_keys(connection) if k.withdrawn_at is None}
