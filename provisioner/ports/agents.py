"""The agent that runs in the maintenance ramdisk: who is up, and commands to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from provisioner.model.agent import AgentSession
from provisioner.ports.wire import Secret


@dataclass(frozen=True)
class AgentAddress:
    """An agent that phoned home: where it listens, what it proves itself by, what it wants of us.

    `certificate` is the PEM that the agent itself sent in its heartbeat, over a connection whose
    token was right; nothing else is accepted from `url`.
    """

    node: str
    url: str  # "https://198.51.100.7:9999"
    certificate: str
    token: Secret
    version: str  # of ironic-python-agent
    seen_at: float  # last heartbeat


@dataclass(frozen=True)
class AgentResult:
    """How one agent command ended. `status` is ironic-python-agent's command_status."""

    status: str  # "SUCCEEDED" | "FAILED" | "CLEAN_VERSION_MISMATCH"
    result: Any = None
    error: str = ""  # for a person, bounded and printable


class Agents(Protocol):
    """The maintenance agents of all nodes. Raises `PortError` subclasses only.

    An agent is answered only while its node is expected to boot, and only for its own MACs.
    """

    async def expect(
        self, node: str, macs: Sequence[str], limit_s: float, *, through_boot: bool = False
    ) -> Secret | None:
        """Open the window for one boot: earlier agents of this node are forgotten, tokens too.

        `through_boot`: the token of 64 characters is returned, to be put into the image that this
        host boots; a lookup gives it to no one. Else the first lookup gets it.
        """
        ...

    async def present(self, node: str) -> AgentAddress | None:
        """The agent of this node whose heartbeats are fresh, or None."""
        ...

    async def wait(self, node: str, timeout_s: float) -> AgentAddress | None:
        """Until the expected agent has phoned home; None: it did not in time."""
        ...

    async def dismiss(self, node: str) -> None:
        """The node leaves the ramdisk: its token is worth nothing from now on."""
        ...

    async def command(
        self, agent: AgentAddress, name: str, parameters: Mapping[str, Any], timeout_s: float
    ) -> AgentResult:
        """Run one command ("clean.execute_clean_step") and wait for its end, by polling.

        A command that was sent and whose answer was lost is found again by asking for the list
        of commands; it is never sent twice by itself.
        """
        ...

    async def recall(
        self, agent: AgentAddress, name: str, since: float, timeout_s: float
    ) -> AgentResult | None:
        """How the last command ended, if it is `name` and was sent at `since` or later.

        Waits for its end, and sends nothing. None: there is no such command, as after another one
        was sent, or it provably never arrived.
        """
        ...


class AgentRows(Protocol):
    """What is kept of agents, so that a daemon that starts again goes on with them."""

    async def agent_sessions(self) -> Sequence[AgentSession]:
        """The last session of every node that had one."""
        ...

    async def put_agent_session(self, session: AgentSession) -> None:
        """Take the place of the node's earlier session; on disk when this returns."""
        ...

    async def hand_out_agent_token(self, session: AgentSession) -> bool:
        """Keep that its token was handed out; False if another daemon did so before."""
        ...

    async def change_agent_session(self, node: str, changes: Mapping[str, object]) -> None:
        """Change fields of the node's session, whoever else writes it."""
        ...
