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
from provisioner.access.tokens import new_token
from provisioner.daemon.recovery import CountedWrites, counted_writes
from provisioner.model.access import Caller, Role
from provisioner.model.certificate import Certificate
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.model.recovery import (
    Difference,
    DifferenceKind,
    Revocation,
    RevokedKind,
    Settlement,
)
from provisioner.ports import StaleWrite
from provisioner.settings import Settings
from provisioner.store import open_store
from provisioner.store.database.backup import copy_file, make_backup, restore_backup
from provisioner.store.database.data_directory import prepare_directory
from provisioner.store.database.high_water import MARK_FILE, RevocationFile
from provisioner.store.database.journal_archive import read_lines, read_span, write_archive
from provisioner.store.repositories.signing_keys import (
    MasterKey,
    exchange_signing_key,
    open_signer,
    public_keys,
)
from provisioner.store.rows import evidence_rows
from provisioner.store.rows import request_rows as session_rows
from provisioner.store.rows.credential_rows import read_keys
from provisioner.store.rows.journal import read_base
from provisioner.store.rows.journal_prune import Needs, Span, prune
from provisioner.store.sql_store import SqlStore

NOW = 1_700_000_000.0
KEY = MasterKey.generate()
NAMES = {"ada", "bob", "cert-1", "cert-2"}
CERTIFICATE = Certificate(
    id="cert-1",
    node="n1",
    release="r",
    profile="p",
    serials=("S1",),
    versions=(),
    boot_id="b",
    location="",
    ports=(),
    report_digest="0" * 64,
    matrix_digest="0" * 64,
    issued_at=NOW - 9.0,
    expires_at=NOW + 9e6,
    key_id="k",
    signature="00",
)
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


# --- revocations newer than a backup


def put_back(directory: Path, copy: Path) -> None:
    """The database of the copy in the place of the one that is there."""
    for old in directory.glob("provisioner.db*"):
        old.unlink()
    copy_file(copy, directory / "provisioner.db")


def in_force(directory: Path) -> dict[str, bool]:
    """Whether each token, certificate and signing key is in force in the database."""
    found: dict[str, bool] = {}

    async def read(store: SqlStore) -> None:
        for token in await store.read(session_rows.read_tokens):
            found[token.subject] = not token.revoked_at
        for name in ("cert-1", "cert-2"):
            found[name] = not await store.read(partial(evidence_rows.revoked, certificate_id=name))
        for key in await store.read(read_keys):
            found[key.key_id] = key.withdrawn_at is None

    served(directory, "", read)
    return found


async def grant(store: SqlStore) -> None:
    """Two tokens, two certificates and a signing key."""
    for who in ("ada", "bob"):
        token = new_token(who, Role.OPERATOR, "", 1.0, NOW - 9.0)[1]
        await store.write(partial(session_rows.add_token, token=token, now=NOW))
    await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
    for name in ("cert-1", "cert-2"):
        issued = CERTIFICATE.model_copy(update={"id": name})
        await store.write(partial(evidence_rows.put_certificate, certificate=issued))
    await open_signer(store, KEY, NOW)


async def revoke_some(store: SqlStore) -> None:
    ada = next(t for t in await store.read(session_rows.read_tokens) if t.subject == "ada")
    await store.write(partial(session_rows.revoke_token, token_id=ada.id, now=NOW))
    await store.write(
        partial(evidence_rows.revoke, certificate_id="cert-1", reason="a lie", now=NOW)
    )
    await exchange_signing_key(store, KEY, NOW, compromised=True)


def test_what_was_revoked_since_a_backup_is_not_in_force_after_its_restore(tmp_path: Path) -> None:
    directory, copy = tmp_path / "data", tmp_path / "copy.db"
    served(directory, "", grant)
    copy_file(directory / "provisioner.db", copy)
    key = next(name for name in in_force(directory) if name not in NAMES)
    served(directory, "", revoke_some)
    put_back(directory, copy)

    assert in_force(directory) == {
        "ada": False, "bob": True, "cert-1": False, "cert-2": True, key: False,
    }  # fmt: skip
    put_back(directory, copy)  # a second restore brings nothing back either
    assert not in_force(directory)["ada"]


def test_a_daemon_whose_signing_key_was_withdrawn_is_told_to_make_another(tmp_path: Path) -> None:
    directory, copy = tmp_path / "data", tmp_path / "copy.db"
    told: list[bool] = []

    async def start() -> None:
        async with daemon(directory) as (store, counted):
            told.append(counted.key_withdrawn)
            fresh = await open_signer(store, KEY, NOW)
            assert fresh.key_id in await public_keys(store)

    served(directory, "", grant)
    copy_file(directory / "provisioner.db", copy)
    asyncio.run(start())
    served(directory, "", revoke_some)
    put_back(directory, copy)
    asyncio.run(start())
    asyncio.run(start())

    assert told == [False, True, False]


def test_a_revocation_is_kept_as_soon_as_it_is_written_whoever_wrote_it(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    file = RevocationFile(directory)

    async def scenario() -> None:
        async with daemon(directory) as (store, _):
            await grant(store)
            await revoke_some(store)
            async with asyncio.timeout(60):
                while len(file.read()) < 3:  # noqa: ASYNC110 (the file has no event)
                    await asyncio.sleep(0.02)

    asyncio.run(scenario())
    assert sorted(r.kind.value for r in file.read()) == ["certificate", "signing_key", "token"]

    async def beside() -> None:  # as a command beside a daemon that is stopped
        store = open_store(directory / "provisioner.db")
        bob = next(t for t in await store.read(session_rows.read_tokens) if t.subject == "bob")
        await store.write(partial(session_rows.revoke_token, token_id=bob.id, now=NOW))
        await store.close()

    asyncio.run(beside())
    served(directory)
    assert [r.kind.value for r in file.read()].count("token") == 2


def test_a_revocation_speaks_of_no_row_that_was_made_after_it(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    served(directory, "", grant)
    at = CERTIFICATE.issued_at - 1.0
    told = Revocation(kind=RevokedKind.CERTIFICATE, id="cert-1", at=at)
    RevocationFile(directory).add([told])

    assert in_force(directory)["cert-1"]


def test_a_line_that_a_crash_cut_off_is_none_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    file = RevocationFile(tmp_path)
    one = Revocation(kind=RevokedKind.TOKEN, id="1", at=NOW)
    two = one.model_copy(update={"id": "2"})
    file.add([one])
    with file.path.open("ab") as stream:
        stream.write(b'{"kind":"tok')
    assert file.read() == (one,)
    file.add([two])
    assert file.read() == (one, two)
    assert file.tidy(NOW + 3 * 366 * 86_400.0) == file.read() == ()

    file.path.write_bytes(b"nonsense\n" + one.model_dump_json().encode() + b"\n")
    with pytest.raises(InputError, match="line 1 is no revocation"):
        file.read()
    with pytest.raises(InputError, match="line 1 is no revocation"):
        served(tmp_path)
