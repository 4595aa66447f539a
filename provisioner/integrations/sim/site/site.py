"""A simulated site: nodes, leaves, spines and cables, at the Spectrum-X 1.2.0 versions.

`expected()` and `description()` are its operator's documents. Truth is in the machines and
switches; every reader of it calls `advance()` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from provisioner.integrations.sim.agent.agent import Agents
from provisioner.integrations.sim.faults.faults import FaultRules
from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.clock import (
    FIRST_UPLINK,
    NODES_PER_UNIT,
    RAILS,
    SPINES,
    FastClock,
    HandClock,
    Place,
    Schedule,
    SimClock,
    count_units,
    list_places,
)
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Durations
from provisioner.integrations.sim.outputs.host import Cable, HostView
from provisioner.integrations.sim.outputs.inband import Inband, Sleep
from provisioner.integrations.sim.outputs.outputs_nic import interface_name
from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.integrations.sim.switches.switch import Neighbour, Switch, SwitchDurations
from provisioner.integrations.sim.switches.switch_fabric import join_fabric
from provisioner.integrations.sim.switches.ufm import UfmService

CUMULUS = "5.11.0.0026"  # of Spectrum-X 1.2.0
MAINTENANCE_VRF = "MAINT"
SWITCH_USER = "cumulus"
SWITCH_PASSWORD = "Cumulus-of-this-site-1"  # noqa: S105 (of simulated switches)
HOST_FACTORY_PASSWORD = "ADMIN-of-this-order-1"  # noqa: S105 (one for a whole order, as sold)
# shape of a BMC -> the operator's name for its factory credential
CREDENTIAL_NAMES = {
    "ami_dgx": "ami_megarac",
    "dell": "dell_idrac",
    "hpe": "hpe_ilo",
    "lenovo": "lenovo_xcc",
    "nvidia_gb200": "nvidia_openbmc",
}


@dataclass(frozen=True)
class PlannedCable:
    """The cable of one rail as the site's plan has it; the ends have their prefix length, or ""."""

    rail: int
    slot: str  # of the card
    leaf: str
    interface: str
    host_end: str
    leaf_end: str


@dataclass(frozen=True)
class PlannedHost:
    """Where a host is, how it is reached, and what it is cabled to."""

    unit: int
    number: int  # in its unit
    rack: str
    address: str  # in-band
    cables: tuple[PlannedCable, ...]


@dataclass(frozen=True)
class SitePlan:
    """A site's hosts by name, its leaves with their unit, and its spines.

    Lower ports of a leaf are those of its hosts; spine n is at port `first_uplink` + n of each.
    """

    hosts: Mapping[str, PlannedHost]
    leaves: Mapping[str, int]
    spines: tuple[str, ...]
    first_uplink: int = FIRST_UPLINK


def plan_reference(nodes: int) -> SitePlan:
    """The plan of a rail-optimised site of so many hosts, unit by unit."""
    hosts = {place.node: _plan_host(place) for place in list_places(nodes)}
    leaves = {
        Place(unit, 0).name_leaf(rail): unit
        for unit in range(count_units(nodes))
        for rail in range(RAILS)
    }
    return SitePlan(hosts, leaves, tuple(f"spine-{n}" for n in range(SPINES)))


def _plan_host(place: Place) -> PlannedHost:
    cables = tuple(
        PlannedCable(
            rail,
            f"NIC_{rail}",
            place.name_leaf(rail),
            place.interface,
            *place.get_addresses(rail),
        )
        for rail in range(RAILS)
    )
    return PlannedHost(place.unit, place.number, place.rack, _address(place), cables)


class Emits(Protocol):
    """The event service of a BMC."""

    def emit(
        self,
        key: str,
        text: str,
        args: list[str],
        now: float,
        *,
        origin: str = "",
        severity: str = "OK",
    ) -> None: ...


class Counts(Protocol):
    """A service that counts its answers, and its events where it has such a service."""

    requests: int

    @property
    def events(self) -> Emits | None: ...


class Site:
    """The server of the site fills `urls`: "su0-n00/DPU_1" or "leaf-su0-r3" -> URL."""

    def __init__(
        self,
        nodes: int = 32,
        seed: int = 0,
        *,
        clock: SimClock | None = None,
        sleep: Sleep | None = None,
        durations: Durations | None = None,
        switch_durations: SwitchDurations | None = None,
        vendor: str = "supermicro",
        vrfs: tuple[str, ...] = ("RED", "BLUE"),
        name: str = "sim",
        plan: SitePlan | None = None,
    ) -> None:
        assert 1 <= nodes <= 255 * NODES_PER_UNIT, "a unit's number is an octet of its addresses"
        self.name = name
        self.seed = seed
        self.clock: SimClock = clock or FastClock()
        self.schedule = Schedule()
        self.plan = plan or plan_reference(nodes)
        self.places = {} if plan else {place.node: place for place in list_places(nodes)}
        macs: set[str] = set()
        self.machines: dict[str, Machine] = {
            node: build_machine(node, self.schedule, seed, vendor, durations, macs)
            for node in self.plan.hosts
        }
        for machine in self.machines.values():
            if vendor in ("supermicro", "hpe"):
                machine.bmcs["host"].password = HOST_FACTORY_PASSWORD
        self.switches: dict[str, Switch] = {}
        self._build_switches(vrfs, switch_durations)
        self.hosts = {node: self._wire(node, host) for node, host in self.plan.hosts.items()}
        peers = {
            cable.host_end.partition("/")[0]: (self.hosts[node], cable.rail)
            for node, host in self.plan.hosts.items()
            for cable in host.cables
            if cable.host_end
        }
        peers |= {h.address: (self.hosts[n], -1) for n, h in self.plan.hosts.items() if h.address}
        for host in self.hosts.values():
            host.peers = peers
            host.list_readable = lambda: None if self.vms is None else self.vms.list_readable
        self.nvue = {n: NvueService(s, self.clock) for n, s in self.switches.items()}
        join_fabric(self.nvue, self.clock.now)
        self.inband = Inband(self.hosts, self.clock, sleep or make_sleep(self.clock))
        addresses = {n: host.address for n, host in self.plan.hosts.items()}
        self.agents = Agents(self.machines, addresses)
        self.urls: dict[str, str] = {}
        self.redfish: dict[str, Counts] = {}  # "su0-n00/host" -> its service
        self.ufm: UfmService | None = None  # None: the site has no InfiniBand fabric
        self.vms: SimulatedVms | None = None  # None: the site has no shared storage
        self.faults = FaultRules()
        self.injected: list[tuple[str, str]] = []  # ("su0-n00/GPU_SXM_5", preset), in order

    def advance(self) -> float:
        """Run everything that is due by now; return the time in seconds since the epoch."""
        now = self.clock.now()
        self.schedule.advance(now)
        return now

    def on_fetch(self, fetch: Callable[[str, Callable[[bytes | None], None]], None]) -> None:
        """Set how switches and agents download files: `fetch(url, done)`."""
        self.agents.fetch = fetch
        for switch in self.switches.values():
            switch.fetch = fetch

    # --- building

    def _build_switches(self, vrfs: tuple[str, ...], durations: SwitchDurations | None) -> None:
        def build(name: str, asn: int) -> Switch:
            switch = Switch(
                name,
                self.schedule,
                seed=f"{self.seed}/{name}",
                version=CUMULUS,
                durations=durations,
                username=SWITCH_USER,
                password=SWITCH_PASSWORD,
            )
            for vrf in (MAINTENANCE_VRF, *vrfs):
                switch.add_vrf(vrf, asn)
            self.switches[name] = switch
            return switch

        leaves = [build(name, 65100 + at) for at, name in enumerate(self.plan.leaves)]
        spines = [build(name, 65000) for name in self.plan.spines]
        for at, leaf in enumerate(leaves):
            for number, spine in enumerate(spines):
                up = f"swp{self.plan.first_uplink + number}s0"
                down = f"swp{at + 1}s0"
                leaf.add_port(up, neighbour=_towards(spine, down, self.clock))
                spine.add_port(down, neighbour=_towards(leaf, up, self.clock))

    def _wire(self, node: str, host: PlannedHost) -> HostView:
        machine = self.machines[node]
        cables = []
        for planned in host.cables:
            leaf = self.switches[planned.leaf]
            card = machine.devices[planned.slot]
            leaf.add_port(
                planned.interface,
                planned.leaf_end,
                Neighbour(node, interface_name(card), card.mac, _carrier(machine, card.slot)),
            )
            cables.append(Cable(planned.rail, card.slot, leaf, planned.interface))
        return HostView(machine, tuple(cables), f"{self.seed}/{node}/inband")

    # --- the operator's documents

    def build_expected(self) -> dict[str, Any]:
        """The expected-hardware list, as plain data; URLs only of served devices."""
        nodes = [self._expected_host(node, host) for node, host in self.plan.hosts.items()]
        nodes += [self._expected_switch(switch) for switch in self.switches.values()]
        return {"site": self.name, "factory_credentials": self._factory(), "nodes": nodes}

    def _factory(self) -> dict[str, dict[str, str]]:
        credentials: dict[str, dict[str, str]] = {}
        for machine in self.machines.values():
            for bmc in machine.bmcs.values():
                name = CREDENTIAL_NAMES.get(bmc.vendor, bmc.vendor)
                if name not in credentials:
                    factory = FACTORY_PASSWORDS.get(bmc.vendor, HOST_FACTORY_PASSWORD)
                    credentials[name] = {"username": bmc.username, "password": factory}
        return credentials

    def _expected_host(self, node: str, host: PlannedHost) -> dict[str, Any]:
        machine = self.machines[node]
        bmc = machine.bmcs["host"]
        cards = [machine.devices[slot] for slot in machine.bluefields]
        return {
            "name": node,
            "kind": "host",
            "bmc": {
                "url": self.urls.get(f"{node}/host", ""),
                "mac": bmc.mac,
                "serial": bmc.serial,
            },
            "address": host.address,
            "location": {
                "site": self.name,
                "pod": 0,
                "scalable_unit": host.unit,
                "rack": host.rack,
                "index": host.number,
            },
            "dpus": [
                {"slot": c.slot, "serial": c.serial, "base_mac": c.mac, "pci": c.pci} for c in cards
            ],
            "ports": [
                {
                    "rail": cable.rail,
                    "switch": cable.leaf,
                    "interface": cable.interface,
                    "nic_slot": cable.slot,
                    "address": cable.leaf_end,
                }
                for cable in host.cables
            ],
        }

    def _expected_switch(self, switch: Switch) -> dict[str, Any]:
        spine = switch.name in self.plan.spines
        unit = self.plan.leaves.get(switch.name, 0)
        return {
            "name": switch.name,
            "kind": "switch",
            "bmc": {"serial": switch.serial, "mac": switch.mac},
            "address": self.urls.get(switch.name, f"https://{switch.name}.{self.name}:8765"),
            "location": {
                "site": self.name,
                "pod": 0,
                "scalable_unit": unit,
                "rack": "spines" if spine else f"su{unit}-leaves",
                "index": int(switch.name.rpartition("-")[2].lstrip("r")),
            },
            "username": switch.username,
            "password": SWITCH_PASSWORD,
        }

    def describe(self) -> dict[str, Any]:
        """The site in numbers and names, as plain data."""
        return {
            "name": self.name,
            "pods": 1,
            "scalable_units": count_units(len(self.plan.hosts)),
            "nodes_per_unit": NODES_PER_UNIT,
            "nodes": len(self.plan.hosts),
            "rails": RAILS,
            "leaves": list(self.plan.leaves),
            "spines": list(self.plan.spines),
            "maintenance_vrf": MAINTENANCE_VRF,
            "vrfs": sorted(next(iter(self.switches.values())).applied["vrf"]),
            "prefix_length": 31,
            "addressing": "172.(32*rail).(unit).(2*index): host end; the leaf end is one above",
        }

    def list_endpoints(self) -> dict[str, str]:
        """The URL of each served device: "su0-n00/DPU_1" (a BMC), "leaf-su0-r3" (a switch)."""
        return dict(self.urls)


# of those shapes whose vendor prints the factory password in its manual
FACTORY_PASSWORDS = {
    "nvidia_openbmc": "0penBmc",
    "nvidia_gb200": "0penBmc",
    "ami_dgx": "admin",
    "dell": "calvin",
    "lenovo": "PASSW0RD",
}


def make_sleep(clock: SimClock) -> Sleep:
    """A function that waits for simulated seconds; it advances a hand clock."""

    async def sleep(seconds: float) -> None:
        if isinstance(clock, HandClock):
            clock.move(seconds)
        else:
            await asyncio.sleep(seconds / getattr(clock, "speed", 1.0))

    return sleep


def _address(place: Place) -> str:
    """In-band address of a host, regardless of its boot source."""
    return f"10.{64 + place.unit // 256}.{place.unit % 256}.{place.number + 10}"


def _carrier(machine: Machine, slot: str) -> Callable[[], bool]:
    def has_carrier() -> bool:
        card = machine.devices[slot]
        return machine.host.power == "On" and card.present and not card.traits.get("link_down")

    return has_carrier


def _towards(switch: Switch, port: str, clock: SimClock) -> Neighbour:
    return Neighbour(switch.name, port, switch.mac, lambda: switch.is_up(clock.now()))
