"""Back to the version before, as docs/data.md promises it: by the copy that the upgrade made.

This program is the older version, in a process of its own: it writes the rows, and it drives the
operations in the end. The newer one is this program with one migration more, in the tests' process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import test_live_upgrade as on_file
import test_live_upgrade_postgres as on_server
from next_schema import NEXT, THIS, become_next
from postgres_server import Server
from sqlalchemy import NullPool, create_engine
from test_live_upgrade import check_goes_on

from provisioner.daemon.recovery import counted_writes
from provisioner.store.database.backup import copier
from provisioner.store.database.data_directory import prepare_directory
from provisioner.store.database.postgres import is_postgres, postgres_url
from provisioner.store.sql_store import open_store

ROOT = Path(__file__).parents[2]
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

    def put_back(self) -> None:
        """Put the upgrade's copy back, with the commands of docs/data.md."""
        if self.server is None:
            newer = self.directory / "newer"
            newer.mkdir()
            for side in SIDES:
                if (file := Path(self.database + side)).exists():
                    file.rename(newer / file.name)
            shutil.copy2(f"{self.database}.schema-{THIS}", self.database)
            return
        dump = self.directory / f"provisioner-schema-{THIS}.dump"
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
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    directory = tmp_path / "data"
    prepare_directory(directory)
    become_next(monkeypatch, tmp_path)
    if request.param == "file":
        yield Place(directory, str(directory / "provisioner.db"))
        return
    running, _ = request.getfixturevalue("server")
    place = Place(directory, running.url(running.make()), running)
    yield place
    on_server.drop(running, place.database.rpartition("/")[2])


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


@pytest.mark.long  # the way below has the same steps, but for the second upgrade
def test_the_copy_put_back_has_every_row_and_lost_writes_are_noticed(
    place: Place, older: Callable[[str], str]
) -> None:
    assert older("live") == ""
    left = place.read()

    assert left[0] == THIS
    assert asyncio.run(work_on(place)) == ""
    assert place.read()[0] == NEXT

    place.put_back()

    assert place.read() == left
    assert asyncio.run(work_on(place)) != ""  # once more forward: it knows that writes are lost


@pytest.fixture
def older(place: Place) -> Callable[[str], str]:
    """Plays a step with the older program."""

    def play(step: str) -> str:
        path = os.pathsep.join(
            (str(ROOT), str(ROOT / "tests/store"), str(ROOT / "tests/simulation"))
        )
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


@pytest.mark.slow
def test_the_older_program_goes_on_with_its_operations_after_the_way_back(
    place: Place, older: Callable[[str], str]
) -> None:
    assert older("live") == ""
    left = place.read()
    assert left[0] == THIS
    assert asyncio.run(work_on(place)) == ""
    newer = place.read()

    refused = older("refused")

    assert "was written by a newer version than this one" in refused
    assert place.read() == newer

    place.put_back()
    assert place.read() == left
    look_only = older("goes_on")

    assert look_only != ""  # devices may be further than these rows: settled as after a restore
