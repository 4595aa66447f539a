"""Machine owner keys of shim: those that trust what the firmware does not.

A tenant with root, and a person at the console, may enrol a key of its own (MokList), or switch
shim's verification off (MokSBState). Both are boot services variables, which no system reads. But
each shim shows the system that it starts a copy of the list, with the certificate of its own
distribution (rhboot/shim, MokVars.txt: MokListRT), and of the switch (MokSBStateRT; Linux,
drivers/firmware/efi/libstub/secureboot.c). A boot without shim has no copy.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

from provisioner_hardware_manager import uefi_variables
from provisioner_hardware_manager.results import DONE, NOT_DONE, UNSUPPORTED

SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"  # source: rhboot/shim, SHIM_LOCK_GUID
SIZE_MAX = 1 << 20
KEYS_MAX = 512
# UEFI 2.10, 32.4.1: EFI_CERT_X509_GUID and EFI_CERT_SHA256_GUID
_X509 = uuid.UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072")
_SHA256 = uuid.UUID("c1c41626-504c-4092-aca9-41f936934328")
_LIST = struct.Struct("<16sIII")  # EFI_SIGNATURE_LIST: type, and sizes of list, header, entry
_ATTRIBUTES = 4  # efivarfs: four bytes of attributes, then the value


def read(root: Path = uefi_variables.ROOT) -> dict[str, object]:
    """Return the keys that shim trusts: SHA-256 of certificates (DER), and of trusted programs."""
    try:
        mirrored = _read_value(root, "MokListRT")
        switch = _read_value(root, "MokSBStateRT")
    except OSError as failure:
        return _answer(NOT_DONE, f"shim's copy of MokList cannot be read: {failure.strerror}")
    if mirrored is None:
        return _answer(UNSUPPORTED, "shim did not start this boot, so that no copy of MokList is")
    try:
        keys = sorted(set(_list_keys(mirrored)))
    except ValueError as problem:
        return _answer(NOT_DONE, f"MokListRT: {problem}")
    if len(keys) > KEYS_MAX:
        return _answer(NOT_DONE, f"MokListRT has {len(keys)} entries")
    return {**_answer(DONE, ""), "keys": keys, "verifies": switch is None or switch[:1] != b"\x01"}


def _answer(result: str, detail: str) -> dict[str, object]:
    return {"result": result, "detail": detail}


def _read_value(root: Path, name: str) -> bytes | None:
    """Return a variable's value; None where it is not there. Raises OSError otherwise."""
    try:
        with (root / f"{name}-{SHIM}").open("rb") as stream:
            return stream.read(SIZE_MAX)[_ATTRIBUTES:]
    except FileNotFoundError:
        if root.parent.exists() and not root.exists():
            raise  # a boot by UEFI whose variables are not shown
        return None


def _list_keys(lists: bytes) -> Iterator[str]:
    """Yield the entries of signature lists, one behind the other; raises `ValueError`."""
    while lists:
        if len(lists) < _LIST.size:
            raise ValueError("a signature list is cut off")
        kind, size, header, entry = _LIST.unpack_from(lists)
        entries = lists[_LIST.size + header : size]
        whole = _LIST.size + header <= size <= len(lists)
        if not whole or entry <= 16 or len(entries) % entry:
            raise ValueError("the sizes of a signature list do not fit")
        for at in range(0, len(entries), entry):
            yield _name(uuid.UUID(bytes_le=kind), entries[at + 16 : at + entry])
        lists = lists[size:]


def _name(kind: uuid.UUID, content: bytes) -> str:
    """Return the entry's digest: of a certificate as it is, of a program the one that is listed."""
    if kind == _SHA256:
        return f"program {content.hex()}"
    digest = hashlib.sha256(content).hexdigest()
    return digest if kind == _X509 else f"{kind} {digest}"
