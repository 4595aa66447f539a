"""The ports to hosts and their outlets behind the gate of capabilities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from provisioner.adapters.read_only.hosts import ReadOnlyPartitions, ReadOnlySpaces
from provisioner.model.adoption.capability import Capability
from provisioner.model.inventory import Inventory
from provisioner.model.location import OutletState
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateRow
from provisioner.model.storage import SpaceAct
from provisioner.model.tenant import Tenant
from provisioner.planning.intake.inband_facts import is_reading_command
from provisioner.planning.release.adoption import (
    GRANT_REMEDY,
    find_need_of_play,
    find_need_of_request,
)
from provisioner.ports import (
    Agents,
    BmcAddress,
    BmcTransport,
    Call,
    FabricDelta,
    HostShell,
    Member,
    NotGranted,
    PlaybookCall,
    PlaybookResult,
    PlaybookRunner,
    Reply,
    Secret,
    ShellCommand,
    ShellOutput,
)
from provisioner.ports.agents import AgentAddress, AgentResult
from provisioner.ports.inband import READING_METHODS
from provisioner.ports.isolation import Drift, Membership, Partitions, Pdu
from provisioner.ports.storage import Spaces
from provisioner.runtime import permit
from provisioner.runtime.permit import CapabilityGate, Need


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


# ------------------------------------------------------------------------------
# `Partitions` behind the gate of capabilities: GUIDs of adopted nodes move only where granted.
#
# A move concerns the adopted nodes that have one of its GUIDs. Partitions are made empty and
# deleted empty, which concerns the adopted nodes whose tenant's they are.


class GrantedPartitions(ReadOnlyPartitions):
    """`Partitions` whose every change passes the gate; a refusal is a blocker, as of a device."""

    def __init__(self, partitions: Partitions, gate: CapabilityGate) -> None:
        super().__init__(partitions)
        self._partitions = partitions
        self._gate = gate

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        nodes = [n for n in await self._gate.list_guarded() if n.vrf in delta.networks]
        act = f"partitions: {'; '.join(line for step in delta.steps for line in step.lines)}"
        try:
            async with admit_act(self._gate, nodes, Capability.ISOLATION, act[:300]):
                return await self._partitions.bring(delta)
        except NotGranted as refused:
            return (_refuse("partitions", refused),)

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        guids = {member.name for member in members}
        nodes = [n for n in await self._gate.list_guarded() if _has(n, guids)]
        act = f"move {len(guids)} InfiniBand ports into the partition of {vrf}"
        try:
            async with admit_act(self._gate, nodes, Capability.ISOLATION, act):
                return await self._partitions.place(members, vrf, tenants)
        except NotGranted as refused:
            return (_refuse(nodes[0].id, refused),)


class GrantedSpaces(ReadOnlySpaces):
    """`Spaces` whose every change passes the gate, for the nodes whose network it belongs to."""

    def __init__(
        self, spaces: Spaces, gate: CapabilityGate, name_space: Callable[[str], str]
    ) -> None:
        """`name_space` returns what a tenant's space is called."""
        super().__init__(spaces)
        self._spaces = spaces
        self._gate = gate
        self._name_space = name_space

    async def apply(self, act: SpaceAct) -> Blocker | None:
        guarded = await self._gate.list_guarded()
        nodes = [n for n in guarded if n.tenant and act.space == self._name_space(n.tenant)]
        words = f"storage: {act.verb} of space {act.space}"
        try:
            async with admit_act(self._gate, nodes, Capability.ISOLATION, words):
                return await self._spaces.apply(act)
        except NotGranted as refused:
            return _refuse(f"storage/{act.space}", refused)


class GrantedMembership:
    """`Membership` whose every change passes the gate, for the node that it is about."""

    def __init__(self, membership: Membership, gate: CapabilityGate) -> None:
        self._membership = membership
        self._gate = gate
        self.name = membership.name
        self.check = membership.check

    async def concerns(self, node: Node, seen: Inventory | None) -> bool:
        return await self._membership.concerns(node, seen)

    async def admit(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        return await self._change(node, partial(self._membership.admit, node, nodes, seen))

    async def expel(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[Blocker, ...]:
        return await self._change(node, partial(self._membership.expel, node, nodes, seen))

    async def judge(
        self, node: Node, nodes: Sequence[Node], seen: Inventory | None
    ) -> tuple[GateRow, ...]:
        return await self._membership.judge(node, nodes, seen)

    async def find_drift(
        self, nodes: Sequence[Node], admitted: Callable[[Node], Awaitable[bool]]
    ) -> Mapping[str, Drift] | None:
        return await self._membership.find_drift(nodes, admitted)

    async def _change(
        self, node: Node, change: Callable[[], Awaitable[tuple[Blocker, ...]]]
    ) -> tuple[Blocker, ...]:
        guarded = [one for one in await self._gate.list_guarded() if one.id == node.id]
        words = f"{self.name}: its membership"
        try:
            async with admit_act(self._gate, guarded, Capability.ISOLATION, words):
                return await change()
        except NotGranted as refused:
            return (_refuse(node.id, refused),)


def _has(node: Node, guids: Collection[str]) -> bool:
    return any(port.guid in guids for port in node.ports if port.guid)


def _refuse(subject: str, refused: NotGranted) -> Blocker:
    return Blocker(
        reason=refused.reason, subject=subject, detail=str(refused)[:400], unblock=GRANT_REMEDY
    )


# ------------------------------------------------------------------------------
# `BmcTransport` behind the gate of capabilities.


class GrantedBmcs:
    """Requests that change a BMC of an adopted node need the capability of their path."""

    def __init__(self, transport: BmcTransport, gate: CapabilityGate) -> None:
        self._transport = transport
        self._gate = gate

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.method in READING_METHODS:
            return await self._transport.request(bmc, call)
        need = find_need_of_request(call.path)
        url = bmc.url.rstrip("/").lower()
        needs = [
            Need(node, need, f"{call.method} {call.path}")
            for node in await self._gate.list_guarded()
            if any(b.url.rstrip("/").lower() == url for b in node.bmcs)
        ]
        await self._gate.admit(needs)
        with self._gate.guard(needs):
            return await self._transport.request(bmc, call)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._transport.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._transport.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._transport.forget(bmc)

    async def close(self) -> None:
        await self._transport.close()
