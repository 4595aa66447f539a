"""Back to the version before, as docs/data.md promises it: by the copy that the upgrade made.

The version before is the real one: the program of the last commit before the newest migration, from
this repository's history. It writes the rows, and it drives the operations in the end. Without that
history the rows are today's, carried into the older schema.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import test_live_upgrade as on_file
import test_live_upgrade_postgres as on_server
from postgres_server import Server
from sqlalchemy import NullPool, create_engine
from test_live_upgrade import check_goes_on, live

from provisioner.daemon.recovery import counted_writes
from provisioner.store.database.backup import copier
from provisioner.store.database.data_directory import prepare_directory
from provisioner.store.database.postgres import is_postgres, migrate, postgres_url, revisions
from provisioner.store.sql_store import open_store

ROOT = Path(__file__).parents[2]
OLDER = revisions()[-2]
SIDES = ("", "-wal", "-shm")  # of a SQLite file: all three are put away before the copy comes back


def end(why: str) -> None:
    raise RuntimeError(why)


def read_revision(database: str) -> str:
    """The revision of a database."""
    address = postgres_url(database) if is_postgres(database) else f"sqlite:///{database}"
    engine = create_engine(address, poolclass=NullPool)
    with engine.connect() as connection:
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    engine.dispose()
    return str(revision)


@dataclass
class Place:
    """A data directory and its database, and PostgreSQL's server if it is on one."""

    directory: Path
    database: str
    server: Server | None = None

    def read(self) -> tuple[str, object]:
        """The revision and every row."""
        if self.server is None:
            with on_file.sqlite3.connect(self.database) as connection:
                columns = on_file.columns_of(connection)
            return read_revision(self.database), on_file.read_rows(Path(self.database), columns)
        columns = on_server.columns_of(self.database)
        return read_revision(self.database), on_server.read_rows(self.database, columns)

    def carry_today(self) -> None:
        """Write today's live rows into the older schema."""
        address = self.database if self.server else f"sqlite:///{self.database}"
        engine = create_engine(postgres_url(address) if self.server else address)
        migrate(engine, "test", revision=OLDER)
        engine.dispose()
        if self.server is None:
            newest = self.directory / "newest.db"
            asyncio.run(write_live(str(newest)))
            on_file.carry(newest, Path(self.database))
            Path(self.database).chmod(0o600)
            return
        newest_name = self.server.make()
        asyncio.run(write_live(self.server.url(newest_name)))
        on_server.carry(self.server.url(newest_name), self.database)
        on_server.drop(self.server, newest_name)

    def put_back(self) -> None:
        """Put the upgrade's copy back, with the commands of docs/data.md."""
        if self.server is None:
            newer = self.directory / "newer"
            newer.mkdir()
            for side in SIDES:
                if (file := Path(self.database + side)).exists():
                    file.rename(newer / file.name)
            shutil.copy2(f"{self.database}.schema-{OLDER}", self.database)
            return
        dump = self.directory / f"provisioner-schema-{OLDER}.dump"
        name = self.server.make()
        arguments = ("--exit-on-error", "--single-transaction", "--no-owner")
        with dump.open("rb") as content:  # the server's user may not enter the data directory
            shared = self.server.folder / "put-back.dump"
            shared.write_bytes(content.read())
        shared.chmod(0o644)
        self.server.client("pg_restore", *arguments, f"--dbname={name}", str(shared))
        shared.unlink()
        on_server.drop(self.server, self.database.rpartition("/")[2])
        self.database = self.server.url(name)


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    directory = tmp_path / "data"
    prepare_directory(directory)
    if request.param == "file":
        yield Place(directory, str(directory / "provisioner.db"))
        return
    running, _ = request.getfixturevalue("server")
    place = Place(directory, running.url(running.make()), running)
    yield place
    on_server.drop(running, place.database.rpartition("/")[2])


async def write_live(database: str) -> None:
    store = open_store(database if "://" in database else Path(database))
    await live(store)
    await store.close()


async def work_on(place: Place) -> str:
    """Upgrade as a daemon does, and drive the operations; why it would only look."""
    database = place.database if place.server else Path(place.database)
    store = open_store(database, copy_first=copier(place.database, place.directory))
    try:
        async with counted_writes(place.directory, store, time.time(), end) as counted:
            await check_goes_on(store, {"alerts", "cases"})
            return counted.look_only
    finally:
        await store.close()


def test_the_copy_put_back_has_every_row_and_lost_writes_are_noticed(place: Place) -> None:
    place.carry_today()
    left = place.read()

    assert left[0] == OLDER
    assert asyncio.run(work_on(place)) == ""
    assert place.read()[0] == revisions()[-1]

    place.put_back()

    assert place.read() == left
    assert asyncio.run(work_on(place)) != ""  # once more forward: it knows that writes are lost


@pytest.fixture(scope="session")
def older_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the last commit before the newest migration; skips without that history."""
    newest = next((ROOT / "provisioner/store/migrations/versions").glob(f"v{revisions()[-1]}_*.py"))
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no git history here")

    def ask(*arguments: str) -> bytes:
        command = [git, "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, check=False).stdout

    added = ask("log", "--diff-filter=A", "--format=%H", "-1", "--", str(newest)).decode().strip()
    archive = ask("archive", f"{added}^", "provisioner", "tests/store") if added else b""
    if not archive:
        pytest.skip("the history of this copy does not reach back to the newest migration")
    tree = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(tree, filter="data")
    return tree


@pytest.fixture
def older(older_tree: Path, place: Place) -> Callable[[str], str]:
    """Plays a step with the older program."""

    def play(step: str) -> str:
        path = os.pathsep.join((str(older_tree), str(older_tree / "tests/store")))
        script = str(Path(__file__).with_name("older_program.py"))
        ended = subprocess.run(
            [sys.executable, "-P", script, step, place.database, str(place.directory)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return play


def test_the_older_program_goes_on_with_its_operations_after_the_way_back(
    place: Place, older: Callable[[str], str]
) -> None:
    assert older("live") == ""
    left = place.read()
    assert left[0] == OLDER
    assert asyncio.run(work_on(place)) == ""
    newer = place.read()

    refused = older("refused")

    assert "was written by a newer version than this one" in refused
    assert place.read() == newer

    place.put_back()
    # the writes of closing come after `left`; what matters is in it row by row
    assert place.read()[0] == OLDER
    look_only = older("goes_on")

    assert look_only != ""  # devices may be further than these rows: settled as after a restore
