"""`Switches` of a daemon that only observes: each switch over `SwitchReads`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.adapters.read_only.hosts import refuse_act
from provisioner.model.host_filter import FilterState, SeenFilter
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Bond
from provisioner.model.recovery import LeafState
from provisioner.model.switch import (
    BondsRead,
    Images,
    LoginCheck,
    Place,
    Platform,
    PortChange,
    PortCounters,
    Surroundings,
    SwitchServices,
    TenantPort,
    TenantRouting,
    Wellness,
)
from provisioner.model.tenant_network import NetworkChange, NetworkState
from provisioner.ports import Clock, LookOnly, Secret, SwitchAddress
from provisioner.ports.switch import ServiceChange, Switch, Switches, SwitchFacts, SwitchReads, Turn
from provisioner.settings import Settings


class ReadOnlySwitches:
    def __init__(self, switches: Switches) -> None:
        self._switches = switches

    def open(self, name: str, address: SwitchAddress, clock: Clock, settings: Settings) -> Switch:
        """Return the switch at an address, read only. Raises `SwitchRefused`."""
        return ReadOnlySwitch(name, self._switches.open(name, address, clock, settings))

    def get_facts(self, system: str, url: str) -> SwitchFacts | None:
        return self._switches.get_facts(system, url)

    async def close(self) -> None:
        await self._switches.close()


class ReadOnlySwitch:
    """`Switch` over readings alone: it holds nothing that could change the switch."""

    def __init__(self, name: str, reads: SwitchReads) -> None:
        self._name = name
        self._reads = reads

    @property
    def facts(self) -> SwitchFacts:
        return self._reads.facts

    def _refuse(self, act: str) -> LookOnly:
        return refuse_act(self._name, act.replace("_", " "))

    async def read_images(self) -> Images:
        return await self._reads.read_images()

    async def read_platform(self) -> Platform:
        return await self._reads.read_platform()

    async def read_places(
        self, interfaces: Sequence[str], *, saved: bool = True
    ) -> Mapping[str, frozenset[Place]]:
        return await self._reads.read_places(interfaces, saved=saved)

    async def read_tenant_ports(self, site_vrfs: Collection[str]) -> Mapping[str, TenantPort]:
        return await self._reads.read_tenant_ports(site_vrfs)

    async def read_descriptions(self) -> Mapping[str, str]:
        return await self._reads.read_descriptions()

    async def read_routes(self) -> Mapping[str, tuple[str, ...]]:
        return await self._reads.read_routes()

    async def read_filter(self, source: str) -> SeenFilter | None:
        return await self._reads.read_filter(source)

    async def read_filter_state(self) -> FilterState:
        return await self._reads.read_filter_state()

    async def read_services(self, source: str) -> SwitchServices:
        return await self._reads.read_services(source)

    async def is_saved(self) -> bool:
        return await self._reads.is_saved()

    async def check_login(self) -> LoginCheck:
        return await self._reads.check_login()

    async def is_drained(self) -> bool:
        return await self._reads.is_drained()

    async def read_wellness(self) -> Wellness:
        return await self._reads.read_wellness()

    async def read_sessions(self) -> frozenset[str]:
        return await self._reads.read_sessions()

    async def read_health_report(self, limit_s: float, size_max_bytes: int) -> tuple[str, int, str]:
        return await self._reads.read_health_report(limit_s, size_max_bytes)

    async def read_carriers(self) -> tuple[str, ...]:
        return await self._reads.read_carriers()

    async def read_counters(self, interface: str) -> PortCounters:
        return await self._reads.read_counters(interface)

    async def read_link(self, interface: str) -> LinkReading:
        return await self._reads.read_link(interface)

    async def read_neighbours(self, interface: str) -> frozenset[tuple[str, str]]:
        return await self._reads.read_neighbours(interface)

    async def read_surroundings(self) -> Surroundings:
        return await self._reads.read_surroundings()

    async def read_bonds(self, bonds: Mapping[str, Bond]) -> BondsRead:
        return await self._reads.read_bonds(bonds)

    async def read_macs(self) -> Mapping[str, frozenset[str]]:
        return await self._reads.read_macs()

    async def find_wrong_firmware(self, version: str) -> str:
        return await self._reads.find_wrong_firmware(version)

    async def read_state(self, interfaces: Sequence[str]) -> LeafState:
        return await self._reads.read_state(interfaces)

    async def read_tenant_routing(self, vrf: str, vni: str) -> TenantRouting:
        return await self._reads.read_tenant_routing(vrf, vni)

    async def read_networks(self, vrfs: Collection[str]) -> NetworkState:
        return await self._reads.read_networks(vrfs)

    async def install_image(self, url: str, file_name: str, turn: Turn, limit_s: float) -> None:
        raise self._refuse("install_image")

    async def choose_other_image(self, turn: Turn, limit_s: float) -> None:
        raise self._refuse("choose_other_image")

    async def reboot(self, turn: Turn) -> None:
        raise self._refuse("reboot")

    async def apply_change(self, change: PortChange) -> str:
        raise self._refuse("apply_change")

    async def save_configuration(self) -> None:
        raise self._refuse("save_configuration")

    async def apply_services(self, change: ServiceChange) -> str:
        raise self._refuse("apply_services")

    async def set_password(self, username: str, new: Secret) -> str:
        raise self._refuse("set_password")

    async def set_drain(self, *, on: bool) -> str:
        raise self._refuse("set_drain")

    async def apply_networks(self, change: NetworkChange) -> str:
        raise self._refuse("apply_networks")
