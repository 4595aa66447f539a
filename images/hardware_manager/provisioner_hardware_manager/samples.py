"""Blocks of a disk that are read before and after its erasure: no data of before may be left.

An erasure that a device reports as done is believed only if the medium agrees. One block of each of
1,024 equal sections is read, at an unforeseeable place, and the first and the last one.
This is fewer than the tenth of the medium that NIST SP 800-88 Rev. 1, 4.7.2 has for "representative
sampling"; it finds a command that did nothing, and a namespace that was left out.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner_hardware_manager.disk_reading import set_direct

BLOCK_BYTES = 4096  # a multiple of every logical block size that disks have
SECTIONS = 1024


@dataclass(frozen=True)
class Samples:
    """Blocks that were read. `data` has the digests of those with more than one byte value."""

    data: frozenset[bytes] = frozenset()
    count: int = 0
    with_data: int = 0
    unreadable: int = 0


def read_samples(devices: Sequence[str], seed: str) -> Samples:
    """Read the samples of block devices past the page cache. Raises nothing.

    The same seed selects the same places on a device of the same size.
    """
    data: list[bytes] = []
    count = 0
    unreadable = 0
    for device in devices:
        try:
            blocks, failed = _read_device(device, seed)
        except OSError:
            unreadable += 1
            continue
        data += [hashlib.sha256(b).digest() for b in blocks if b.strip(b[:1])]
        count += len(blocks)
        unreadable += failed
    return Samples(frozenset(data), count, len(data), unreadable)


def compare_samples(before: Samples, after: Samples) -> tuple[bool, str]:
    """Return whether the medium agrees that it was erased, and the evidence as one line."""
    left = len(before.data & after.data)
    if left:
        return False, f"{left} samples of {after.count} hold the data that they held before"
    if after.unreadable or not after.count:
        return False, f"{after.unreadable} samples cannot be read back, {after.count} can"
    return True, f"none of {before.with_data} samples with data is left, {after.count} read"


def list_places(size: int, seed: str) -> list[int]:
    """Return the offsets to read on a device of this size: whole blocks, in ascending order."""
    blocks = size // BLOCK_BYTES
    if blocks <= SECTIONS:
        return [n * BLOCK_BYTES for n in range(blocks)]
    rng = random.Random(seed)  # noqa: S311  unforeseeable by the disk, no secret
    edges = [blocks * n // SECTIONS for n in range(SECTIONS + 1)]
    chosen = {rng.randrange(low, high) for low, high in itertools.pairwise(edges)}
    return [n * BLOCK_BYTES for n in sorted(chosen | {0, blocks - 1})]


def _read_device(device: str, seed: str) -> tuple[list[bytes], int]:
    handle = os.open(device, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        set_direct(handle)
        buffer = mmap.mmap(-1, BLOCK_BYTES)  # page-aligned, as O_DIRECT requires
        blocks: list[bytes] = []
        failed = 0
        for place in list_places(os.lseek(handle, 0, os.SEEK_END), seed):
            try:
                count = os.preadv(handle, [buffer], place)
            except OSError:
                failed += 1
                continue
            if count == BLOCK_BYTES:
                blocks.append(bytes(buffer))
            else:
                failed += 1
        return blocks, failed
    finally:
        os.close(handle)
