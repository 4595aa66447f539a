"""The ports to hosts and their outlets behind the gate of capabilities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from provisioner.model.adoption.capability import Capability
from provisioner.model.location import OutletState
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.planning.intake.reading_commands import is_reading_command
from provisioner.planning.release.capabilities import find_need_of_play
from provisioner.ports import (
    Agents,
    HostShell,
    PlaybookCall,
    PlaybookResult,
    PlaybookRunner,
    Secret,
    ShellCommand,
    ShellOutput,
)
from provisioner.ports.agents import AgentAddress, AgentResult
from provisioner.ports.power import Pdu
from provisioner.runtime import permit
from provisioner.runtime.capability_gate import CapabilityGate, Need


@asynccontextmanager
async def admit_act(
    gate: CapabilityGate, nodes: Sequence[Node], capability: Capability, act: str
) -> AsyncIterator[None]:
    """Within the block, an act on these adopted nodes may leave. Raises `NotGranted`."""
    needs = [Need(node, capability, act) for node in nodes]
    await gate.admit(needs)
    with gate.guard(needs):
        yield


async def list_named(gate: CapabilityGate, *names: str) -> Sequence[Node]:
    """Return the adopted nodes that have one of these names or in-band addresses."""
    return [n for n in await gate.list_guarded() if n.id in names or n.address in names]


class GrantedShell:
    """`HostShell`: commands of the closed list are readings, every other one is an act."""

    def __init__(self, shell: HostShell, gate: CapabilityGate) -> None:
        self._shell = shell
        self._gate = gate

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        nodes = await list_named(self._gate, host, address)
        if nodes and all(is_reading_command(c.line) for c in commands):
            with permit.allow_reads():
                return await self._shell.run(host, address, commands)
        act = ", ".join(c.name for c in commands)
        async with admit_act(self._gate, nodes, Capability.CERTIFICATION, f"run {act}"):
            return await self._shell.run(host, address, commands)

    async def forget(self, host: str, known: str = "") -> None:
        await self._shell.forget(host, known)

    async def close(self) -> None:
        await self._shell.close()


class GrantedRunner:
    """`PlaybookRunner` that raises `NotGranted` for a play on an adopted node without a grant."""

    def __init__(self, runner: PlaybookRunner, gate: CapabilityGate) -> None:
        self._runner = runner
        self._gate = gate

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        nodes = await list_named(self._gate, call.host, call.address)
        need = find_need_of_play(call.play)
        async with admit_act(self._gate, nodes, need, f"run the play {call.play}"):
            return await self._runner.run(call)

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        return await self._runner.recall(call, since)

    def progress(self) -> Mapping[str, str]:
        """Return the present task of each host's play."""
        return self._runner.progress()

    async def close(self) -> None:
        await self._runner.close()


class GrantedAgents:
    """`Agents`: a boot into the maintenance image, and each command of an agent, is an act."""

    def __init__(self, agents: Agents, gate: CapabilityGate) -> None:
        self._agents = agents
        self._gate = gate

    @property
    def lookup_gives_token(self) -> bool:
        """Return whether the first lookup gets the token of a boot whose image carries none."""
        return self._agents.lookup_gives_token

    async def expect(
        self, node: str, macs: Sequence[str], limit_s: float, *, through_boot: bool = False
    ) -> Secret | None:
        nodes = await list_named(self._gate, node)
        act = "boot the maintenance image"
        async with admit_act(self._gate, nodes, Capability.CERTIFICATION, act):
            return await self._agents.expect(node, macs, limit_s, through_boot=through_boot)

    async def present(self, node: str) -> AgentAddress | None:
        return await self._agents.present(node)

    async def wait(self, node: str, timeout_s: float) -> AgentAddress | None:
        return await self._agents.wait(node, timeout_s)

    async def dismiss(self, node: str) -> None:
        await self._agents.dismiss(node)

    async def command(
        self, agent: AgentAddress, name: str, parameters: Mapping[str, Any], timeout_s: float
    ) -> AgentResult:
        nodes = await list_named(self._gate, agent.node)
        act = f"send the agent's command {name}"
        async with admit_act(self._gate, nodes, Capability.CERTIFICATION, act):
            return await self._agents.command(agent, name, parameters, timeout_s)

    async def recall(
        self, agent: AgentAddress, name: str, since: float, timeout_s: float
    ) -> AgentResult | None:
        return await self._agents.recall(agent, name, since, timeout_s)


class GrantedPdu:
    """`Pdu`: switching an outlet is an act on every adopted node that it feeds."""

    def __init__(self, name: str, pdu: Pdu, gate: CapabilityGate) -> None:
        self._name = name
        self._pdu = pdu
        self._gate = gate

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        return await self._pdu.read_outlet(outlet)

    async def switch_outlet(self, outlet: str, *, on: bool) -> Blocker | None:
        nodes = [
            n
            for n in await self._gate.list_guarded()
            if any(o.pdu == self._name and o.outlet == outlet for o in n.outlets)
        ]
        act = f"switch outlet {self._name}/{outlet} {'on' if on else 'off'}"
        async with admit_act(self._gate, nodes, Capability.FIRMWARE, act):
            return await self._pdu.switch_outlet(outlet, on=on)
