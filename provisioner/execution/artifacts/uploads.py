"""Uploads into the artifact store: received beside it, compared, and published whole or not at all.

Rule: a file appears under its name only after every byte is on the disk with the digest that was
announced, and never in place of another file. A broken upload leaves only a name that no
device is ever given.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import stat as stat_bits
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.whole_files import sync_directory

PART = ".upload-"
PART_NAME = re.compile(r"\.upload-[0-9a-f]{32}")
CHUNK_BYTES = 1024 * 1024
FREE_KEPT_BYTES = 1 << 30  # of the disk, for everything else that is on it
AT_ONCE_MAX = 2  # uploads of one process; more only share the disk's speed
CHUNK_S = 30.0  # a client that sends nothing for so long is gone
WHOLE_S = 4 * 3600.0  # 64 GiB at 5 MB/s
_SECTOR = 512
_ISO_AT = 32769  # of "CD001", ECMA-119 section 8.1.2


class UploadFailed(Exception):
    """The bytes are not published. `word` is that of the problem."""

    def __init__(self, status: int, word: str, title: str, unblock: str) -> None:
        super().__init__(title)
        self.status = status
        self.word = word
        self.title = title
        self.unblock = unblock


@dataclass(frozen=True)
class StoreFile:
    """A regular file of the store, as its directory has it."""

    name: str
    size_bytes: int
    modified_ns: int
    format: str  # qcow2, gzip, iso, raw (it begins as a disk does) or other


@dataclass
class Uploads:
    """The uploads of one process that are under way: name -> announced bytes."""

    sizes: dict[str, int] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change of the store at a time

    @contextmanager
    def hold(self, name: str, size_bytes: int) -> Iterator[None]:
        """Hold a name until its upload ends. Raises UploadFailed where it cannot begin now."""
        if name in self.sizes:
            unblock = "Wait for its end, or for 30 s after the client of the other went away."
            raise UploadFailed(409, "uploading", "This name is being uploaded", unblock)
        if len(self.sizes) >= AT_ONCE_MAX:
            unblock = "Wait for the end of one of them."
            raise UploadFailed(503, "busy", f"{AT_ONCE_MAX} uploads are under way", unblock)
        self.sizes[name] = size_bytes
        try:
            yield
        finally:
            del self.sizes[name]


def find_obstacle(
    directory: Path, size_bytes: int, most_bytes: int, promised_bytes: int = 0
) -> UploadFailed | None:
    """Return why a file of this size is not taken now; None: it is. Reads the disk.

    `promised_bytes`: of other uploads that are under way.
    """
    if size_bytes > most_bytes:
        unblock = "Put it into the directory by hand, or raise `api_upload_max_bytes`."
        return UploadFailed(413, "size", f"At most {most_bytes} bytes are taken", unblock)
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return _refuse_directory(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        return _refuse_directory(directory)
    room = free - promised_bytes - FREE_KEPT_BYTES
    if size_bytes > room:
        title = f"The store has room for {max(room, 0)} bytes more"
        return UploadFailed(507, "room", title, "Remove images that nothing refers to.")
    return None


def _refuse_directory(directory: Path) -> UploadFailed:
    unblock = (
        "Name a directory that the daemon's user may write with --artifacts "
        "(docs/artifacts.md#uploads), or put files there by hand."
    )
    return UploadFailed(409, "read_only", f"{directory} cannot be written", unblock)


async def receive_file(
    directory: Path, size_bytes: int, sha256: str, chunks: AsyncIterator[bytes]
) -> str:
    """Write the bytes to a file beside the others and return its name, once they are verified.

    Raises UploadFailed for other bytes than announced, a client that stops, and a full disk.
    """
    part = directory / f"{PART}{secrets.token_hex(16)}"
    try:
        async with asyncio.timeout(WHOLE_S):
            digest, length = await _write_chunks(part, size_bytes, chunks)
        if (length, digest) != (size_bytes, sha256):
            title = "These are not the bytes that were announced"
            if length != size_bytes:
                title = f"{length} of {size_bytes} bytes came"
            unblock = "Nothing was stored. Compute the digest of the file again, then send it anew."
            raise UploadFailed(400, "digest", title, unblock)
    except TimeoutError:
        _drop(part)
        raise UploadFailed(408, "slow", "The file did not come", "Send it anew.") from None
    except OSError as error:
        _drop(part)
        title = f"It cannot be written ({error.strerror or error})"
        raise UploadFailed(507, "room", title, "Make room in the artifact directory.") from None
    except BaseException:  # also a client that went away: its handler is cancelled
        _drop(part)
        raise
    return part.name


async def _write_chunks(
    part: Path, size_bytes: int, chunks: AsyncIterator[bytes]
) -> tuple[str, int]:
    """Return digest and length of the received bytes, now on the disk; stops behind the size."""
    digest = hashlib.sha256()
    length = 0
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640)
    try:
        while length <= size_bytes:
            try:
                async with asyncio.timeout(CHUNK_S):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                break
            length += len(chunk)
            await asyncio.to_thread(_take, descriptor, digest, chunk)
        await asyncio.to_thread(os.fsync, descriptor)
    finally:
        os.close(descriptor)
    return digest.hexdigest(), length


def _take(descriptor: int, digest: hashlib._Hash, chunk: bytes) -> None:
    digest.update(chunk)
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def publish_part(directory: Path, part: str, name: str, sha256: str) -> bool | Blocker:
    """Give a received file its name; False: the same bytes had it before. Blocks.

    Anything else under that name stays as it is, and is returned as the blocker.
    """
    assert PART_NAME.fullmatch(part), "the daemon made this name"
    source = directory / part
    target = directory / name
    try:
        os.link(source, target, follow_symlinks=False)  # fails where the name is taken
    except FileExistsError:
        if target.is_symlink() or not target.is_file() or hash_file(target) != sha256:
            return build_blocker(
                name,
                "another file has this name",
                "Files do not change under their name: upload it under a new one.",
            )
        return False
    except OSError as error:
        detail = f"it cannot be published ({error.strerror or error})"
        return build_blocker(name, detail, "Upload it again.")
    sync_directory(directory)
    return True


def drop_part(directory: Path, part: str) -> None:
    """Remove a received file by the name that `receive_file` gave it."""
    if PART_NAME.fullmatch(part):
        _drop(directory / part)


def sweep_parts(directory: Path, older_s: float) -> None:
    """Remove the files of uploads that ended long ago unpublished. Blocks."""
    for path in directory.glob(f"{PART}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > older_s:
                path.unlink()


def remove_file(directory: Path, name: str) -> Blocker | None:
    """Remove a file of the store; None also where there is none. Blocks."""
    try:
        (directory / name).unlink(missing_ok=True)
        sync_directory(directory)
    except OSError as error:
        detail = f"it cannot be removed ({error.strerror or error})"
        return build_blocker(name, detail, "Remove it by hand.")
    return None


def list_files(directory: Path, name_pattern: str) -> list[StoreFile]:
    """Return the files of the store whose names fit, by name; none without a directory. Blocks."""
    try:
        names = sorted(p.name for p in directory.iterdir() if re.fullmatch(name_pattern, p.name))
    except OSError:
        return []
    read = (read_file(directory, name) for name in names)
    return [file for file in read if file is not None]


def read_file(directory: Path, name: str) -> StoreFile | None:
    """Return a regular file of the store; None if there is none of this name. Blocks."""
    path = directory / name
    try:
        status = path.stat()
        if not stat_bits.S_ISREG(status.st_mode):
            return None
        form = _find_format(path)
    except OSError:
        return None
    return StoreFile(name, status.st_size, status.st_mtime_ns, form)


def _find_format(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(_SECTOR)
        file.seek(_ISO_AT)
        volume = file.read(5)
    if start.startswith(b"QFI\xfb"):
        return "qcow2"
    if start.startswith(b"\x1f\x8b"):
        return "gzip"
    if volume == b"CD001":
        return "iso"
    return "raw" if start[510:512] == b"\x55\xaa" else "other"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file. Blocks for as long as the disk takes to read it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _drop(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def build_blocker(name: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.PRECONDITION, subject=name, detail=detail, unblock=unblock)
