"""Opens a PostgreSQL database that several daemons share, and says what each session promises it.

One transaction writes at a time, in whichever daemon: it begins by taking an advisory lock that
ends with it. So the row functions have on PostgreSQL what SQLite's BEGIN IMMEDIATE gives them, the
journal's numbers stay dense, and group commit keeps it cheap (decision 0021 has the figures).
A writer that was stopped or cut off inside a transaction is ended by the server, not waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from provisioner.model.input_error import InputError
from provisioner.store.database import waits
from provisioner.store.database.migrating import Copier, prepare_schema

# Advisory locks are numbers; ours share this first one ("prov" in ASCII), the second says what for.
LOCK_SPACE = 0x70726F76
WRITER = 1
OPENING = 2

# A write transaction takes milliseconds. One that does nothing for this long is a daemon that was
# stopped or cut off, and everybody else waits for it.
STALLED_MS = 10_000
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
_LOCK = text("SELECT pg_advisory_xact_lock(:space, :what)")


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
        connection.execute(_LOCK, {"space": LOCK_SPACE, "what": WRITER})


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
