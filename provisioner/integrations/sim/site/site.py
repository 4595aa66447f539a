"""A simulated site: nodes, leaves, spines and cables, at the Spectrum-X 1.2.0 versions.

`expected()` and `description()` are its operator's documents. Truth is in the machines and
switches; every reader of it calls `advance()` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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


class Counts(Protocol):
    """A service that counts its answers."""

    requests: int


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
    ) -> None:
        assert 1 <= nodes <= 255 * NODES_PER_UNIT, "a unit's number is an octet of its addresses"
        self.name = name
        self.seed = seed
        self.clock: SimClock = clock or FastClock()
        self.schedule = Schedule()
        self.places = {place.node: place for place in list_places(nodes)}
        macs: set[str] = set()
        self.machines: dict[str, Machine] = {
            node: build_machine(node, self.schedule, seed, vendor, durations, macs)
            for node in self.places
        }
        for machine in self.machines.values():
            if vendor in ("supermicro", "hpe"):
                machine.bmcs["host"].password = HOST_FACTORY_PASSWORD
        self.switches: dict[str, Switch] = {}
        self._build_switches(count_units(nodes), vrfs, switch_durations)
        self.hosts = {node: self._wire(place) for node, place in self.places.items()}
        peers = {
            place.get_addresses(rail)[0].partition("/")[0]: (self.hosts[node], rail)
            for node, place in self.places.items()
            for rail in range(RAILS)
        }
        peers |= {_address(place): (self.hosts[n], -1) for n, place in self.places.items()}
        for host in self.hosts.values():
            host.peers = peers
        self.nvue = {n: NvueService(s, self.clock) for n, s in self.switches.items()}
        join_fabric(self.nvue, self.clock.now)
        self.inband = Inband(self.hosts, self.clock, sleep or make_sleep(self.clock))
        self.agents = Agents(self.machines, {n: _address(p) for n, p in self.places.items()})
        self.urls: dict[str, str] = {}
        self.redfish: dict[str, Counts] = {}  # "su0-n00/host" -> its service
        self.ufm: UfmService | None = None  # None: the site has no InfiniBand fabric
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

    def _build_switches(
        self, count: int, vrfs: tuple[str, ...], durations: SwitchDurations | None
    ) -> None:
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

        leaves = [
            build(Place(unit, 0).name_leaf(rail), 65100 + unit * RAILS + rail)
            for unit in range(count)
            for rail in range(RAILS)
        ]
        spines = [build(f"spine-{n}", 65000) for n in range(SPINES)]
        for at, leaf in enumerate(leaves):
            for number, spine in enumerate(spines):
                up = f"swp{FIRST_UPLINK + number}s0"
                down = f"swp{at + 1}s0"
                leaf.add_port(up, neighbour=_towards(spine, down, self.clock))
                spine.add_port(down, neighbour=_towards(leaf, up, self.clock))

    def _wire(self, place: Place) -> HostView:
        machine = self.machines[place.node]
        cables = []
        for rail in range(RAILS):
            leaf = self.switches[place.name_leaf(rail)]
            card = machine.devices[f"NIC_{rail}"]
            leaf.add_port(
                place.interface,
                place.get_addresses(rail)[1],
                Neighbour(place.node, interface_name(card), card.mac, _carrier(machine, card.slot)),
            )
            cables.append(Cable(rail, card.slot, leaf, place.interface))
        return HostView(machine, tuple(cables), f"{self.seed}/{place.node}/inband")

    # --- the operator's documents

    def build_expected(self) -> dict[str, Any]:
        """The expected-hardware list, as plain data; URLs only of served devices."""
        nodes = [self._expected_host(place) for place in self.places.values()]
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

    def _expected_host(self, place: Place) -> dict[str, Any]:
        machine = self.machines[place.node]
        bmc = machine.bmcs["host"]
        cards = [machine.devices[slot] for slot in machine.bluefields]
        return {
            "name": place.node,
            "kind": "host",
            "bmc": {
                "url": self.urls.get(f"{place.node}/host", ""),
                "mac": bmc.mac,
                "serial": bmc.serial,
            },
            "address": _address(place),
            "location": {
                "site": self.name,
                "pod": 0,
                "scalable_unit": place.unit,
                "rack": place.rack,
                "index": place.number,
            },
            "dpus": [
                {"slot": c.slot, "serial": c.serial, "base_mac": c.mac, "pci": c.pci} for c in cards
            ],
            "ports": [
                {
                    "rail": rail,
                    "switch": place.name_leaf(rail),
                    "interface": place.interface,
                    "nic_slot": f"NIC_{rail}",
                    "address": place.get_addresses(rail)[1],
                }
                for rail in range(RAILS)
            ],
        }

    def _expected_switch(self, switch: Switch) -> dict[str, Any]:
        spine = switch.name.startswith("spine")
        unit = 0 if spine else int(switch.name.split("-")[1][2:])
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
            "scalable_units": count_units(len(self.places)),
            "nodes_per_unit": NODES_PER_UNIT,
            "nodes": len(self.places),
            "rails": RAILS,
            "leaves": [n for n in self.switches if n.startswith("leaf")],
            "spines": [n for n in self.switches if n.startswith("spine")],
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
