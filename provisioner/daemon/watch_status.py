"""The watch's standing as a file of the data directory, for `provisioner watch status`.

The standing is in the daemon's memory, and the database is written only when something changes. So
one file shows it on this machine, twice a minute and less often for large fleets, to the readers of
the directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import ValidationError

from provisioner.control.watch.watch_standing import iterate_nodes, read_summary
from provisioner.control.watch.watcher import Watcher
from provisioner.model.input_error import InputError
from provisioner.model.watch import WatchedNode, WatchStatus
from provisioner.ports import Clock

log = logging.getLogger(__name__)

STATUS_FILE = "watch.json"
EVERY_S = 30.0  # real seconds, whatever the clock's speed
# BMCs; a larger site is written less often: of 65,536 nodes a write takes seconds
BMCS_PER_S = 2400.0
NODES_AT_ONCE = 64  # then other tasks run: after some 10 ms
STALE = 3  # periods without a new file after which the daemon counts as silent
SIZE_MAX = 256 * 1024 * 1024  # 65,536 nodes with 11 BMCs each are some 60 MB


@asynccontextmanager
async def kept_status(directory: Path, clock: Clock) -> AsyncIterator[Callable[[Watcher], None]]:
    """Yield a function that takes the watcher and from then on writes its standing."""
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
        for file_left in (file, _new(file)):
            file_left.unlink(missing_ok=True)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the watch's standing is not written any more", exc_info=task.exception())


async def _write_for_ever(file: Path, watcher: Watcher, clock: Clock) -> None:
    while True:
        bmcs = sum(len(node.bmcs) for node, _ in watcher.list_watched())
        every_s = max(EVERY_S, bmcs / BMCS_PER_S)
        try:
            status = read_summary(watcher, clock.now()).model_copy(update={"every_s": every_s})
            await write_status(file, status, iterate_nodes(watcher))
        except OSError as error:  # a full disk does not stop the watch
            log.warning("%s: it cannot be written: %s", file, error)
        await asyncio.sleep(every_s)


async def write_status(file: Path, about: WatchStatus, nodes: Iterable[WatchedNode]) -> None:
    """Write the whole file or none of it, for its owner only. Raises OSError.

    `about` has no nodes: they are written one by one, so that the event loop is not held.
    """
    new = _new(file)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(about.model_dump_json(exclude={"nodes"})[:-1] + ',"nodes":[')
        for number, node in enumerate(nodes):
            opened.write(f"{',' if number else ''}{node.model_dump_json()}")
            if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
        opened.write("]}")
    new.replace(file)


def _new(file: Path) -> Path:
    return file.with_name(f"{file.name}.new")


def read_status(directory: Path) -> tuple[WatchStatus, float]:
    """Return the newest standing, and the age of the file in real seconds.

    Raises `InputError` if no daemon writes it.
    """
    file = directory / STATUS_FILE
    remedy = "`provisioner serve` watches, and writes this file every half minute."
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
