"""Reads a range of a disk from the medium, as proof of the data that was written."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
from typing import Any

from provisioner_hardware_manager import disks
from provisioner_hardware_manager.commands import Run, run

CHUNK = 4 << 20
BYTES_MAX = 64 << 30  # an operating system's image; reading more at 2 GB/s takes over half a minute


def hash_range(serial: str, offset: int, length: int, run: Run = run) -> dict[str, Any]:
    """Return SHA-256 of `length` bytes from `offset`, past the page cache. ValueError, OSError."""
    if offset < 0 or not 0 < length <= BYTES_MAX:
        raise ValueError(f"from {offset}, {length} bytes: out of bounds")
    disk = disks.find_disk(serial, run)
    if disk is None:
        raise ValueError("no disk, or more than one, has this serial")
    if offset + length > disk["size"]:
        raise ValueError(f"the disk ends at {disk['size']}")
    sha256 = hash_device(disk["name"], offset, length)
    return {"serial": disk["serial"], "offset": offset, "bytes": length, "sha256": sha256}


def hash_device(device: str, offset: int, length: int) -> str:
    """Hash a range with O_DIRECT where the device supports it (open(2): aligned buffers, offsets).

    In any case the page cache is dropped first.
    """
    handle = os.open(device, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        set_direct(handle)
        return _hash(handle, offset, length)
    finally:
        os.close(handle)


def set_direct(handle: int) -> None:
    """Read past the page cache from now on, where the file supports it."""
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError:
        return  # a file system without it, as in tests; the cache was dropped


def _hash(handle: int, offset: int, length: int) -> str:
    sha256 = hashlib.sha256()
    buffer = mmap.mmap(-1, CHUNK)  # page-aligned, as O_DIRECT requires
    position, end = offset - offset % CHUNK, offset + length
    while position < end:
        count = os.preadv(handle, [buffer], position)
        if count <= 0:
            raise OSError(f"nothing to read at {position}")
        low, high = max(0, offset - position), min(count, end - position)
        if low < high:
            sha256.update(buffer[low:high])
        if count < CHUNK and position + count < end:
            raise OSError(f"the disk ends at {position + count}")
        position += count
    return sha256.hexdigest()
