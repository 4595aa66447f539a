"""A small ISO 9660 volume with cloud-init's files; equal files result in equal bytes. Pure.

The agent writes it to a partition, and cloud-init's NoCloud source finds it by its label "cidata".
Names that ISO 9660 does not allow ("user-data") are Joliet's: a second tree of the same files.
Equal bytes matter, because a repeated command must be recognisable as the same command. (ECMA-119
sections 8 and 9; Joliet Specification, Microsoft 1995.)
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Mapping, Sequence

LABEL = "cidata"
SECTOR = 2048
SIZE_MAX_BYTES = 4 * 1024 * 1024  # the agent accepts 64 MiB; ours are some kilobytes
_TABLES = 4  # path tables: little and big endian, for each of two trees
_FIRST = 16 + 3 + _TABLES  # system area, three descriptors, path tables; then two directories
_WHEN = bytes(7)  # no date: two builds must not differ


def pack_volume(files: Mapping[str, str]) -> str:
    """Return the volume in the agent's format for a configuration drive: gzip, then base64."""
    return base64.b64encode(gzip.compress(build_volume(files), mtime=0)).decode()


def build_volume(files: Mapping[str, str]) -> bytes:
    """Return the bytes of the volume. `files`: contents by name, a few small ones."""
    names = sorted(files)
    contents = [files[name].encode() for name in names]
    assert sum(map(len, contents)) <= SIZE_MAX_BYTES
    assert len(names) <= 16, "one sector holds a directory"
    places = []
    at = _FIRST + 2
    for content in contents:
        places.append((at, len(content)))
        at += _sectors(len(content))
    plain = [_plain(name, number) for number, name in enumerate(names)]
    joliet = [name.encode("utf-16-be") for name in names]
    sectors: list[bytes] = [bytes(SECTOR)] * 16
    sectors.append(_descriptor(1, at, _FIRST, 19, joliet=False))
    sectors.append(_descriptor(2, at, _FIRST + 1, 21, joliet=True))
    sectors.append(b"\xffCD001\x01".ljust(SECTOR, b"\0"))
    for directory in (_FIRST, _FIRST + 1):
        sectors.append(struct.pack("<BBIH2s", 1, 0, directory, 1, b"\0\0").ljust(SECTOR, b"\0"))
        sectors.append(struct.pack(">BBIH2s", 1, 0, directory, 1, b"\0\0").ljust(SECTOR, b"\0"))
    sectors.append(_directory(_FIRST, plain, places))
    sectors.append(_directory(_FIRST + 1, joliet, places))
    for content in contents:
        size = _sectors(len(content)) * SECTOR
        sectors.append(content.ljust(size, b"\0"))
    return b"".join(sectors)


def _sectors(length: int) -> int:
    return max(1, -(-length // SECTOR))


def _plain(name: str, number: int) -> bytes:
    """Return a name that ECMA-119 allows, which sorts like the actual one."""
    letters = "".join(c if c.isalnum() else "_" for c in name.upper())[:6]
    return f"{number:02d}{letters}.;1".encode("ascii")


def _both(value: int) -> bytes:
    """Return a number in both byte orders (ECMA-119 7.3.3)."""
    return struct.pack("<I", value) + struct.pack(">I", value)


def _both_short(value: int) -> bytes:
    return struct.pack("<H", value) + struct.pack(">H", value)


def _record(name: bytes, place: int, size: int, *, directory: bool) -> bytes:
    """Return a directory record (ECMA-119 9.1)."""
    body = b"\0" + _both(place) + _both(size) + _WHEN
    body += bytes([2 if directory else 0, 0, 0]) + _both_short(1) + bytes([len(name)]) + name
    if len(name) % 2 == 0:
        body += b"\0"
    return bytes([len(body) + 1]) + body


def _directory(own: int, names: Sequence[bytes], places: Sequence[tuple[int, int]]) -> bytes:
    """Return the root: itself, its parent (itself), and the files in order of name."""
    records = [_record(name, own, SECTOR, directory=True) for name in (b"\0", b"\1")]
    records += [
        _record(name, place, size, directory=False)
        for name, (place, size) in zip(names, places, strict=True)
    ]
    directory = b"".join(records)
    assert len(directory) <= SECTOR
    return directory.ljust(SECTOR, b"\0")


def _descriptor(kind: int, sectors: int, root: int, tables: int, *, joliet: bool) -> bytes:
    """Return a volume descriptor (ECMA-119 8.4, 8.5); `tables` is the first of its path tables."""

    spelled = LABEL.encode("utf-16-be") if joliet else LABEL.encode("ascii")
    blank = b"\0 " if joliet else b" "

    def blanks(size: int) -> bytes:
        return (blank * size)[: size - size % len(blank)].ljust(size, b"\0")

    label = spelled + blanks(32 - len(spelled))
    escape = b"%/E".ljust(32, b"\0") if joliet else bytes(32)  # UCS-2, level 3
    descriptor = bytes([kind]) + b"CD001\x01\0" + blanks(32) + label
    descriptor += bytes(8) + _both(sectors) + escape + _both_short(1) + _both_short(1)
    descriptor += _both_short(SECTOR) + _both(10)
    descriptor += struct.pack("<II", tables, 0) + struct.pack(">II", tables + 1, 0)
    descriptor += _record(b"\0", root, SECTOR, directory=True)
    descriptor += blanks(128) * 4 + blanks(37) * 3
    descriptor += (b"0" * 16 + b"\0") * 4 + b"\1\0"
    return descriptor.ljust(SECTOR, b"\0")
