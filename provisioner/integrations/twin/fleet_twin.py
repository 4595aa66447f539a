"""The twin of a fleet: its nodes on simulated hardware, its tenants, its leaves; the real daemon.

Each node of the fleet takes the place of a node of the simulated site, scalable unit by scalable
unit, so that it shares leaves, rails and unit with the same neighbours as in the fleet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.observe.intake import Secrets, find_nodes, take_in
from provisioner.integrations.sim.hardware.clock import NODES_PER_UNIT
from provisioner.integrations.sim.redfish.bmc import from_files, make_service
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.site.site import SWITCH_PASSWORD, SWITCH_USER, Site
from provisioner.integrations.simulated_site.simulated_agents import SiteSide, simulated_agents
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell
from provisioner.integrations.twin.loop import VirtualClock
from provisioner.integrations.twin.recorded import TwinFiles, restore, restore_switch
from provisioner.integrations.twin.wires import MemoryBmcs, MemorySwitches, Wire
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Tenant
from provisioner.ports import Secret
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey, open_signer
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import SqlStore, open_store

SHAPES: Mapping[str, str] = {  # recorded vendor -> the simulator's shape
    "supermicro": "supermicro",
    "ami_megarac": "ami_dgx",
    "dell_idrac": "dell",
    "hpe_ilo": "hpe",
    "lenovo_xcc": "lenovo",
}
SETTLE_MAX_S = 24 * 3600.0  # of virtual time, until the twin's nodes are in the fleet's states
HOSTS_MAX = 64  # of one twin: each host takes some two seconds of a core


@dataclass(frozen=True)
class RecordedFleet:
    """The store's data of the fleet, which is the only input of a rehearsal."""

    nodes: Sequence[Node]
    inventories: Mapping[str, Inventory]
    tenants: Sequence[Tenant]


@dataclass
class Names:
    """Names of the fleet's nodes and of their twins."""

    twin: dict[str, str] = field(default_factory=dict)  # name in the fleet -> name in the twin

    @property
    def recorded(self) -> dict[str, str]:
        return {twin: name for name, twin in self.twin.items()}


class Twin:
    """One simulated site with one daemon, in one process, under virtual time."""

    def __init__(
        self,
        recorded: RecordedFleet,
        files: TwinFiles,
        settings: Settings,
        folder: Path,
        seed: int = 0,
    ) -> None:
        self.clock = VirtualClock()
        hosts = [n for n in recorded.nodes if n.kind is NodeKind.HOST]
        self.names = _place_nodes(hosts, [n for n in recorded.nodes if n.kind is NodeKind.SWITCH])
        self.recorded = recorded
        # the twin holds no data to erase; unknown pins are left alone and gate C is left out
        self.settings = settings.model_copy(
            update={
                "production": False,
                "erase_same_tenant_may_skip": True,
                "certify_gates": "ab",
                "poll_s": max(settings.poll_s, 60.0),
                "fresh_s": 3600.0,
            }
        )
        vrfs = tuple(sorted({t.vrf for t in recorded.tenants}))
        units = {int(t.split("-")[0][2:]) for t in self.names.twin.values() if t.startswith("su")}
        count = (max(units) + 1) * NODES_PER_UNIT if len(units) > 1 else len(hosts)
        self.site = Site(
            count,
            seed,
            clock=self.clock,
            sleep=self.clock.sleep,
            vendor=_find_shape(hosts, recorded.inventories),
            vrfs=vrfs or ("RED",),
            name="twin",
        )
        self.unlike = self._restore()
        self._folder = folder
        for name, content in files.files.items():
            (folder / name).write_bytes(content)
        self.matrix: Matrix = files.matrix
        self.services: dict[str, RedfishService] = {}
        self._serve(files.files)
        wire = Wire(random.Random(seed), 0.0)  # noqa: S311 (no secret: how long a request takes)
        self.transport = MemoryBmcs(self.services, wire)
        self.switches = MemorySwitches(self.site, wire)
        self.travel = wire.delay_request
        self.store = open_store(":memory:", inline=True)
        self.book = self.store.campaigns
        self.daemon: Daemon | None = None

    def _restore(self) -> tuple[str, ...]:
        unlike: set[str] = set()
        for name, twin in self.names.twin.items():
            inventory = self.recorded.inventories.get(name)
            if inventory is None:
                continue
            if twin in self.site.machines:
                unlike |= set(restore(self.site.machines[twin], inventory))
            elif twin in self.site.switches:
                restore_switch(self.site.switches[twin], inventory)
        return tuple(sorted(unlike))

    def _serve(self, files: Mapping[str, bytes]) -> None:
        fetch = from_files(dict(files))
        for name in self.names.twin.values():
            if name not in self.site.machines:
                continue
            machine = self.site.machines[name]
            for bmc in machine.bmcs:
                url = f"https://{name}.{bmc.lower().replace('_', '-')}.test"
                self.site.urls[f"{name}/{bmc}"] = url
                self.services[url] = make_service(machine, bmc, self.clock, fetch)
        self.site.on_fetch(fetch)

    async def start(self, release: str) -> None:
        """Take in the twin's nodes at `release` for their tenants, and start the daemon."""
        key = MasterKey.generate()
        vault = Vault(self.store, key)
        listed = self.site.build_expected()
        mine = set(self.names.twin.values())
        spines = {n for n in self.site.switches if n.startswith("spine")}
        nodes = [n for n in listed["nodes"] if n["name"] in mine | spines]
        leaves = {p["switch"] for n in nodes for p in n.get("ports", ())}
        nodes += [n for n in listed["nodes"] if n["name"] in leaves - mine]
        expected = Expected.model_validate(
            {**listed, "nodes": nodes, "release": release, "tenants": ()}
        )
        factory = {
            vendor: (c.username, Secret(c.password))
            for vendor, c in expected.factory_credentials.items()
        }
        switches = {
            n.name: (SWITCH_USER, Secret(SWITCH_PASSWORD))
            for n in expected.nodes
            if n.kind is NodeKind.SWITCH
        }
        secrets = Secrets(factory=factory, switches=switches)
        now = self.clock.now()
        probes = await probe_all(self.transport, sorted(self.services))
        discovered = await find_nodes(
            self.transport, self.store, vault, expected, secrets, probes, now
        )
        await take_in(self.store, vault, expected, secrets, discovered[0], discovered[1], now)
        await self._assign_tenants()
        self.daemon = await build_daemon(self, vault, key, self._folder)
        await self.daemon.start()

    async def _assign_tenants(self) -> None:
        """Assign each node to its tenant; tenants request no further nodes."""
        real = {n.id: n for n in self.recorded.nodes}
        for tenant in self.recorded.tenants:
            mine = [n for n in self.recorded.nodes if n.tenant == tenant.name]
            fresh = {"nodes_wanted": len(mine), "number": None, "generation": 0, "units": ()}
            await self.store.tenants.put(tenant.model_copy(update=fresh))
        for name, twin in self.names.twin.items():
            node = await self.store.nodes.get(twin)
            if node is None:
                continue
            location = real[name].location
            changed = {"tenant": real[name].tenant, "location": location}
            await self.store.nodes.save(node.model_copy(update=changed))

    async def wait_until_settled(self) -> tuple[Node, ...]:
        """Wait until every node is in service; return the nodes that are not in the end."""
        until = self.clock.now() + SETTLE_MAX_S
        while self.clock.now() < until:
            await self.clock.sleep(300.0)
            unsettled = [n for n in await self.store.nodes.list() if not _is_in_service(n)]
            if all(n.state is State.QUARANTINED for n in unsettled):
                return tuple(unsettled)
        return tuple(n for n in await self.store.nodes.list() if not _is_in_service(n))

    async def close(self) -> None:
        """Stop the daemon and close the store."""
        if self.daemon is not None:
            await self.daemon.stop()
        await self.store.close()


class InMemory(Protocol):
    """A simulated site in this process, and all that a daemon beside it works with."""

    site: Site
    clock: VirtualClock
    settings: Settings
    matrix: Matrix
    store: SqlStore
    transport: MemoryBmcs
    switches: MemorySwitches
    travel: Callable[[], Coroutine[Any, Any, str]]


async def build_daemon(twin: InMemory, vault: Vault, key: MasterKey, folder: Path) -> Daemon:
    """Return the real daemon over a simulated site; `folder` has the files that devices fetch."""
    return Daemon(
        Parts(
            store=twin.store,
            credentials=vault,
            clock=twin.clock,
            settings=twin.settings,
            transport=twin.transport,
            switches=make_switches(twin.switches),
            runner=MemoryRunner(twin.site),
            shell=MemoryShell(twin.site),
            agents=simulated_agents(
                SiteSide(twin.site),
                twin.store.agents,
                vault,
                twin.clock,
                twin.settings,
                twin.store.journal.append,
                lambda: "0" * 64,
                twin.travel,
            ),
            artifacts=Artifacts(folder, "http://artifacts.test"),
            matrix=twin.matrix,
            signer=await open_signer(twin.store, key, twin.clock.now()),
            campaigns=twin.store.campaigns,
        )
    )


def _is_in_service(node: Node) -> bool:
    return node.state is State.RELEASED or (node.state is State.CERTIFIED and not node.tenant)


def _find_shape(hosts: Sequence[Node], inventories: Mapping[str, Inventory]) -> str:
    """Return the shape of all hosts. Raises InputError for a mixture or for an unknown shape."""
    vendors = sorted({inventories[n.id].vendor for n in hosts if n.id in inventories})
    supported = [v for v in vendors if v in SHAPES]
    if len(vendors) > 1 or supported != vendors:
        problem = (
            f"a twin has servers of one vendor; the selected nodes are of {', '.join(vendors)}"
        )
        remedy = f"Select nodes of one vendor among {', '.join(SHAPES)}."
        raise InputError("rehearse", "", problem, remedy)
    return SHAPES[vendors[0]] if vendors else "supermicro"


def _place_nodes(hosts: Sequence[Node], switches: Sequence[Node]) -> Names:
    """Return each node's twin. Raises InputError for a site of another form."""
    if len(hosts) > HOSTS_MAX:
        problem = f"{len(hosts)} hosts are more than one twin supports ({HOSTS_MAX})"
        raise InputError("rehearse", "", problem, "Select fewer, or lower --nodes.")
    names = Names()
    units = sorted({(n.location.pod, n.location.scalable_unit) for n in hosts})
    by_name = {n.id for n in switches}
    for number, unit in enumerate(units):
        mine = [n for n in hosts if (n.location.pod, n.location.scalable_unit) == unit]
        if len(mine) > NODES_PER_UNIT:
            problem = f"{len(mine)} hosts are in one scalable unit of at most {NODES_PER_UNIT}"
            raise InputError("rehearse", "", problem, "Select fewer of them.")
        for place, node in enumerate(sorted(mine, key=lambda n: (n.location.index, n.id))):
            names.twin[node.id] = f"su{number}-n{place:02d}"
            for port in node.ports:
                if port.switch in by_name and port.rail >= 0:
                    names.twin.setdefault(port.switch, f"leaf-su{number}-r{port.rail}")
    if len(set(names.twin.values())) != len(names.twin):
        problem = "several leaves carry one rail of a scalable unit, which a twin does not support"
        raise InputError("rehearse", "", problem, "Rehearse hosts only: --select 'kind=host ...'.")
    return names
