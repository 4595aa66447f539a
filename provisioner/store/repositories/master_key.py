"""The master key: where it is kept, and how it seals bytes; `key_exchange` puts another in force.

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
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, select, union

from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.store.database.data_directory import check_private
from provisioner.store.schema.schema import credentials, signing_keys

ENVIRONMENT = "PROVISIONER_KEY"
KEY_FILE = "master.key"
NEXT_FILE = "master.key.next"  # exists only while the key is exchanged; seals from then on
KEY_BYTES = 32
NONCE_BYTES = 12


class Sealing(Protocol):
    """What seals and opens secrets: a `MasterKey`, or a `KeyRing` of two."""

    def newest(self) -> MasterKey:
        """Return the key that seals now."""
        ...

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

    def newest(self) -> MasterKey:
        """Return this key: there is no other."""
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
