"""The agents that run in the maintenance ramdisk: which are up, and how to send them commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from provisioner.model.agent import AgentSession, Validators
from provisioner.model.base import Record
from provisioner.model.events.event import Event
from provisioner.model.integrations.audit_export import ConsoleLine
from provisioner.ports.inband import HostShell, PlaybookRunner
from provisioner.ports.store import Credentials
from provisioner.ports.wire import BmcAddress, Clock, Secret
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# The external server that has firmware files.


class ArtifactServer(Protocol):
    """Reads files by plain name. Both readers raise `PortError`, and return None if there is no
    such file.
    """

    url: str  # of the folder of the files, without a trailing slash

    def address(self, name: str, *, doubled: bool = False) -> str:
        """Return the URL at which a device fetches this file.

        `doubled`: with two slashes behind the host, as a BlueField's BMC needs
        (docs/sources/redfish.md#bf-uri).
        """
        ...

    async def head(
        self, name: str, timeout_s: float, *, doubled: bool = False
    ) -> Validators | None:
        """Return the validators that the server sends now, without reading the file."""
        ...

    async def get(
        self, name: str, size_max_bytes: int, take: Callable[[bytes], Awaitable[None]]
    ) -> Validators | None:
        """Read the whole file in pieces; return only after every byte has arrived.

        Exceptions of `take` are passed on unchanged.
        """
        ...


# ------------------------------------------------------------------------------
# The serial consoles of hosts: their streams, and the book of their lines.


class ConsoleDoor(Record):
    """The way to a BMC's console: SSH to a port, or to a command at its shell, or IPMI."""

    port: int
    command: str = ""  # of SSH; "": the port leads to the console itself
    protocol: Literal["ssh", "ipmi"] = "ssh"


class Consoles(Protocol):
    """Streams of consoles. Raises `PortError` subclasses only, also while reading."""

    def open(
        self, name: str, bmc: BmcAddress, door: ConsoleDoor
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Return the bytes that the console prints, until it ends; `name` pins the host key."""
        ...


class ConsoleBook(Protocol):
    """Lines of consoles by node, on disk when a method returns; bounded for each node."""

    async def append(self, node: str, lines: Sequence[str], at: float) -> None: ...

    async def list_lines(self, node: str, after: int, most: int) -> Sequence[ConsoleLine]:
        """Return the lines after a number; for `after` -1 the last ones."""
        ...

    async def prune(self, before: float) -> None:
        """Remove what was received before a time."""
        ...


@dataclass(frozen=True)
class AgentAddress:
    """An agent that sent a heartbeat: its URL, its certificate, and its token.

    `certificate` is the PEM that the agent itself sent in its heartbeat, over a connection with the
    right token; no other certificate is accepted from `url`.
    """

    node: str
    url: str  # "https://198.51.100.7:9999"
    certificate: str
    token: Secret
    version: str  # of ironic-python-agent
    seen_at: float  # last heartbeat


@dataclass(frozen=True)
class AgentResult:
    """The result of one agent command. `status` is ironic-python-agent's command_status."""

    status: str  # "SUCCEEDED" | "FAILED" | "CLEAN_VERSION_MISMATCH"
    result: Any = None
    error: str = ""  # for a person, bounded and printable


class Agents(Protocol):
    """The maintenance agents of all nodes. Raises `PortError` subclasses only.

    An agent gets answers only while its node is expected to boot, and only for its own MACs.
    """

    @property
    def lookup_gives_token(self) -> bool:
        """Return whether the first lookup gets the token of a boot whose image carries none."""
        ...

    async def expect(
        self, node: str, macs: Sequence[str], limit_s: float, *, through_boot: bool = False
    ) -> Secret | None:
        """Open the window for one boot; earlier agents of this node and their tokens become
        invalid.

        With `through_boot`, return the token of 64 characters, to be put into the image that this
        host boots; no lookup gets it. Without it, the first lookup gets the token where
        `lookup_gives_token` is true.
        """
        ...

    async def present(self, node: str) -> AgentAddress | None:
        """Return the agent of this node whose heartbeats are fresh, or None."""
        ...

    async def wait(self, node: str, timeout_s: float) -> AgentAddress | None:
        """Wait for the expected agent's heartbeat and return the agent; None after `timeout_s`."""
        ...

    async def dismiss(self, node: str) -> None:
        """Close the session of a node that leaves the ramdisk; its token becomes invalid."""
        ...

    async def command(
        self, agent: AgentAddress, name: str, parameters: Mapping[str, Any], timeout_s: float
    ) -> AgentResult:
        """Run one command ("clean.execute_clean_step") and wait for its end, by polling.

        If the answer to a command is lost, the agent's list of commands shows whether it arrived; a
        command is never sent twice.
        """
        ...

    async def recall(
        self, agent: AgentAddress, name: str, since: float, timeout_s: float
    ) -> AgentResult | None:
        """Return the result of the last command, if it is `name` and was sent at `since` or later.

        Waits for its end, and sends nothing. None: there is no such command, because another one
        was sent after it, or because it provably never arrived.
        """
        ...


class AgentRepository(Protocol):
    """Stored agent sessions, with which a restarted daemon continues."""

    async def list_sessions(self) -> Sequence[AgentSession]: ...

    async def put_session(self, session: AgentSession) -> None:
        """Replace the node's earlier session; on disk when this returns."""
        ...

    async def hand_out_token(self, session: AgentSession) -> bool:
        """Record that the session's token was issued; return False if another daemon issued it
        before.
        """
        ...

    async def change_session(self, node: str, changes: Mapping[str, object]) -> None:
        """Change fields of the node's session, regardless of other writers."""
        ...


class SimulatedSite(PlaybookRunner, Protocol):
    """A simulated site behind its control socket; its hosts and agents are closed with it."""

    async def get(self, path: str) -> Any:
        """Return what the simulator says of itself, such as "/clock"."""
        ...

    def build_shell(self) -> HostShell: ...

    def build_agents(
        self,
        rows: AgentRepository,
        credentials: Credentials,
        clock: Clock,
        settings: Settings,
        report: Callable[[Event, float], Awaitable[None]],
        new_token: Callable[[], str],
        *,
        shared: bool,
    ) -> Agents:
        """Return the site's agents. `shared`: several daemons drive it."""
        ...
