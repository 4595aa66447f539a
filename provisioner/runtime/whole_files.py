"""Files that are written whole or not at all, for their owner only unless said otherwise."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a new file with 0600, on disk under its name when this returns; it must not exist
    yet.
    """
    _write_new(path, content, 0o600, lasting=True)
    sync_directory(path.parent)


def replace_file(
    path: Path, content: str | bytes, *, mode: int = 0o600, lasting: bool = False
) -> None:
    """Put a file in the place of one, or of none: a reader sees the old or the new one.

    `mode` is less the umask. `lasting`: it is on disk when this returns. Raises OSError.
    """
    # two writers at once have a file each, and the last one to end counts
    new = path.with_name(f".{path.name}.{threading.get_native_id()}.new")
    new.unlink(missing_ok=True)  # of a death while it was written
    try:
        _write_new(
            new, content.encode() if isinstance(content, str) else content, mode, lasting=lasting
        )
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    if lasting:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make creations and renames in it durable (a rename alone is only in the cache)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_new(path: Path, content: bytes, mode: int, *, lasting: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
