"""The journal of a rack's update: what was begun, sent and seen, each line before it counts.

A line counts from `write` on, and is on the disk when the next `sync` returns: nothing is sent in
between. A line that a crash cut off is the last one, and was never acted upon; any other damaged
line stops the update: what was sent is not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provisioner.model.input_error import InputError
from provisioner.runtime.whole_files import sync_directory

LINES_MAX = 400_000  # a whole rack writes a thousand, and a campaign may have 256 of them
BYTES_MAX = 128 * 2**20
LOCK_TRIES = 20  # a daemon that looks whether a command is at work has it for a moment
LOCK_EACH_S = 0.05
BEGAN = "began"
TOLD = "told"
NOTED = "noted"
VOID = "void"  # an answer that says: nothing was executed


@dataclass(frozen=True)
class Line:
    """One line. `what`: a step of the executor, or a write, its answer, or a note of an act."""

    key: str  # of the act
    kind: str  # "step", BEGAN, TOLD or NOTED
    what: str
    at: float
    detail: str = ""


class UpdateLog:
    """All lines of a journal, by act."""

    def __init__(self, lines: Sequence[Line], descriptor: int) -> None:
        self._acts: dict[str, list[Line]] = {}
        self._begun = 0
        self._descriptor = descriptor
        self._waiting: list[bytes] = []  # written, and not in the file yet
        self._filing = threading.Lock()  # one thread writes, and none behind a closed descriptor
        self.take(lines)

    def take(self, lines: Sequence[Line]) -> None:
        """Count lines that are in the file already."""
        for line in lines:
            self._acts.setdefault(line.key, []).append(line)
            self._begun += line.kind == BEGAN

    def write(self, line: Line) -> None:
        """Append a line, for `sync` to bring to the disk."""
        self._waiting.append(json.dumps(asdict(line)).encode() + b"\n")
        self.take([line])

    async def sync(self) -> None:
        """Return once each line is on the disk; others run meanwhile. Raises OSError, and after
        that always: behind a cut line another one would be damage in the middle.
        """
        if self._waiting or self._descriptor < 0:
            await asyncio.to_thread(self._file)

    def _file(self) -> None:
        with self._filing:
            count = len(self._waiting)
            written = b"".join(self._waiting[:count])
            try:
                if os.write(self._descriptor, written) != len(written):
                    raise OSError(errno.ENOSPC, "a line of the journal was cut")
                os.fsync(self._descriptor)
            except OSError:
                self._close()
                raise
            del self._waiting[:count]

    def close(self) -> None:
        """Close the file, whose number may soon be another's: nothing is written any more."""
        with self._filing:
            self._close()

    def _close(self) -> None:
        held = self._descriptor
        self._descriptor = -1
        if held >= 0:
            os.close(held)

    def list_keys(self) -> Sequence[str]:
        return tuple(self._acts)

    def of(self, key: str) -> ActLog:
        return ActLog(self._acts.get(key, ()))

    def count_begun(self) -> int:
        """Return how many writes were begun, whatever became of them."""
        return self._begun

    def steps(self) -> Iterator[tuple[str, str]]:
        """Yield each act with each step of the executor, in order."""
        for key, lines in self._acts.items():
            yield from ((key, line.what) for line in lines if line.kind == "step")


class ActLog:
    """What one act has done so far."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def count(self, what: str) -> int:
        """Return how often a write was begun; one that surely was not executed counts not."""
        own = [one for one in self._lines if one.what == what]
        void = sum(one.kind == TOLD and one.detail == VOID for one in own)
        return sum(one.kind == BEGAN for one in own) - void

    def has_begun(self) -> bool:
        """Return whether any write was begun that may have been executed."""
        return any(self.count(one.what) for one in self._lines if one.kind == BEGAN)

    def since(self, what: str, now: float) -> float:
        """Return the seconds since a write was last begun; time in which all rested counts not."""
        begun = self._last(BEGAN, what)
        cleared = self._last(NOTED, "cleared")
        if begun is None:
            return 0.0
        return now - max(begun.at, cleared.at if cleared is not None else 0.0)

    def find_last(self) -> Line | None:
        """Return the last write that was begun, or the act's own begin."""
        own = (one for one in reversed(self._lines) if one.kind in (BEGAN, "step"))
        return next(own, None)

    def told(self, what: str) -> str | None:
        """Return the answer to the last write of this name; None: it is not known."""
        begun = self._last(BEGAN, what)
        told = self._last(TOLD, what)
        if begun is None or told is None or not self._is_after(told, begun):
            return None
        return told.detail

    def read_step_detail(self) -> str:
        """Return what the last step of the act says beside itself."""
        last = next((one for one in reversed(self._lines) if one.kind == "step"), None)
        return "" if last is None else last.detail

    def detail(self, what: str) -> str:
        """Return what was seen just before the last write of this name."""
        begun = self._last(BEGAN, what)
        return begun.detail if begun is not None else ""

    def noted(self, note: str, after: str = "") -> bool:
        """Return whether a note was taken, after the last write of this name."""
        last = self._last(NOTED, note)
        begun = self._last(BEGAN, after) if after else None
        return last is not None and (begun is None or self._is_after(last, begun))

    def last_note(self, notes: Sequence[str]) -> str:
        """Return which of these notes was taken last, "" for none."""
        own = (one.what for one in reversed(self._lines) if one.kind == NOTED and one.what in notes)
        return next(own, "")

    def note(self, note: str) -> str:
        """Return the detail of the last note of this name, "" for none."""
        last = self._last(NOTED, note)
        return last.detail if last is not None else ""

    def _last(self, kind: str, what: str) -> Line | None:
        found = (one for one in reversed(self._lines) if one.kind == kind and one.what == what)
        return next(found, None)

    def _is_after(self, one: Line, other: Line) -> bool:
        places = {id(line): n for n, line in enumerate(self._lines)}
        return places[id(one)] > places[id(other)]


@contextlib.contextmanager
def open_log(file: Path, mode: int = 0o600) -> Iterator[UpdateLog]:
    """Hold a journal for one update; a second one is refused. Raises InputError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    held = -1
    try:
        held = os.open(file, flags, mode)
        now = stat.S_IMODE(os.fstat(held).st_mode)
        if mode & ~now:
            os.fchmod(held, now | mode)  # the umask took it
    except OSError as error:
        if held >= 0:
            os.close(held)
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--journal", str(file), problem, "Name a file in your folder.") from None
    log = UpdateLog((), held)
    try:
        _lock(file, held)
        sync_directory(file.parent)  # else its name may be gone after a crash, and all sent again
        log.take(_read(file, held))
        yield log
    finally:
        log.close()


def _lock(file: Path, held: int) -> None:
    for left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if left == 0:
                problem = "another update holds it"
                raise InputError("--journal", str(file), problem, "Wait for its end.") from None
            time.sleep(LOCK_EACH_S)
        else:
            return


@contextlib.asynccontextmanager
async def hold_log(file: Path) -> AsyncIterator[UpdateLog]:
    """Hold a journal as `open_log` does; it is read beside the event loop. Raises InputError."""
    held = open_log(file)
    log = await asyncio.to_thread(held.__enter__)
    try:
        yield log
    finally:
        held.__exit__(None, None, None)


def read_log(file: Path) -> UpdateLog:
    """Return what a journal says, which another may be writing. Raises InputError."""
    try:
        held = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return UpdateLog((), -1)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError("journal", str(file), problem, "Check its permissions.") from None
    try:
        return UpdateLog(_read(file, held, repair=False), -1)
    finally:
        os.close(held)


def _read(file: Path, held: int, *, repair: bool = True) -> Sequence[Line]:
    if os.fstat(held).st_size > BYTES_MAX:
        raise InputError("--journal", str(file), "it is too large", "Name the right file.")
    content = file.read_bytes()
    whole, _, torn = content.rpartition(b"\n")
    if torn and repair:  # a crash cut it off: nothing was done after it
        os.ftruncate(held, len(content) - len(torn))
    lines = whole.split(b"\n") if whole else []
    if len(lines) > LINES_MAX:
        raise InputError("--journal", str(file), "it has too many lines", "Name the right file.")
    return [_parse(file, number, line) for number, line in enumerate(lines)]


def _parse(file: Path, number: int, line: bytes) -> Line:
    try:
        read: dict[str, Any] = json.loads(line)
        texts = {name: read[name] for name in ("key", "kind", "what", "detail")}
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("no text")
        return Line(at=float(read["at"]), **texts)
    except (ValueError, KeyError, TypeError, RecursionError):
        remedy = "Look at each unit; begin anew with another file once you know what was sent."
        problem = f"line {number + 1} is damaged"
        raise InputError("--journal", str(file), problem, remedy) from None
