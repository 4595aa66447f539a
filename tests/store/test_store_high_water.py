"""The count of writes in a data directory: every way to lose writes is noticed, no crash is."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from given_events import event_of

from provisioner.access.sessions import new_session
from provisioner.daemon.recovery import CountedWrites, counted_writes
from provisioner.model.access import Caller, Role
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.model.recovery import Difference, DifferenceKind, Settlement
from provisioner.ports import StaleWrite
from provisioner.settings import Settings
from provisioner.store import open_store
from provisioner.store.database.backup import copy_file, make_backup, restore_backup
from provisioner.store.database.data_directory import prepare_directory
from provisioner.store.database.high_water import MARK_FILE
from provisioner.store.database.journal_archive import read_lines, read_span, write_archive
from provisioner.store.repositories.master_key import MasterKey
from provisioner.store.repositories.signing_keys import open_signer
from provisioner.store.rows import request_rows as session_rows
from provisioner.store.rows.journal import read_base
from provisioner.store.rows.journal_prune import Needs, Span, prune
from provisioner.store.sql_store import SqlStore

NOW = 1_700_000_000.0
KEY = MasterKey.generate()
Work = Callable[[SqlStore], Awaitable[None]]


class Stopped(Exception):
    """Instead of the end of the process."""


def end(why: str) -> None:
    raise Stopped(why)


@asynccontextmanager
async def daemon(directory: Path, database: Path | str = "", *, requested: bool = False):
    """A daemon's store as `serve` opens it, without the daemon."""
    prepare_directory(directory)
    store = open_store(database or directory / "provisioner.db")
    try:
        async with counted_writes(directory, store, NOW, end, requested=requested) as counted:
            yield store, counted
    finally:
        await store.close()


def served(directory: Path, database: Path | str = "", *works: Work, **options: bool) -> str:
    """Start, do some work, stop; why it would only look."""

    async def main() -> str:
        async with daemon(directory, database, **options) as (store, counted):
            for work in works:
                await work(store)
            return counted.look_only

    return asyncio.run(main())


async def one_write(store: SqlStore) -> None:
    await store.journal.append(event_of("x"), NOW)


async def silent_write(store: SqlStore) -> None:
    """One that leaves no row in the journal."""
    number = len(await store.nodes.list())
    await store.nodes.add(Node(id=f"n{number}", kind=NodeKind.HOST))


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path | str]:
    """A data directory and its database."""
    if request.param == "file":
        return tmp_path / "data", tmp_path / "data" / "provisioner.db"
    return tmp_path / "data", request.getfixturevalue("database")


def test_starts_and_crashes_are_no_alarm(place):
    directory, database = place
    found = [served(directory, database, *([one_write, silent_write] * n)) for n in (0, 1, 5, 0)]
    mark = directory / MARK_FILE
    older = mark.read_bytes()
    found.append(served(directory, database, one_write))
    mark.write_bytes(older)  # power was lost: the file is set back, never forward
    found.append(served(directory, database))

    assert found == [""] * 6


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_of_any_age_is_noticed(tmp_path, seed):
    rng = random.Random(seed)
    directory = tmp_path / "data"
    file, backup = directory / "provisioner.db", tmp_path / "backup"
    works = [rng.choice((one_write, silent_write)) for _ in range(rng.randint(1, 12))]
    age = rng.randrange(len(works))
    served(directory, file, *works[:age])
    copy_file(file, backup)
    served(directory, file, *works[age:])
    for name in ("provisioner.db", "provisioner.db-wal", "provisioner.db-shm"):
        (directory / name).unlink(missing_ok=True)
    shutil.copy(backup, file)
    file.chmod(0o600)

    first, second = served(directory, file), served(directory, file)

    assert "lacks the last" in first
    assert "lacks the last" in second, "a restart does not forget"


def test_a_restored_backup_is_noticed_in_a_fresh_directory(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    served(old, "", one_write)
    make_backup(old, str(old / "provisioner.db"), tmp_path / "b", NOW, "1.0", KEY)
    new.mkdir(mode=0o700)
    restore_backup(tmp_path / "b", new, str(new / "provisioner.db"), KEY)

    assert "the backup of 2023-11-14 22:13 UTC was restored" in served(new)
    assert "was restored" in served(new)


def test_a_file_that_was_copied_by_hand_is_noticed_in_a_fresh_directory(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    served(old, "", one_write)
    new.mkdir(mode=0o700)
    copy_file(old / "provisioner.db", new / "provisioner.db")

    assert "from another data directory" in served(new)


def test_the_database_of_another_site_is_refused_unless_a_person_asks(tmp_path):
    ours, other = tmp_path / "ours", tmp_path / "other"
    served(ours, "", one_write)
    served(other, "", one_write)

    with pytest.raises(InputError, match="belongs to the database"):
        served(ours, other / "provisioner.db")
    assert "a person asked" in served(ours, other / "provisioner.db", requested=True)


def test_an_unreadable_mark_is_refused_unless_a_person_asks(tmp_path):
    served(tmp_path / "data", "", one_write)
    (tmp_path / "data" / MARK_FILE).write_bytes(b"?" * 1024)

    with pytest.raises(InputError, match=r"cannot be read.*--restored"):
        served(tmp_path / "data")
    assert "a person asked" in served(tmp_path / "data", requested=True)


def waiting(subject: str) -> Difference:
    return Difference(subject=subject, kind=DifferenceKind.SERVES, row="r", world="w", seen_at=NOW)


def test_a_daemon_acts_again_only_when_everything_is_settled(place):
    directory, database = place

    async def main() -> list[str]:
        said = []
        async with daemon(directory, database, requested=True) as (store, _):
            book = store.recovery
            with pytest.raises(StaleWrite, match="were not compared yet"):
                await book.finish("anna", NOW)
            await book.put_survey([waiting("n1"), waiting("n2")], NOW)
            with pytest.raises(StaleWrite, match="n1 and perhaps others wait"):
                await book.finish("anna", NOW)
            word = {"settled": Settlement.KEEP, "settled_by": "anna", "settled_at": NOW}
            await book.settle(waiting("n1").model_copy(update=word))
            with pytest.raises(StaleWrite, match="settled already"):
                await book.settle(waiting("n1").model_copy(update=word))
            await book.put_survey([waiting("n1")], NOW)  # n2 was put right
            said += [str(len(await book.list_differences())), await book.get_look_only()]
            await book.finish("anna", NOW)
            said.append(await book.get_look_only())
            said += [str(row["kind"]) for row in await store.journal.list()]
        return said

    assert asyncio.run(main()) == [
        "1", "a person asked for it (--restored)", "", "look_only", "restored", "restore_settled",
    ]  # fmt: skip
    assert served(directory, database) == ""


def test_daemons_that_act_end_when_another_one_notices_a_loss(tmp_path, database):
    async def main() -> str:
        async with daemon(tmp_path / "a", database) as (acting, counted):
            await one_write(acting)
            async with daemon(tmp_path / "b", database, requested=True) as (other, _):
                await one_write(other)
                try:
                    await one_write(acting)
                except Stopped as stopped:
                    return str(stopped)
        assert isinstance(counted, CountedWrites)
        return "went on"

    assert "a person asked" in asyncio.run(main())


def test_a_dump_on_the_same_server_under_another_name_is_noticed(tmp_path, server, database):
    running, _ = server
    directory = tmp_path / "data"
    served(directory, database, one_write)
    make_backup(directory, database, tmp_path / "b", NOW, "1.0", KEY)
    other = running.url(running.make())
    (tmp_path / "new").mkdir(mode=0o700)
    restore_backup(tmp_path / "b", tmp_path / "new", other, KEY)
    (tmp_path / "new" / "restored").unlink()

    assert "onto another server" in served(tmp_path / "new", other)
    assert "onto another server" in served(directory, other)


def test_an_ordinary_user_of_the_server_may_read_its_identity(tmp_path, server, monkeypatch):
    running, _ = server
    name = running.make()
    running.sql("postgres", "CREATE ROLE plain LOGIN PASSWORD 'plain'")
    running.sql("postgres", f"ALTER DATABASE {name} OWNER TO plain")
    monkeypatch.setenv("PGPASSWORD", "plain")
    url = running.url(name).replace("postgres@", "plain@")

    assert served(tmp_path / "data", url, one_write) == ""
    assert '"server":"7' in (tmp_path / "data" / MARK_FILE).read_text()


def test_a_restored_backup_brings_no_session_back(tmp_path: Path) -> None:
    directory, copy = tmp_path / "data", tmp_path / "copy.db"
    limits = Settings().session_limits()
    who = Caller(subject="ada", roles=frozenset({Role.VIEWER}), issuer="https://id")
    session = new_session(who, limits, NOW)[1]
    living: list[int] = []

    async def sign_in(store: SqlStore) -> None:
        begin = partial(session_rows.begin_session, session=session, limits=limits)
        assert await store.write(begin)

    async def count(store: SqlStore) -> None:
        read = partial(session_rows.read_sessions, limits=limits, now=NOW)
        living.append(len(await store.read(read)))

    assert served(directory, "", sign_in) == ""
    assert served(directory, "", count) == ""  # a restart ends none
    copy_file(directory / "provisioner.db", copy)
    assert served(directory, "", one_write) == ""
    for old in directory.glob("provisioner.db*"):
        old.unlink()
    copy_file(copy, directory / "provisioner.db")
    assert served(directory, "", count) != ""

    assert living == [1, 0]


async def pruned(directory: Path, store: SqlStore) -> None:
    """Archive all rows but the newest, and prune them, as the command line does."""
    signer = await open_signer(store, MasterKey(b"k" * 32), NOW)
    base = await store.read(read_base)
    first, last = await store.read(partial(read_span, base=base, until=NOW + 1e9))
    lines = await store.read(partial(read_lines, first=first, last=last))
    one = write_archive(directory, lines, base.head, signer, ("ada", NOW), "1.0")
    span = Span(first, base.head, one.digests, one.sha256)
    step = partial(prune, span=span, needs=Needs(), signer=signer, by="ada", now=NOW)
    await store.write(step)


def test_a_prune_of_the_row_that_is_remembered_is_no_loss(place):
    directory, database = place
    served(directory, database, *[one_write] * 4)

    async def prune_beside() -> None:
        store = open_store(database)
        try:
            await one_write(store)
            await pruned(directory, store)
        finally:
            await store.close()

    asyncio.run(prune_beside())

    assert served(directory, database) == ""
    assert served(directory, database, one_write) == ""


@pytest.mark.parametrize("before", [True, False])
def test_a_restore_around_a_prune_is_noticed(tmp_path, before):
    directory, backup = tmp_path / "data", tmp_path / "backup.tar"
    file = directory / "provisioner.db"
    served(directory, file, *[one_write] * 3)
    if before:
        make_backup(directory, str(file), backup, NOW, "1", KEY)
    served(directory, file, partial(pruned, directory))
    if not before:
        make_backup(directory, str(file), backup, NOW, "1", KEY)
    served(directory, file, *[one_write] * 3)
    for name in ("provisioner.db", "provisioner.db-wal", "provisioner.db-shm"):
        (directory / name).unlink(missing_ok=True)
    restore_backup(backup, directory, str(file), KEY)

    assert "restored" in served(directory, file)
