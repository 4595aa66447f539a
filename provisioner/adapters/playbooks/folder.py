"""One run on disk: what was asked, who runs it, what it said, and whether it is over.

A lock that the run's own processes hold tells whether it lives: no process id can be mistaken for
another's. rc appears when the run came to its end by itself; neither: it died.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.adapters.playbooks.events import redacted, spellings
from provisioner.adapters.playbooks.inventory import EVENTS, OUTPUT, PRINTED, read_secrets

READ_MAX = 1024 * 1024  # bytes of events read at once, so that no run holds the loop up
OUTPUT_MAX = 64 * 1024  # bytes kept of what the process itself printed
EVENTS_MAX = 256 * 1024 * 1024  # bytes; 50 hosts with 100 tasks write 2 MB


@dataclass(frozen=True)
class RunFolder:
    """`path` stays until it is pruned; `volatile` is in memory and goes when the run is over."""

    path: Path
    volatile: Path
    cgroup: str = ""

    @classmethod
    def create(cls, path: Path, volatile: Path, cgroup: str, asked: Mapping[str, Any]) -> RunFolder:
        """A new folder whose lock nobody holds yet. Raises OSError."""
        path.mkdir(mode=0o700, parents=True)
        request = {**asked, "volatile": str(volatile), "cgroup": cgroup}
        for name, text in (("lock", ""), ("request.json", json.dumps(request))):
            descriptor = os.open(path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        return cls(path, volatile, cgroup)

    @classmethod
    def find(cls, path: Path) -> RunFolder | None:
        """A predecessor's folder; None: it is not there, or was not finished."""
        try:
            request = json.loads((path / "request.json").read_text(encoding="utf-8"))
            return cls(path, Path(request["volatile"]), str(request["cgroup"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def control(self) -> str:
        """Where this run's ssh sockets are."""
        return str(self.volatile / "control")

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Held while the process is started, which inherits it: no moment is without a holder."""
        descriptor = os.open(self.path / "lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)

    def finished(self) -> bool:
        """Whether it came to its end by itself."""
        return (self.path / "rc").exists()

    def alive(self) -> bool:
        """Whether a process of it holds the lock."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def events(self, offset: int) -> bytes:
        """What it said from `offset` on, at most READ_MAX bytes."""
        if offset > EVENTS_MAX:
            return b""
        for folder in (self.volatile, self.path):
            with contextlib.suppress(OSError), (folder / EVENTS).open("rb") as file:
                file.seek(offset)
                return file.read(READ_MAX)
        return b""

    def output(self) -> str:
        """What Ansible printed, and after it ansible-runner itself, which runs quietly."""
        told = [self.volatile / PRINTED, self.volatile / OUTPUT]
        texts = [_beginning(p) for p in (told if self.volatile.is_dir() else [self.path / OUTPUT])]
        return "".join(texts)[:OUTPUT_MAX]

    def secrets(self) -> list[str]:
        """What must not be kept of its output."""
        return read_secrets(self.volatile)

    def settle(self) -> None:
        """The run is over and nothing of it lives: keep what it said, without secrets.

        May be repeated at any point.
        """
        if self.volatile.is_dir() and self.path.is_dir():
            spelled = spellings(self.secrets())
            events = _beginning(self.volatile / EVENTS, EVENTS_MAX)
            _replace(self.path / EVENTS, redacted(events, spelled))
            # what is printed wraps and quotes as it likes: a secret in it may not be recognised
            _replace(self.path / OUTPUT, "" if spelled else self.output())
        shutil.rmtree(self.volatile, ignore_errors=True)


def remove(path: Path, work: Path) -> None:
    """Delete an old run's folder; nothing outside of the work directory, whatever a row says."""
    if path.parent == work and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)


def _beginning(path: Path, size_max: int = OUTPUT_MAX) -> str:
    try:
        with path.open("rb") as file:
            return file.read(size_max).decode("utf-8", "replace")
    except OSError:
        return ""


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)
