"""The public keys that sign or signed certificates here."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection, insert, select, update

from provisioner.model.input_error import InputError
from provisioner.store.database.transactions import Transactions, reads
from provisioner.store.repositories.master_key import Sealing
from provisioner.store.rows import credential_rows as signing_key_rows
from provisioner.store.rows.credential_rows import believed
from provisioner.store.schema.schema import signing_keys
from provisioner.store.signing import Signer

# ------------------------------------------------------------------------------
# Where signing keys are kept: private ones sealed by the master key, public ones for good.
#
# An old certificate can still be checked after the signing key was exchanged; after a key was
# withdrawn, nothing that it signed is believed.


async def open_signer(transactions: Transactions, master: Sealing, now: float) -> Signer:
    """Return the signer with the store's newest key; one is made if there is none."""
    return await transactions.write(lambda c: _newest(c, master) or _make(c, master, now))


async def exchange_signing_key(
    transactions: Transactions, master: Sealing, now: float, *, compromised: bool = False
) -> Signer:
    """Return a signer with a new key. The older ones can only verify from now on.

    `compromised`: nothing that the older ones signed is believed any more, at once and for good.
    """

    def exchange(connection: Connection) -> Signer:
        connection.execute(update(signing_keys).values(private=None))
        if compromised:
            connection.execute(
                update(signing_keys)
                .where(signing_keys.c.withdrawn_at.is_(None))
                .values(withdrawn_at=now)
            )
        return _make(connection, master, now)

    return await transactions.write(exchange)


async def public_keys(transactions: Transactions) -> Mapping[str, bytes]:
    """Return every key whose signatures are believed: key id -> 32 bytes."""
    return await transactions.read(believed)


def _newest(connection: Connection, master: Sealing) -> Signer | None:
    row = connection.execute(
        select(signing_keys.c.key_id, signing_keys.c.private)
        .where(signing_keys.c.private.is_not(None))
        .order_by(signing_keys.c.created_at.desc(), signing_keys.c.key_id)
        .limit(1)
    ).first()
    if row is None:
        return None
    where = f"signing_keys, {row.key_id}"
    if not isinstance(row.private, bytes | memoryview):
        raise _unusable(where, f"it is of the type {type(row.private).__name__}, not bytes")
    raw = master.open(bytes(row.private), f"signing key {row.key_id}")
    try:
        signer = Signer(Ed25519PrivateKey.from_private_bytes(raw))
    except ValueError:
        raise _unusable(where, f"{len(raw)} bytes are no Ed25519 key") from None
    if signer.key_id != row.key_id:
        raise _unusable(where, f"it is the key {signer.key_id}")
    return signer


def _unusable(where: str, problem: str) -> InputError:
    remedy = (
        "Restore the row from a backup, with the daemon stopped; or sign with a new key: "
        "`provisioner certificate rotate`."
    )
    return InputError(where, "", f"the signing key cannot be used: {problem}", remedy)


def _make(connection: Connection, master: Sealing, now: float) -> Signer:
    key = Ed25519PrivateKey.generate()
    signer = Signer(key)
    sealing = master.newest()
    connection.execute(
        insert(signing_keys).values(
            key_id=signer.key_id,
            master_key_id=sealing.id,
            public=signer.public_key,
            private=sealing.seal(key.private_bytes_raw(), f"signing key {signer.key_id}"),
            created_at=now,
        )
    )
    return signer


class SqlSigningKeyRepository:
    """Public keys only; `signing_rows` opens the private one."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Return every key that ever signed here, the newest first.
    list = reads(signing_key_rows.read_keys)
