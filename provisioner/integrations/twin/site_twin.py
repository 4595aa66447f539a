"""The twin of a site that is not taken in yet: built from its list alone, with its own names.

The daemon is the real one, with the site's own list, overlay, settings and passwords. The twin has
what the list says: serials, cards, cables. So it shows what is wrong between the site's files, and
nothing that only the real machines know.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.daemon.daemon import Daemon
from provisioner.execution.observe.intake import Secrets, find_nodes, take_in
from provisioner.integrations.sim.hardware.build import (
    DPUS,
    SUPERNICS,
    fit_listed_card,
    remove_card,
)
from provisioner.integrations.sim.hardware.clock import FIRST_UPLINK
from provisioner.integrations.sim.redfish.bmc import from_files, make_service
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.site.site import PlannedCable, PlannedHost, Site, SitePlan
from provisioner.integrations.sim.site.truth import collect_truth
from provisioner.integrations.twin.fleet_twin import HOSTS_MAX, SHAPES, build_daemon
from provisioner.integrations.twin.loop import VirtualClock
from provisioner.integrations.twin.recorded import add_simulated_images, restore, restore_switch
from provisioner.integrations.twin.wires import MemoryBmcs, MemorySwitches, Wire
from provisioner.model.expected import DEFAULT_OS, Expected, ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.location import find_host_end
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.runtime.switch_systems import find_system
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

LOOK_S = 300.0  # of virtual time, between two looks at the nodes
TENANT_S = 7200.0
LIMIT_S = 24 * 3600.0  # of virtual time
SLOTS = (*(f"NIC_{n}" for n in range(SUPERNICS)), *(f"DPU_{n}" for n in range(DPUS)))
CARD_VENDOR = "nvidia_openbmc"
_PORT = re.compile(r"swp(\d+)")
Show = Callable[[Sequence[Node], float], None]


@dataclass(frozen=True)
class SiteFiles:
    """What a site prepared. `inventories`: of its hosts as they are, as far as they were read."""

    expected: Expected
    secrets: Secrets
    matrix: Matrix
    settings: Settings
    inventories: Mapping[str, Inventory]


@dataclass(frozen=True)
class Rehearsed:
    """How a rehearsed intake ended. `assumed`: how the twin differs, in sentences."""

    nodes: tuple[Node, ...]
    hours: Mapping[str, float]  # host -> virtual hours until it was in service
    refused: tuple[Blocker, ...]  # devices of the list that were not taken in
    violations: tuple[str, ...]
    short: tuple[str, ...]  # tenants that got too few nodes although one was free
    assumed: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Return whether every node of the list came into service, and nothing was violated."""
        served = bool(self.nodes) and all(is_in_service(n) for n in self.nodes)
        return served and not (self.refused or self.violations or self.short)


def is_in_service(node: Node) -> bool:
    """Return whether a node needs nothing more: released, or certified without a tenant."""
    return node.state is State.RELEASED or (node.state is State.CERTIFIED and not node.tenant)


def select_hosts(expected: Expected, most: int) -> Expected:
    """Return the list with its first `most` hosts by place, and the switches."""
    hosts = [n for n in expected.nodes if n.kind is NodeKind.HOST]
    if not hosts:
        raise InputError("--file", "", "the list has no host", "Write down one host, at least.")
    place = sorted(hosts, key=lambda n: (*_unit(n), n.location.index, n.name))
    chosen = {n.name for n in place[: min(most, HOSTS_MAX)]}
    kept = tuple(n for n in expected.nodes if n.kind is NodeKind.SWITCH or n.name in chosen)
    return expected.model_copy(update={"nodes": kept})


def _unit(node: ExpectedNode) -> tuple[int, int]:
    return node.location.pod, node.location.scalable_unit


def plan_site(expected: Expected) -> SitePlan:
    """Return the plan of the twin: the list's own names, places and cables."""
    hosts = [n for n in expected.nodes if n.kind is NodeKind.HOST]
    switches = [n.name for n in expected.nodes if n.kind is NodeKind.SWITCH]
    units = {unit: number for number, unit in enumerate(sorted({_unit(n) for n in hosts}))}
    cabled = {p.switch: units[_unit(n)] for n in hosts for p in n.ports if not p.guid}
    numbers = [int(m[1]) for n in hosts for p in n.ports if (m := _PORT.match(p.interface))]
    counts: Counter[int] = Counter()
    planned: dict[str, PlannedHost] = {}
    for node in sorted(hosts, key=lambda n: (*_unit(n), n.location.index, n.name)):
        unit = units[_unit(node)]
        cables = tuple(
            PlannedCable(
                p.rail,
                p.nic_slot,
                p.switch,
                p.interface,
                str(find_host_end(p.address) or ""),
                p.address,
            )
            for p in node.ports
            if not p.guid
        )
        address = node.address or f"10.255.{unit}.{counts[unit] + 1}"
        planned[node.name] = PlannedHost(
            unit, counts[unit], node.location.rack or "rack", address, cables
        )
        counts[unit] += 1
    spines = tuple(n for n in switches if n not in cabled)
    return SitePlan(planned, cabled, spines, max([FIRST_UPLINK, *(n + 1 for n in numbers)]))


def _check_slots(expected: Expected) -> None:
    """Raise InputError for a slot that no simulated machine has."""
    for node in expected.nodes:
        named = [*(d.slot for d in node.dpus), *(p.nic_slot for p in node.ports if not p.guid)]
        for slot in named:
            if slot not in SLOTS:
                remedy = f"It has {SLOTS[0]} to {SLOTS[-1]}: correct the list."
                raise InputError(node.name, slot[:40], "no twin has this slot", remedy)


class SiteTwin:
    """One simulated site by a list, with one daemon, in one process, under virtual time."""

    def __init__(self, files: SiteFiles, folder: Path) -> None:
        self.clock = VirtualClock()
        self.expected = _simplify(files.expected)
        _check_slots(self.expected)
        self._secrets = files.secrets
        self.settings = files.settings.model_copy(
            update={
                "erase_same_tenant_may_skip": True,
                "certify_gates": "ab",
                "poll_s": max(files.settings.poll_s, 60.0),
                "fresh_s": 3600.0,
            }
        )
        vrfs = tuple(sorted({t.vrf for t in self.expected.tenants}))
        self.site = Site(
            clock=self.clock,
            sleep=self.clock.sleep,
            vendor=SHAPES[find_vendor(files)],
            vrfs=vrfs,
            name=self.expected.site,
            plan=plan_site(self.expected),
        )
        release = self.expected.release
        if release not in files.matrix.releases:
            remedy = f"It is one of: {', '.join(files.matrix.releases)}."
            problem = "there is no such release" if release else "the list names no release"
            raise InputError("release", release, problem, remedy)
        pinned = add_simulated_images(files.matrix, (release,))
        self.matrix = pinned.matrix
        for name, content in pinned.files.items():
            (folder / name).write_bytes(content)
        self._folder = folder
        self.unlike = self._fit(files)
        self.services: dict[str, RedfishService] = {}
        self._serve(pinned.files)
        wire = Wire(random.Random(0), 0.0)  # noqa: S311 (no secret: how long a request takes)
        self.transport = MemoryBmcs(self.services, wire)
        self.switches = MemorySwitches(self.site, wire)
        self.travel = wire.delay_request
        self.store = open_store(":memory:", inline=True)
        self.daemon: Daemon | None = None

    def _fit(self, files: SiteFiles) -> tuple[str, ...]:
        """Give each machine and switch the list's serials and logins, and the versions read."""
        unlike: set[str] = set()
        for entry in self.expected.nodes:
            inventory = files.inventories.get(entry.name)
            if entry.kind is NodeKind.SWITCH:
                switch = self.site.switches[entry.name]
                switch.serial = entry.bmc.serial or switch.serial
                if entry.name in self._secrets.switches:
                    switch.username, secret = self._secrets.switches[entry.name]
                    switch.password = secret.reveal()
                if inventory is not None:
                    restore_switch(switch, inventory)
                continue
            machine = self.site.machines[entry.name]
            machine.host.serial = entry.bmc.serial or machine.host.serial
            machine.bmcs["host"].serial = machine.host.serial
            machine.bmcs["host"].mac = entry.bmc.mac.lower() or machine.bmcs["host"].mac
            for slot in [s for s in machine.bluefields if s not in {d.slot for d in entry.dpus}]:
                remove_card(machine, slot)
            for card in entry.dpus:
                fit_listed_card(machine, card.slot, card.serial, card.base_mac, card.pci)
            for bmc in machine.bmcs.values():
                vendor = CARD_VENDOR if bmc.name != "host" else find_vendor(files)
                if vendor in self._secrets.factory:
                    bmc.username, secret = self._secrets.factory[vendor]
                    bmc.password = secret.reveal()
            if inventory is not None:
                unlike |= set(restore(machine, inventory))
        return tuple(sorted(unlike))

    def _serve(self, files: Mapping[str, bytes]) -> None:
        fetch = from_files(dict(files))
        listed = {n.name: n for n in self.expected.nodes}
        for name, machine in self.site.machines.items():
            for bmc in machine.bmcs:
                own = listed[name].bmc.url.rstrip("/") if bmc == "host" else ""
                url = own or f"https://{name}.{bmc.lower().replace('_', '-')}.test"
                self.site.urls[f"{name}/{bmc}"] = url
                self.services[url] = make_service(machine, bmc, self.clock, fetch)
        self.site.urls |= {n: listed[n].address for n in self.site.switches}
        self.site.on_fetch(fetch)

    async def rehearse(self, show: Show) -> Rehearsed:
        """Take the site in as an intake would, and drive it until all rests."""
        key = MasterKey.generate()
        vault = Vault(self.store, key)
        began = self.clock.now()
        probes = await probe_all(self.transport, sorted(self.services))
        expected = self.expected
        found = await find_nodes(
            self.transport, self.store, vault, expected, self._secrets, probes, began
        )
        await take_in(self.store, vault, expected, self._secrets, found[0], found[1], began)
        self.daemon = await build_daemon(self, vault, key, self._folder)
        await self.daemon.start()
        hours: dict[str, float] = {}
        changed = began
        before: list[State] = []
        while True:
            await self.clock.sleep(LOOK_S)
            nodes = await self.store.nodes.list()
            spent = self.clock.now() - began
            show(nodes, spent)
            for node in nodes:
                if is_in_service(node):
                    hours.setdefault(node.id, round(spent / 3600, 1))
            if before != (before := [n.state for n in nodes]):
                changed = self.clock.now()
            open_ = [n for n in nodes if not is_in_service(n)]
            rests = all(n.state is State.QUARANTINED for n in open_)
            # a tenant that lacks nodes gets a certified one within some minutes, or never
            waits = bool(self._list_short(nodes)) and self.clock.now() - changed < TENANT_S
            if (rests and not waits and not self.daemon.engine.running) or spent > LIMIT_S:
                break
        state = collect_truth(self.site)
        violations = tuple(str(v) for v in (*state["violations"], *state["switch_outages"]))
        refused = (*found[2], *found[0].blockers)
        short = self._list_short(nodes)
        return Rehearsed(tuple(nodes), hours, refused, violations, short, self._list_assumed())

    def _list_short(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the tenants that lack a node although one of the twin's could be theirs."""
        hosts = [n for n in nodes if n.kind is NodeKind.HOST]
        has = Counter(n.tenant for n in hosts if n.tenant)
        free = sum(n.state is State.CERTIFIED and not n.tenant for n in hosts)
        lacking = [t.name for t in self.expected.tenants if has[t.name] < t.nodes_wanted]
        return tuple(lacking) if free else ()

    def _list_assumed(self) -> tuple[str, ...]:
        lines = [
            "every machine is sound, has what the list says, and opens with the list's passwords",
            "firmware files are simulated: `doctor` looks at the real ones",
            "tests among nodes (gate C) are left out, and no disk is erased",
        ]
        if self.unlike:
            lines.append(f"recorded, but not simulated: {', '.join(self.unlike)}")
        return tuple(lines)

    async def close(self) -> None:
        """Stop the daemon and close the store."""
        if self.daemon is not None:
            await self.daemon.stop()
        await self.store.close()


def find_vendor(files: SiteFiles) -> str:
    """Return the vendor of all hosts' BMCs. Raises InputError for several, and for an unknown."""
    read = {i.vendor for i in files.inventories.values()} & set(SHAPES)
    vendors = sorted(read or (set(files.expected.factory_credentials) & set(SHAPES)))
    if len(vendors) != 1:
        problem = f"a twin has servers of one vendor; the list has {', '.join(vendors) or 'none'}"
        remedy = f"Rehearse a list with the factory credential of one of: {', '.join(SHAPES)}."
        raise InputError("factory_credentials", "", problem, remedy)
    return vendors[0]


def _simplify(expected: Expected) -> Expected:
    """Return the list with every switch as the one system that is simulated."""
    nodes = []
    for node in expected.nodes:
        if node.kind is NodeKind.SWITCH and node.os != DEFAULT_OS:
            address = f"https://{node.name}.test"
            nodes.append(node.model_copy(update={"os": DEFAULT_OS, "address": address}))
        else:
            nodes.append(node)
    return expected.model_copy(update={"nodes": tuple(nodes)})


def list_unsimulated(expected: Expected) -> tuple[str, ...]:
    """Return what of a list no twin has, in sentences."""
    lines = []
    other = [n.name for n in expected.nodes if n.kind is NodeKind.SWITCH and n.os != DEFAULT_OS]
    if other:
        lines.append(f"rehearsed as {find_system(DEFAULT_OS).facts.title}: {', '.join(other)}")
    if any(p.guid for n in expected.nodes for p in n.ports):
        lines.append("InfiniBand ports are left out")
    return tuple(lines)
