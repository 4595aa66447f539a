"""Live rows of every earlier schema on PostgreSQL, upgraded as test_live_upgrade.py does on SQLite.

The server's own COPY carries the rows as text into the columns that the older schema had, and its
sequences go on behind them. The next version migrates, has to find every row
unchanged, and goes on with the operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psycopg
import pytest
from next_schema import become_next
from postgres_server import Server
from sqlalchemy import NullPool, create_engine
from test_live_upgrade import check_goes_on, live

from provisioner.store.database.backup import copier
from provisioner.store.database.postgres import migrate, postgres_url, revisions
from provisioner.store.sql_store import open_store

Columns = Mapping[str, Sequence[str]]
SEQUENCES = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = 'public' AND (column_default LIKE 'nextval(%' OR is_identity = 'YES')
"""


@pytest.fixture(scope="module")
def written(server: tuple[Server, str]) -> Iterator[str]:
    """A database of the newest schema, as a daemon left it that died."""
    running, template = server
    name = running.make(template)

    async def main() -> None:
        store = open_store(running.url(name))
        await live(store)
        await store.close()

    asyncio.run(main())
    yield running.url(name)
    drop(running, name)


def drop(running: Server, name: str) -> None:
    with psycopg.connect(running.url("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def columns_of(database: str) -> dict[str, list[str]]:
    """The columns of every table of ours."""
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND table_name <> 'alembic_version'"
            " ORDER BY table_name, ordinal_position"
        ).fetchall()
    columns: dict[str, list[str]] = {}
    for table, column in rows:
        columns.setdefault(table, []).append(column)
    return columns


def read_rows(database: str, columns: Columns) -> dict[str, list[bytes]]:
    """The rows of these tables by these columns, as COPY prints them, sorted; no empty tables."""
    rows = {}
    with psycopg.connect(database) as connection:
        for table, names in columns.items():
            query = f"COPY (SELECT {listed(names)} FROM {table}) TO STDOUT"
            with connection.cursor().copy(query) as copy:
                lines = b"".join(copy).splitlines(keepends=True)
            if lines:
                rows[table] = sorted(lines)
    return rows


def listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def carry(source: str, target: str) -> tuple[dict[str, list[str]], dict[str, list[bytes]]]:
    """Write all rows into an older schema, as far as it had room; return where, and which."""
    newest = columns_of(source)
    older = columns_of(target)
    shared = {t: [c for c in older[t] if c in newest[t]] for t in older if t in newest}
    rows = read_rows(source, shared)
    with psycopg.connect(target) as connection:
        connection.execute("SET session_replication_role = replica")  # in any order of the tables
        for table, lines in rows.items():
            connection.execute(f"DELETE FROM {table}")
            with connection.cursor().copy(
                f"COPY {table} ({listed(shared[table])}) FROM STDIN"
            ) as c:
                c.write(b"".join(lines))
        for table, column in connection.execute(SEQUENCES).fetchall():
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
                f" GREATEST((SELECT max({column}) FROM {table}), 1))"
            )
    return {table: shared[table] for table in rows}, rows


@pytest.mark.parametrize("revision", revisions())
def test_live_rows_of_an_earlier_schema_go_on_under_the_newest_on_postgresql(
    server: tuple[Server, str],
    written: str,
    tmp_path: Path,
    revision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, _ = server
    name = running.make()
    database = running.url(name)
    engine = create_engine(postgres_url(database), poolclass=NullPool)
    migrate(engine, "test", revision=revision)
    engine.dispose()
    columns, rows = carry(written, database)
    assert {"nodes", "operations", "ledger", "journal"} <= rows.keys()
    become_next(monkeypatch, tmp_path / "next")

    async def main() -> None:
        store = open_store(database, copy_first=copier(database, tmp_path))
        try:
            assert read_rows(database, columns) == rows, "a migration changed what was written"
            await check_goes_on(store, rows.keys())
        finally:
            await store.close()

    try:
        asyncio.run(main())
    finally:
        drop(running, name)
