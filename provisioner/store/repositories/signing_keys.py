"""The public keys that sign or signed certificates here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import ValidationError
from sqlalchemy import Connection, insert, select, union, update

from provisioner.model.input_error import InputError
from provisioner.model.integrations.wrapped_key import KeyService, WrappedKey
from provisioner.ports.certificates import OpenKeyService
from provisioner.ports.errors import StoreFailed
from provisioner.ports.wire import Secret
from provisioner.runtime.whole_files import sync_directory, write_private
from provisioner.store.database.data_directory import check_private, remove_secret
from provisioner.store.database.transactions import Transactions, reads
from provisioner.store.rows import credential_rows
from provisioner.store.rows.credential_rows import believed
from provisioner.store.schema.schema import credentials, signing_keys
from provisioner.store.signing import Signer

# ------------------------------------------------------------------------------
# The master key: where it is kept, and how it seals bytes; `key_exchange` puts another in force.
#
# It is in the environment (PROVISIONER_KEY) or in a file of the data directory, never in the
# database. AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce: good for 2^32 seals with one
# key, far more than there are credentials. The name of the row is associated data, so that a
# ciphertext that was moved to another row does not open.


ENVIRONMENT = "PROVISIONER_KEY"
KEY_FILE = "master.key"
NEXT_FILE = "master.key.next"  # exists only while the key is exchanged; seals from then on
KEY_BYTES = 32
NONCE_BYTES = 12


class Sealing(Protocol):
    """What seals and opens secrets: a `MasterKey`, or a `KeyRing` of two."""

    def newest(self) -> MasterKey: ...

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return what was sealed for this name; `StoreFailed` if it does not open."""
        ...


class MasterKey:
    """The master key, which seals and opens bytes; it shows in no log. `id` names the key without
    revealing it.
    """

    __slots__ = ("_cipher", "_key", "id")

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._key = key
        self._cipher = AESGCM(key)
        self.id = hashlib.sha256(b"provisioner master key id\n" + key).hexdigest()[:16]

    @classmethod
    def generate(cls) -> MasterKey:
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def parse(cls, text: str, source: str) -> MasterKey:
        """Parse URL-safe base64 of 32 bytes; `InputError` names `source`, never the text."""
        try:
            key = base64.b64decode(text.strip(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise InputError(
                source,
                "",
                f"is not a key: wanted URL-safe base64 of {KEY_BYTES} bytes",
                "Restore the key from your backup; credentials cannot be read without it.",
            )
        return cls(key)

    def newest(self) -> MasterKey:
        return self

    def text(self) -> str:
        """Return the key itself, as `parse` reads it: for its file only."""
        return base64.urlsafe_b64encode(self._key).decode()

    def seal(self, plain: bytes, name: str) -> bytes:
        """Encrypt a text, bound to `name`."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, name.encode())

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return the inverse; `StoreFailed` if it is not a ciphertext of this key for this name."""
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):
            raise StoreFailed(
                f"the secret {name!r} does not open with key {self.id}: it was changed or moved"
            ) from None

    def __repr__(self) -> str:
        return f"MasterKey(id={self.id!r})"


def read_key_ids(connection: Connection) -> frozenset[str]:
    """Return the keys that secrets in the store are sealed with: one, none, or two while the key
    is exchanged.
    """
    ids = union(
        select(credentials.c.key_id),
        select(signing_keys.c.master_key_id).where(signing_keys.c.private.is_not(None)),
    )
    return frozenset(connection.scalars(ids))


def read_key_file(file: Path) -> MasterKey:
    """Return the key of a file. Raises `InputError`."""
    try:
        check_private(file)
        with file.open("rb") as stream:
            text = stream.read(256)  # a key has 44 characters; more is not a key
    except OSError as error:
        raise InputError(
            str(file), "", f"cannot be read ({error.strerror})", "Check its owner and mode."
        ) from None
    return MasterKey.parse(text.decode("ascii", "replace"), str(file))


# ------------------------------------------------------------------------------
# `master.key.wrapped`: the master key as a key service sealed it, beside no key in clear.
#
# The key in clear is removed only after the sealed one was opened again. A start with both files
# uses the one in clear; after a crash in between, wrapping is done again.


log = logging.getLogger(__name__)
WRAPPED_FILE = "master.key.wrapped"
FILE_MAX = 32 * 1024


def read_wrapped_key(directory: Path) -> WrappedKey | None:
    """Return the sealed key of a data directory; None if its key is in clear. Raises InputError."""
    file = directory / WRAPPED_FILE
    if not file.exists():
        return None
    try:
        check_private(file)
        with file.open("rb") as stream:
            return WrappedKey.model_validate_json(stream.read(FILE_MAX))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its owner and mode.") from None
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        remedy = "Restore the file from your backup."
        raise InputError(str(file), where, "is no sealed master key", remedy) from None


async def open_wrapped_key(directory: Path, open_service: OpenKeyService) -> MasterKey | None:
    """Return the master key that a service has to open; None if it is in clear. Raises InputError.

    A sealed key beside one in clear is not asked for: wrapping was cut off, and protects nothing.
    """
    wrapped = read_wrapped_key(directory)
    if wrapped is None:
        return None
    if (directory / KEY_FILE).exists():
        log.warning("the master key is in clear beside %s: wrap it again", WRAPPED_FILE)
        return None
    text = await open_service(wrapped.service).unwrap(wrapped.ciphertext)
    key = MasterKey.parse(text.reveal(), wrapped.service.address)
    if key.id != wrapped.key_id:
        problem = f"opened key {key.id}, and {WRAPPED_FILE} is of key {wrapped.key_id}"
        remedy = "Restore the file from your backup."
        raise InputError(wrapped.service.address, "", problem, remedy)
    return key


async def wrap_key(
    key: MasterKey, service: KeyService, directory: Path, open_service: OpenKeyService
) -> WrappedKey:
    """Have a service seal the key, open it again as a proof, and remove the one in clear."""
    wrapping = open_service(service)
    text = key.text()
    ciphertext = await wrapping.wrap(Secret(text))
    if (await wrapping.unwrap(ciphertext)).reveal() != text:
        problem = "the service opened another text than it had sealed"
        raise InputError(service.address, "", problem, "Is its key one for encryption?")
    wrapped = WrappedKey(service=service, ciphertext=ciphertext, key_id=key.id)
    following = directory / f"{WRAPPED_FILE}.next"
    following.unlink(missing_ok=True)
    write_private(following, wrapped.model_dump_json(indent=2).encode() + b"\n")
    following.replace(directory / WRAPPED_FILE)
    sync_directory(directory)
    remove_secret(directory / KEY_FILE)
    return wrapped


def unwrap_key(key: MasterKey, directory: Path) -> None:
    """Put the key in clear again, and remove the sealed one."""
    file = directory / KEY_FILE
    if not file.exists():
        write_private(file, key.text().encode() + b"\n")
    remove_secret(directory / WRAPPED_FILE)


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
    list = reads(credential_rows.read_keys)
