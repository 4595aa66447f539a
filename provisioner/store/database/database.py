"""Opens the database file: private, in WAL mode, whole, and of a supported version.

Every statement above this module is SQLAlchemy Core that PostgreSQL takes too; SQLite's own parts
(pragmas, BEGIN, the file) are here and nowhere else, as PostgreSQL's are in `postgres.py`.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel
from sqlalchemy import Connection, Engine, Row, Table, create_engine, event, select
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool, StaticPool

from provisioner.model.access import ChangeRequest, SavedView, Session, Token
from provisioner.model.adoption.capability import Grant
from provisioner.model.agent import AgentSession, StoredImage
from provisioner.model.alert import Alert, Override, Subscription
from provisioner.model.base import Record
from provisioner.model.campaign import (
    Campaign,
    CampaignNotice,
    CampaignRow,
    NamedPolicy,
    ReleasePin,
)
from provisioner.model.case import Case
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Baseline, HealthReport, Sample
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.input_error import InputError
from provisioner.model.integrations.webhook import Webhook
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import ReleaseProof, Tenant
from provisioner.ports.errors import DamagedRow
from provisioner.runtime.whole_files import write_private
from provisioner.store.database.data_directory import check_private, prepare_directory
from provisioner.store.database.postgres import Copier, check_schema, prepare_schema, revisions
from provisioner.store.rows import records
from provisioner.store.rows.operation_rows import read_entry_row, read_operation_row
from provisioner.store.rows.records import parse, parse_object
from provisioner.store.schema import schema
from provisioner.store.schema.usage_tables import saved_views

# ------------------------------------------------------------------------------
# The nodes that are set aside for a damaged row: their own, or one that they depend on.
#
# The nodes that depend on a row are looked up in the list of the last read, so that callers between
# two reads get them, too.


class Aside:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._nodes: tuple[Node, ...] = ()
        self._dependents: Mapping[str, Blocker] = {}
        self._found_in: tuple[tuple[Node, ...], int] = (), 0
        self._kept: tuple[Node, ...] = ()  # as long as it is the same, the same object
        self._kept_of: tuple[tuple[Node, ...], frozenset[str]] = (), frozenset()

    def take(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes

    def damaged(self) -> Mapping[str, Blocker]:
        """Return what parks each node, of the damaged rows that were met so far."""
        owners = records.count_owners(self._engine)
        if not owners:
            return records.by_node(self._engine)
        nodes, count = self._found_in
        if nodes is not self._nodes or count != owners:
            self._dependents = records.find_dependents(self._engine, self._nodes)
            self._found_in = self._nodes, owners
        return {**self._dependents, **records.by_node(self._engine)}

    def leave_out(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the nodes that are not set aside."""
        self.take(nodes)
        damaged = frozenset(self.damaged())
        if not damaged:
            return nodes
        before, names = self._kept_of
        if nodes is not before or damaged != names:
            self._kept_of = nodes, damaged
            self._kept = tuple(n for n in nodes if n.id not in damaged)
        return self._kept


# ------------------------------------------------------------------------------
# Read every row of a database as the daemon would, and report those that cannot be read.
#
# A page check of SQLite shows that the file is whole, not that a row still has its written
# content.


BODIES: Sequence[tuple[Table, type[BaseModel]]] = (
    (schema.nodes, Node),
    (schema.inventories, Inventory),
    (schema.reports, HealthReport),
    (schema.samples, Sample),
    (schema.baselines, Baseline),
    (schema.certificates, Certificate),
    (schema.proofs, ReleaseProof),
    (schema.tenants, Tenant),
    (schema.agents, AgentSession),
    (schema.alerts, Alert),
    (schema.overrides, Override),
    (schema.subscriptions, Subscription),
    (schema.fabric_sessions, FabricSession),
    (schema.fabric_outcomes, FabricOutcome),
    (schema.campaigns, Campaign),
    (schema.campaign_nodes, CampaignRow),
    (schema.release_pins, ReleasePin),
    (schema.campaign_policies, NamedPolicy),
    (schema.stored_images, StoredImage),
    (schema.notices, CampaignNotice),
    (schema.cases, Case),
    (schema.grants, Grant),
    (schema.webhooks, Webhook),
    (schema.tokens, Token),
    (schema.console_sessions, Session),
    (saved_views, SavedView),
    (schema.requests, ChangeRequest),
)
Read = Callable[[Row[tuple[object, ...]], str], object]


def damaged_rows(connection: Connection) -> Iterator[DamagedRow]:
    """Yield the fault of each row that cannot be read, table by table."""
    for table, model in BODIES:
        yield from _read_table(connection, table, partial(_parse_body, model))
    yield from _read_table(connection, schema.operations, lambda r, _w: read_operation_row(r))
    yield from _read_table(connection, schema.ledger, lambda r, _w: read_entry_row(r))
    yield from _read_table(connection, schema.journal, lambda r, w: parse_object(r.detail, w))
    yield from _read_table(connection, schema.runs, lambda r, w: parse_object(r.hosts, w))
    yield from _read_table(connection, schema.evidence, _unpack)


def _read_table(connection: Connection, table: Table, read: Read) -> Iterator[DamagedRow]:
    keys = [column.name for column in table.primary_key.columns]
    query = select(table).order_by(*table.primary_key.columns).execution_options(yield_per=500)
    try:
        for row in connection.execute(query):
            where = ", ".join([table.name, *(str(row._mapping[key]) for key in keys)])
            try:
                read(row, where)
            except DamagedRow as error:
                yield DamagedRow(where, error.problem)
    except (DBAPIError, UnicodeDecodeError) as error:  # a column that is not even text
        yield DamagedRow(table.name, f"the table cannot be read to its end: {error}")


def _parse_body(model: type[BaseModel], row: Row[tuple[object, ...]], where: str) -> None:
    parse(model, row.body, where)


def _unpack(row: Row[tuple[object, ...]], where: str) -> None:
    try:
        raw = zlib.decompressobj().decompress(row.body, row.size + 1)
    except zlib.error as error:
        raise DamagedRow(where, f"its text cannot be unpacked: {error}") from None
    if hashlib.sha256(raw).hexdigest() != row.digest:
        raise DamagedRow(where, "its text differs from the one stored under this digest")


# ------------------------------------------------------------------------------
# The state of a database file, read without changing it: whole or not, and of which schema.


ROWS_MAX = 100  # damaged rows that are named


class DatabaseLook(Record):
    """`problem` is empty for a whole file. `behind`: migrations that the next start will run."""

    revision: str = ""
    behind: int = 0
    problem: str = ""


def find_damaged(file: Path) -> tuple[DamagedRow, ...]:
    """Read every row, as the daemon would, and return the first ROWS_MAX that it could not."""
    engine = create_engine(
        f"sqlite:///file:{quote(str(file))}?mode=ro&uri=true", poolclass=NullPool
    )
    try:
        with engine.connect() as connection:
            return tuple(islice(damaged_rows(connection), ROWS_MAX))
    finally:
        engine.dispose()


def look(file: Path) -> DatabaseLook:
    """Read the file's schema and check its pages; blocks while it does."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            whole = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        return DatabaseLook(problem=str(error))
    if whole != "ok":
        return DatabaseLook(problem=f"it is damaged: {whole}")
    revisions_here = revisions()
    revision = str(row[0]) if row else ""
    if revision not in revisions_here:
        problem = (
            f"schema {revision!r} is of a newer version than this program ({revisions_here[-1]})"
        )
        return DatabaseLook(revision=revision, problem=problem)
    return DatabaseLook(
        revision=revision, behind=len(revisions_here) - 1 - revisions_here.index(revision)
    )


MEMORY = ":memory:"
# What all migrations together make: a new database without Alembic, its 130 modules and 14 MB.
NEWEST = Path(__file__).parents[1] / "schema" / "newest.sql"

# A backup or a person's sqlite3 shell may hold the file for a moment; longer is a mistake.
BUSY_TIMEOUT_MS = 5000
READING = (
    "query_only = ON",
    "trusted_schema = OFF",  # a doctored file gets no functions to call
)
WRITING = (
    "journal_mode = WAL",
    "synchronous = FULL",  # a commit survives loss of power, not only of the process
    "foreign_keys = ON",
    "trusted_schema = OFF",
)


def open_database(path: str | Path, copy_first: Copier | None = None) -> Engine:
    """Return an engine on a checked database of this version's schema; made if there is none.

    Raises `InputError` if the file cannot be used: no permission, open to others, not a database,
    damaged, not ours, written by a newer version, or by an older one where `copy_first` is None.
    """
    if str(path) == MEMORY:
        engine = _engine("sqlite://", StaticPool)
        with engine.connect() as connection:
            _empty().backup(_bare(connection))
        return engine
    file = Path(path)
    _prepare_file(file)
    engine = _engine(f"sqlite:///{file}", NullPool)
    try:
        _check_whole(engine, file)
        if not _copy_schema(engine):
            prepare_schema(engine, str(file), copy_first)
    except DBAPIError as error:
        engine.dispose()
        raise _refused(file, str(error.orig)) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_reading(file: Path) -> Engine:
    """Return an engine that only reads a database of this version's schema.

    Raises `InputError` if the file cannot be read, or is of another version: it is not migrated.
    """
    if not file.is_file():
        raise _unusable(file, "there is no such file")
    address = quote(str(file.absolute()))
    engine = _engine(f"sqlite:///file:{address}?mode=ro&uri=true", NullPool, READING)
    try:
        with read_connection(engine)() as connection, connection.begin():
            check_schema(connection, str(file))
    except DBAPIError as error:
        engine.dispose()
        raise _refused(file, str(error.orig)) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def _copy_schema(engine: Engine) -> bool:
    """Write the newest schema into a database that is empty; return False if it is not.

    Both in one transaction that holds the write lock: another process may open the same file.
    """
    with write_connection(engine)() as connection, connection.begin():
        if connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema").scalar_one():
            return False
        for statement in _split_statements(NEWEST.read_text(encoding="utf-8")):
            connection.exec_driver_sql(statement)
    return True


def _split_statements(text: str) -> list[str]:
    """Return the statements of a script; a trigger has semicolons within."""
    statements = list[str]()
    lines = list[str]()
    for line in text.splitlines():
        lines.append(line)
        if sqlite3.complete_statement("\n".join(lines)):
            statements.append("\n".join(lines))
            lines.clear()
    assert not lines, "the script ends within a statement"
    return statements


@cache
def _empty() -> sqlite3.Connection:
    """Return an empty database of the newest schema, to copy."""
    engine = _engine("sqlite://", StaticPool)
    copied = _copy_schema(engine)
    assert copied, "it was just made"
    return _bare(engine.connect())


def _bare(connection: Connection) -> sqlite3.Connection:
    bare = connection.connection.driver_connection
    assert isinstance(bare, sqlite3.Connection)
    return bare


def directory_of(engine: Engine) -> Path | None:
    """Return where the database's file is; None for one in memory, or on a server."""
    file = file_of(engine)
    return None if file is None else file.parent


def file_of(engine: Engine) -> Path | None:
    """Return the database's file; None for one in memory, or on a server."""
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    return Path(file) if file else None


def write_connection(engine: Engine) -> Callable[[], Connection]:
    """Return the maker of the one connection that writes: it takes the write lock at BEGIN, not
    halfway.
    """
    return lambda: engine.connect().execution_options(provisioner_begin="BEGIN IMMEDIATE")


def read_connection(engine: Engine) -> Callable[[], Connection]:
    """Return the maker of connections that read a snapshot and wait for no writer (WAL)."""
    return lambda: engine.connect().execution_options(provisioner_begin="BEGIN")


def _engine(
    url: str, pool: type[NullPool] | type[StaticPool], pragmas: Sequence[str] = ()
) -> Engine:
    # A connection is made in one thread and used in another, but never in two at a time: a lane.
    engine = create_engine(url, poolclass=pool, connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        # The sqlite3 module begins and commits on its own terms by default; savepoints need ours
        # (SQLAlchemy, "SQLite: enabling non-legacy transactional modes").
        connection.isolation_level = None
        for pragma in (*(pragmas or WRITING), f"busy_timeout = {BUSY_TIMEOUT_MS}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # past SQLAlchemy, which takes twenty times as long for it as SQLite
        statement = connection.get_execution_options().get("provisioner_begin", "BEGIN IMMEDIATE")
        try:
            _bare(connection).execute(statement)
        except sqlite3.Error as error:
            raise OperationalError(statement, None, error) from error

    return engine


def _prepare_file(file: Path) -> None:
    """Make the file with 0600 before SQLite would make it with the umask's mode.

    SQLite gives the write-ahead log the mode of the database file.
    """
    prepare_directory(file.parent)
    try:
        if file.exists():
            if not file.is_file():
                raise _unusable(file, "it is not a file")
            check_private(file)
            _refuse_links(file)
            if not os.access(file, os.R_OK | os.W_OK):
                raise _unusable(file, "no permission to read and write it")
        else:
            write_private(file, b"")
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None


def _refuse_links(file: Path) -> None:
    """Refuse a file with several names: SQLite keeps the log of each beside it, and both would rot.

    sqlite.org/howtocorrupt.html section 2.4.
    """
    names = file.stat().st_nlink
    if names > 1:
        remedy = f"Delete the other names, or make a copy (`find / -xdev -samefile {file}`)."
        problem = f"it has {names} names (hard links), and SQLite keeps a log beside each of them"
        raise InputError(str(file), "", problem, remedy)


def _check_whole(engine: Engine, file: Path) -> None:
    """Refuse a damaged file at the start rather than act on half a truth later."""
    with engine.connect() as connection:
        answer = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        connection.rollback()
    if answer != "ok":
        raise _unusable(file, f"it is damaged: {answer}")


def _refused(file: Path, said: str) -> InputError:
    """Return what SQLite's own refusal means for a person."""
    if "locked" in said or "busy" in said:
        remedy = f"Wait until it is done (`fuser -v {file}` names it), then try again."
        problem = "another process is writing to the database; nothing is wrong with it"
        return InputError(str(file), "", problem, remedy)
    return _unusable(file, said)


def _unusable(file: Path, problem: str) -> InputError:
    remedy = "Check disk space, owner and mode; if it is damaged, restore it from a backup."
    return InputError(str(file), "", f"the database cannot be used: {problem}", remedy)
