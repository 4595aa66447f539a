"""Notices a database that lost writes when a daemon starts, and counts its writes from then on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import Connection, true

from provisioner.model.input_error import InputError
from provisioner.model.recovery import DatabasePosition, HighWater
from provisioner.planning.watch.high_water import judge, waits_for_others
from provisioner.store.database.data_directory import place_of
from provisioner.store.database.high_water import (
    RESTORED_FILE,
    MarkFile,
    Marking,
    confirm,
    look,
    settle_mark,
)
from provisioner.store.rows import session_rows
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)
REASON_SIZE_MAX = 2000
# A daemon that lives starts again within seconds; after a minute its machine went with the primary.
CONFIRM_S = 60


class CountedWrites:
    """A daemon's writes, counted. `look_only`: why nothing may be written to devices; "" if it may.

    Once that is settled, `act` says what ends this daemon if another one notices a loss.
    """

    def __init__(self, look_only: str, marking: Marking, stop: Callable[[str], object]) -> None:
        self.look_only = look_only
        self._marking, self._stop = marking, stop
        if not look_only:
            self.act()

    def only_look(self, why: str) -> None:
        """From now on this daemon writes nothing to devices, and outlives that the rows say so."""
        self.look_only, self._marking.stop = why, None

    def act(self) -> None:
        """From now on this daemon acts, and ends if the database says that none may."""
        self._marking.stop = self._stop


async def _look(store: SqlStore, place: str, kept: HighWater | None) -> DatabasePosition:
    """What the database says; after a promotion, once its other daemons had time to say theirs."""
    found = await store.read(lambda c: look(c, place, kept))
    if kept is None or not waits_for_others(kept, found) or _lost_anything(kept, found):
        return found
    await store.write(lambda c: confirm(c, place))
    for _ in range(CONFIRM_S):
        if not waits_for_others(kept, found) or found.look_only:
            break
        names = ", ".join(found.unconfirmed)
        log.warning("the server was promoted; waiting for the daemons of %s", names)
        await asyncio.sleep(1.0)
        found = await store.read(lambda c: look(c, place, kept))
    return found


def _lost_anything(kept: HighWater, found: DatabasePosition) -> bool:
    alone = found.model_copy(update={"unconfirmed": ()})
    return judge(kept, alone) != judge(None, DatabasePosition())


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

    `requested`: a person asked to look only. Raises `InputError` for a database that this
    directory must not be used with. The caller holds the directory's lock.
    """
    file, place = MarkFile(directory), place_of(directory)
    try:
        kept = file.read()
    except InputError:
        if not requested:
            raise
        kept = None
    found = await _look(store, place, kept)
    left = directory / RESTORED_FILE
    restored = left.read_text(encoding="utf-8")[:REASON_SIZE_MAX].strip() if left.exists() else ""
    standing = judge(kept, found, requested=requested, restored=restored)
    if standing.refused:
        raise InputError(
            str(directory),
            "",
            standing.refused,
            "Name the database that it belongs to. If this one is right (a restore): --restored.",
        )
    why = "; ".join(standing.look_only)[:REASON_SIZE_MAX]
    went_back = bool(restored) or (bool(why) and not found.look_only)

    def settle(connection: Connection) -> HighWater:
        if went_back:  # one that was signed out since the copy would let its cookie in again
            session_rows.end_sessions(connection, true(), "the database was restored", now)
        return settle_mark(connection, place, kept, why, now)

    mark = await store.write(settle)
    file.write(mark)
    left.unlink(missing_ok=True)  # what it says is in the database from here on
    marking = Marking(file, mark, None)
    store.writer.counting = marking
    try:
        yield CountedWrites(why, marking, stop)
    finally:
        store.writer.counting = None
        marking.close()
