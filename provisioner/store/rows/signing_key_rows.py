"""The public keys that sign or signed certificates, and which of them are believed."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from provisioner.model.certificate import SigningKey
from provisioner.store.schema.schema import signing_keys


def read_keys(connection: Connection) -> tuple[SigningKey, ...]:
    """Return every key that ever signed here, the newest first."""
    query = select(signing_keys).order_by(signing_keys.c.created_at.desc(), signing_keys.c.key_id)
    return tuple(
        SigningKey(
            key_id=row.key_id,
            public=row.public,
            created_at=row.created_at,
            signs=row.private is not None,
            withdrawn_at=row.withdrawn_at,
        )
        for row in connection.execute(query)
    )


def believed(connection: Connection) -> Mapping[str, bytes]:
    """Return every key whose signatures are believed: key id -> 32 bytes."""
    return {k.key_id: k.public for k in read_keys(connection) if k.withdrawn_at is None}
