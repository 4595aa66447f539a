"""Builds a daemon's place among several on one PostgreSQL; on a file there is no such place.

The driver and the engine for PostgreSQL are the extra `postgresql`. They are imported only when a
database needs them, so that a daemon on a file starts without them.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from provisioner.adapters.bounded_http import accepts_connection
from provisioner.daemon.telemetry import read_version
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.watch import membership
from provisioner.planning.watch.membership import WorksBy
from provisioner.runtime.database_clock import DatabaseClock
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.database.postgres import (
    extra_missing,
    is_postgres,
    postgres_url,
    shown,
    wait_reason,
)
from provisioner.store.database.waits import WaitWatch

if TYPE_CHECKING:
    from provisioner.control.engine.cluster import Cluster
    from provisioner.control.engine.engine_shared import WorkQueue

log = logging.getLogger(__name__)

CHANGE_MAX = timedelta(days=7)  # a change that takes longer to roll through means two sites
# exit code of a daemon that lost its seat, so that its service manager starts it again
LOST = os.EX_TEMPFAIL


def digests_of(settings: Settings, matrix: Matrix, texts: Mapping[str, str]) -> Mapping[str, str]:
    return {
        "code": digest_code(),
        "matrix": matrix.digest(),
        "settings": membership.digest_settings(settings),
        **{name: membership.digest_text(text) for name, text in texts.items()},
    }


def digest_code() -> str:
    package = Path(__file__).parents[1]
    code = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        code.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes() + b"\0")
    return code.hexdigest()


def declared_end(text: str) -> float:
    """Return the end of a declared rolling change; 0 for "". Raises InputError."""
    if not text:
        return 0.0
    remedy = "Write a time with its zone, within a week: 2026-11-22T18:00+01:00."
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("--change-until", text[:40], "this is no time", remedy) from None
    if until.tzinfo is None:
        raise InputError("--change-until", text[:40], "this time has no zone", remedy)
    if until - datetime.now(UTC) > CHANGE_MAX:
        raise InputError("--change-until", text[:40], "this is more than a week ahead", remedy)
    return until.timestamp()


def clock_of(database: str, clock: WallClock) -> WallClock:
    """Return the clock of a daemon; among several, one that can follow the database's clock."""
    return DatabaseClock(clock.speed, clock.epoch) if is_postgres(database) else clock


def watched_waits(database: str, settings: Settings) -> AbstractContextManager[object]:
    """Report waits on a PostgreSQL database while open, and end the process after the limit."""
    if not is_postgres(database):
        return nullcontext()
    return WaitWatch(settings.database_wait_max_s, partial(wait_reason, database), end_at_once)


@asynccontextmanager
async def open_cluster(
    database: str,
    settings: Settings,
    clock: WallClock,
    works: WorksBy,
    list_keys: Callable[[], Collection[str]] = tuple,
    data: Path = Path(),
) -> AsyncIterator[tuple[Cluster, WorkQueue] | None]:
    """Yield our seat and the queue of operations; None with a file.

    `clock` comes from `clock_of` and follows the database's clock from then on. `list_keys`: ids
    of the master keys that this daemon has, which its peers and `db reseal` may count. `data`: its
    directory, by which its next life knows what this one had given away.

    Raises InputError if the server refuses the connection, or if the extra `postgresql` is not
    installed.
    """
    if not is_postgres(database):
        yield None
        return
    try:
        # this takes seconds, so it precedes our first heartbeat
        dbos = importlib.import_module("provisioner.control.engine.engine_dbos")
        import psycopg

        from provisioner.control.engine.cluster import Cluster, SharedTime
        from provisioner.store.database.seat import Seat
    except ModuleNotFoundError as missing:
        raise extra_missing(shown(postgres_url(database)), str(missing.name)) from None
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    assert isinstance(clock, DatabaseClock)
    time = SharedTime(clock, settings.clock_difference_max_s)
    seat = Seat(
        database,
        name,
        read_version(),
        settings.lease_s,
        works=works,
        place=_place(data),
        list_keys=list_keys,
    )
    cluster = Cluster(seat, end_at_once, time, probe=accepts_connection)
    try:
        await cluster.start()
    except psycopg.Error as error:
        where = shown(postgres_url(database))
        cause = " ".join(str(error).split())
        raise InputError(
            where, "", f"no place among the daemons: {cause}", "Start again."
        ) from None
    try:
        yield cluster, dbos.DbosQueue(database)
    finally:
        await cluster.stop()


def end_at_once(why: str) -> NoReturn:
    """End a daemon that lost its seat, without a log-out, a last write or a message.

    A peer may already drive our operations.
    """
    log.critical("this daemon ends at once: %s", why)
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(LOST)


def _place(data: Path) -> str:
    """Return a name of this data directory that no other daemon has."""
    return f"{socket.gethostname()}:{data.resolve()}"
