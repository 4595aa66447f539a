"""The daemon's directory: made with 0700, and held by one process at a time, as is its database.

The embedded engine is made single by these locks (design, "Durable state"): two daemons on one file
would each resume the other's operations. The lock of the directory keeps its other files for one
process; the lock of the database is on the file itself, so that it holds under every name that
leads to it (a hard link, a symbolic link, another mount).
"""

from __future__ import annotations

import base64
import fcntl
import os
import stat
import uuid
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from pydantic import TypeAdapter, ValidationError

from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.runtime.whole_files import replace_file, sync_directory, write_private

LOCK_FILE = "lock"
PLACE_FILE = "place"


class DataLock:
    """Held until `release` or until the process ends, however it ends: the kernel lets go of it."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory = directory
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let another daemon in. A second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> DataLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lock_data_directory(path: str | Path, program: str = "") -> DataLock:
    """Make the directory if there is none, and hold it; `program` is shown to `read_holder`.

    Raises `InputError` if it cannot be made or written, if others may write in it, or if another
    daemon holds it.
    """
    directory = Path(path)
    prepare_directory(directory)
    lock_file = directory / LOCK_FILE
    descriptor = _open_lock(lock_file, os.O_CREAT | os.O_NOFOLLOW)
    if not _take(descriptor):
        holder = _parse_holder(descriptor).process
        os.close(descriptor)
        raise InputError(
            str(directory),
            "",
            f"another daemon (process {holder}) uses this data directory",
            "Stop it first, or give this one a directory of its own.",
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {program}".strip().encode() + b"\n", 0)
    return DataLock(directory, descriptor)


class Holder(NamedTuple):
    """The process that holds a directory, and the digest of its code; "" where it shows none."""

    process: str
    program: str


def read_holder(directory: Path) -> Holder | None:
    """Return who holds the directory now; None: nothing does."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_open(directory / LOCK_FILE, error) from None
    try:
        return None if _take(descriptor) else _parse_holder(descriptor)
    finally:
        os.close(descriptor)


def _parse_holder(descriptor: int) -> Holder:
    shown = os.pread(descriptor, 128, 0).decode("ascii", "replace").split()
    return Holder(*[*shown, "", ""][:2]) if shown else Holder("unknown", "")


def lock_database(file: Path) -> DataLock:
    """Hold the database's file itself, made if there is none; it is opened while this is held.

    SQLite's own locks are of another kind (fcntl) and do not meet this one (flock). Closing any
    descriptor of the file would drop SQLite's, so this is released after the database is closed.

    Raises `InputError` if another process holds it, under whichever name.
    """
    prepare_directory(file.parent)
    try:
        if not file.exists():
            write_private(file, b"")
    except OSError as error:
        raise _cannot_open(file, error) from None
    descriptor = _open_lock(file)
    if not _take(descriptor):
        os.close(descriptor)
        raise InputError(
            str(file),
            "",
            "another daemon serves this very database, under another name",
            f"Stop it first; `fuser {file}` names its process.",
        )
    return DataLock(file.parent, descriptor)


def _open_lock(file: Path, flags: int = 0) -> int:
    """A descriptor that a playbook's process, which may outlive us, does not inherit (PEP 446)."""
    try:
        return os.open(file, os.O_RDWR | flags, 0o600)
    except OSError as error:
        raise _cannot_open(file, error) from None


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _cannot_open(file: Path, error: OSError) -> InputError:
    return InputError(
        str(file), "", f"cannot be opened ({error.strerror})", "Check owner and mode."
    )


def place_of(directory: Path) -> str:
    """The name of this very directory, made once: it distinguishes daemons on one database."""
    file = directory / PLACE_FILE
    if not file.exists():
        write_private(file, f"{uuid.uuid4().hex}\n".encode())
    return file.read_text(encoding="ascii").strip()


def prepare_directory(directory: Path) -> None:
    """Make the directory with 0700, or check the existing one; `InputError` names the problem."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = directory.stat().st_mode
    except OSError as error:
        raise InputError(
            str(directory), "", f"cannot be made ({error.strerror})", "Choose another directory."
        ) from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise InputError(
            str(directory),
            "",
            f"others may write in it (mode {stat.S_IMODE(mode):04o})",
            f"Run: chmod 0700 {directory}",
        )


def check_private(path: Path) -> None:
    """Check that a file with secrets or state is for its owner only; `InputError` otherwise."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InputError(
            str(path), "", f"others may use it (mode {mode:04o})", f"Run: chmod 0600 {path}"
        )


def remove_secret(file: Path) -> None:
    """Overwrite a file and remove it. A drive may keep copies of blocks nevertheless."""
    if not file.exists():
        return
    with file.open("r+b") as stream:
        stream.write(b"\0" * file.stat().st_size)
        stream.flush()
        os.fsync(stream.fileno())
    file.unlink()
    sync_directory(file.parent)


# ------------------------------------------------------------------------------
# A secret file, sealed under the master key. It has one ciphertext for each key that may be in
# force: one, or two while the key of the environment is exchanged, so that a death in between
# leaves a file that opens with either.


AUTHORITY_KEY = "agent-ca.key"  # in clear: of older versions, and of a backup of such
SEALED_MAX = 64 * 1024  # bytes of the file
_TEXTS = TypeAdapter(dict[str, str])  # id of a master key -> ciphertext, base64


class SealingKey(Protocol):
    """A master key, which seals bytes under a name."""

    @property
    def id(self) -> str: ...

    def seal(self, plain: bytes, name: str) -> bytes: ...


class Sealing(Protocol):
    """One master key, or two while one is exchanged."""

    def newest(self) -> SealingKey: ...

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return what was sealed under this name; `StoreFailed` if it does not open."""
        ...


class SealedFile:
    """The key of the agents' authority of one data directory, sealed under the master key."""

    def __init__(self, directory: Path, keys: Sealing) -> None:
        self.path = directory / f"{AUTHORITY_KEY}.sealed"
        self._keys = keys

    def read(self) -> bytes | None:
        """Return the secret; None if there is no file. Raises `InputError` if no key opens it."""
        texts = self._read_texts()
        if texts is None:
            return None
        self._keys.newest()  # a ring looks at its files
        for text in texts.values():
            try:
                return self._keys.open(base64.b64decode(text), self.path.name)
            except (StoreFailed, ValueError):
                continue
        problem = f"is sealed with master key {' or '.join(sorted(texts))[:80]}, not with ours"
        remedy = "Restore that master key, or this file from a backup of the present one."
        raise InputError(str(self.path), "", problem, remedy)

    def write(self, plain: bytes, *more: SealingKey) -> None:
        """Seal the secret with the key in force, and with `more` keys; read it back."""
        keys = (self._keys.newest(), *more)
        texts = {key.id: base64.b64encode(key.seal(plain, self.path.name)).decode() for key in keys}
        replace_file(self.path, _TEXTS.dump_json(texts, indent=1) + b"\n", lasting=True)
        kept = self.read()
        assert kept == plain

    def renew(self, *more: SealingKey) -> None:
        """Seal it with the key in force alone, and with `more`; without a file nothing is done."""
        texts = self._read_texts()
        wanted = {key.id for key in (self._keys.newest(), *more)}
        if texts is not None and set(texts) != wanted:
            plain = self.read()
            assert plain is not None
            self.write(plain, *more)

    def _read_texts(self) -> dict[str, str] | None:
        try:
            check_private(self.path)
            with self.path.open("rb") as stream:
                return _TEXTS.validate_json(stream.read(SEALED_MAX))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            remedy = "Restore it; or delete it and agent-ca.pem, and build the image anew."
            raise InputError(str(self.path), "", "cannot be read", remedy) from None
