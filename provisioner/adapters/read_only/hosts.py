"""The ports to hosts of a daemon that only observes: a closed list of commands, and no plays.

Maintenance agents have no readings: an agent lives in a ramdisk that the daemon booted, and one
that only observes boots none. Outlets are read and not switched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.adapters.read_only.refusals import refuse_act
from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker
from provisioner.planning.intake.reading_commands import is_reading_command
from provisioner.ports import PlaybookCall, PlaybookResult, Secret, ShellCommand, ShellOutput
from provisioner.ports.agents import AgentAddress, AgentResult
from provisioner.ports.reading import HostReads, OutletReads, ReadCommand


class ReadOnlyShell:
    """`HostShell` that runs commands of the closed list alone."""

    def __init__(self, reads: HostReads) -> None:
        self._reads = reads

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        for command in commands:
            if not is_reading_command(command.line):
                raise refuse_act(host, f"the command {command.name}")
        listed = [ReadCommand(c.name, c.line, c.timeout_s) for c in commands]
        return await self._reads.read(host, address, listed)

    async def forget(self, host: str, known: str = "") -> None:
        raise refuse_act(host, "a new host key")

    async def close(self) -> None:
        await self._reads.close()


class NoPlays:
    """`PlaybookRunner` that runs no play: plays change hosts."""

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        return PlaybookResult("failed", {}, str(refuse_act(call.host, f"the play {call.play}")))

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        return None

    def progress(self) -> Mapping[str, str]:
        """Return nothing: no play runs."""
        return {}

    async def close(self) -> None:
        return None


class NoAgents:
    """`Agents` that expects none and sends none a command."""

    @property
    def lookup_gives_token(self) -> bool:
        """Return False: no lookup is answered."""
        return False

    async def expect(
        self, node: str, macs: Sequence[str], limit_s: float, *, through_boot: bool = False
    ) -> Secret | None:
        raise refuse_act(node, "a boot into the maintenance image")

    async def present(self, node: str) -> AgentAddress | None:
        return None

    async def wait(self, node: str, timeout_s: float) -> AgentAddress | None:
        return None

    async def dismiss(self, node: str) -> None:
        return None

    async def command(
        self, agent: AgentAddress, name: str, parameters: Mapping[str, Any], timeout_s: float
    ) -> AgentResult:
        raise refuse_act(agent.node, f"the agent's command {name}")

    async def recall(
        self, agent: AgentAddress, name: str, since: float, timeout_s: float
    ) -> AgentResult | None:
        return None


class ReadOnlyPdu:
    """`Pdu` whose outlets are read."""

    def __init__(self, name: str, reads: OutletReads) -> None:
        self._name = name
        self._reads = reads

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        return await self._reads.read_outlet(outlet)

    async def switch_outlet(self, outlet: str, *, on: bool) -> Blocker | None:
        raise refuse_act(self._name, f"outlet {outlet} {'on' if on else 'off'}")
