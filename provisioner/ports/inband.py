"""Work inside of a host: plays that change it, and commands that read it.

A play outlives the daemon that began it; `recall` returns its result to the next daemon. A read is
a command over a connection that stays open: it costs milliseconds where a play costs CPU seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker
from provisioner.ports.wire import BmcAddress, Reply, Secret, SwitchAddress


@dataclass(frozen=True)
class PlaybookCall:
    """One playbook on one host. The runner may batch calls of the same play into one process."""

    play: str  # "host_software", "nic_firmware", ...: a file in ansible/playbooks without ".yml"
    host: str  # node id
    address: str  # IP address or name of the host
    variables: Mapping[str, Any]  # JSON, in which a string may be a `Secret`
    timeout_s: float

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the variables without the secrets among them; it is stored."""
        text = json.dumps(self.variables, sort_keys=True, default=_hidden)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class PlaybookResult:
    """The result of a play on one host. `facts` is the one JSON fact that the play sets.

    After "timeout" and "unknown" the play may still be running in the host, which must be checked
    before anything is repeated. "unreachable": the host went away before or during the play.
    """

    status: str  # "ok" | "failed" | "unreachable" | "timeout" | "unknown"
    facts: Mapping[str, Any]
    detail: str = ""  # message of the failed task, for a person


class PlaybookRunner(Protocol):
    """Runs a playbook on a host; one host's failure never affects another's. Raises nothing."""

    async def run(self, call: PlaybookCall) -> PlaybookResult: ...

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        """Return the result of the same call that was made at `since` (Unix seconds) or later.

        Waits while its run is going on. None: it provably never began.
        """
        ...

    def progress(self) -> Mapping[str, str]:
        """Return the present work by host, for people: node id -> play and task."""
        ...

    async def close(self) -> None:
        """Stop following runs; they continue, and the next daemon finds them again."""
        ...


@dataclass(frozen=True)
class Run:
    """A playbook run as stored; it is written before its process is started."""

    id: str
    play: str
    hosts: Mapping[str, str]  # node id -> digest of its variables
    folder: str
    started_at: float
    limit_s: float
    state: str = "open"  # "open" | "ended" | "lost" | "cancelled"
    ended_at: float = 0.0


class TaskOutput(NamedTuple):
    """One task of a play on one host, for people. `status`: "running" until it has ended."""

    task: str
    status: str  # running, ok, changed, skipped, failed or unreachable
    message: str
    began_at: float
    ended_at: float


class RunRepository(Protocol):
    """Stored playbook runs, on disk when a method returns."""

    async def begin(self, run: Run) -> None: ...

    async def end(self, run_id: str, state: str, now: float) -> None: ...

    async def list_open(self) -> Sequence[Run]:
        """Return every run whose end was not recorded, oldest first."""
        ...

    async def find_end_elsewhere(self, host: str) -> float:
        """Return until when runs of other daemons without a recorded end may work on a host; 0:
        none.

        A run is a process of its machine, and outlives its daemon there; other machines cannot
        query it.
        """
        ...

    async def list_since(self, host: str, at: float) -> Sequence[Run]:
        """Return the runs that touched a host and began at `at` or later, newest first."""
        ...

    async def list_ended_before(self, at: float) -> Sequence[Run]: ...

    async def forget(self, run_id: str) -> None: ...


@dataclass(frozen=True)
class Remote:
    """Login settings for hosts. `connection` "local" is for the machine itself.

    `learn`: a host's key is pinned under its node's name when it is first presented, in
    `known_hosts`, which is then the daemon's own file; otherwise only keys in that file are
    accepted.
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
    """One line for `sh -c`, run as root. It is ended on the host when its time is over.

    `sent`: its standard input, which no log has; a command line is in the log of sudo.
    """

    name: str
    line: str
    timeout_s: float
    sent: Secret | None = None


@dataclass(frozen=True)
class ShellOutput:
    """The output of a command. `exit_code` None: it did not end in time, or a signal ended it."""

    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool = False  # at the adapter's size limit, or by the end of the connection


class HostShell(Protocol):
    """Runs commands on a host, one after the other, with one caller at a time per host.

    Raises `PortError` subclasses only: `Unreachable` (maybe_executed if a command had been sent),
    `LoginRefused`, `CertificateChanged` for a host key that differs from the pinned one, and
    `HostKeyUnknown` where none is pinned or learned.
    """

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]: ...

    async def forget(self, host: str, known: str = "") -> None:
        """Drop the connection and the pinned key, because the host gets another system.

        `known`: the public key (an OpenSSH line) that the daemon gave to that system; it is pinned
        at once.
        """
        ...

    async def close(self) -> None: ...


def _hidden(value: object) -> str:
    if isinstance(value, Secret):
        return "(secret)"
    raise TypeError(f"a variable is no JSON: {type(value).__name__}")


# ------------------------------------------------------------------------------
# The read-only ports: what a daemon that only observes is composed of.
#
# None of these protocols has a method that changes a device. A method is there or it is not, so
# that the type checker proves it: code that holds a `BmcReads` cannot send a POST.


READING_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True)
class ReadCall:
    """One HTTP request that reads: it has no body, and no other method can be written down."""

    method: Literal["GET", "HEAD"]
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    size_max_bytes: int = 8 * 1024 * 1024
    known_s: float = 0.0


@dataclass(frozen=True)
class ReadCommand:
    """One line of the closed list of reading commands (`planning/intake/inband_facts.py`)."""

    name: str
    line: str
    timeout_s: float


class BmcReads(Protocol):
    """Readings of BMCs, as a logged-in client. Raises `PortError` subclasses only."""

    async def read(self, bmc: BmcAddress, call: ReadCall) -> Reply: ...

    async def fingerprint(self, bmc: BmcAddress) -> str:
        """Return the SHA-256 of the certificate that the BMC presents now."""
        ...

    async def password_change(self, bmc: BmcAddress) -> str | None:
        """Log in, and return the account whose password must change first; None: none."""
        ...

    async def forget(self, bmc: BmcAddress) -> None: ...

    async def close(self) -> None: ...


class SwitchWireReads(Protocol):
    """Readings of a switch's REST API. Raises `PortError` subclasses only."""

    async def read(self, switch: SwitchAddress, call: ReadCall) -> Reply: ...

    async def close(self) -> None: ...


class HostReads(Protocol):
    """Reading commands on hosts and switches. Raises `PortError` subclasses only."""

    async def read(
        self, host: str, address: str, commands: Sequence[ReadCommand]
    ) -> Sequence[ShellOutput]: ...

    async def close(self) -> None: ...


class OutletReads(Protocol):
    """Readings of the outlets of one power distribution unit."""

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        """Return the state that the unit reports now."""
        ...
