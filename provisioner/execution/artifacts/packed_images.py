"""Images as gzip: pinned ones are unpacked, and raw ones are packed once for all nodes.

An image of an operating system is mostly zeroes. The agent fetches it over HTTP, and its client
(requests) asks for gzip and unpacks it before the digest is computed, so that the bytes on the
disk, and their proof, are the same (ironic-python-agent 13.0.0, extensions/standby.py,
ImageDownload). Zeroes then cost a thousandth on the network, for each of a hundred nodes.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from provisioner.execution.artifacts.image_conversion import SIZE_MAX_BYTES, NotReadable

MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20
_GZIP = 31  # zlib.h: 15 bits of window, and 16 for the format of gzip
_LEVEL = 1  # zeroes at 700 MB/s; stronger levels cost times as much for a tenth less
# a packed image over this share of the raw one is not worth the agent's time to unpack it
_WORTH = 0.9


def is_gzip(path: Path) -> bool:
    """Return whether the file begins as a gzip file does, regardless of its name."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def unpack_image(source: Path, target: Path) -> int:
    """Unpack a gzip file into a sparse raw file; return its size. Raises NotReadable, OSError."""
    unpacker = zlib.decompressobj(_GZIP)
    size = 0
    with source.open("rb") as packed, target.open("wb") as raw:
        try:
            while chunk := unpacker.unconsumed_tail or packed.read(CHUNK_BYTES):
                data = unpacker.decompress(chunk, CHUNK_BYTES)
                size += len(data)
                if size > SIZE_MAX_BYTES:
                    raise NotReadable(f"it unpacks to more than {SIZE_MAX_BYTES} bytes")
                _write_sparse(raw.fileno(), data)
                if unpacker.eof:
                    break
        except zlib.error as error:
            raise NotReadable(f"it is no sound gzip file: {error}") from None
        if not unpacker.eof:
            raise NotReadable("it is cut off")
        if unpacker.unused_data or packed.read(1):
            raise NotReadable("bytes follow its end; only one gzip member is read")
        raw.truncate(size)
        os.fsync(raw.fileno())
    return size


def _write_sparse(handle: int, data: bytes) -> None:
    """Write, leaving a hole for a block of zeroes."""
    if data.strip(b"\0"):
        os.write(handle, data)
    else:
        os.lseek(handle, len(data), os.SEEK_CUR)


def pack_image(raw: Path, target: Path) -> bool:
    """Write the raw image as gzip, unless that is hardly smaller; return whether it is there.

    A file that is there already is not made again: the agent verifies its content in any case.
    """
    if target.exists():
        return True
    unfinished = target.with_suffix(".part")
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    limit = raw.stat().st_size * _WORTH
    with raw.open("rb") as file, unfinished.open("wb") as packed:
        while chunk := file.read(CHUNK_BYTES):
            packed.write(packer.compress(chunk))
            if packed.tell() > limit:
                break
        else:
            packed.write(packer.flush())
            unfinished.replace(target)
            return True
    unfinished.unlink()
    return False
