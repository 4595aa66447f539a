"""What the store makes of files and directories, good and bad."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from given_events import event_of
from next_schema import UPGRADE, become_next
from sqlalchemy import inspect
from sqlalchemy.pool import NullPool

from provisioner.daemon.data import held_data
from provisioner.model.input_error import InputError
from provisioner.ports import StoreFailed
from provisioner.store import lock_data_directory, lock_database, open_store
from provisioner.store.database.backup import copier
from provisioner.store.database.database import NEWEST, _copy_schema, _engine, open_database
from provisioner.store.database.postgres import MIGRATIONS, migrate, revisions
from provisioner.store.schema.schema import metadata

ROWS = Path(__file__).parent / "first_rows.sql"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_and_close(path: Path, *, inline: bool = False) -> None:
    async def scenario():
        await open_store(path, inline=inline, copy_first=copier(str(path), path.parent)).close()

    asyncio.run(scenario())


def test_files_are_for_their_owner_only_whatever_the_umask(tmp_path):
    directory = tmp_path / "deep" / "data"
    before = os.umask(0)
    try:

        async def scenario():
            store = open_store(directory / "store.db")
            await store.journal.append(event_of("x"), 1.0)
            modes = {file.name: mode(file) for file in directory.iterdir()}
            await store.close()
            return modes

        with lock_data_directory(directory):
            modes = asyncio.run(scenario())
    finally:
        os.umask(before)

    assert modes == dict.fromkeys(["lock", "store.db", "store.db-wal", "store.db-shm"], 0o600)
    assert mode(directory) == 0o700


def test_a_file_that_others_may_read_is_refused(tmp_path):
    open_and_close(tmp_path / "store.db")
    (tmp_path / "store.db").chmod(0o640)

    with pytest.raises(InputError, match="chmod 0600"):
        open_store(tmp_path / "store.db")


def test_a_directory_that_others_may_write_is_refused(tmp_path):
    tmp_path.chmod(0o770)

    with pytest.raises(InputError, match="chmod 0700"):
        lock_data_directory(tmp_path)


def garbage(file: Path) -> None:
    file.write_bytes(b"not a database, but long enough to have a header" * 100)


def damaged_page(file: Path) -> None:
    open_and_close(file)
    content = bytearray(file.read_bytes())
    content[4096 * 3 : 4096 * 4] = b"\xa5" * 4096
    file.write_bytes(content)


def of_something_else(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")


def newer(file: Path) -> None:
    open_and_close(file)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")


def directory(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (garbage, "cannot be used: file is not a database"),
        (damaged_page, "it is damaged"),
        (of_something_else, "database of something else"),
        (newer, "schema 9999: was written by a newer version"),
        (directory, "it is not a file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_error_and_stays_as_it_was(tmp_path, make, message):
    file = tmp_path / "store.db"
    make(file)
    if file.is_file():
        file.chmod(0o600)
    before = file.read_bytes() if file.is_file() else b""

    with pytest.raises(InputError, match=message) as raised:
        open_store(file)

    assert str(file) in str(raised.value)
    if make in (garbage, damaged_page):
        assert file.read_bytes() == before


def test_a_path_below_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(InputError, match="cannot be made"):
        open_store(tmp_path / "file" / "store.db")


def test_a_second_daemon_is_told_who_holds_the_directory(tmp_path):
    with lock_data_directory(tmp_path):
        program = (
            "import sys; from provisioner.store import lock_data_directory\n"
            "try: lock_data_directory(sys.argv[1])\n"
            "except Exception as error: print(error); sys.exit(2)\n"
        )
        second = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    with lock_data_directory(tmp_path):
        pass

    assert second.returncode == 2
    assert f"another daemon (process {os.getpid()}) uses this data directory" in second.stdout


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_database_is_held_under_every_name(tmp_path, link):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(mode=0o700)
    second.mkdir(mode=0o700)
    with held_data(first, str(first / "store.db")):
        link(first / "store.db", second / "store.db")
        held = held_data(second, str(second / "store.db"))
        with pytest.raises(InputError, match="serves this very database") as refused:
            held.__enter__()
    with held_data(second, str(second / "store.db")):
        pass

    assert str(second / "store.db") in str(refused.value)


def test_a_database_stays_held_while_it_is_written(tmp_path):
    """SQLite opens and closes the file by itself: its locks are of another kind."""
    with held_data(tmp_path, str(tmp_path / "store.db")):
        open_and_close(tmp_path / "store.db")
        with pytest.raises(InputError, match="serves this very database"):
            lock_database(tmp_path / "store.db")


def test_a_database_with_two_names_is_not_opened(tmp_path):
    open_and_close(tmp_path / "store.db")
    os.link(tmp_path / "store.db", tmp_path / "other.db")

    with pytest.raises(InputError, match="2 names") as refused:
        open_store(tmp_path / "other.db")

    assert "samefile" in refused.value.remedy


@pytest.mark.parametrize("inline", [True, False])
def test_a_full_disk_fails_the_write_and_keeps_the_rest(tmp_path, inline):
    """The limit on a file's size stands in for the disk: SQLite gets an error from write()."""
    file = tmp_path / "store.db"
    program = f"""
import asyncio, resource, signal
from provisioner.ports import StoreFailed
from provisioner.store import open_store
from provisioner.model.events.node_events import NodeParked
async def main():
    store = open_store({str(file)!r}, inline={inline})
    await store.journal.append(NodeParked(why="kept"), 1.0)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    big = asyncio.gather(
        *(store.journal.append(NodeParked(why="y" * 400_000), 2.0) for _ in range(5)),
        return_exceptions=True)
    failed = [e for e in await big if e is not None]
    assert failed and all(isinstance(e, StoreFailed) for e in failed), failed
    check = await store.journal.verify()
    print(check.intact, check.rows + len(failed))
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    async def scenario():
        store = open_store(file)
        check = await store.journal.verify()
        await store.close()
        return check.intact

    assert done.stdout == "True 6\n", done.stderr
    assert asyncio.run(scenario())


def test_a_closed_store_says_so_and_closing_twice_is_harmless(run):
    async def scenario(store):
        await store.close()
        with pytest.raises(StoreFailed, match="closed"):
            await store.nodes.list()
        await store.close()

    run(scenario)


def test_migrations_build_exactly_the_schema(tmp_path):
    engine = open_database(tmp_path / "store.db")
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()

    assert differences == []


def test_the_names_of_the_migrations_are_their_order():
    script = ScriptDirectory(str(MIGRATIONS))

    assert revisions() == tuple(reversed([step.revision for step in script.walk_revisions()]))


def test_a_schema_that_another_process_has_just_made_is_kept(tmp_path):
    file = tmp_path / "store.db"
    open_and_close(file)
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    engine = _engine(f"sqlite:///{file}", NullPool)

    assert not _copy_schema(engine)

    with engine.connect() as connection:
        assert "theirs" in inspect(connection).get_table_names()
    engine.dispose()


def test_the_script_of_a_new_database_makes_what_all_migrations_make(tmp_path):
    """`RECORD_SCHEMA=1` writes the script anew, after a new migration."""
    file = tmp_path / "store.db"
    engine = _engine(f"sqlite:///{file}", NullPool)
    migrate(engine, "test")
    engine.dispose()
    with sqlite3.connect(file) as connection:
        lines = "\n".join(connection.iterdump()).splitlines()[1:-1]  # without BEGIN and COMMIT
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    if os.environ.get("RECORD_SCHEMA"):
        NEWEST.write_text(text, encoding="utf-8")

    assert NEWEST.read_text(encoding="utf-8") == text, "RECORD_SCHEMA=1 writes it anew"


def test_rows_of_the_first_program_are_still_read(tmp_path):
    file = tmp_path / "store.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(NEWEST.read_text() + ROWS.read_text())
    file.chmod(0o600)

    async def scenario():
        store = open_store(file)
        read = (
            (await store.nodes.get("n1")).note,
            [o.id for o in await store.operations.list_active()],
            [e.action for e in await store.operations.list_entries("n1")],
            (await store.journal.verify()).rows,
            await store.evidence.get_output(await store.evidence.put_output("as it was\n")),
        )
        await store.close()
        return read

    assert asyncio.run(scenario()) == ("first", ["n1#1"], ["cold_boot #1"], 1, "as it was\n")


def test_a_migration_that_is_cut_off_leaves_nothing(tmp_path, monkeypatch):
    file = tmp_path / "data" / "store.db"
    open_and_close(file)
    with monkeypatch.context() as patch:
        become_next(patch, tmp_path, f"{UPGRADE}\n    raise RuntimeError('cut off')")
        with pytest.raises(RuntimeError, match="cut off"):
            open_store(file, copy_first=copier(str(file), tmp_path))

    open_and_close(file)

    with sqlite3.connect(file) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert "later" not in names
    assert "nodes" in names
