"""Opens a PostgreSQL database that several daemons share, and says what each session promises it.

One transaction writes at a time, in whichever daemon: it begins by taking an advisory lock that
ends with it. So the row functions have on PostgreSQL what SQLite's BEGIN IMMEDIATE gives them, the
journal's numbers stay dense, and group commit keeps it cheap (decision 0021 has the figures).
No daemon holds it across its round trips: they are rehearsed without it (`rehearsal.py`).
A writer that was stopped or cut off inside a transaction is ended by the server, not waited for.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.store.database import waits
from provisioner.store.database.lanes import Counting, Overtaken

# ------------------------------------------------------------------------------
# Makes the schema of a new database, and brings an older one up to date in one transaction.
#
# The rule that a reader would otherwise break: an older database is migrated only where the caller
# gives a way to copy it first. Commands that read give none, and are refused.


MIGRATIONS = Path(__file__).parents[1] / "migrations"
NEWEST = Path(__file__).parents[1] / "schema" / "newest.sql"
# PostgreSQL shows a trigger's text in its own words, so that its name and table are compared
_SERVER_TRIGGERS = frozenset(
    {
        ("trigger", "journal_no_update", "journal"),
        ("trigger", "journal_no_delete", "journal"),
        ("trigger", "journal_no_truncate", "journal"),
        ("trigger", "number_change_of_node", "nodes"),
    }
)
_SERVER_OBJECTS = text(
    "SELECT 'trigger', t.tgname::text, c.relname::text FROM pg_trigger t "
    "JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal "
    "AND c.relnamespace = current_schema()::regnamespace "
    "UNION ALL SELECT 'event trigger', evtname::text, '' FROM pg_event_trigger "
    "UNION ALL SELECT CASE c.relkind WHEN 'f' THEN 'foreign table' ELSE 'view' END, "
    "c.relname::text, '' FROM pg_class c WHERE c.relkind IN ('v', 'm', 'f') "
    "AND c.relnamespace = current_schema()::regnamespace "
    "UNION ALL SELECT 'rule', r.rulename::text, c.relname::text FROM pg_rewrite r "
    "JOIN pg_class c ON c.oid = r.ev_class WHERE r.rulename <> '_RETURN' "
    "AND c.relnamespace = current_schema()::regnamespace ORDER BY 1, 2, 3"
)

# Makes a copy of the database, which is of the given revision, and returns where the copy is.
Copier = Callable[[str], object]


def prepare_schema(engine: Engine, source: str, copy_first: Copier | None) -> None:
    """Leave the database with the schema of this version: made, already there, or migrated.

    Raises `InputError` if the database is of something else or of a newer version, or if it is of
    an older one and `copy_first` is None.
    """
    with engine.connect() as connection, connection.begin():
        current = _check_revision(connection, source)
    if current == revisions()[-1]:
        return
    if current is not None:
        if copy_first is None:
            raise _outdated(source, current)
        # Outside of the transaction: a large copy takes minutes, and a server ends idle ones.
        copy_first(current)
    migrate(engine, source)


def check_schema(connection: Connection, source: str) -> None:
    """Raise `InputError` unless the database has exactly the schema of this version."""
    current = _check_revision(connection, source)
    if current != revisions()[-1]:
        raise _outdated(source, current)


def refuse_unknown_objects(connection: Connection, source: str) -> None:
    """Raise `InputError` for a trigger, view, virtual table or rule that no version of ours made.

    Such an object runs within our own statements: a trigger that somebody planted in a database
    that is restored would act each time that a row is written.
    """
    if connection.dialect.name == "postgresql":
        rows = {(row[0], row[1], row[2]) for row in connection.execute(_SERVER_OBJECTS)}
        unknown = sorted(f"{kind} {name}" for kind, name, of in rows - _SERVER_TRIGGERS)
    else:
        listed = connection.exec_driver_sql("SELECT type, name, sql, rootpage FROM sqlite_master")
        unknown = sorted(f"{row[0]} {row[1]}" for row in listed if _is_strange(*row[1:]))
    if unknown:
        named = ", ".join(name[:80] for name in unknown[:5])
        problem = f"has objects that no version of this program made: {named}"
        remedy = (
            "Somebody else put them there. Find out who; restore a backup from before, or remove "
            "them with the database's own client if they are yours."
        )
        raise InputError(source, "", problem, remedy)


def _is_strange(name: str, sql: str | None, page: int | None) -> bool:
    """Whether an object is none of ours, by its text alone: it is what SQLite makes of a row.

    A forged file may call a trigger an index, or put a comment into "CREATE VIRTUAL TABLE"; what
    SQLite itself has stored begins with these words. Only what has no page is kept nowhere.
    """
    if sql is None:
        return not name.startswith("sqlite_autoindex_")
    words = " ".join(str(sql).split())
    if words.startswith(("CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX ")):
        return not page
    return words not in _known_triggers()


@cache
def _known_triggers() -> frozenset[str]:
    """Return the texts of our triggers, in an SQLite file of our schema."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(NEWEST.read_text())
        made = empty.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    return frozenset(" ".join(sql.split()) for (sql,) in made)


def _outdated(source: str, current: str | None) -> InputError:
    return InputError(
        source,
        f"schema {current or 'none'}",
        f"is older than the schema of this version ({revisions()[-1]})",
        "Run `provisioner db upgrade`, or start the daemon: each copies it, then migrates.",
    )


def migrate(engine: Engine, source: str, *, revision: str = "head") -> None:
    """Run the missing migrations up to `revision`; a cut-off migration leaves the old schema.

    Raises `InputError` if the database belongs to another program or has an unsupported version.
    """
    with engine.connect() as connection, connection.begin():
        target = revisions()[-1] if revision == "head" else revision
        if _check_revision(connection, source) == target:
            return
        _upgrade(connection, revision)


def revisions() -> tuple[str, ...]:
    """Return every revision, oldest first: the numbers in the names of the migrations' modules."""
    return tuple(sorted(file.name[1:5] for file in (MIGRATIONS / "versions").glob("v*.py")))


def _check_revision(connection: Connection, source: str) -> str | None:
    """Return the revision of a database that we know; None for an empty one."""
    supported = revisions()
    refuse_unknown_objects(connection, source)
    tables = inspect(connection).get_table_names()
    current = None
    if "alembic_version" in tables:
        current = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if current is None and tables:
        raise InputError(
            source, "", "is a database of something else", "Name a new file, or the right one."
        )
    if current is not None and current < supported[0]:
        raise InputError(
            source,
            f"schema {current}",
            f"is older than all schemas that this version upgrades (from {supported[0]} on)",
            "Run the version that wrote it, or name a new data directory.",
        )
    if current is not None and current not in supported:
        raise InputError(
            source,
            f"schema {current}",
            f"was written by a newer version than this one (schema {supported[-1]})",
            "Run the newer version, or restore the backup from before its start.",
        )
    return current


def _upgrade(connection: Connection, revision: str) -> None:
    # Imported here: Alembic costs every start a tenth of a second, and few have to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


log = logging.getLogger(__name__)
T = TypeVar("T")

# Advisory locks are numbers; ours share this first one ("prov" in ASCII), the second says what for.
LOCK_SPACE = 0x70726F76
WRITER = 1
OPENING = 2

# A write transaction takes milliseconds. One that does nothing for this long is a daemon that was
# stopped or cut off, and everybody else waits for it.
STALLED_MS = 10_000
# The same while holding the writers' lock: the server takes the transaction back.
WRITER_STALLED_MS = 500
# A writer whose round trip takes longer is far: it never holds the lock across one, not even for
# work that others are faster than again and again.
FAR_S = 0.01
SUSPECT_S = 0.1  # so long takes no busy machine: far at once
FAR_TIMES = 3  # measured in a row, before it is told
NEAR_AGAIN = 20  # groups with a short round trip in a row, before the link counts as near again
PATIENCE_S = 30.0  # for a piece of work that others are faster than
# Waiting for the writers before us: some hundred transactions. Longer, and something is broken.
LOCK_WAIT_MS = 30_000
# Alembic and a migration's own modules are loaded inside of a transaction, and the rows of a fleet
# are parsed in one: on a machine short of CPU that takes long, and no write waits for it.
UNHURRIED_STALLED_MS = 600_000
CONNECTIONS = (
    13  # that a daemon takes at most: store 3, seat 2, DBOS 4 and 3 of its threads, a look
)
FULL = frozenset({"53300"})  # SQLSTATE too_many_connections, of max_connections and of a role
FULL_PAUSE_S = 2.0
FULL_AGAIN_S = 30.0  # between two reports
STALLED = frozenset({"25P03", "57P05"})  # the server ended a session that did nothing for long
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
    """The URL for SQLAlchemy and our driver. `InputError`, without the password, if it is none."""
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
    event.listen(engine, "do_connect", _connect_when_there_is_room)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    try:
        with waits.on("opening the database"), engine.connect() as connection:
            _check(connection, shown(url))
            _tell_room(connection)
            # daemons that start together migrate one after the other
            connection.execute(_LOCK_SESSION, {"space": LOCK_SPACE, "what": OPENING})
            connection.commit()
            patient = engine.execution_options(provisioner_opens=True)
            prepare_schema(patient, shown(url), copy_first)
    except DBAPIError as error:
        engine.dispose()
        message = " ".join((str(error.orig).strip() or type(error.orig).__name__).split())
        if getattr(error.orig, "sqlstate", None) in STALLED:
            problem = f"the start was too slow, and the server ended its session: {message}"
            remedy = "Look at the load of this machine (CPU, memory); the start is tried again."
            raise InputError(shown(url), "", problem, remedy) from None
        raise _unusable(shown(url), message) from None
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
    """The maker of the connection that writes: each transaction begins with the writers' lock."""
    return lambda: engine.connect().execution_options(provisioner_writes=True)


def read_connection(engine: Engine) -> Callable[[], Connection]:
    """The maker of connections whose transactions read one snapshot and wait for no writer."""

    def connect() -> Connection:
        connection = engine.connect().execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        with connection.begin():
            _be_patient(connection, "SESSION")
        return connection

    return connect


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
        # the server notices as soon a peer that vanished: its default is two hours
        for setting in ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"):
            cursor.execute(f"SET {setting} = {CONNECT[setting.removeprefix('tcp_')]}")
        cursor.execute(f"SET tcp_user_timeout = {CONNECT['tcp_user_timeout']}")
        # no commit is acknowledged before it is on disk, whatever the server's default is
        cursor.execute("SELECT current_setting('synchronous_commit')")
        if cursor.fetchone()[0] == "off":
            cursor.execute("SET synchronous_commit = local")
    connection.commit()


def is_full(error: BaseException) -> bool:
    """Return whether the server refused a connection since it has none left."""
    cause = getattr(error, "orig", None) or error
    # psycopg has no SQLSTATE of a connection that was never made
    words = str(cause)
    return getattr(cause, "sqlstate", None) in FULL or any(
        said in words
        for said in ("too many clients", "connection slots are reserved", "too many connections")
    )


def wait_for_room(connect: Callable[[], T]) -> T:
    """Return what `connect` gives, as soon as the server has a connection left. Blocks.

    A daemon that ended would be started again, and would take its connections anew each time.
    """
    with contextlib.ExitStack() as waiting:
        told_s = 0.0
        while True:
            try:
                return connect()
            except Exception as error:
                if not is_full(error):
                    raise
                if not told_s:
                    waiting.enter_context(waits.without_limit())
                if time.monotonic() - told_s > FULL_AGAIN_S or not told_s:
                    told_s = time.monotonic()
                    words = " ".join(str(getattr(error, "orig", None) or error).split())
                    log.warning("PostgreSQL has no connection left: %s. %s", words, FULL_REMEDY)
            time.sleep(FULL_PAUSE_S)


FULL_REMEDY = (
    f"A daemon takes up to {CONNECTIONS}: raise max_connections to {CONNECTIONS} times the "
    "daemons, and what else connects; it waits until one is free."
)


def _connect_when_there_is_room(
    dialect: Any, _record: Any, arguments: Any, options: dict[str, Any]
) -> Any:
    return wait_for_room(lambda: dialect.connect(*arguments, **options))


def _tell_room(connection: Connection) -> None:
    """Report at the start that the server has fewer connections left than a daemon needs."""
    allowed, used = connection.exec_driver_sql(
        "SELECT current_setting('max_connections')::int "
        "- current_setting('superuser_reserved_connections')::int, "
        "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int"
    ).one()
    connection.commit()
    if allowed - used + 1 < CONNECTIONS:
        log.warning(
            "PostgreSQL has %d of %d connections left. %s", allowed - used, allowed, FULL_REMEDY
        )


def _be_patient(connection: Connection, scope: str) -> None:
    sets = f"SET {scope} idle_in_transaction_session_timeout = {UNHURRIED_STALLED_MS}"
    connection.exec_driver_sql(sets)


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("provisioner_opens"):
        _be_patient(connection, "LOCAL")
    if connection.get_execution_options().get("provisioner_writes"):
        values = {"space": LOCK_SPACE, "what": WRITER, "stalled": str(WRITER_STALLED_MS)}
        connection.execute(_LOCK, values)


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

    def near(self, connection: Connection) -> bool:
        """Return whether a round trip is so short that the lock may be held across some.

        Measured before each group, while no lock is held.
        """
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
                    "the database is far: a round trip takes %.0f ms; "
                    "check the link between this machine and the database",
                    took_s * 1000,
                )
            return False
        self._count = min(self._count, 0) - 1
        if self.far and self._count <= -NEAR_AGAIN:
            self.far = False
            log.warning("the database is near again: %.1f ms", took_s * 1000)
        return not self.far

    def commit(
        self, works: Sequence[Any], counting: Counting | None
    ) -> tuple[list[Any], list[BaseException | None], int]:
        """See `lanes.Link`."""
        from provisioner.store.database.rehearsal import Piece, Rehearsing  # the driver is an extra

        pieces = [Piece(work) for work in works]
        calls = 0
        unkept: list[BaseException] = []

        def keep(counted: Any) -> None:
            """Keep the count of writes that are on disk; a failure is told to who wrote."""
            try:
                if counting is not None:
                    counting.keep(counted)
            except BaseException as error:
                unkept.append(error)

        try:
            if self._connection is None:
                options = {"isolation_level": "AUTOCOMMIT"}
                self._connection = self._engine.connect().execution_options(**options)
                self._rehearsing = Rehearsing(
                    self._connection, (LOCK_SPACE, WRITER), patience_s=PATIENCE_S
                )
            near = self.near(self._connection)
            count = None if counting is None else counting.count
            calls = self._rehearsing.commit(pieces, count, keep, near=near)
        except Exception as error:
            for piece in pieces:
                if not piece.done:
                    piece.error = _failed(error)
            self.close()
        for piece in pieces:
            if piece.overtaken:
                piece.error = Overtaken(piece.again)
            elif isinstance(piece.error, DBAPIError | TimeoutError):
                piece.error = _failed(piece.error)
            if unkept:
                piece.error = piece.error or unkept[0]
        return [p.result for p in pieces], [p.error for p in pieces], calls

    def close(self) -> None:
        """Close the connection that rehearses. It is made again when it is needed."""
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
