"""Machine owner keys as shim shows them to the system that it started.

`MokListRT` is written here as UEFI 2.10, 32.4.1 has signature lists: 28 bytes before the entries,
each with the GUID of its owner before its content.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from pathlib import Path

import pytest
from provisioner_hardware_manager import owner_keys

X509 = "a5c059a1-94e4-4aa7-87b5-ab155c2bf072"
SHA256 = "c1c41626-504c-4092-aca9-41f936934328"
OWNER = uuid.UUID(owner_keys.SHIM).bytes_le
VENDOR, PLANTED = b"a certificate of the distribution", b"a certificate of the tenant"
PROGRAM = hashlib.sha256(b"a boot loader").digest()


def signature_list(kind: str, *contents: bytes) -> bytes:
    entry = 16 + len(contents[0])
    entries = b"".join(OWNER + content for content in contents)
    head = struct.pack("<III", 28 + len(entries), 0, entry)
    return uuid.UUID(kind).bytes_le + head + entries


def firmware(folder: Path, **values: bytes) -> Path:
    for name, value in values.items():
        (folder / f"{name}-{owner_keys.SHIM}").write_bytes(b"\x06\0\0\0" + value)
    return folder


def test_keys_and_programs_of_every_list_are_named_by_their_digests(tmp_path: Path) -> None:
    lists = [signature_list(X509, content) for content in (VENDOR, PLANTED)]
    hashes = signature_list(SHA256, PROGRAM, b"\1" * 32)

    answer = owner_keys.read(firmware(tmp_path, MokListRT=b"".join(lists) + hashes))

    assert answer["result"] == "done"
    assert answer["verifies"] is True
    assert set(answer["keys"]) == {
        hashlib.sha256(VENDOR).hexdigest(),
        hashlib.sha256(PLANTED).hexdigest(),
        f"program {PROGRAM.hex()}",
        f"program {'01' * 32}",
    }


def test_a_verification_that_was_switched_off_shows(tmp_path: Path) -> None:
    lists = signature_list(X509, VENDOR)
    for value, verifies in ((b"\x01", False), (b"\x00", True)):
        root = firmware(tmp_path, MokListRT=lists, MokSBStateRT=value)
        assert owner_keys.read(root)["verifies"] is verifies


def test_a_boot_without_shim_has_no_copy(tmp_path: Path) -> None:
    assert owner_keys.read(tmp_path)["result"] == "unsupported"


@pytest.mark.parametrize(
    "lists",
    [
        b"short",
        signature_list(X509, VENDOR)[:-1],
        uuid.UUID(X509).bytes_le + struct.pack("<III", 28, 0, 0) + b"",
        uuid.UUID(X509).bytes_le + struct.pack("<III", 0, 0, 17),
        uuid.UUID(X509).bytes_le + struct.pack("<III", 2**32 - 1, 2**32 - 1, 17),
    ],
)
def test_a_list_that_cannot_be_parsed_is_no_empty_one(tmp_path: Path, lists: bytes) -> None:
    answer = owner_keys.read(firmware(tmp_path, MokListRT=lists))

    assert answer["result"] == "not_done"
    assert "keys" not in answer
