"""The watch's standing as a file of the data directory, for `provisioner watch status`.

What the watch knows is in the daemon's memory; the database is written only when something
changes. So twice a minute one small file tells it, on this machine, to whoever may read the
directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import ValidationError

from provisioner.control.watch_standing import standing
from provisioner.control.watcher import Watcher
from provisioner.model.input_error import InputError
from provisioner.model.watch import WatchStatus
from provisioner.ports import Clock

log = logging.getLogger(__name__)

STATUS_FILE = "watch.json"
EVERY_S = 30.0  # real seconds, whatever the clock's speed
STALE_S = 3 * EVERY_S
SIZE_MAX = 256 * 1024 * 1024  # 65,536 nodes with 11 BMCs each are some 60 MB


@asynccontextmanager
async def kept_status(directory: Path, clock: Clock) -> AsyncIterator[Callable[[Watcher], None]]:
    """From when the watcher is told until the end, its standing is written every EVERY_S."""
    file = directory / STATUS_FILE
    writing: list[asyncio.Task[None]] = []

    def begin(watcher: Watcher) -> None:
        writing.append(asyncio.create_task(_write_for_ever(file, watcher, clock)))
        writing[-1].add_done_callback(_ended)

    try:
        yield begin
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        file.unlink(missing_ok=True)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the watch's standing is told no more", exc_info=task.exception())


async def _write_for_ever(file: Path, watcher: Watcher, clock: Clock) -> None:
    while True:
        try:
            write_status(file, standing(watcher, clock.now()))
        except OSError as error:  # a full disk stops no watch
            log.warning("%s: it cannot be written: %s", file, error)
        await asyncio.sleep(EVERY_S)


def write_status(file: Path, status: WatchStatus) -> None:
    """The whole file or none of it, for its owner only. Raises OSError."""
    new = file.with_name(f"{file.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(status.model_dump_json())
    new.replace(file)


def read_status(directory: Path) -> tuple[WatchStatus, float]:
    """The newest standing, and how old the file is in real seconds.

    Raises `InputError` if no daemon tells it.
    """
    file = directory / STATUS_FILE
    remedy = "`provisioner serve` watches, and tells of it every half minute."
    try:
        with file.open("rb") as opened:
            text = opened.read(SIZE_MAX)
            age = time.time() - os.fstat(opened.fileno()).st_mtime
        return WatchStatus.model_validate_json(text), age
    except FileNotFoundError:
        raise InputError(str(file), "", "no daemon watches from here", remedy) from None
    except (OSError, ValidationError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
        raise InputError(str(file), "", problem, remedy) from None
