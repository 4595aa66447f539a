"""UEFI variables of operating systems: a tenant's are removed, those of the firmware are not.

A root user may write any variable that the firmware shows at run time, and three kinds outlive an
erasure of every disk: kernel messages of a crash (pstore, with a tenant's data in them), requests
to shim's MokManager (a key that the next boot is to enrol), and orders to systemd-boot. Each kind
has a vendor GUID of its own, under which no firmware has anything. Variables of other GUIDs stay:
firmware is known that does not start any more without one of its own
(kernel.org, Documentation/filesystems/efivarfs.rst).

The lists of keys that shim has enrolled (MokList, MokListX) are boot services variables: nothing
that runs after the firmware removes them (rhboot/shim, MokVars.txt). `MokListRT` is shim's copy for
one boot, which `owner_keys` reads.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from pathlib import Path

ROOT = Path("/sys/firmware/efi/efivars")
LISTED_MAX = 4096
VALUE_MAX = 1 << 16
_ATTRIBUTES = 4  # efivarfs: four bytes of attributes, then the value
GUIDS = frozenset(
    {
        "605dab50-e046-4300-abb6-3dd810dd8b23",  # source: rhboot/shim, SHIM_LOCK_GUID
        "cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0",  # source: Linux, LINUX_EFI_CRASH_GUID (pstore)
        "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f",  # source: systemd.io, Boot Loader Interface
    }
)
_NAME = re.compile(r"(.+)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_NON_VOLATILE = 1  # UEFI 2.10, 8.2.1: EFI_VARIABLE_NON_VOLATILE
# linux/fs.h: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IMMUTABLE_FL; efivarfs sets it on most variables
_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10


def remove_of_systems(root: Path = ROOT) -> tuple[list[str], list[str]]:
    """Remove the variables of operating systems; return the names of removed and of kept ones."""
    removed = []
    for file in _list_of_systems(root):
        with contextlib.suppress(OSError):
            _make_mutable(file)
            file.unlink()
            removed.append(file.name)
    left = [file.name for file in _list_of_systems(root)]
    return [name for name in removed if name not in left], left


def read_variable(name: str, root: Path = ROOT) -> bytes | None:
    """Return a variable's value; None where it is not there or cannot be read."""
    try:
        with (root / name).open("rb") as stream:
            return stream.read(VALUE_MAX)[_ATTRIBUTES:]
    except OSError:
        return None


def write_variable(name: str, value: bytes, root: Path = ROOT) -> None:
    """Write a variable's value in one write, as efivarfs wants it; an error of it is left alone."""
    file = root / name
    with contextlib.suppress(OSError):
        attributes = file.read_bytes()[:_ATTRIBUTES]
        _make_mutable(file)
        descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, attributes + value)
        finally:
            os.close(descriptor)


def remove_variable(name: str, root: Path = ROOT) -> bool:
    """Remove a variable; return whether it is not there afterwards."""
    file = root / name
    with contextlib.suppress(OSError):
        _make_mutable(file)
    with contextlib.suppress(OSError):
        file.unlink()
    try:
        return name not in {listed.name for listed in root.iterdir()}
    except FileNotFoundError:
        return not root.parent.exists()
    except OSError:
        return False


def _list_of_systems(root: Path) -> list[Path]:
    """Return the variables that stay over a boot and belong to an operating system."""
    try:
        listed = sorted(root.iterdir())[:LISTED_MAX]
    except OSError:
        return []
    return [file for file in listed if _is_of_system(file.name) and _is_kept(file)]


def _is_of_system(name: str) -> bool:
    matched = _NAME.fullmatch(name)
    return matched is not None and matched.group(2) in GUIDS


def _is_kept(file: Path) -> bool:
    """Return whether it outlives a boot; one that cannot be read is taken for such a one."""
    try:
        with file.open("rb") as stream:
            attributes = stream.read(4)  # efivarfs: four bytes of attributes, then the value
    except OSError:
        return True
    return len(attributes) < 4 or bool(attributes[0] & _NON_VOLATILE)


def _make_mutable(file: Path) -> None:
    """Take the flag away that efivarfs sets so that `rm -rf` bricks no machine."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        packed = fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0))
        (flags,) = struct.unpack("l", packed)
        if flags & _IMMUTABLE:
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags & ~_IMMUTABLE))
    finally:
        os.close(descriptor)
