"""Reads qcow2 images (versions 2 and 3) into raw ones, so that an agent only ever sees raw bytes.

The file's digest was checked before, so it is what a person pinned; it is read with bounds all the
same. Refused, with words: backing files, encryption, external data, snapshots in use, extended L2
entries, and compression other than deflate. Format: QEMU, docs/interop/qcow2.rst.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"QFI\xfb"
SIZE_MAX_BYTES = 1 << 40  # 1 TiB: no image of an operating system is near it
_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_OFFSETS = 0x00FF_FFFF_FFFF_FE00  # bits 9 to 55 of a table entry
_COMPRESSED, _ZERO = 1 << 62, 1
_DIRTY, _COMPRESSION_TYPE = 1, 8  # incompatible features that are harmless here


class NotReadable(Exception):
    """The file is no qcow2 image that can be read."""


@dataclass(frozen=True)
class Header:
    """What a header says that matters. Sizes and offsets are bytes."""

    size: int
    cluster: int
    l1_entries: int
    l1_offset: int


def is_qcow2(path: Path) -> bool:
    """Whether the file begins as a qcow2 image does, whatever its name."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def header(file: BinaryIO) -> Header:
    """The header. Raises `NotReadable` for what this module does not read."""
    file.seek(0)
    raw = file.read(112)
    if len(raw) < _HEADER.size:
        raise NotReadable("the file is shorter than a header")
    found = _HEADER.unpack_from(raw)
    magic, version, backing, _, bits, size, crypt, l1_entries, l1_offset = found[:9]
    if magic != MAGIC or version not in (2, 3):
        raise NotReadable(f"this is no qcow2 image of version 2 or 3 ({version})")
    if backing or crypt:
        raise NotReadable("it needs another file, or a key")
    if not 9 <= bits <= 21 or not 0 < size <= SIZE_MAX_BYTES:
        raise NotReadable(f"cluster bits {bits}, size {size}")
    if version == 3:
        (features,) = struct.unpack_from(">Q", raw, 72)
        if features & ~(_DIRTY | _COMPRESSION_TYPE):
            raise NotReadable(f"it has incompatible features: {features:#x}")
        if features & _COMPRESSION_TYPE and len(raw) > 104 and raw[104] != 0:
            raise NotReadable("its compression is not deflate")
    cluster = 1 << bits
    needed = -(-size // (cluster * (cluster // 8)))
    if l1_entries < needed:
        raise NotReadable("its first table is shorter than its size")
    return Header(size=size, cluster=cluster, l1_entries=needed, l1_offset=l1_offset)


def chunks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of every cluster that holds data, in order; all else is zero."""
    head = header(file)
    per_table = head.cluster // 8
    first = _table(file, head.l1_offset, head.l1_entries)
    for l1_index, l1_entry in enumerate(first):
        if not l1_entry & _OFFSETS:
            continue
        second = _table(file, l1_entry & _OFFSETS, per_table)
        for l2_index, entry in enumerate(second):
            offset = (l1_index * per_table + l2_index) * head.cluster
            if offset >= head.size:
                return
            data = _cluster(file, entry, head)
            if data is not None:
                yield offset, data[: head.size - offset]


def _table(file: BinaryIO, offset: int, entries: int) -> tuple[int, ...]:
    file.seek(offset)
    raw = file.read(entries * 8)
    if len(raw) != entries * 8:
        raise NotReadable("a table lies beyond the file's end")
    return struct.unpack(f">{entries}Q", raw)


def _cluster(file: BinaryIO, entry: int, head: Header) -> bytes | None:
    """One cluster's data; None: it reads as zero."""
    if entry & _COMPRESSED:
        return _inflated(file, entry, head)
    if entry & _ZERO or not entry & _OFFSETS:
        return None
    file.seek(entry & _OFFSETS)
    data = file.read(head.cluster)
    # the last cluster of a file may end with the file; what is not there is zero
    return data.ljust(head.cluster, b"\0") if data else None


def _inflated(file: BinaryIO, entry: int, head: Header) -> bytes:
    offset_bits = 62 - (head.cluster.bit_length() - 1 - 8)
    offset = entry & ((1 << offset_bits) - 1)
    sectors = (entry >> offset_bits) & ((1 << (62 - offset_bits)) - 1)
    file.seek(offset)
    packed = file.read((sectors + 1) * 512 - offset % 512)
    try:
        data = zlib.decompressobj(-12).decompress(packed, head.cluster)
    except zlib.error as error:
        raise NotReadable(f"a cluster at {offset}: {error}") from None
    if len(data) != head.cluster:
        raise NotReadable(f"a cluster at {offset} is cut short")
    return data
