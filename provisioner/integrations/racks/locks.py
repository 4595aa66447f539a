"""Locks of names in a folder, which one command or loop has at a time on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

EACH_S = 0.05


@contextlib.contextmanager
def hold_name(
    lock: Path, busy: Exception, tries: int = 1, *, shared: bool = False
) -> Iterator[int]:
    """Hold a file that is there for this alone, and yield its descriptor; raise `busy` where
    another one has it. Nothing renames it, as a file is that is written anew.

    `shared`: several people write in its folder, and whoever reads there may hold it. Raises
    OSError.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        held = os.open(lock, flags, 0o666 if shared else 0o600)
    except PermissionError:
        if not shared:
            raise
        held = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for left in reversed(range(tries)):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    raise busy from None
                time.sleep(EACH_S)
        yield held
    finally:
        os.close(held)
