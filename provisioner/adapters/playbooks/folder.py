"""One run on disk: its request, its process, its events, and whether it has ended.

A lock that the run's own processes hold shows whether it lives: no process id can be mistaken for
another's. The file rc appears when the run came to its end by itself; without lock and rc it died.
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

from provisioner.adapters.playbooks.events import list_spellings, redact_secrets
from provisioner.adapters.playbooks.inventory import EVENTS, OUTPUT, PRINTED, read_secrets

READ_MAX = 1024 * 1024  # bytes of events read at once, so that no run holds the loop up
OUTPUT_MAX = 64 * 1024  # bytes stored of the output of the process itself
EVENTS_MAX = 256 * 1024 * 1024  # bytes; 50 hosts with 100 tasks write 2 MB


@dataclass(frozen=True)
class RunFolder:
    """`path` stays until it is pruned; `volatile` is in memory and goes when the run is over."""

    path: Path
    volatile: Path
    cgroup: str = ""

    @classmethod
    def create(cls, path: Path, volatile: Path, cgroup: str, asked: Mapping[str, Any]) -> RunFolder:
        """Make a new folder, whose lock is free. Raises OSError."""
        path.mkdir(mode=0o700, parents=True)
        request = {**asked, "volatile": str(volatile), "cgroup": cgroup}
        for name, text in (("lock", ""), ("request.json", json.dumps(request))):
            descriptor = os.open(path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        return cls(path, volatile, cgroup)

    @classmethod
    def find(cls, path: Path) -> RunFolder | None:
        """Return a predecessor's folder; None: it is missing, or was not finished."""
        try:
            request = json.loads((path / "request.json").read_text(encoding="utf-8"))
            return cls(path, Path(request["volatile"]), str(request["cgroup"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def control(self) -> str:
        """Return the folder of this run's ssh sockets."""
        return str(self.volatile / "control")

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock while the process starts and inherits it: at no moment is it free."""
        descriptor = os.open(self.path / "lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)

    def has_finished(self) -> bool:
        """Return whether the run came to its end by itself."""
        return (self.path / "rc").exists()

    def is_alive(self) -> bool:
        """Return whether a process of the run holds the lock."""
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
        """Return the events from `offset` on, at most READ_MAX bytes."""
        if offset > EVENTS_MAX:
            return b""
        for folder in (self.volatile, self.path):
            with contextlib.suppress(OSError), (folder / EVENTS).open("rb") as file:
                file.seek(offset)
                return file.read(READ_MAX)
        return b""

    def output(self) -> str:
        """Return Ansible's output, and after it that of ansible-runner, which runs quietly."""
        parts = [self.volatile / PRINTED, self.volatile / OUTPUT]
        texts = [_beginning(p) for p in (parts if self.volatile.is_dir() else [self.path / OUTPUT])]
        return "".join(texts)[:OUTPUT_MAX]

    def secrets(self) -> list[str]:
        """Return the secrets that must not be stored with its output."""
        return read_secrets(self.volatile)

    def settle(self) -> None:
        """Close the folder of a run that has ended: store its output without secrets.

        May be repeated at any point.
        """
        if self.volatile.is_dir() and self.path.is_dir():
            spelled = list_spellings(self.secrets())
            events = _beginning(self.volatile / EVENTS, EVENTS_MAX)
            _replace(self.path / EVENTS, redact_secrets(events, spelled))
            # printed text wraps and quotes freely: a secret in it may not be recognised
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
