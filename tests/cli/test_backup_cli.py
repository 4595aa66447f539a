"""A data directory without its master key, or of an older version, at the command line."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from next_schema import NEXT, THIS, become_next
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind, State
from provisioner.store.database.database import open_database

NOW = 1_700_000_000.0
READERS = [
    "node list",
    "node show n1",
    "alert list",
    "case list",
    "notice list",
    "campaign list",
    "certificate keys",
    "drift",
    "debt",
    "explain n1",
    "audit list",
    "audit verify",
    "agents list",
    "pin list",
    "tenant list",
    "token list",
    "webhook list",
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one node, as a stopped daemon left it."""
    directory = tmp_path / "data"

    async def fill() -> None:
        async with open_data(directory, NOW) as opened:
            await opened.store.nodes.add(Node(id="n1", kind=NodeKind.HOST, state=State.DISCOVERED))

    asyncio.run(fill())
    return directory


def words(verb: str) -> list[str]:
    """The verb on the data directory, without a daemon."""
    alone = [] if verb == "audit verify" else ["--offline"]
    return [*verb.split(), "--data", "data", *alone]


@pytest.mark.parametrize("verb", READERS)
def test_reading_needs_no_master_key(data: Path, verb: str) -> None:
    (data / "master.key").unlink()

    done = run(words(verb), data.parent)

    assert "master.key" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert not (data / "master.key").exists()


def test_a_daemon_says_which_key_is_missing(data: Path) -> None:
    (data / "master.key").unlink()

    with pytest.raises(InputError, match=r"master\.key: is missing, and the credentials"):
        run(["certificate", "revocations", "--data", "data"], data.parent)


@pytest.mark.parametrize("verb", READERS)
def test_a_reader_leaves_an_older_database_as_it_is(
    data: Path, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data / "provisioner.db"
    become_next(monkeypatch, tmp_path / "next")

    done = run(words(verb), data.parent)

    with sqlite3.connect(file) as connection:
        [(revision,)] = connection.execute("SELECT version_num FROM alembic_version")
    assert (done.returncode, revision) == (2, THIS)
    assert f"schema {THIS}: is older than the schema of this version ({NEXT})" in (done.stderr)
    assert "provisioner db upgrade" in done.stderr


def test_an_upgrade_names_both_schemas_and_the_copy(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data / "provisioner.db"
    become_next(monkeypatch, tmp_path / "next")

    first = run(["db", "upgrade", "--data", "data", "--json"], data.parent)
    again = run(["db", "upgrade", "--data", "data"], data.parent)

    told = json.loads(first.stdout)
    assert (told["before"], told["after"]) == (THIS, NEXT)
    assert Path(data.parent / told["copy"]).is_file()
    assert "nothing to do" in again.stdout
    open_database(file).dispose()


def test_a_backup_is_checked_and_restored_by_its_commands(data: Path, tmp_path: Path) -> None:
    made = run(["backup", "--data", "data", "--output", "b.tar"], tmp_path)
    checked = run(["restore", "b.tar", "--check"], tmp_path)
    proved = run(["restore", "b.tar", "--check", "--data", "data"], tmp_path)
    refused = run(["restore", "b.tar", "--data", "fresh"], tmp_path)
    unproved = run(["restore", "b.tar", "--data", "other", "--unproved"], tmp_path)
    (tmp_path / "fresh").mkdir(mode=0o700)
    shutil.copy(data / "master.key", tmp_path / "fresh" / "master.key")
    restored = run(["restore", "b.tar", "--data", "fresh"], tmp_path)
    listed = run(["node", "list", "--data", "fresh", "--offline", "--json"], tmp_path)
    again = run(["backup", "--data", "data", "--output", "b.tar"], tmp_path)

    assert [made.returncode, checked.returncode, restored.returncode] == [0, 0, 0], restored.stderr
    assert (refused.returncode, "proves that a backup is ours" in refused.stderr) == (2, True)
    assert "whole, not proved" in checked.stdout
    assert "proved and whole" in proved.stdout
    assert "master.key is missing" in unproved.stderr
    assert [n["id"] for n in json.loads(listed.stdout)] == ["n1"]
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
