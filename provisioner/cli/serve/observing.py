"""Runs a daemon that observes: `provisioner serve --observe`.

The gate of the process is closed before the first connection and never opens, and the parts are
narrowed to read-only ports; each of the two alone would keep every write from leaving.
"""

from __future__ import annotations

import asyncio
import logging
import signal

from provisioner.daemon.observing import ObservingDaemon
from provisioner.model.input_error import InputError
from provisioner.store.database.postgres import is_postgres

log = logging.getLogger(__name__)


def check_own_place(database: str) -> None:
    """Refuse a shared database, on which this daemon would lead and nothing would act."""
    if is_postgres(database):
        remedy = "Leave --database out: an observing daemon has a data directory of its own."
        raise InputError("--observe", "--database", "other daemons may act on it", remedy)


async def run_observing(daemon: ObservingDaemon) -> None:
    """Observe until stopped by SIGINT or SIGTERM, or until a loop fails."""
    stopped = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stopped.set)
    await daemon.start()
    log.warning("OBSERVING: nothing is written to any device (docs/adopting.md)")
    log.info("serving")
    ends = [asyncio.create_task(daemon.wait()), asyncio.create_task(stopped.wait())]
    ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await daemon.stop()
    for task in ends:
        task.cancel()
    for task in ended:
        task.result()
