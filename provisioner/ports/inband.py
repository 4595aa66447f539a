"""What is done and asked inside a host: plays that change it, commands that read it.

A play outlives the daemon that began it; what became of it is asked with `recall`. A read is a
command over a kept connection: it costs milliseconds where a play costs CPU seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from provisioner.ports.wire import Secret


@dataclass(frozen=True)
class PlaybookCall:
    """One playbook on one host. The runner may batch calls of the same play into one process."""

    play: str  # "host_software", "nic_firmware", ...: a file in ansible/playbooks without ".yml"
    host: str  # node id
    address: str  # where to reach it
    variables: Mapping[str, Any]  # JSON, in which a string may be a `Secret`
    timeout_s: float

    @property
    def digest(self) -> str:
        """SHA-256 over the variables, without the secrets among them: it is kept in the store."""
        text = json.dumps(self.variables, sort_keys=True, default=_hidden)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class PlaybookResult:
    """How it ended on this host. `facts` is the one JSON fact that the play sets.

    "timeout" and "unknown": something may still be going on in the host, and must be looked at
    before anything is repeated. "unreachable": the host went away before or during the play.
    """

    status: str  # "ok" | "failed" | "unreachable" | "timeout" | "unknown"
    facts: Mapping[str, Any]
    detail: str = ""  # message of the failed task, for a person


class PlaybookRunner(Protocol):
    """Runs a playbook on a host; one host's failure never touches another's. Raises nothing."""

    async def run(self, call: PlaybookCall) -> PlaybookResult: ...

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        """What became of the same call that was made at `since` (seconds since the epoch) or later.

        Waits while its run is going on. None: it provably never began.
        """
        ...

    def progress(self) -> Mapping[str, str]:
        """What is done in which host now: node id -> play and task, for a person."""
        ...

    async def close(self) -> None:
        """Stop following; what runs goes on, and is found again by the next daemon."""
        ...


@dataclass(frozen=True)
class Run:
    """A playbook run as the store knows it: written before its process is started."""

    id: str
    play: str
    hosts: Mapping[str, str]  # node id -> digest of its variables
    folder: str
    started_at: float
    limit_s: float
    state: str = "open"  # "open" | "ended" | "lost" | "cancelled"
    ended_at: float = 0.0


class Runs(Protocol):
    """The rows of playbook runs, on disk when a method returns."""

    async def begin(self, run: Run) -> None: ...

    async def end(self, run_id: str, state: str, now: float) -> None: ...

    async def open(self) -> Sequence[Run]:
        """Every run whose end nobody has seen, oldest first."""
        ...

    async def elsewhere(self, host: str) -> float:
        """Until when runs of other daemons may work on a host, whose end nobody has seen; 0: none.

        A run is a process of its machine, and outlives its daemon there; nobody else can ask it.
        """
        ...

    async def since(self, host: str, at: float) -> Sequence[Run]:
        """Runs that touched a host and began at `at` or later, newest first."""
        ...

    async def ended_before(self, at: float) -> Sequence[Run]: ...

    async def forget(self, run_id: str) -> None: ...


@dataclass(frozen=True)
class Remote:
    """How hosts are logged in to. `connection` "local" is for the machine itself.

    `learn`: a host's key is pinned under its node's name when it is first seen, in `known_hosts`,
    which is then the daemon's own; otherwise only what is in that file is believed.
    """

    user: str = "provisioner"
    private_key: Path | None = None
    known_hosts: Path | None = None
    connection: str = "ssh"
    python: str = "/usr/bin/python3"
    learn: bool = False
    port: int = 22


@dataclass(frozen=True)
class ShellCommand:
    """One line for `sh -c`, run as root. It is ended on the host when its time is over."""

    name: str
    line: str
    timeout_s: float


@dataclass(frozen=True)
class ShellOutput:
    """What a command said. `exit_code` None: it did not end in time, or by a signal."""

    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool = False  # at the adapter's size limit


class HostShell(Protocol):
    """Commands on a host, one after the other; per host one caller at a time.

    Raises `PortError` subclasses only: `Unreachable` (maybe_executed if a command had been sent),
    `LoginRefused`, `CertificateChanged` for a host key that is not the pinned one.
    """

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]: ...

    async def forget(self, host: str, known: str = "") -> None:
        """Drop the connection and the pinned key: the host gets another system.

        `known`: the public key (OpenSSH's line) that we gave to that system; pinned at once.
        """
        ...

    async def close(self) -> None: ...


def _hidden(value: object) -> str:
    if isinstance(value, Secret):
        return "(secret)"
    raise TypeError(f"a variable is no JSON: {type(value).__name__}")
