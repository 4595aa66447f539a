"""The watch's standing as a file of the data directory, for `provisioner watch status`.

What the watch knows is in the daemon's memory; the database is written only when something
changes. So twice a minute, of large fleets less often, one file tells it, on this machine, to
whoever may read the directory.
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

from provisioner.control.watch.watch_standing import about, nodes
from provisioner.control.watch.watcher import Watcher
from provisioner.model.input_error import InputError
from provisioner.model.watch import WatchedNode, WatchStatus
from provisioner.ports import Clock

log = logging.getLogger(__name__)

STATUS_FILE = "watch.json"
EVERY_S = 30.0  # real seconds, whatever the clock's speed
BMCS_PER_S = 2400.0  # more of them are told less often: of 65,536 nodes it takes seconds to tell
NODES_AT_ONCE = 64  # then others have their turn: some 10 ms
STALE = 3  # as many times as long as until the next one was promised, and the daemon is silent
SIZE_MAX = 256 * 1024 * 1024  # 65,536 nodes with 11 BMCs each are some 60 MB


@asynccontextmanager
async def kept_status(directory: Path, clock: Clock) -> AsyncIterator[Callable[[Watcher], None]]:
    """From when the watcher is told until the end, its standing is written again and again."""
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
        for left in (file, _new(file)):
            left.unlink(missing_ok=True)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the watch's standing is told no more", exc_info=task.exception())


async def _write_for_ever(file: Path, watcher: Watcher, clock: Clock) -> None:
    while True:
        bmcs = sum(len(node.bmcs) for node, _ in watcher.watched())
        every_s = max(EVERY_S, bmcs / BMCS_PER_S)
        try:
            status = about(watcher, clock.now()).model_copy(update={"every_s": every_s})
            await write_status(file, status, nodes(watcher))
        except OSError as error:  # a full disk stops no watch
            log.warning("%s: it cannot be written: %s", file, error)
        await asyncio.sleep(every_s)


async def write_status(file: Path, about: WatchStatus, nodes: Iterable[WatchedNode]) -> None:
    """The whole file or none of it, for its owner only. Raises OSError.

    `about` has no nodes: they are told one by one, so that the event loop is not held meanwhile.
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
