"""Backups of the database by schedule, made by the daemon while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from provisioner.daemon.data import database_of
from provisioner.daemon.telemetry import read_version
from provisioner.model.input_error import InputError
from provisioner.planning.watch.backup_schedule import (
    RETRY_S,
    choose_removals,
    find_newest,
    name_backup,
)
from provisioner.ports import Clock, StoreFailed
from provisioner.runtime import process_scope
from provisioner.settings import Settings
from provisioner.store.database.backup import make_backup
from provisioner.store.repositories.master_key import Sealing

log = logging.getLogger(__name__)
LOOK_S = 60.0
NEWEST = "backup_newest_at"  # of the process's gauges, in seconds since the epoch


class Backups:
    """The schedule. `since` stands for a newest backup while there is none."""

    def __init__(
        self, data: Path, database: str, settings: Settings, clock: Clock, keys: Sealing
    ) -> None:
        """Check the directory. Raises InputError."""
        self._keys = keys
        self._data = data
        self._database = database_of(data, database)
        self._settings = settings
        self._clock = clock
        self._directory = Path(settings.backup_directory)
        self._retry_at = 0.0
        self._since = clock.now()
        if not self._directory.is_dir() or not os.access(self._directory, os.W_OK | os.X_OK):
            problem = "it is no directory that the daemon may write to"
            remedy = f"Run: install -d -m 0700 -o provisioner {self._directory}"
            raise InputError("backup_directory", str(self._directory), problem, remedy)

    async def run(self) -> None:
        """Make each backup when it is due, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> bool:
        """Make a backup if one is due; return whether one was made."""
        now = self._clock.now()
        newest = find_newest(self._list(), now)
        self._report(newest)
        due = now - newest >= self._settings.backup_every_h * 3600
        if not due or now < self._retry_at:
            return False
        self._retry_at = now + RETRY_S
        output = self._directory / name_backup(now)
        try:
            manifest = await asyncio.to_thread(
                make_backup, self._data, self._database, output, now, read_version(), self._keys
            )
        except (InputError, StoreFailed, OSError) as error:
            log.error("the scheduled backup failed: %s", error)
            return False
        self._retry_at = 0.0
        self._report(find_newest(self._list(), now))
        if manifest.journal_problem:  # older ones may be whole: none is removed
            log.error("backup %s: the journal is not intact: %s", output, manifest.journal_problem)
            return True
        log.info("backup %s, journal %d:%s", output, manifest.journal_rows, manifest.journal_head)
        for name in choose_removals(self._list(), self._settings.backup_keep):
            (self._directory / name).unlink(missing_ok=True)
        return True

    def _list(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._directory)]
        except OSError:
            return []

    def _report(self, newest: float) -> None:
        process_scope.get_scope().counts[NEWEST] = int(newest or self._since)


@asynccontextmanager
async def scheduled_backups(
    data: Path, database: str, settings: Settings, clock: Clock, keys: Sealing
) -> AsyncIterator[None]:
    """Make backups by the settings until the end. Raises InputError."""
    if not settings.backup_directory:
        yield
        return
    running = asyncio.create_task(
        Backups(data, database, settings, clock, keys).run(), name="backups"
    )
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
