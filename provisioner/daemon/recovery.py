"""Detects a database that lost writes when a daemon starts, and counts its writes from then on.

A file in the data directory holds the high-water mark of the writes. A database below it was
restored, or promoted without them, and no device is written to until a person confirms it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import Connection, true

from provisioner.daemon.data import database_of
from provisioner.daemon.telemetry import read_version
from provisioner.model.input_error import InputError
from provisioner.model.recovery import DatabasePosition, HighWater, Revocation, RevokedKind
from provisioner.planning.watch.high_water import judge, waits_for_others
from provisioner.planning.watch.membership import RETRY_S, choose_removals, find_newest, name_backup
from provisioner.ports import Clock, StoreFailed
from provisioner.runtime import permit
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings
from provisioner.store.database.backup import make_backup
from provisioner.store.database.data_directory import place_of
from provisioner.store.database.high_water import (
    RESTORED_FILE,
    STANDING,
    MarkFile,
    Marking,
    RevocationFile,
    apply_revocations,
    confirm,
    look,
    read_revocations,
    settle_mark,
)
from provisioner.store.repositories.removals import (
    list_changes,
    pick_newest,
    read_standings,
    remove_again,
)
from provisioner.store.repositories.signing_keys import Sealing
from provisioner.store.rows import request_rows
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Backups of the database by schedule, made by the daemon while it runs.


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
        permit.get_scope().counts[NEWEST] = int(newest or self._since)


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
        await end_tasks(running)


REASON_SIZE_MAX = 2000
# A living daemon starts again within seconds; after a minute its machine is gone with the primary.
CONFIRM_S = 60


class CountedWrites:
    """A daemon's counted writes; `look_only` is why nothing may be written to devices, or "".

    Without such a reason, `stop` ends this daemon if another one notices a loss.
    """

    def __init__(
        self,
        look_only: str,
        stop: Callable[[str], object],
        revoked: Collection[Revocation] = (),
    ) -> None:
        self.look_only = look_only
        self.revoked = revoked  # again, since the database had them in force
        self._stop = stop
        self._acts = not look_only

    @property
    def key_withdrawn(self) -> bool:
        """Return whether a signing key was: the daemon has to sign with another one."""
        return any(r.kind is RevokedKind.SIGNING_KEY for r in self.revoked)

    def forbid_writes(self, why: str) -> None:
        """Write nothing to devices from now on; that mark in the rows does not end this daemon."""
        self.look_only = why
        self._acts = False

    def allow_writes(self) -> None:
        """Act from now on, and end when the database says that no daemon may."""
        self._acts = True

    def hear_loss(self, why: str) -> None:
        """End this daemon, if it acts: the rows say that writes were lost. From any thread."""
        if self._acts:
            self._stop(why)


async def _look(store: SqlStore, place: str, kept: HighWater | None) -> DatabasePosition:
    """Read the database's position; after a promotion, once other daemons confirmed theirs."""
    position = await store.read(lambda c: look(c, place, kept))
    if kept is None or not waits_for_others(kept, position) or _lost_anything(kept, position):
        return position
    await store.write(lambda c: confirm(c, place))
    for _ in range(CONFIRM_S):
        if not waits_for_others(kept, position) or position.look_only:
            break
        names = ", ".join(position.unconfirmed)
        log.warning("the server was promoted; waiting for the daemons of %s", names)
        await asyncio.sleep(1.0)
        position = await store.read(lambda c: look(c, place, kept))
    return position


def _lost_anything(kept: HighWater, position: DatabasePosition) -> bool:
    alone = position.model_copy(update={"unconfirmed": ()})
    return judge(kept, alone) != judge(None, DatabasePosition())


class RevocationKeeper:
    """Copies each revocation of the database into the directory's file: its own at once, those of
    other daemons and commands within `PEERS_S`.
    """

    PEERS_S = 10.0
    SHARE = 0.02  # of the time at most is spent on looks

    def __init__(
        self,
        store: SqlStore,
        book: RevocationFile,
        remembered: Collection[Revocation],
        clock: Callable[[], float],
    ) -> None:
        self._now = clock
        self._store = store
        self._book = book
        self._known = {(r.kind, r.id) for r in remembered if r.kind not in STANDING}
        self._standing = pick_newest(remembered)  # what is gone since was removed
        self._written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Have a look made soon: a row was written. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._written.set)

    async def run(self) -> None:
        """Look after each write, until cancelled."""
        while True:
            self._written.clear()
            began = self._loop.time()
            await self.look()
            await asyncio.sleep(max((self._loop.time() - began) / self.SHARE, 0.2))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._written.wait(), self.PEERS_S)

    async def settle(self) -> None:
        """Take the present rows for what stands, after a restore: what an older row does not have
        yet was not removed.
        """
        found = await self._store.read(read_standings)
        self._standing = {s: line for s, line in self._standing.items() if s in found}

    async def look(self) -> None:
        """Add what is not in the file yet; what cannot be added now is tried again."""
        try:
            found, stand = await self._store.read(
                lambda c: (read_revocations(c), read_standings(c))
            )
            new = [r for r in found if (r.kind, r.id) not in self._known]
            new += list_changes(self._standing, stand, self._now())
            if new:
                self._book.add(new)  # rare, and never cut off by a cancellation
                self._known |= {(r.kind, r.id) for r in found}
            damaged = {s: r for s, r in self._standing.items() if s in stand and stand[s] is None}
            self._standing = damaged | {s: r for s, r in stand.items() if r is not None}
        except (StoreFailed, OSError) as error:
            log.error("revocations are not kept outside of the database now: %s", error)


@asynccontextmanager
async def counted_writes(
    directory: Path,
    store: SqlStore,
    now: float,
    stop: Callable[[str], object],
    *,
    requested: bool = False,
) -> AsyncIterator[CountedWrites]:
    """Judge the database by the directory's high-water mark, and count its writes until the end.

    `requested`: a person asked to look only. Raises `InputError` for a database that this directory
    must not be used with. The caller holds the directory's lock.
    """
    file = MarkFile(directory)
    place = place_of(directory)
    try:
        mark_before = file.read()
    except InputError:
        if not requested:
            raise
        mark_before = None
    position = await _look(store, place, mark_before)
    reason_file = directory / RESTORED_FILE
    restored = (
        reason_file.read_text(encoding="utf-8")[:REASON_SIZE_MAX].strip()
        if reason_file.exists()
        else ""
    )
    standing = judge(mark_before, position, requested=requested, restored=restored)
    if standing.refused:
        raise InputError(
            str(directory),
            "",
            standing.refused,
            "Name the database that it belongs to. If this one is right (a restore): --restored.",
        )
    why = "; ".join(standing.look_only)[:REASON_SIZE_MAX]
    went_back = bool(restored) or (bool(why) and not position.look_only)

    book = RevocationFile(directory)
    remembered = book.tidy(now)

    def settle_row(connection: Connection) -> tuple[HighWater, tuple[Revocation, ...]]:
        if went_back:  # a session that was signed out since the copy would accept its cookie again
            request_rows.end_sessions(connection, true(), "the database was restored", now)
        again = apply_revocations(connection, remembered, now)
        if went_back:
            again += remove_again(connection, remembered, now)
        return settle_mark(connection, place, mark_before, why, now), again

    mark, again = await store.write(settle_row)
    for told in again:
        log.warning("%s %s was in force in the database: revoked again", told.kind.value, told.id)
    file.write(mark)
    reason_file.unlink(missing_ok=True)  # its content is in the database from here on
    counted = CountedWrites(why, stop, again)
    keeper = RevocationKeeper(store, book, remembered, time.time)
    marking = Marking(file, mark, counted.hear_loss, keeper.wake)
    store.writer.count_by(marking)
    if went_back:
        await keeper.settle()
    keeping = asyncio.create_task(keeper.run(), name="revocations")
    try:
        yield counted
    finally:
        await end_tasks(keeping)
        await keeper.look()
        store.writer.count_by(None)
        marking.close()
