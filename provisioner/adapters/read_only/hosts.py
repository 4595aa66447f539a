"""The ports to hosts of a daemon that only observes: a closed list of commands, and no plays.

Maintenance agents have no readings: an agent lives in a ramdisk that the daemon booted, and one
that only observes boots none. Outlets are read and not switched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, cast

from provisioner.model.integrations.partition import FabricPartitions
from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker
from provisioner.model.storage import SpaceAct, SpaceState
from provisioner.model.tenant import Tenant
from provisioner.planning.intake.inband_facts import is_reading_command
from provisioner.ports import (
    BmcAddress,
    Call,
    FabricDelta,
    LookOnly,
    Member,
    PlaybookCall,
    PlaybookResult,
    Reply,
    Secret,
    ShellCommand,
    ShellOutput,
    SwitchAddress,
)
from provisioner.ports.agents import AgentAddress, AgentResult
from provisioner.ports.inband import (
    READING_METHODS,
    BmcReads,
    HostReads,
    OutletReads,
    ReadCall,
    ReadCommand,
    SwitchWireReads,
)
from provisioner.ports.isolation import PartitionReads
from provisioner.ports.storage import SpaceReads, get_trials
from provisioner.runtime import permit

# ------------------------------------------------------------------------------
# The refusal of an act while the daemon only observes.


def refuse_act(device: str, act: str) -> LookOnly:
    """Return the refusal of an act on a device, counted as withheld."""
    permit.count_withheld()
    return LookOnly(f"{device}: this daemon only observes, and would send: {act}"[:300])


# ------------------------------------------------------------------------------
# `Partitions` of a daemon that only observes: it holds readings of UFM alone.


class ReadOnlyPartitions:
    """Partitions over `PartitionReads`: no change has a method to leave by."""

    def __init__(self, reads: PartitionReads) -> None:
        self._reads = reads

    async def delta(self, tenants: Sequence[Tenant], only: Collection[str] = ()) -> FabricDelta:
        return await self._reads.delta(tenants, only)

    async def where(
        self, members: Sequence[Member], tenants: Sequence[Tenant]
    ) -> Mapping[Member, frozenset[str]] | Blocker:
        return await self._reads.where(members, tenants)

    async def read_members(
        self, tenants: Sequence[Tenant]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        return await self._reads.read_members(tenants)

    async def list_partitions(self, tenants: Sequence[Tenant]) -> FabricPartitions:
        return await self._reads.list_partitions(tenants)

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        raise refuse_act("UFM", "a change of its partitions")

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        raise refuse_act("UFM", f"a move of {len(members)} ports into the partition of {vrf}")

    async def close(self) -> None:
        await self._reads.close()


class ReadOnlySpaces:
    """`Spaces` over `SpaceReads`: no change has a method to leave by."""

    def __init__(self, reads: SpaceReads) -> None:
        self._reads = reads
        self.trials = get_trials(reads)

    async def read(self, spaces: Collection[str]) -> Mapping[str, SpaceState] | Blocker:
        return await self._reads.read(spaces)

    async def find_names(self, handles: Collection[str]) -> Mapping[str, str] | Blocker:
        return await self._reads.find_names(handles)

    async def find_admitting(
        self, addresses: Collection[str]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        return await self._reads.find_admitting(addresses)

    async def apply(self, act: SpaceAct) -> Blocker | None:
        raise refuse_act("storage", f"{act.verb} of space {act.space}")

    async def close(self) -> None:
        await self._reads.close()


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


# ------------------------------------------------------------------------------
# `BmcTransport` and `SwitchTransport` of a daemon that only observes: GET and HEAD.


def read_call(device: str, call: Call) -> ReadCall:
    """Return a call as a reading one. Raises `LookOnly` for a call that may change something."""
    if call.method not in READING_METHODS or call.body is not None:
        raise refuse_act(device, f"{call.method} {call.path}")
    return ReadCall(
        cast('Literal["GET", "HEAD"]', call.method),
        call.path,
        call.headers,
        call.timeout_s,
        call.size_max_bytes,
        call.known_s,
    )


class ReadOnlyBmcs:
    """`BmcTransport` over readings alone."""

    def __init__(self, reads: BmcReads) -> None:
        self._reads = reads

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        return await self._reads.read(bmc, read_call(bmc.url, call))

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._reads.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._reads.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._reads.forget(bmc)

    async def close(self) -> None:
        await self._reads.close()


class ReadOnlySwitchWire:
    """`SwitchTransport` over readings alone."""

    def __init__(self, reads: SwitchWireReads) -> None:
        self._reads = reads

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        return await self._reads.read(switch, read_call(switch.url, call))

    async def close(self) -> None:
        await self._reads.close()
