"""Firmware files of an outside server, from which devices and the daemon pull.

A device gets an address only after the daemon has read the whole file there and verified it against
the matrix, and no longer once the server may have exchanged the file. Files that the daemon pushes
come out of the artifact directory, which is a cache of that server.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.model.agent import FileReading
from provisioner.model.outcome import Blocker
from provisioner.planning.watch import outside_files
from provisioner.ports import Clock, PortError
from provisioner.ports.agents import ArtifactServer
from provisioner.runtime.event_loop import end_tasks

ASK_MAX_S = 5.0  # for the server's present validators: a healthy server takes milliseconds
SIZE_MAX_BYTES = 64 * 1024**3  # images of operating systems have some 10 GB
FETCHES_MAX = 2  # files that are read at once: the network is there for devices
PART = ".fetch-"  # prefix of incomplete files; no file of the matrix has it (`judge.plain`)
LEFT_S = 24 * 3600.0  # older ones were left by a process that died; a fetch ends within 4 h


class OutsideArtifacts(Artifacts):
    """An artifact directory that is filled from `server`, where devices pull for themselves."""

    ask_max_s = 2 * ASK_MAX_S  # two addresses, of a card

    def __init__(self, directory: Path, server: ArtifactServer, clock: Clock) -> None:
        super().__init__(directory, server.url)
        self._server = server
        self._clock = clock
        self._seen: dict[str, FileReading] = {}
        self._flights: dict[tuple[str, str, bool], asyncio.Task[FileReading | Blocker]] = {}
        self._turns = asyncio.Semaphore(FETCHES_MAX)

    def pull_url(self, name: str) -> str:
        """Return where a device fetches a file that was offered before."""
        return self._server.address(name)

    async def takes_token(self, name: str) -> bool:
        """Return False: devices read there for themselves, and no slot can be filled."""
        return False

    async def carries_slot(self, name: str) -> bool | None:
        """Return False: an image on the outside server never gets a token."""
        return False

    async def resolve(self, name: str, sha256: str) -> Path | Blocker:
        """Return the verified local copy, fetched once for all concurrent callers."""
        if not outside_files.is_plain_name(name):
            return outside_files.make_unnamed_blocker(name)
        local = await super().resolve(name, sha256)
        if isinstance(local, Path):
            return local
        sight = await self._joined(name, sha256, keep=True)
        if isinstance(sight, Blocker):
            return sight
        if sha256 and sight.sha256 != sha256:
            return outside_files.make_wrong_content_blocker(
                name, self.pull_url(name), sight.sha256, sha256
            )
        return await super().resolve(name, sha256)

    async def offer_file(self, name: str, sha256: str) -> Blocker | None:
        """Return None if the outside server has exactly this file, and the file is here too."""
        here = await self.resolve(name, sha256)
        if isinstance(here, Blocker):
            return here
        digest = sha256 or self.digest(name)
        sight = await self._joined(name, digest, keep=False)
        if isinstance(sight, Blocker):
            return sight
        if sight.sha256 != digest:
            return outside_files.make_wrong_content_blocker(
                name, self.pull_url(name), sight.sha256, digest
            )
        return None

    async def renew_offer(self, name: str, sha256: str) -> Blocker | None:
        """Return None: a pull that is under way continues without any check by the daemon."""
        return None

    async def confirm_offer(
        self, name: str, sha256: str, *, doubled: bool = False
    ) -> Blocker | None:
        """Return whether an address may be given this moment: `offer` saw this, and it is still so.

        `doubled`: so it is at the address that a BlueField's BMC makes of it. To nginx that is the
        same file; to an object store it is another one, or none.
        """
        reading = self._seen.get(name)
        if reading is None or (sha256 and reading.sha256 != sha256):
            return outside_files.make_exchanged_blocker(name, self.pull_url(name))
        blocker = await self._changed(name, reading, doubled=False)
        if blocker is None and doubled:
            blocker = await self._changed(name, reading, doubled=True)
            return None if blocker is None else outside_files.as_a_card_asks(blocker)
        return blocker

    async def read_outside(self, name: str) -> FileReading | Blocker:
        """The file that the server has under this name, read whole if need be; it is not stored."""
        if not outside_files.is_plain_name(name):
            return outside_files.make_unnamed_blocker(name)
        return await self._joined(name, "", keep=False)

    def get_reading(self, name: str) -> FileReading | None:
        """Return the last complete reading of a file there; None: none since this start."""
        return self._seen.get(name)

    async def close(self) -> None:
        """Cancel the fetches that are under way and discard their partial files."""
        await end_tasks(*self._flights.values())

    async def _changed(self, name: str, seen: FileReading, *, doubled: bool) -> Blocker | None:
        """Return why a file at one of its addresses may differ from the one that was read."""
        address = self._server.address(name, doubled=doubled)
        try:
            now = await self._server.head(name, ASK_MAX_S, doubled=doubled)
        except PortError as error:
            return outside_files.make_withheld_blocker(name, error.reason, str(error))
        if now is None:
            return outside_files.make_absent_blocker(name, address)
        if not outside_files.is_still_valid(seen, now, self._clock.now()):
            return outside_files.make_exchanged_blocker(name, address)
        return None

    async def _joined(self, name: str, wanted: str, *, keep: bool) -> FileReading | Blocker:
        """Read a file at most once at a time: concurrent callers get the same answer."""
        key = (name, wanted, keep)
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(self._look(name, wanted, keep=keep))
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        return await asyncio.shield(flight)  # one that gives up does not stop the others

    async def _look(self, name: str, wanted: str, *, keep: bool) -> FileReading | Blocker:
        try:
            now = await self._server.head(name, ASK_MAX_S)
            if now is None:
                self._seen.pop(name, None)
                return outside_files.make_absent_blocker(name, self.pull_url(name))
            reading = self._seen.get(name)
            is_same = reading is not None and outside_files.is_same_file(reading.validators, now)
            # a file with a wrong digest is not fetched a second time
            if (
                reading is not None
                and is_same
                and (not keep or (wanted and reading.sha256 != wanted))
            ):
                return reading
            async with self._turns:
                return await self._read(name, wanted, keep=keep)
        except PortError as error:
            return outside_files.make_withheld_blocker(name, error.reason, str(error))
        except OSError as error:
            why = error.strerror or type(error).__name__
            return outside_files.make_copy_blocker(name, str(self.directory), why)

    async def _read(self, name: str, wanted: str, *, keep: bool) -> FileReading | Blocker:
        """Read the whole file, and store it if its digest is the expected one. Raises PortError,
        OSError.
        """
        digest = hashlib.sha256()
        part = await asyncio.to_thread(_Part, self.directory) if keep else None

        def add(piece: bytes) -> None:
            digest.update(piece)
            if part is not None:
                part.write(piece)

        async def take(piece: bytes) -> None:
            await asyncio.to_thread(add, piece)

        try:
            at = self._clock.now()  # before the first byte: nothing later was seen
            validators = await self._server.get(name, SIZE_MAX_BYTES, take)
            if validators is None:
                self._seen.pop(name, None)
                return outside_files.make_absent_blocker(name, self.pull_url(name))
            sight = FileReading(validators=validators, sha256=digest.hexdigest(), at=at)
            if part is not None and wanted in ("", sight.sha256):
                await asyncio.to_thread(part.keep_file, self.directory / name)
            self._seen[name] = sight
            return sight
        finally:
            if part is not None:
                part.discard_file()


class _Part:
    """A file on its way: under its name only when it is whole and on the disk."""

    def __init__(self, directory: Path) -> None:
        handle, path = tempfile.mkstemp(prefix=PART, dir=directory)
        self._path = Path(path)
        self._file = os.fdopen(handle, "wb")

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def keep_file(self, target: Path) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.chmod(0o644)  # as a file that a person puts there
        self._path.replace(target)
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def discard_file(self) -> None:
        """Remove a partial file that was not stored."""
        with suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)


def sweep_parts(directory: Path) -> int:
    """Remove what processes that died left half fetched; how many. Blocks."""
    count = 0
    now = time.time()
    for path in directory.glob(f"{PART}*"):
        with suppress(OSError):  # of another daemon's, which ends its own
            if now - path.stat().st_mtime > LEFT_S:
                path.unlink()
                count += 1
    return count
