"""Opens a daemon's place among several on one PostgreSQL; on a file there is no such place.

The driver and the engine for PostgreSQL are the extra `postgresql`. They are imported only when a
database needs them: a daemon on a file starts without them.
"""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NoReturn

from provisioner.database_clock import DatabaseClock
from provisioner.model.input_error import InputError
from provisioner.settings import Settings
from provisioner.store.postgres import extra_missing, is_postgres, postgres_url, shown
from provisioner.wall_clock import WallClock

if TYPE_CHECKING:
    from provisioner.control.cluster import Cluster
    from provisioner.control.engine_shared import WorkQueue

log = logging.getLogger(__name__)

LOST = os.EX_TEMPFAIL  # exit code of a daemon that lost its seat: start it again


def clock_of(database: str, clock: WallClock) -> WallClock:
    """Return the clock of a daemon on this database: one that can follow it, among several."""
    return DatabaseClock(clock.speed, clock.epoch) if is_postgres(database) else clock


@asynccontextmanager
async def open_cluster(
    database: str, settings: Settings, clock: WallClock
) -> AsyncIterator[tuple[Cluster, WorkQueue] | None]:
    """Our seat and the queue of operations, until the end; None with a file.

    `clock` is one of `clock_of`: it goes by the database's clock from then on.

    Raises InputError if the server refuses it, or if the extra `postgresql` is not installed.
    """
    if not is_postgres(database):
        yield None
        return
    try:
        # takes seconds: before anybody counts on us
        dbos = importlib.import_module("provisioner.control.engine_dbos")
        import psycopg

        from provisioner.control.cluster import Cluster, SharedTime
        from provisioner.store.seat import Seat
    except ModuleNotFoundError as missing:
        raise extra_missing(shown(postgres_url(database)), str(missing.name)) from None
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    assert isinstance(clock, DatabaseClock)
    time = SharedTime(clock, settings.clock_difference_max_s)
    cluster = Cluster(Seat(database, name, _built(), settings.lease_s), end_at_once, time)
    try:
        await cluster.start()
    except psycopg.Error as error:
        where, told = shown(postgres_url(database)), " ".join(str(error).split())
        raise InputError(where, "", f"no place among the daemons: {told}", "Start again.") from None
    try:
        yield cluster, dbos.DbosQueue(database)
    finally:
        await cluster.stop()


def end_at_once(why: str) -> NoReturn:
    """Whoever lost its seat acts no more: no log-out, no last write, no goodbye.

    A peer may be driving already what we were driving.
    """
    log.critical("this daemon ends at once: %s", why)
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(LOST)


def _built() -> str:
    try:
        return version("gpu-provisioner")
    except PackageNotFoundError:  # run from a copy of its files
        return "unknown"
