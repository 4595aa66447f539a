"""Backups: one archive of a site's database and of the files that its daemons learned, checked.

The archive is a tar file whose first member, the manifest, has the digest of each other member and
the head of the journal. The second one proves the manifest, and so all of them: it is the
manifest's digest, sealed by the master key (AES-GCM is authenticated, and the name is bound to it),
so that nobody without that key makes an archive that is believed. The key of the agents' authority
is in it sealed. The master key is never in it: who has both has every BMC password.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.runtime.late_module import LateModule
from provisioner.runtime.whole_files import sync_directory, write_private
from provisioner.store.database.data_directory import (
    AUTHORITY_KEY,
    SealedFile,
    Sealing,
    prepare_directory,
)
from provisioner.store.database.high_water import RESTORED_FILE
from provisioner.store.database.postgres import (
    CONNECT,
    Copier,
    extra_missing,
    is_postgres,
    postgres_url,
    refuse_unknown_objects,
    revisions,
    shown,
)
from provisioner.store.rows import journal
from provisioner.store.rows.journal import ChainCheck

if TYPE_CHECKING:
    import tarfile
else:
    tarfile = LateModule("tarfile")

# ------------------------------------------------------------------------------
# Copies a whole database while others write it: a file by SQLite, a server's by pg_dump.
#
# A copy holds sealed passwords and the truth about every node, so it is made with mode 0600 and is
# never written over an existing file.


# pg_dump of a large site takes minutes. After this long it waits for a lock that does not end.
DUMP_TIMEOUT_S = 3600
COPIES_MAX = 1000  # of one revision in one directory: more is a start that fails again and again


def copier(database: str, directory: Path) -> Copier:
    """The step before a migration for `open_store`: a copy in `directory`, named by its schema."""

    def copy(revision: str) -> Path:
        prepare_directory(directory)
        if is_postgres(database):
            target = _free_name(directory, f"provisioner-schema-{revision}", ".dump")
            dump_server(database, target)
        else:
            source = Path(database)
            target = _free_name(directory, f"{source.name}.schema-{revision}", "")
            copy_file(source, target)
        return target

    return copy


def copy_file(source: Path, target: Path) -> None:
    """Copy one consistent state of an SQLite database to a new file. Raises `InputError`."""
    try:
        write_private(target, b"")
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
        _sync(target)
    except (OSError, sqlite3.Error) as error:
        if not isinstance(error, FileExistsError):  # half a copy would be taken for a whole one
            target.unlink(missing_ok=True)
        raise _not_copied(str(target), str(error)) from None


def dump_server(database: str, target: Path, snapshot: str = "") -> None:
    """Write a PostgreSQL database to a new file in pg_dump's custom format.

    DBOS's schema is left out: it is a queue that daemons fill again. `snapshot` names an exported
    one, so that the dump is the very state that its caller reads. Raises `InputError`.
    """
    url = postgres_url(database)
    try:
        write_private(target, b"")
    except OSError as error:
        raise _not_copied(str(target), error.strerror or str(error)) from None
    arguments = ["pg_dump", "--format=custom", "--exclude-schema=dbos", f"--file={target}"]
    arguments += [f"--snapshot={snapshot}"] if snapshot else []
    try:
        _run_client([*arguments, f"--dbname={_address(url)}"], url, "be copied")
    except BaseException:
        target.unlink()
        raise
    _sync(target)


def load_dump(dump: Path, database: str) -> None:
    """Restore a dump into an empty PostgreSQL database, all or nothing. Raises `InputError`."""
    url = postgres_url(database)
    arguments = ["pg_restore", "--exit-on-error", "--single-transaction", "--no-owner"]
    _run_client([*arguments, f"--dbname={_address(url)}", str(dump)], url, "be restored")


def _run_client(words: list[str], url: URL, purpose: str) -> None:
    """Run one of PostgreSQL's own programs; the password goes by the environment, never argv."""
    password = {} if url.password is None else {"PGPASSWORD": str(url.password)}
    try:
        ended = subprocess.run(  # noqa: S603 (PostgreSQL's own programs, no shell)
            [words[0], "--no-password", *words[1:]],
            env={**os.environ, **password},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DUMP_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise InputError(
            shown(url),
            "",
            f"the database cannot {purpose}: {words[0]} is not installed",
            "Install PostgreSQL's client programs (Debian: postgresql-client).",
        ) from None
    except subprocess.TimeoutExpired:
        raise _failed(url, purpose, f"{words[0]} took longer than {DUMP_TIMEOUT_S} s") from None
    if ended.returncode != 0:
        raise _failed(url, purpose, " ".join(ended.stderr.split())[:500] or words[0])


def _address(url: URL) -> str:
    return url.set(drivername="postgresql", password=None).render_as_string()


def _failed(url: URL, purpose: str, problem: str) -> InputError:
    remedy = "Check the user's rights; the programs must be as new as the server."
    return InputError(shown(url), "", f"the database cannot {purpose}: {problem}", remedy)


def _not_copied(target: str, problem: str) -> InputError:
    remedy = "Check space, owner and mode there; nothing was changed."
    return InputError(target, "", f"no copy of the database can be made: {problem}", remedy)


def _free_name(directory: Path, stem: str, suffix: str) -> Path:
    for number in range(COPIES_MAX):
        path = directory / (f"{stem}-{number}{suffix}" if number else f"{stem}{suffix}")
        if not path.exists():
            return path
    raise _not_copied(str(directory / stem), f"{COPIES_MAX} copies are there already")


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    sync_directory(file.parent)


MANIFEST = "manifest.json"
FILE_MEMBER = "provisioner.db"
DUMP_MEMBER = "provisioner.dump"
# What daemons learned or made, and cannot make again without a person's help.
LEARNT = ("agent-ca.key", "agent-ca.pem", "known_hosts", "switch_keys")
# the key of LEARNT is sealed in an archive, under this name
SEALED = "agent-ca.key.sealed"
PROOF = "manifest.proof"
PROOF_MAX = 4096
FORMATS = (1, 2)  # 1 has no proof, and its secret is in clear
MANIFEST_SIZE_MAX = 65_536
CHUNK = 1 << 20


class FileDigest(Record):
    sha256: str
    size: int


class Manifest(Record):
    """A backup's own description. `journal_problem` is empty where the journal's chain holds."""

    format: int = 1
    key_id: str = ""  # of the master key that proves it
    program: str
    revision: str
    made_at: float
    journal_rows: int
    journal_head: str
    journal_problem: str = ""
    files: Mapping[str, FileDigest]

    @property
    def of_server(self) -> bool:
        return DUMP_MEMBER in self.files


def make_backup(
    directory: Path, database: str, output: Path, now: float, program: str, keys: Sealing
) -> Manifest:
    """Write a backup to a new file, while daemons run, and read it back. Raises `InputError`.

    `keys`: the master keys; the newest one seals and proves.

    A database of an older schema is backed up as it is.
    """
    if output.exists():
        raise InputError(str(output), "", "it exists already", "Name a new file.")
    prepare_directory(output.absolute().parent)
    with _scratch(output.absolute().parent) as scratch:
        revision, chain = _copy_database(database, scratch)
        key = keys.newest()
        for name in LEARNT:
            held = SealedFile(directory, keys).read() if name == AUTHORITY_KEY else None
            if held is None and not (directory / name).is_file():
                continue
            content = (directory / name).read_bytes() if held is None else held
            if name == AUTHORITY_KEY:
                write_private(scratch / SEALED, key.seal(content, _named(AUTHORITY_KEY)))
            else:
                write_private(scratch / name, content)
        manifest = Manifest(
            format=FORMATS[-1],
            key_id=key.id,
            program=program,
            revision=revision,
            made_at=now,
            journal_rows=chain.rows,
            journal_head=chain.head,
            journal_problem=chain.problem,
            files={p.name: _digest(p) for p in sorted(scratch.iterdir())},
        )
        told = manifest.model_dump_json(indent=2).encode()
        write_private(scratch / MANIFEST, told)
        digest = hashlib.sha256(told).digest()
        write_private(scratch / PROOF, key.seal(digest, _named(MANIFEST)))
        whole = scratch / "archive"
        write_private(whole, b"")
        with tarfile.open(whole, "w", format=tarfile.PAX_FORMAT) as archive:
            for name in (MANIFEST, PROOF, *manifest.files):
                archive.add(scratch / name, name)
        whole.rename(output)
        sync_directory(output.absolute().parent)
    return check_backup(output, keys)


def check_backup(file: Path, keys: Sealing | None) -> Manifest:
    """Return the manifest of a backup whose members are whole. Raises `InputError` for any
    other file.

    `keys`: the master keys, one of which proves that a daemon of ours wrote it. None: this is not
    asked, and whoever could write the file may have made all of it.
    """
    manifest: Manifest
    with _opened(file, keys) as (archive, manifest):
        for name, expected in manifest.files.items():
            _compare(file, name, expected, _digest_stream(_member(file, archive, name)))
    return manifest


def restore_backup(file: Path, directory: Path, database: str, keys: Sealing | None) -> Manifest:
    """Put a backup into a data directory, and into `database`, which must not exist or be empty.

    The caller holds the directory's lock. The restored database is read whole, and its journal is
    followed to the head that the manifest names. The schema stays that of the backup. Files of the
    directory that are there already are kept. Raises `InputError`; nothing is half restored then.

    `keys` as for `check_backup`; without them a sealed file stays out.
    """
    manifest = check_backup(file, keys)
    if manifest.revision not in revisions():
        raise InputError(
            str(file),
            f"schema {manifest.revision}",
            f"was made by a newer version than this one (schema {revisions()[-1]})",
            f"Restore it with version {manifest.program} or newer.",
        )
    if manifest.of_server != is_postgres(database):
        kind = "a PostgreSQL database" if manifest.of_server else "an SQLite file"
        remedy = "Give --database, or leave it out: one kind is not converted into the other."
        raise InputError(str(file), "", f"it is a backup of {kind}", remedy)
    with _scratch(directory) as scratch:
        with _opened(file, keys) as (archive, _):
            for name in manifest.files:
                _extract(_member(file, archive, name), scratch / name)
        for name, expected in manifest.files.items():
            _compare(file, name, expected, _digest(scratch / name))
        authority = None
        if (scratch / SEALED).exists() and keys is not None:
            authority = _unseal(file, scratch / SEALED, keys)
        # Before the database is there: no daemon may ever find the one without the other.
        (directory / RESTORED_FILE).unlink(missing_ok=True)
        write_private(directory / RESTORED_FILE, _told(manifest).encode())
        try:
            if manifest.of_server:
                _restore_server(manifest, file, scratch / DUMP_MEMBER, database)
            else:
                _restore_file(manifest, file, scratch / FILE_MEMBER, Path(database))
        except InputError:
            (directory / RESTORED_FILE).unlink()
            raise
        for name in LEARNT:
            if (scratch / name).exists() and not (directory / name).exists():
                (scratch / name).rename(directory / name)
        if authority is not None and keys is not None:
            _keep_authority(authority, SealedFile(directory, keys))
    sync_directory(directory)
    return manifest


def _keep_authority(key: bytes, file: SealedFile) -> None:
    """Keep the agents' key sealed, unless the directory has one: in clear or sealed."""
    if not file.path.exists() and not (file.path.parent / AUTHORITY_KEY).exists():
        file.write(key)


def _told(manifest: Manifest) -> str:
    """Return why the next daemon only looks; it is found beside the database."""
    made = datetime.fromtimestamp(manifest.made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"the backup of {made} was restored (journal row {manifest.journal_rows})"


def _restore_file(manifest: Manifest, source: Path, copy: Path, target: Path) -> None:
    if target.exists():
        remedy = "Move it away first: it may be the only record of what happened since the backup."
        raise InputError(str(target), "", "there is a database here already", remedy)
    engine = _reading(copy)
    try:
        with engine.connect() as connection:
            answer = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            if answer != "ok":
                raise _wrong(source, f"its database is damaged: {answer}")
            refuse_unknown_objects(connection, str(source))
            _compare_contents(manifest, source, *_read_state(connection))
    except DBAPIError as error:
        raise _wrong(source, f"its database cannot be read: {error.orig}") from None
    finally:
        engine.dispose()
    copy.rename(target)


def _restore_server(manifest: Manifest, source: Path, dump: Path, database: str) -> None:
    engine, url = _server(database)
    try:
        with engine.connect() as connection:
            if inspect(connection).get_table_names():
                remedy = "Name a new database: createdb --template=template0 --locale=C NAME"
                raise InputError(shown(url), "", "the database is not empty", remedy)
        load_dump(dump, database)
        with engine.connect() as connection:
            refuse_unknown_objects(connection, str(source))
            _compare_contents(manifest, source, *_read_state(connection))
    except DBAPIError as error:
        raise InputError(
            shown(url),
            "",
            f"the database cannot be used: {' '.join(str(error.orig).split())}",
            "Check that it runs, its address, and the user's rights.",
        ) from None
    finally:
        engine.dispose()


def _copy_database(database: str, scratch: Path) -> tuple[str, ChainCheck]:
    """Copy one state of the database into `scratch`; its schema, and its journal's head."""
    if not is_postgres(database):
        if not Path(database).is_file():
            raise InputError(database, "", "there is no database here", "Check --data.")
        copy_file(Path(database), scratch / FILE_MEMBER)
        engine = _reading(scratch / FILE_MEMBER)
        try:
            with engine.connect() as connection:
                return _read_state(connection)
        except DBAPIError as error:
            raise _wrong(Path(database), f"it cannot be read: {error.orig}") from None
        finally:
            engine.dispose()
    engine, url = _server(database)
    try:
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            # Our reading and pg_dump's are of one snapshot, so that both see the same journal.
            snapshot = connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()
            dump_server(database, scratch / DUMP_MEMBER, str(snapshot))
            return _read_state(connection)
    except DBAPIError as error:
        problem = f"the database cannot be used: {' '.join(str(error.orig).split())}"
        raise InputError(shown(url), "", problem, "Check its address and rights.") from None
    finally:
        engine.dispose()


def _server(database: str) -> tuple[Engine, URL]:
    url = postgres_url(database)
    try:
        return create_engine(url, poolclass=NullPool, connect_args=CONNECT), url
    except ModuleNotFoundError as missing:
        raise extra_missing(shown(url), str(missing.name)) from None


def _reading(file: Path) -> Engine:
    return create_engine("sqlite://", poolclass=NullPool, creator=lambda: sqlite3.connect(file))


def _read_state(connection: Connection) -> tuple[str, ChainCheck]:
    from alembic.migration import MigrationContext  # as in migrating.py: few daemons need it

    revision = MigrationContext.configure(connection).get_current_revision() or ""
    chain = journal.check_beginning(connection)
    more = chain.intact
    while more:  # ends with the table: each page begins after the last
        chain, more = journal.check_page(connection, chain)
    return revision, chain


def _compare_contents(manifest: Manifest, source: Path, revision: str, chain: ChainCheck) -> None:
    expected = (manifest.revision, manifest.journal_rows, manifest.journal_head)
    actual = (revision, chain.rows, chain.head)
    if actual != expected:
        raise _wrong(source, f"its journal ends at {actual[1:]}, its manifest says {expected[1:]}")


def _unseal(file: Path, sealed: Path, keys: Sealing) -> bytes:
    try:
        return keys.open(sealed.read_bytes(), _named(AUTHORITY_KEY))
    except StoreFailed as error:
        raise _wrong(file, str(error)) from None


def _named(what: str) -> str:
    """Return the name that a ciphertext of a backup is bound to: no row of a store has it."""
    return f"backup {what}"


def _prove(
    file: Path, archive: tarfile.TarFile, told: bytes, manifest: Manifest, keys: Sealing
) -> None:
    """Raise `InputError` unless one of the keys sealed the digest of this manifest."""
    if manifest.format == FORMATS[0]:
        raise InputError(
            str(file),
            "",
            "it is of an older version, which proved no backup: anybody may have made it",
            "Make a new backup; or, if you know where it was since, restore it with --unproved.",
        )
    try:
        digest = keys.open(_member(file, archive, PROOF).read(PROOF_MAX), _named(MANIFEST))
    except StoreFailed:
        problem = f"master key {manifest.key_id[:16]} has to prove it, and the key here does not"
        remedy = "Use the master key of that time; if it is that one, the backup was changed."
        raise InputError(str(file), "", problem, remedy) from None
    if digest != hashlib.sha256(told).digest():
        raise _wrong(file, "its manifest is not the one that was proved")


@contextmanager
def _opened(file: Path, keys: Sealing | None) -> Iterator[tuple[tarfile.TarFile, Manifest]]:
    try:
        with tarfile.open(file, "r:") as archive:
            first = archive.next()
            if first is None or first.name != MANIFEST or not 0 < first.size <= MANIFEST_SIZE_MAX:
                raise _wrong(file, "it does not begin with a manifest")
            content = archive.extractfile(first)
            assert content is not None, "a regular file"
            told = content.read(MANIFEST_SIZE_MAX)
            manifest = Manifest.model_validate_json(told)
            unknown = set(manifest.files) - {FILE_MEMBER, DUMP_MEMBER, SEALED, *LEARNT}
            if unknown or manifest.format not in FORMATS:
                raise _wrong(file, f"it has unknown parts: {sorted(unknown) or manifest.format}")
            if (FILE_MEMBER in manifest.files) == (DUMP_MEMBER in manifest.files):
                raise _wrong(file, "it has not exactly one database")
            if keys is not None:
                _prove(file, archive, told, manifest, keys)
            yield archive, manifest
    except (OSError, tarfile.TarError, ValidationError) as error:
        raise _wrong(file, " ".join(str(error).split())[:200]) from None


def _member(file: Path, archive: tarfile.TarFile, name: str) -> BufferedReader:
    try:
        member = archive.getmember(name)
    except KeyError:
        raise _wrong(file, f"{name} is missing") from None
    content = archive.extractfile(member) if member.isreg() else None
    if not isinstance(content, BufferedReader):
        raise _wrong(file, f"{name} is not a regular file")
    return content


def _extract(content: IO[bytes], target: Path) -> None:
    write_private(target, b"")
    with target.open("wb") as file:
        shutil.copyfileobj(content, file, CHUNK)


def _digest(file: Path) -> FileDigest:
    with file.open("rb") as content:
        return _digest_stream(content)


def _digest_stream(content: BufferedReader) -> FileDigest:
    digest = hashlib.file_digest(content, "sha256").hexdigest()
    return FileDigest(sha256=digest, size=content.seek(0, os.SEEK_END))


def _compare(file: Path, name: str, expected: FileDigest, actual: FileDigest) -> None:
    if actual != expected:
        raise _wrong(file, f"{name} is not as it was written")


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=".backup-", dir=directory))  # mkdtemp makes it 0700
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _wrong(file: Path, problem: str) -> InputError:
    return InputError(str(file), "", f"this backup cannot be used: {problem}", "Use another one.")
