"""Opens a PostgreSQL database that several daemons share, and says what each session promises it.

One transaction writes at a time, in whichever daemon: it begins by taking an advisory lock that
ends with it. So the row functions have on PostgreSQL what SQLite's BEGIN IMMEDIATE gives them, the
journal's numbers stay dense, and group commit keeps it cheap (decision 0021 has the figures).
A writer that was stopped or cut off inside a transaction is ended by the server, not waited for.
One whose round trips are long writes without holding the lock across any (`rehearsal.py`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.store.database import waits
from provisioner.store.database.lanes import Counting, LinkSlow
from provisioner.store.database.migrating import Copier, prepare_schema

log = logging.getLogger(__name__)

# Advisory locks are numbers; ours share this first one ("prov" in ASCII), the second says what for.
LOCK_SPACE = 0x70726F76
WRITER = 1
OPENING = 2

# A write transaction takes milliseconds. One that does nothing for this long is a daemon that was
# stopped or cut off, and everybody else waits for it.
STALLED_MS = 10_000
# The same while holding the writers' lock: the server takes the transaction back, nothing of it is
# kept, and it is written by `rehearsal.py`, which holds no lock meanwhile.
WRITER_STALLED_MS = 500
# A writer whose round trip takes longer is far: it never holds the lock across one.
FAR_S = 0.01
HELD_S = 0.1  # at most, by a group on a near link: so many jobs share a transaction
JOB_STATEMENTS = 5  # of a usual piece of work, with its savepoint
SUSPECT_S = 0.1  # a statement that took longer: is it the link?
FAR_TIMES = 3  # measured in a row, before it is told
NEAR_AGAIN = 20  # groups with a short round trip in a row, before the link counts as near again
PATIENCE_S = 30.0  # for a piece of work that others are faster than
# Waiting for the writers before us: some hundred transactions. Longer, and something is broken.
LOCK_WAIT_MS = 30_000
VERSION_MIN = 140_000  # 14: `idle_session_timeout`, by which a daemon that hangs loses its lock
# The order of texts is the order of code points, as in SQLite and in Python.
COLLATIONS = frozenset({"C", "POSIX", "C.UTF-8", "C.utf8"})

CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    # a peer that vanished is noticed in some 11 s, also while an answer is awaited
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,
    "application_name": "provisioner",
    "client_encoding": "utf8",
}


def is_postgres(database: object) -> bool:
    """Return whether this names a PostgreSQL database, not a file."""
    return str(database).startswith(("postgresql:", "postgresql+", "postgres:"))


def postgres_url(text_: str, source: str = "--database") -> URL:
    """Return the URL for SQLAlchemy and our driver. `InputError`, without the password, if it is
    none.
    """
    try:
        url = make_url(text_)
    except ArgumentError:
        raise _unusable(source, "this is no URL of a database") from None
    if not url.database:
        raise _unusable(source, "the URL names no database")
    return url.set(drivername="postgresql+psycopg")


def shown(url: URL) -> str:
    """Return the URL without its password, for people."""
    return url.set(drivername="postgresql", password=None, query={}).render_as_string()


def open_postgres(database: str, copy_first: Copier | None = None) -> Engine:
    """Return an engine on a checked database of this version's schema. Blocks.

    Raises `InputError` if it cannot be reached or used, or if its schema is older than ours and
    `copy_first` is None.
    """
    url = postgres_url(database)
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=CONNECT)
    except ModuleNotFoundError as missing:
        raise extra_missing(shown(url), str(missing.name)) from None
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "before_cursor_execute", _before_statement)
    event.listen(engine, "after_cursor_execute", _after_statement)
    try:
        with waits.on("opening the database"), engine.connect() as connection:
            _check(connection, shown(url))
            # daemons that start together migrate one after the other
            connection.execute(_LOCK_SESSION, {"space": LOCK_SPACE, "what": OPENING})
            connection.commit()
            prepare_schema(engine, shown(url), copy_first)
    except DBAPIError as error:
        engine.dispose()
        message = str(error.orig).strip() or type(error.orig).__name__
        raise _unusable(shown(url), " ".join(message.split())) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def wait_reason(database: str) -> str:
    """Ask the server what our sessions wait for; "" if it does not say. Blocks for some seconds."""
    try:
        engine = create_engine(
            postgres_url(database),
            poolclass=NullPool,
            connect_args={**CONNECT, "connect_timeout": 3, "application_name": "provisioner look"},
        )
        with engine.connect() as connection:
            events = set(connection.scalars(_WAITING))
            standbys = connection.exec_driver_sql("SHOW synchronous_standby_names").scalar_one()
        engine.dispose()
    except (DBAPIError, ModuleNotFoundError):
        return "it does not answer"
    if "IPC:SyncRep" in events:
        return f"no synchronous standby answers it (synchronous_standby_names: {standbys})"
    if "Lock:relation" in events:
        return "another session holds a lock on a table (pg_locks)"
    return "another daemon writes" if "Lock:advisory" in events else ""


def write_connection(engine: Engine) -> Callable[[], Connection]:
    """Return the maker of the connection that writes: each transaction begins with the writers'
    lock.
    """
    return lambda: engine.connect().execution_options(provisioner_writes=True)


def read_connection(engine: Engine) -> Callable[[], Connection]:
    """Return the maker of connections whose transactions read one snapshot and wait for no
    writer.
    """
    return lambda: engine.connect().execution_options(
        isolation_level="REPEATABLE READ", postgresql_readonly=True
    )


_WAITING = text(
    "SELECT wait_event_type || ':' || wait_event FROM pg_stat_activity "
    "WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid() "
    "AND application_name IN ('provisioner', 'provisioner desk', 'dbos') "
    "AND wait_event IS NOT NULL"
)
_LOCK_SESSION = text("SELECT pg_advisory_lock(:space, :what)")
_LOCK = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :stalled, true), "
    "pg_advisory_xact_lock(:space, :what)"
)


def _prepare(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = {STALLED_MS}")
        cursor.execute(f"SET lock_timeout = {LOCK_WAIT_MS}")
        # no commit is acknowledged before it is on disk, whatever the server's default is
        cursor.execute("SELECT current_setting('synchronous_commit')")
        if cursor.fetchone()[0] == "off":
            cursor.execute("SET synchronous_commit = local")
    connection.commit()


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("provisioner_writes"):
        values = {"space": LOCK_SPACE, "what": WRITER, "stalled": str(WRITER_STALLED_MS)}
        connection.execute(_LOCK, values)


def _before_statement(*event_: Any) -> None:
    event_[4].provisioner_began_s = time.monotonic()


def _after_statement(*event_: Any) -> None:
    """Give the writers' lock back as soon as the link becomes slow inside of a transaction."""
    connection, _, statement, _, context, _ = event_
    if not connection.get_execution_options().get("provisioner_writes"):
        return
    if "pg_advisory_xact_lock" in statement:  # it waits for other writers, not for the link
        return
    if time.monotonic() - context.provisioner_began_s > SUSPECT_S:
        took_s = ping(connection)
        if took_s > SUSPECT_S / 2:
            raise LinkSlow(f"a round trip takes {took_s * 1000:.0f} ms")


def ping(connection: Connection) -> float:
    """Return the seconds of a round trip to the server; outside of a transaction it begins none."""
    bare: Any = connection.connection.driver_connection
    began_s = time.monotonic()
    bare.pgconn.exec_(b"SELECT 1")
    return time.monotonic() - began_s


class DatabaseLink:
    """How far the server is from this process, and how it writes over that distance.

    Used by the writer's thread; `round_trip_s` and `far` may be read by others.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.round_trip_s = 0.0
        self.far = False
        self._count = 0  # of measurements in a row that were far; negative: that were near
        self._connection: Connection | None = None

    def most(self, connection: Connection) -> int:
        """See `lanes.Link`: measured before each transaction, while no lock is held."""
        took_s = ping(connection)
        for _ in range(3):  # a busy machine is no far one
            if FAR_S < took_s < SUSPECT_S and not self.far:
                took_s = min(took_s, ping(connection))
        self.round_trip_s = took_s
        if took_s > FAR_S:
            self._count = max(self._count, 0) + 1
            if not self.far and (took_s > SUSPECT_S or self._count == FAR_TIMES):
                self.far = True
                log.warning(
                    "the database is far: a round trip takes %.0f ms, and writes are sent whole; "
                    "check the link between this machine and the database",
                    took_s * 1000,
                )
            return 0
        self._count = min(self._count, 0) - 1
        if self.far and self._count > -NEAR_AGAIN:
            return 0
        if self.far:
            self.far = False
            log.warning("the database is near again: %.1f ms", took_s * 1000)
            self.close()
        return max(1, int(HELD_S / (JOB_STATEMENTS * max(took_s, 1e-6))))

    def commit(
        self, works: Sequence[Any], counting: Counting | None
    ) -> tuple[list[Any], list[BaseException | None], int]:
        """See `lanes.Link`."""
        from provisioner.store.database.rehearsal import Piece, Rehearsing  # the driver is an extra

        pieces = [Piece(work) for work in works]
        calls = 0
        try:
            if self._connection is None:
                options = {"isolation_level": "AUTOCOMMIT"}
                self._connection = self._engine.connect().execution_options(**options)
                self._rehearsing = Rehearsing(
                    self._connection, (LOCK_SPACE, WRITER), patience_s=PATIENCE_S
                )
            count = None if counting is None else counting.count
            keep = (lambda _counted: None) if counting is None else counting.keep
            calls = self._rehearsing.commit(pieces, count, keep)
        except Exception as error:
            for piece in pieces:
                if not piece.done:
                    piece.error = _failed(error)
            self.close()
        for piece in pieces:
            if isinstance(piece.error, DBAPIError | TimeoutError):
                piece.error = _failed(piece.error)
        return [p.result for p in pieces], [p.error for p in pieces], calls

    def lost(self, error: DBAPIError) -> bool:
        """See `lanes.Link`."""
        return getattr(error.orig, "sqlstate", None) == "25P03"  # idle in transaction

    def close(self) -> None:
        """Close the connection for a far database. It is made again when it is needed."""
        if self._connection is not None:
            connection = self._connection
            self._connection = None
            with contextlib.suppress(Exception):
                connection.invalidate()
                connection.close()


def _failed(cause: BaseException) -> StoreFailed:
    error = StoreFailed(f"the database failed: {getattr(cause, 'orig', cause)}")
    error.__cause__ = cause
    return error


def _check(connection: Connection, source: str) -> None:
    """Refuse at the start the settings that would cause silent faults later."""
    version = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one())
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    order = connection.exec_driver_sql(
        "SELECT datcollate FROM pg_database WHERE datname = current_database()"
    ).scalar_one()
    standby = connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one()
    if version < VERSION_MIN:
        raise _unusable(source, f"it is of version {version // 10_000}; wanted is 14 or newer")
    if encoding != "UTF8" or order not in COLLATIONS:
        raise InputError(
            source,
            "",
            f"its encoding is {encoding} and its order of texts {order}; wanted are UTF8 and C",
            "Run: createdb --template=template0 --encoding=UTF8 --locale=C NAME",
        )
    if standby:
        raise _unusable(source, "it is a standby, which takes no writes")
    connection.rollback()


def extra_missing(source: str, package: str) -> InputError:
    """Return the refusal for a PostgreSQL database where the extra is not installed."""
    problem = f"PostgreSQL needs the package {package}, which is not installed"
    remedy = 'Run: pip install "gpu-provisioner[postgresql]"'
    return InputError(source, "", problem, remedy)


def _unusable(source: str, problem: str) -> InputError:
    remedy = "Check that it runs, its address, and the user's rights (docs/high-availability.md)."
    return InputError(source, "", f"the database cannot be used: {problem}", remedy)
