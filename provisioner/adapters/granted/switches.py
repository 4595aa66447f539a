"""`Switches` and `SwitchPasswords` behind the gate of capabilities.

A change of a switch concerns the switch itself, if it is adopted, and the adopted hosts whose ports
or networks it touches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from provisioner.adapters.granted.hosts import admit_act, list_named
from provisioner.adapters.read_only.switches import ReadOnlySwitch
from provisioner.model.adoption.capability import Capability
from provisioner.model.node import Node
from provisioner.model.switch import Move, PortChange
from provisioner.model.tenant_network import MARK, NetworkChange
from provisioner.ports import Clock, Secret, SwitchAddress, SwitchPasswords
from provisioner.ports.switch import ServiceChange, Switch, Switches, SwitchFacts, Turn
from provisioner.runtime.permit import CapabilityGate, Need
from provisioner.settings import Settings


class GrantedSwitches:
    """`Switches` whose every switch is behind the gate."""

    def __init__(self, switches: Switches, gate: CapabilityGate) -> None:
        self._switches = switches
        self._gate = gate

    def open(self, name: str, address: SwitchAddress, clock: Clock, settings: Settings) -> Switch:
        """Return the switch at an address. Raises `SwitchRefused`."""
        return GrantedSwitch(name, self._switches.open(name, address, clock, settings), self._gate)

    def get_facts(self, system: str, url: str) -> SwitchFacts | None:
        return self._switches.get_facts(system, url)

    async def close(self) -> None:
        await self._switches.close()


class GrantedSwitch(ReadOnlySwitch):
    """`Switch` whose acts are those of this class alone; every other one is refused."""

    def __init__(self, name: str, switch: Switch, gate: CapabilityGate) -> None:
        super().__init__(name, switch)
        self._switch = switch
        self._gate = gate

    async def install_image(self, url: str, file_name: str, turn: Turn, limit_s: float) -> None:
        async with self._admit(Capability.FIRMWARE, f"install {file_name}"):
            await self._switch.install_image(url, file_name, turn, limit_s)

    async def choose_other_image(self, turn: Turn, limit_s: float) -> None:
        async with self._admit(Capability.FIRMWARE, "choose the other image"):
            await self._switch.choose_other_image(turn, limit_s)

    async def reboot(self, turn: Turn) -> None:
        async with self._admit(Capability.FIRMWARE, "reboot", await self._list_cabled()):
            await self._switch.reboot(turn)

    async def set_drain(self, *, on: bool) -> str:
        act = "drain" if on else "end the drain"
        async with self._admit(Capability.FIRMWARE, act, await self._list_cabled()):
            return await self._switch.set_drain(on=on)

    async def apply_change(self, change: PortChange) -> str:
        adopted = await self._gate.list_guarded()
        needs = [
            Need(node, Capability.ISOLATION, f"{_describe_move(move)} on {self._name}")
            for move in change.moves
            for node in adopted
            if any((p.switch, p.interface) == (self._name, move.interface) for p in node.ports)
        ]
        await self._gate.admit(needs)
        own = [
            Need(node, Capability.ISOLATION, "change its ports")
            for node in await list_named(self._gate, self._name)
        ]
        await self._gate.admit(own)
        with self._gate.guard([*needs, *own]):
            return await self._switch.apply_change(change)

    async def save_configuration(self) -> None:
        async with self._admit(Capability.ISOLATION, "save the configuration"):
            await self._switch.save_configuration()

    async def apply_services(self, change: ServiceChange) -> str:
        async with self._admit(Capability.ISOLATION, "change its time, syslog and logins"):
            return await self._switch.apply_services(change)

    async def set_password(self, username: str, new: Secret) -> str:
        async with self._admit(Capability.CREDENTIALS, "change its password"):
            return await self._switch.set_password(username, new)

    async def apply_networks(self, change: NetworkChange) -> str:
        touched = {*change.vrfs, *change.removed_vrfs, *change.site_imports}
        touched |= {guard.vrf for guard in change.bound.values()}
        # a VRF's name has no "_", which ends it in the names of its filters
        filters = (*change.filters, *change.removed_filters)
        touched |= {name.removeprefix(MARK).partition("_")[0] for name in filters}
        members = [n for n in await self._list_cabled() if n.vrf in touched]
        act = f"on {self._name}: networks {', '.join(sorted(touched))}"
        async with self._admit(Capability.ISOLATION, act, members):
            return await self._switch.apply_networks(change)

    @asynccontextmanager
    async def _admit(
        self, capability: Capability, act: str, hosts: Sequence[Node] = ()
    ) -> AsyncIterator[None]:
        own = await list_named(self._gate, self._name)
        async with admit_act(self._gate, (*hosts, *own), capability, act):
            yield

    async def _list_cabled(self) -> list[Node]:
        adopted = await self._gate.list_guarded()
        return [n for n in adopted if any(p.switch == self._name for p in n.ports)]


class GrantedSwitchPasswords:
    """`SwitchPasswords`: an adopted switch keeps its password until that is granted."""

    def __init__(self, passwords: SwitchPasswords, gate: CapabilityGate) -> None:
        self._passwords = passwords
        self._gate = gate

    async def change(
        self, switch: str, address: str, username: str, old: Secret, new: Secret
    ) -> None:
        nodes = await list_named(self._gate, switch)
        async with admit_act(self._gate, nodes, Capability.CREDENTIALS, "change its password"):
            await self._passwords.change(switch, address, username, old, new)


def _describe_move(move: Move) -> str:
    if move.denied:
        return f"let nothing through {move.interface}"
    return f"move {move.interface} into {move.vrf}" if move.vrf else f"filter {move.interface}"
