"""Signs certificates with Ed25519 (RFC 8032), and checks signatures against known public keys.

The private key is sealed in the store by the master key; public keys stay there for good, so that
an old certificate can still be checked after the signing key was exchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from sqlalchemy import Connection, insert, select, update

from provisioner.model.certificate import Certificate
from provisioner.store.master_key import MasterKey
from provisioner.store.schema import signing_keys
from provisioner.store.sql_store import SqlStore


class Signer:
    """One private key in memory; shows in no log."""

    __slots__ = ("_key", "key_id", "public_key")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key().public_bytes_raw()
        self.key_id = hashlib.sha256(self.public_key).hexdigest()[:16]

    def sign(self, certificate: Certificate) -> Certificate:
        """The certificate with `key_id` and `signature` set; any earlier signature is replaced."""
        named = certificate.model_copy(update={"key_id": self.key_id, "signature": ""})
        signature = self._key.sign(named.payload_digest().encode()).hex()
        return named.model_copy(update={"signature": signature})

    def __repr__(self) -> str:
        return f"Signer(key_id={self.key_id!r})"


def verify(certificate: Certificate, public_keys: Mapping[str, bytes]) -> bool:
    """Whether one of the keys (key id -> 32 bytes) signed exactly this certificate.

    Everything else is False: no signature, an unknown key, a changed field, garbage. It says
    nothing about expiry or revocation.
    """
    public = public_keys.get(certificate.key_id)
    if public is None:
        return False
    try:
        signature = bytes.fromhex(certificate.signature)
        digest = certificate.payload_digest().encode()
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest)
    except (InvalidSignature, ValueError):
        return False
    return True


async def open_signer(store: SqlStore, master: MasterKey, now: float) -> Signer:
    """The signer with the store's newest key; one is made if there is none."""
    return await store.write(lambda c: _newest(c, master) or _make(c, master, now))


async def exchange_signing_key(store: SqlStore, master: MasterKey, now: float) -> Signer:
    """A signer with a new key. The older ones can only verify from now on."""

    def exchange(connection: Connection) -> Signer:
        connection.execute(update(signing_keys).values(private=None))
        return _make(connection, master, now)

    return await store.write(exchange)


async def public_keys(store: SqlStore) -> Mapping[str, bytes]:
    """Every key that ever signed here: key id -> 32 bytes."""
    query = select(signing_keys.c.key_id, signing_keys.c.public)
    return await store.read(lambda c: {row.key_id: row.public for row in c.execute(query)})


def _newest(connection: Connection, master: MasterKey) -> Signer | None:
    row = connection.execute(
        select(signing_keys.c.key_id, signing_keys.c.private)
        .where(signing_keys.c.private.is_not(None))
        .order_by(signing_keys.c.created_at.desc(), signing_keys.c.key_id)
        .limit(1)
    ).first()
    if row is None:
        return None
    raw = master.open(row.private, f"signing key {row.key_id}")
    return Signer(Ed25519PrivateKey.from_private_bytes(raw))


def _make(connection: Connection, master: MasterKey, now: float) -> Signer:
    key = Ed25519PrivateKey.generate()
    signer = Signer(key)
    connection.execute(
        insert(signing_keys).values(
            key_id=signer.key_id,
            master_key_id=master.id,
            public=signer.public_key,
            private=master.seal(key.private_bytes_raw(), f"signing key {signer.key_id}"),
            created_at=now,
        )
    )
    return signer
