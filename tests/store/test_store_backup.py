"""Backups and older schemas: copied before a migration, refused by readers, restored whole."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from next_schema import NEXT, THIS, become_next
from test_journal_archive import archive, fill, remove

from provisioner.model.input_error import InputError
from provisioner.store import MasterKey, open_store
from provisioner.store.database.backup import (
    MANIFEST,
    PROOF,
    check_backup,
    copier,
    make_backup,
    restore_backup,
)
from provisioner.store.database.data_directory import SealedFile
from provisioner.store.database.database import NEWEST
from provisioner.store.database.postgres import migrate, open_postgres
from provisioner.store.rows.journal_prune import Needs

ROWS = Path(__file__).parent / "first_rows.sql"
NOW = 1_700_000_000.0


KEY = MasterKey.generate()


def written_file(file: Path) -> None:
    """A database of this schema: a node with an operation in flight and an open action."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    with sqlite3.connect(file) as connection:
        connection.executescript(NEWEST.read_text() + ROWS.read_text())
    file.chmod(0o600)


def read_state(path: Path | str, **options: object) -> tuple[object, ...]:
    """What a backup has to bring back: the node, what is active, what was intended, the journal."""

    async def scenario() -> tuple[object, ...]:
        store = open_store(path, **options)
        try:
            return (
                [n.id for n in await store.nodes.list()],
                [(o.id, o.node) for o in await store.operations.list_active()],
                [(e.action, e.status) for e in await store.operations.list_entries("n1")],
                await store.journal.verify(),
            )
        finally:
            await store.close()

    return asyncio.run(scenario())


def revision_of(file: Path) -> str:
    with sqlite3.connect(file) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_an_older_database_is_refused_with_both_versions_and_stays_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "data" / "provisioner.db"
    written_file(file)
    become_next(monkeypatch, tmp_path)

    with pytest.raises(InputError, match=f"schema {THIS}: is older .*{NEXT}.*db upgrade"):
        open_store(file)

    assert revision_of(file) == THIS


def test_a_migration_leaves_a_private_copy_of_the_older_database(tmp_path, monkeypatch):
    file = tmp_path / "data" / "provisioner.db"
    written_file(file)
    become_next(monkeypatch, tmp_path)

    state = read_state(file, copy_first=copier(str(file), file.parent))

    copy = file.parent / f"provisioner.db.schema-{THIS}"
    assert state[:2] == (["n1"], [("n1#1", "n1")])
    assert revision_of(file) == NEXT
    assert revision_of(copy) == THIS
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_second_copy_of_one_schema_does_not_replace_the_first(tmp_path):
    file = tmp_path / "data" / "provisioner.db"
    written_file(file)
    copy = copier(str(file), file.parent)

    assert [copy("0001").name, copy("0001").name] == [
        "provisioner.db.schema-0001",
        "provisioner.db.schema-0001-1",
    ]


def test_a_backup_of_an_older_schema_is_restored_with_what_was_in_flight(tmp_path, monkeypatch):
    old, new = tmp_path / "old", tmp_path / "new"
    written_file(old / "provisioner.db")
    (old / "known_hosts").write_text("leaf ssh-ed25519 AAAA\n")
    (old / "master.key").write_text("never in a backup")
    new.mkdir(mode=0o700)

    made = make_backup(old, str(old / "provisioner.db"), tmp_path / "backup", NOW, "1.0", KEY)
    become_next(monkeypatch, tmp_path)
    restored = restore_backup(tmp_path / "backup", new, str(new / "provisioner.db"), KEY)
    with pytest.raises(InputError, match="is older"):
        open_store(new / "provisioner.db")
    after = read_state(new / "provisioner.db", copy_first=copier(str(new / "provisioner.db"), new))

    assert made == restored
    assert (made.revision, made.journal_rows) == (THIS, 1)
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600
    assert (new / "known_hosts").read_text() == "leaf ssh-ed25519 AAAA\n"
    assert not (new / "master.key").exists()
    assert after == read_state(
        old / "provisioner.db", copy_first=copier(str(old / "provisioner.db"), old)
    )


def test_a_backup_that_was_changed_is_refused_and_nothing_is_restored(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    written_file(old / "provisioner.db")
    new.mkdir(mode=0o700)
    backup = tmp_path / "backup"
    make_backup(old, str(old / "provisioner.db"), backup, NOW, "1.0", KEY)
    content = bytearray(backup.read_bytes())
    content[-30_000] ^= 1
    backup.write_bytes(content)

    with pytest.raises(InputError, match="not as it was written"):
        check_backup(backup, KEY)
    with pytest.raises(InputError, match="not as it was written"):
        restore_backup(backup, new, str(new / "provisioner.db"), KEY)

    assert list(new.iterdir()) == []


def no_archive(file: Path) -> None:
    file.write_bytes(b"x" * 4096)


def other_archive(file: Path) -> None:
    with tarfile.open(file, "w") as archive:
        archive.add(__file__, "provisioner.db")


def with_foreign_member(file: Path) -> None:
    manifest = file.parent / MANIFEST
    manifest.write_text(
        '{"program": "1", "revision": "0001", "made_at": 1, "journal_rows": 0, "journal_head": "",'
        ' "files": {"../../etc/passwd": {"sha256": "", "size": 1}}}'
    )
    with tarfile.open(file, "w") as archive:
        archive.add(manifest, MANIFEST)


@pytest.mark.parametrize("make", [no_archive, other_archive, with_foreign_member])
def test_a_file_that_is_no_backup_is_one_clear_error(tmp_path, make):
    make(tmp_path / "file")

    with pytest.raises(InputError, match="this backup cannot be used"):
        check_backup(tmp_path / "file", KEY)


def test_a_backup_is_never_restored_over_a_database(tmp_path):
    written_file(tmp_path / "old" / "provisioner.db")
    written_file(tmp_path / "new" / "provisioner.db")
    database = str(tmp_path / "old" / "provisioner.db")
    make_backup(tmp_path / "old", database, tmp_path / "backup", NOW, "1.0", KEY)

    with pytest.raises(InputError, match="a database here already"):
        restore_backup(
            tmp_path / "backup", tmp_path / "new", str(tmp_path / "new" / "provisioner.db"), KEY
        )


def test_a_backup_of_a_newer_version_names_that_version(tmp_path):
    written_file(tmp_path / "old" / "provisioner.db")
    (tmp_path / "new").mkdir(mode=0o700)
    database = tmp_path / "old" / "provisioner.db"
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    make_backup(tmp_path / "old", str(database), tmp_path / "backup", NOW, "9.5", KEY)

    with pytest.raises(InputError, match=r"schema 9999: was made by a newer version.*9\.5"):
        restore_backup(
            tmp_path / "backup", tmp_path / "new", str(tmp_path / "new" / "provisioner.db"), KEY
        )


@pytest.fixture
def empty(server):
    running, _ = server
    with psycopg.connect(running.url("postgres"), autocommit=True) as connection:
        for name in ("earlier", "later"):
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C'")
    return running.url("earlier"), running.url("later")


def test_a_server_of_an_older_schema_is_refused_copied_migrated_and_restored(
    tmp_path, empty, monkeypatch
):
    earlier, later = empty
    data = tmp_path / "data"
    engine = _engine_of(earlier)
    migrate(engine, "test")
    engine.dispose()
    become_next(monkeypatch, tmp_path / "next")

    with pytest.raises(InputError, match=f"schema {THIS}: is older"):
        open_postgres(earlier)
    make_backup(data, earlier, tmp_path / "backup", NOW, "1.0", KEY)
    restored = restore_backup(tmp_path / "backup", tmp_path, later, KEY)
    with pytest.raises(InputError, match="is older"):
        open_postgres(later)
    before = read_state(earlier, copy_first=copier(earlier, data))
    after = read_state(later, copy_first=copier(later, data))

    assert restored.revision == THIS
    assert before == after
    assert sorted(p.name for p in data.iterdir()) == [
        f"provisioner-schema-{THIS}-1.dump",
        f"provisioner-schema-{THIS}.dump",
    ]
    with pytest.raises(InputError, match="the database is not empty"):
        restore_backup(tmp_path / "backup", tmp_path, later, KEY)


def test_a_backup_of_a_pruned_journal_on_a_server_is_restored(tmp_path, empty):
    earlier, later = empty
    rows = asyncio.run(prune_journal(earlier, tmp_path))

    manifest = make_backup(tmp_path / "data", earlier, tmp_path / "backup", NOW, "1.0", KEY)
    restore_backup(tmp_path / "backup", tmp_path, later, KEY)

    assert (manifest.journal_problem, manifest.journal_rows) == ("", rows)
    check = read_state(later)[3]
    assert (check.intact, check.rows) == (True, rows)


async def prune_journal(url: str, directory: Path) -> int:
    """Prune the first eight of ten rows but those of one node; return the last row's number."""
    store = open_store(url)
    try:
        signer = await fill(store)
        (one,) = await archive(store, signer, directory, 8)
        await remove(store, signer, one, Needs(since={"n1": 0.0}))
        return (await store.journal.verify()).rows
    finally:
        await store.close()


def test_without_its_client_programs_a_server_is_not_migrated(tmp_path, empty, monkeypatch):
    earlier, _ = empty
    engine = _engine_of(earlier)
    migrate(engine, "test")
    engine.dispose()
    become_next(monkeypatch, tmp_path / "next")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InputError, match="pg_dump is not installed"):
        open_postgres(earlier, copier(earlier, tmp_path / "data"))
    assert list((tmp_path / "data").iterdir()) == []
    with pytest.raises(InputError, match=f"schema {THIS}: is older"):
        open_postgres(earlier)


def _engine_of(url: str):
    from sqlalchemy import create_engine

    from provisioner.store.database.postgres import postgres_url

    return create_engine(postgres_url(url))


def rewrite(backup: Path, changed: dict[str, bytes | None]) -> None:
    """Write the archive anew with other members; None leaves one out. Digests are made right."""
    with tarfile.open(backup) as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    members |= {name: content for name, content in changed.items() if content is not None}
    for name in [name for name, content in changed.items() if content is None]:
        members.pop(name, None)
    manifest = json.loads(members[MANIFEST])
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in members.items()
        if name not in (MANIFEST, PROOF)
    }
    if MANIFEST not in changed:
        members[MANIFEST] = json.dumps(manifest).encode()
    with tarfile.open(backup, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def backed_up(tmp_path: Path) -> tuple[Path, Path]:
    """Return a backup of a directory with an authority, and an empty new directory."""
    old, new = tmp_path / "old", tmp_path / "new"
    written_file(old / "provisioner.db")
    (old / "agent-ca.key").write_bytes(b"-----BEGIN PRIVATE KEY-----secret")
    (old / "agent-ca.pem").write_bytes(b"-----BEGIN CERTIFICATE-----")
    new.mkdir(mode=0o700)
    make_backup(old, str(old / "provisioner.db"), tmp_path / "backup", NOW, "1.0", KEY)
    return tmp_path / "backup", new


def test_the_agents_key_is_never_in_clear_in_a_backup_and_comes_back_whole(tmp_path):
    backup, new = backed_up(tmp_path)

    restore_backup(backup, new, str(new / "provisioner.db"), KEY)

    assert b"secret" not in backup.read_bytes()
    assert SealedFile(new, KEY).read() == b"-----BEGIN PRIVATE KEY-----secret"
    assert stat.S_IMODE((new / "agent-ca.key.sealed").stat().st_mode) == 0o600
    assert not any(b"secret" in file.read_bytes() for file in new.iterdir())
    make_backup(new, str(new / "provisioner.db"), tmp_path / "again", NOW, "1.0", KEY)
    third = tmp_path / "third"
    third.mkdir(mode=0o700)
    restore_backup(tmp_path / "again", third, str(third / "provisioner.db"), KEY)
    assert SealedFile(third, KEY).read() == b"-----BEGIN PRIVATE KEY-----secret"


@pytest.mark.parametrize("member", ["agent-ca.pem", "provisioner.db", "agent-ca.key.sealed"])
def test_a_backup_with_a_forged_part_is_refused_though_its_digests_are_right(tmp_path, member):
    backup, new = backed_up(tmp_path)
    rewrite(backup, {member: b"forged"})

    check_backup(backup, None)  # whole, as anybody can make it
    with pytest.raises(InputError, match="not the one that was proved"):
        restore_backup(backup, new, str(new / "provisioner.db"), KEY)
    assert list(new.iterdir()) == []


@pytest.mark.parametrize("proof", [None, b"", b"x" * 60])
def test_a_backup_without_a_proof_of_ours_is_refused(tmp_path, proof):
    backup, new = backed_up(tmp_path)
    rewrite(backup, {PROOF: proof})

    with pytest.raises(InputError, match=r"manifest.proof is missing|has to prove it"):
        restore_backup(backup, new, str(new / "provisioner.db"), KEY)
    assert list(new.iterdir()) == []


def test_a_manifest_of_the_older_form_is_no_way_around_the_proof(tmp_path):
    backup, new = backed_up(tmp_path)
    with tarfile.open(backup) as archive:
        manifest = json.loads(archive.extractfile(MANIFEST).read())
    rewrite(backup, {MANIFEST: json.dumps(manifest | {"format": 1}).encode()})

    with pytest.raises(InputError, match="older version, which proved no backup"):
        restore_backup(backup, new, str(new / "provisioner.db"), KEY)
    assert list(new.iterdir()) == []


def test_a_proof_of_another_backup_or_of_another_key_proves_nothing(tmp_path):
    backup, _ = backed_up(tmp_path)
    other = tmp_path / "other"
    make_backup(
        tmp_path / "old", str(tmp_path / "old" / "provisioner.db"), other, NOW + 1, "1.0", KEY
    )
    with tarfile.open(other) as archive:
        proof = archive.extractfile(PROOF).read()
    with pytest.raises(InputError, match="has to prove it"):
        check_backup(backup, MasterKey.generate())
    rewrite(backup, {PROOF: proof})

    with pytest.raises(InputError, match="not the one that was proved"):
        check_backup(backup, KEY)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER quiet AFTER INSERT ON journal BEGIN DELETE FROM nodes; END",
        "CREATE VIEW quiet AS SELECT * FROM credentials",
        "CREATE VIRTUAL TABLE quiet USING fts5(words)",
    ],
)
@pytest.mark.parametrize("keys", [KEY, None], ids=["proved", "not proved"])
def test_a_database_with_a_planted_object_is_not_restored(tmp_path, statement, keys):
    old, new = tmp_path / "old", tmp_path / "new"
    written_file(old / "provisioner.db")
    with closing(sqlite3.connect(old / "provisioner.db")) as connection, connection:
        connection.execute(statement)
    new.mkdir(mode=0o700)
    make_backup(old, str(old / "provisioner.db"), tmp_path / "backup", NOW, "1.0", KEY)

    with pytest.raises(InputError, match=r"no version of this program made: .*quiet"):
        restore_backup(tmp_path / "backup", new, str(new / "provisioner.db"), keys)
    assert list(new.iterdir()) == []
