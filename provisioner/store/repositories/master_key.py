"""The master key: where it is kept, how it seals bytes, and how it is exchanged for a new one.

It is in the environment (PROVISIONER_KEY) or in a file of the data directory, never in the
database. AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce: good for 2^32 seals with one
key, far more than there are credentials. The name of the row is associated data, so that a
ciphertext that was moved to another row does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, select, union, update

from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.store.database.data_directory import (
    check_private,
    prepare_directory,
    sync_directory,
    write_private,
)
from provisioner.store.database.transactions import Transactions
from provisioner.store.schema.schema import credentials, signing_keys

ENVIRONMENT = "PROVISIONER_KEY"
KEY_FILE = "master.key"
NEXT_FILE = "master.key.next"  # exists only while the key is exchanged
KEY_BYTES = 32
NONCE_BYTES = 12


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
        """Return a new random key."""
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


async def prepare_key(
    transactions: Transactions,
    directory: Path,
    environ: Mapping[str, str],
    unwrapped: MasterKey | None = None,
) -> MasterKey:
    """Return the key that the store's secrets are sealed with; made and kept (0600) at the first
    start.

    PROVISIONER_KEY wins over `unwrapped`, which a key service opened, and that over the file. An
    exchange that a crash cut off is brought to its end.
    Raises `InputError` if there is no such key: a new one is never made while secrets exist.
    """
    key_ids = await transactions.read(_key_ids)
    if ENVIRONMENT in environ:
        key = MasterKey.parse(environ[ENVIRONMENT], ENVIRONMENT)
        return _fitting(key, key_ids, ENVIRONMENT)
    if unwrapped is not None:
        return _fitting(unwrapped, key_ids, "the key service")
    prepare_directory(directory)
    file = directory / KEY_FILE
    following = directory / NEXT_FILE
    if following.exists():
        if key_ids == {_read(following).id}:
            _promote(directory)
        else:
            following.unlink()  # nothing was sealed with it: the exchange did not take place
    if file.exists():
        return _fitting(_read(file), key_ids, str(file))
    if key_ids:
        raise InputError(
            str(file),
            "",
            f"is missing, and the credentials are sealed with key {min(key_ids)}",
            f"Restore the file, or set {ENVIRONMENT}.",
        )
    key = MasterKey.generate()
    write_private(file, key.text().encode() + b"\n")
    return key


async def rekey(
    transactions: Transactions, old: MasterKey, new: MasterKey, directory: Path | None = None
) -> int:
    """Seal every secret anew, in one transaction; how many. `Vault` and `Signer` are then opened
    again with the new key.

    With `directory` the new key also takes the place of the key file, such that after a crash at
    any point one of the two files opens the secrets. Without it, the key is in the environment.
    """
    if directory is not None:
        following = directory / NEXT_FILE
        following.unlink(missing_ok=True)
        write_private(following, new.text().encode() + b"\n")
    count = await transactions.write(lambda c: _reseal(c, old, new))
    if directory is not None:
        _promote(directory)
    return count


def _key_ids(connection: Connection) -> frozenset[str]:
    """Return the keys that secrets in the store are sealed with: one, or none."""
    ids = union(
        select(credentials.c.key_id),
        select(signing_keys.c.master_key_id).where(signing_keys.c.private.is_not(None)),
    )
    return frozenset(connection.scalars(ids))


def _fitting(key: MasterKey, wanted: frozenset[str], source: str) -> MasterKey:
    if wanted <= {key.id}:
        return key
    raise InputError(
        source,
        "",
        f"is key {key.id}, and the credentials are sealed with key {min(wanted - {key.id})}",
        "Give the key that this database was used with.",
    )


def _read(file: Path) -> MasterKey:
    try:
        check_private(file)
        with file.open("rb") as stream:
            text = stream.read(256)  # a key has 44 characters; more is not a key
    except OSError as error:
        raise InputError(
            str(file), "", f"cannot be read ({error.strerror})", "Check its owner and mode."
        ) from None
    return MasterKey.parse(text.decode("ascii", "replace"), str(file))


def _promote(directory: Path) -> None:
    (directory / NEXT_FILE).replace(directory / KEY_FILE)
    sync_directory(directory)


def _reseal(connection: Connection, old: MasterKey, new: MasterKey) -> int:
    count = 0
    for row in connection.execute(select(credentials)).all():
        name = f"credential {row.name}"
        sealed = {
            column: None if value is None else new.seal(old.open(value, name), name)
            for column, value in (("current", row.current), ("pending", row.pending))
        }
        connection.execute(
            update(credentials)
            .where(credentials.c.name == row.name)
            .values(**sealed, key_id=new.id)
        )
        count += 1
    held = select(signing_keys).where(signing_keys.c.private.is_not(None))
    for row in connection.execute(held).all():
        name = f"signing key {row.key_id}"
        connection.execute(
            update(signing_keys)
            .where(signing_keys.c.key_id == row.key_id)
            .values(private=new.seal(old.open(row.private, name), name), master_key_id=new.id)
        )
        count += 1
    return count
