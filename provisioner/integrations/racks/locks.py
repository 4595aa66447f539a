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
def hold_name(lock: Path, busy: Exception, tries: int = 1) -> Iterator[int]:
    """Hold a file that is there for this alone, and yield its descriptor; raise `busy` where
    another one has it. Nothing renames it, as a file is that is written anew. Raises OSError.
    """
    held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
