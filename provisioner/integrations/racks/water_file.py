"""The file that keeps what is known of water in racks, written before anything is sent."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from pydantic import Field

from provisioner.integrations.racks.locks import hold_name
from provisioner.integrations.racks.plan import BYTES_MAX, parse_record, read_record
from provisioner.integrations.racks.water import UnitWater
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.runtime.shipped import read_text
from provisioner.runtime.whole_files import replace_file

BUILDING = "building:"  # before a rack's name: its own sensors
OLD_S = 30.0  # the building's file is written each 5 s
WAIT_S = 1.0
WAITS_MAX = 300  # a round over a rack takes some ten seconds, a slow one minutes


class HeldFile(InputError):
    """Somebody else holds the file now."""


class WaterFile(Record):
    """Units by name. `lost`: an earlier file was lost, so that of no other unit it is known."""

    units: Mapping[str, UnitWater] = Field(default={}, max_length=1 << 20)
    lost: bool = False


class BuildingPoint(Record):
    """What a sensor of the building says."""

    moisture: Moisture
    detail: str = Field(default="", max_length=400)


class IsolationTold(Record):
    """What was asked of the building for a rack, by kind in words, and whether it is isolated."""

    isolated: bool
    told: Mapping[str, str] = Field(default={}, max_length=8)


class BuildingFile(Record):
    """What the building says of its racks, at a time of our clock."""

    at: float
    racks: Mapping[str, Mapping[str, BuildingPoint]] = Field(default={}, max_length=1 << 16)
    isolation: Mapping[str, IsolationTold] = Field(default={}, max_length=1 << 16)


def _read_now(file: Path, now: float) -> BuildingFile | None:
    try:
        said = read_record(file, BuildingFile)
    except InputError:
        return None  # unread is unknown
    return said if 0 <= now - said.at <= OLD_S else None


def read_isolation(file: Path, rack: str, now: float) -> IsolationTold | None:
    """Return what is told of a rack's isolation; None where the file is silent, old or missing."""
    said = _read_now(file, now)
    return None if said is None else said.isolation.get(rack)


def read_building(file: Path, rack: str, now: float) -> tuple[LeakDetector, ...] | None:
    """Return the sensors of a rack; None where the file is silent, old, or not there."""
    said = _read_now(file, now)
    if said is None:
        return None
    return tuple(
        LeakDetector(slot=name, moisture=p.moisture, detail=p.detail, source=str(file))
        for name, p in said.racks.get(rack, {}).items()
    )


@contextlib.contextmanager
def open_water(file: Path) -> Iterator[WaterStore]:
    """Hold the file for one command; a second one is refused. Raises InputError."""
    lock = file.with_name(f".{file.name}.lock")
    busy = HeldFile("--water", str(file), "another command holds it", "Wait for its end.")
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(hold_name(lock, busy))
            os.ftruncate(held, 0)
            os.pwrite(held, _describe_holder().encode(), 0)
        except HeldFile:
            raise HeldFile("--water", str(file), _read_holder(lock), "Wait for its end.") from None
        except OSError as error:
            problem = f"it cannot be written ({error.strerror})"
            raise InputError("--water", str(file), problem, "Name a file in your folder.") from None
        mark = _mark(file)
        if file.exists():
            kept = _parse(file, read_text(file, BYTES_MAX))
        else:
            kept = WaterFile(lost=mark.exists())
        store = WaterStore(file, dict(kept.units), lost=kept.lost)
        try:
            yield store
        finally:
            store.close()


@functools.lru_cache(maxsize=1)
def _parse(file: Path, written: str) -> WaterFile:
    """Return what a file says: of many racks it has some MB, and it is opened each second."""
    return parse_record(file, written, WaterFile)


def _describe_holder() -> str:
    words = " ".join(sys.argv[1:3])  # "rack water": no file's name, and nothing secret
    at = time.strftime("%H:%M:%S UTC", time.gmtime())
    return f"process {os.getpid()} ({words[:60]}), since {at}"


def _read_holder(lock: Path) -> str:
    """Return who holds a file, as far as that can be told."""
    try:
        told = lock.read_bytes()[:200].decode()
    except (OSError, UnicodeDecodeError):
        told = ""
    return (
        f"another command holds it: {told}"
        if told.isprintable() and told
        else "another command holds it"
    )


@contextlib.asynccontextmanager
async def wait_for_water(
    file: Path,
    pause: Callable[[float], Awaitable[None]],
    say: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[WaterStore]:
    """Hold the file once nobody else does: the loops of one daemon, and a command. It waits some
    minutes at most, and loops that look at many racks give way to it. Raises InputError.
    """
    with contextlib.ExitStack() as waiting:
        queued = False
        for tries_left in reversed(range(WAITS_MAX)):
            try:
                held = open_water(file)
                store = held.__enter__()
                break
            except HeldFile as error:
                if not tries_left:
                    raise
                if tries_left == WAITS_MAX - 1:
                    say(f"{error} It is waited for, for {WAITS_MAX * WAIT_S:.0f} s at most.")
                with contextlib.suppress(HeldFile, OSError):  # another one waits already
                    if not queued:
                        waiting.enter_context(hold_name(_next(file), error))
                        queued = True
            await pause(WAIT_S)
    try:
        yield store
    finally:
        held.__exit__(None, None, None)


async def give_way(file: Path, pause: Callable[[float], Awaitable[None]]) -> None:
    """Wait while others wait for the file, who get it once all that hold it have ended."""
    for _ in range(WAITS_MAX):
        try:
            with hold_name(_next(file), HeldFile("--water", str(file), "it is wanted", "")):
                return
        except HeldFile:
            await pause(WAIT_S)
        except OSError:
            return


class SharedWater:
    """One hold of the file for all loops of a process, which look side by side."""

    def __init__(self) -> None:
        self._opening = asyncio.Lock()
        self._holders = 0
        self._held = contextlib.AsyncExitStack()
        self._store: WaterStore | None = None

    @contextlib.asynccontextmanager
    async def hold(
        self, file: Path, pause: Callable[[float], Awaitable[None]], *, at_once: bool = False
    ) -> AsyncIterator[WaterStore]:
        """Hold the file together with whoever has it here, unless another process waits for it;
        `at_once`: all the same. Raises InputError.
        """
        if not at_once:
            await give_way(file, pause)
        async with self._opening:
            if self._store is None:
                self._store = await self._held.enter_async_context(wait_for_water(file, pause))
            store = self._store
            self._holders += 1
        try:
            yield store
        finally:
            self._holders -= 1
            if not self._holders:
                self._store = None
                await self._held.aclose()


def _mark(file: Path) -> Path:
    """Return what says that a file was there: without it, that one was lost."""
    return file.with_name(f".{file.name}.kept")


def _next(file: Path) -> Path:
    """Return what is held by who waits for the file."""
    return file.with_name(f".{file.name}.next")


class WaterStore:
    """What is known, and the file behind it."""

    def __init__(self, file: Path, units: dict[str, UnitWater], *, lost: bool = False) -> None:
        self._file = file
        self.units = units
        self._lost = lost
        self._asked = 0  # how often it was to be written
        self._written = 0  # how many of those are on the disk
        self._filing = threading.Lock()  # one thread writes, and none once another may hold it
        self._closed = False

    def find(self, name: str) -> UnitWater:
        """Return what is known of a unit."""
        return self.units.get(name) or UnitWater(lost=self._lost)

    def save(self) -> None:
        """Write all of it; it is on the disk when this returns. Raises InputError."""
        self._asked += 1
        self._write(self._asked)

    async def keep(self, *, news: bool = True) -> None:
        """Do as `save`, beside the event loop; looks of some racks are written together. Without
        news it waits until all that was asked before is on the disk.
        """
        self._asked += news
        if self._asked > self._written:
            await asyncio.to_thread(self._write, self._asked)

    def close(self) -> None:
        """Wait for what is being written; nothing is any more."""
        with self._filing:
            self._closed = True

    def _write(self, number: int) -> None:
        with self._filing:
            if number <= self._written or self._closed:
                return  # a later one is on the disk, or whoever waited for it is gone
            number = self._asked  # read before the units: each asked once its own are there
            units = self.units.copy()  # at once: the loop's thread goes on to change it
            try:
                written = WaterFile(units=units, lost=self._lost).model_dump_json(indent=2) + "\n"
                replace_file(self._file, written, mode=0o666, lasting=True)
                if not (mark := _mark(self._file)).exists():
                    mark.touch()
            except OSError as error:
                problem = f"it cannot be written ({error.strerror})"
                raise InputError("--water", str(self._file), problem, "Make room.") from None
            self._written = number
