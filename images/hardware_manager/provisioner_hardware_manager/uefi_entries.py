"""Reads UEFI boot entries from the bytes of their variables, as efivarfs shows them.

UEFI 2.10, 3.1.3: EFI_LOAD_OPTION is attributes (u32), length of the path list (u16), a label in
UTF-16 that ends with zero, the device path, and data of its owner. 10.3: a device path is nodes of
type, subtype and length (u16), up to an end node. efivarfs shows four bytes of attributes before a
variable's value. Everything here may have been written by a tenant.
"""

from __future__ import annotations

import re
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

from provisioner_hardware_manager import uefi_variables
from provisioner_hardware_manager.commands import shorten

GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"  # UEFI 2.10, 3.3: EFI_GLOBAL_VARIABLE
BOOT_NEXT = f"BootNext-{GLOBAL}"
_ORDER = f"BootOrder-{GLOBAL}"
# 3.1.3: a driver and a program for system preparation are run before any boot entry, in one form
_NAME = re.compile(rf"(Boot|Driver|SysPrep)([0-9A-Fa-f]{{4}})-{GLOBAL}", re.IGNORECASE)
VALUE_MAX = 1 << 16
NODES_MAX = 256
_ACTIVE = 1  # LOAD_OPTION_ACTIVE
# (type, subtype) of nodes: UEFI 2.10, 10.3.5.1 hard drive, 10.3.5.4 file path; of addresses:
# 10.3.4.23 URI, 10.3.4.20 iSCSI, 10.3.4.29 NVMe over fabrics
_HARD_DRIVE, _FILE = (4, 1), (4, 4)
_ADDRESSES = ((3, 24), (3, 19), (3, 34))
_END = 0x7F


class NoVariables(Exception):
    """Raised where no variables can be listed. `is_proved`: this boot has no UEFI at all."""

    def __init__(self, words: str, *, is_proved: bool) -> None:
        super().__init__(words)
        self.is_proved = is_proved


@dataclass(frozen=True)
class Entry:
    """One boot entry. `place` is that in BootOrder, None where it is not in it; `partition` is the
    identity of a partition on a disk; `problem` says why its path cannot be read.
    """

    number: str
    variable: str
    label: str = ""
    is_active: bool = False
    place: int | None = None
    partition: str = ""
    is_address: bool = False
    problem: str = ""

    @property
    def is_boot(self) -> bool:
        """Return whether it is a boot entry: a driver may have the same number."""
        return self.variable.upper().startswith("BOOT")

    @property
    def is_of_system(self) -> bool:
        """Return whether it is a system's on a disk or at an address, or may be one."""
        return bool(self.partition or self.is_address or self.problem)


def list_entries(root: Path = uefi_variables.ROOT) -> list[Entry]:
    """Return every entry for booting, drivers and preparation. Raises `NoVariables`.

    An entry without a path, or with one that has no node, names nothing that boots: firmware makes
    such entries of its own (rhboot/efibootmgr issues 43 and 133), and they stay.
    """
    try:
        names = sorted(file.name for file in root.iterdir())
    except OSError as failure:
        is_proved = isinstance(failure, FileNotFoundError) and not root.parent.exists()
        words = "no UEFI in this boot" if is_proved else "the UEFI variables cannot be listed"
        raise NoVariables(f"{words}: {shorten(failure)}", is_proved=is_proved) from None
    if root == uefi_variables.ROOT and not names:
        # efivarfs is not mounted: every UEFI has variables (UEFI 2.10, 3.3)
        raise NoVariables("no UEFI variable is shown: is efivarfs mounted?", is_proved=False)
    order = _read_order(root)
    entries = []
    for name in names:
        if matched := _NAME.fullmatch(name):
            number = matched.group(2).upper()
            is_ordered = matched.group(1).upper() == "BOOT" and number in order
            place = order.index(number) if is_ordered else None
            entries.append(_read_entry(root, name, number, place))
    return entries


def drop_from_order(numbers: set[str], root: Path = uefi_variables.ROOT) -> None:
    """Take entries out of BootOrder. A failure shows in the next boot's order alone."""
    order = _read_order(root)
    kept = [number for number in order if number not in numbers]
    if kept == order:
        return
    value = b"".join(struct.pack("<H", int(number, 16)) for number in kept)
    uefi_variables.write_variable(_ORDER, value, root)


def name_partition(number: str, kind: str, signature: str) -> str:
    """Return the identity of a partition: of an MBR the disk's signature, of a GPT its own."""
    value = signature.lower()
    return f"{number} {kind} {int(value, 16):08x}" if kind == "MBR" else f"{number} {kind} {value}"


def _read_order(root: Path) -> list[str]:
    value = uefi_variables.read_variable(_ORDER, root) or b""
    usable = value[: len(value) // 2 * 2]
    return [f"{number:04X}" for (number,) in struct.iter_unpack("<H", usable)]


def _read_entry(root: Path, name: str, number: str, place: int | None) -> Entry:
    value = uefi_variables.read_variable(name, root)
    if value is None:
        return Entry(number, name, place=place, problem="its variable cannot be read")
    try:
        attributes, label, path = _parse_option(value)
    except ValueError as error:
        return Entry(number, name, place=place, problem=str(error))
    partition, is_address, problem = _parse_path(path)
    return Entry(
        number=number,
        variable=name,
        label=shorten(label),
        is_active=bool(attributes & _ACTIVE),
        place=place,
        partition=partition,
        is_address=is_address and not partition,
        problem="" if partition or is_address else problem,
    )


def _parse_option(value: bytes) -> tuple[int, str, bytes]:
    """Return attributes, label and device path. Raises `ValueError`."""
    if len(value) < 6:
        raise ValueError("the entry is cut off")
    attributes, length = struct.unpack_from("<IH", value)
    end = next((at for at in range(6, len(value) - 1, 2) if value[at : at + 2] == b"\0\0"), None)
    if end is None:
        raise ValueError("the entry's label has no end")
    path = value[end + 2 : end + 2 + length]
    if len(path) < length:
        raise ValueError("the entry's path is cut off")
    return attributes, value[6:end].decode("utf-16-le", "replace"), path


def _parse_path(path: bytes) -> tuple[str, bool, str]:
    """Return (partition, whether it names an address, why the rest cannot be read).

    Nodes are also looked for behind one that cannot be parsed: a signature of a hard drive node in
    what is left is the firmware's to interpret, and a tenant's to hide.
    """
    partition, is_address, problem = "", False, ""
    at = 0
    for _ in range(NODES_MAX):
        if at >= len(path):
            break
        if len(path) - at < 4:
            problem = "a node of its path is cut off"
            break
        kind, subkind, length = struct.unpack_from("<BBH", path, at)
        if length < 4 or at + length > len(path):
            problem = f"a node of its path has the length {length}"
            break
        body = path[at + 4 : at + length]
        if (kind, subkind) == _HARD_DRIVE:
            partition = partition or _identify(body)
        if (kind, subkind) == _FILE:  # 3.1.2: of any disk that has it, or of the one named before
            partition = partition or "a file on a disk"
        is_address = is_address or ((kind, subkind) in _ADDRESSES and bool(body.strip(b"\0")))
        if kind == _END and subkind == 0xFF:
            break
        at += length
    else:
        problem = "its path has too many nodes"
    return partition, is_address, problem


def _identify(body: bytes) -> str:
    """Return the identity of a hard drive node's partition, whatever its form."""
    if len(body) < 38:
        return "a partition that cannot be read"
    (number,) = struct.unpack_from("<I", body)
    if body[37] == 2:
        return name_partition(str(number), "GPT", str(uuid.UUID(bytes_le=body[20:36])))
    (signature,) = struct.unpack_from("<I", body, 20)
    return name_partition(str(number), "MBR", f"{signature:x}")
