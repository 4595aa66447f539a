"""The read-only ports: what a daemon that only observes is composed of.

None of these protocols has a method that changes a device. A method is there or it is not, so that
the type checker proves it: code that holds a `BmcReads` cannot send a POST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker
from provisioner.ports.inband import ShellOutput
from provisioner.ports.wire import BmcAddress, Reply, SwitchAddress

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
    """One line of the closed list of reading commands (`planning/intake/reading_commands.py`)."""

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

    async def forget(self, bmc: BmcAddress) -> None:
        """Log out and drop the cached data of this BMC."""
        ...

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
