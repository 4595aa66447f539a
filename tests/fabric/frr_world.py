"""The product's own code on the site of real FRRouting: store, tenants, releases, over HTTPS.

Only what is no part of the fabric is given: nodes come certified, and their systems are network
namespaces, in which the product's commands are run by a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

from frr_boxes import Box
from frr_nvue import PASSWORD, USER
from frr_site import BMC, LEAF_OOB, NODES, PLAN, STORAGE_HOST, FrrSite

from provisioner.adapters.switch_https import SwitchHttps
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.control.node.performer import Performer
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.tenancy.release_recheck import TenantSessions
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Inventory
from provisioner.model.location import Location, Port
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, ReleaseConditions, State
from provisioner.model.operation import OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import LibraryMinimum, ReleaseProof
from provisioner.planning.lifecycle.decide import Fence, Release
from provisioner.planning.release import entitlement as handover
from provisioner.planning.tenancy.tenants import Request
from provisioner.ports import Secret, ShellCommand, ShellOutput
from provisioner.runtime.switch_systems import make_switches
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store import open_store

# Real switches take seconds where this takes a tenth.
QUICK = {
    "switch_gather_s": 0.02,
    "switch_poll_s": 0.1,
    "switch_apply_limit_s": 15.0,
    "release_settle_s": 60.0,
    "release_confirm_s": 0.2,
    "release_reached": (f"STORAGE={STORAGE_HOST}",),
    "release_never_reached": (BMC, *LEAF_OOB),
    "reclaim_idle_s": 2.0,
    "poll_s": 0.5,
    "switch_drain_limit_s": 30.0,
}
LIMIT_S = 240.0


class Shells:
    """`HostShell` into the boxes that stand for hosts."""

    def __init__(self, boxes: dict[str, Box]) -> None:
        self._boxes = boxes

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        told = []
        for command in commands:
            process = await asyncio.create_subprocess_exec(
                *self._boxes[host].enter,
                "sh",
                "-c",
                command.line,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            told.append(ShellOutput(process.returncode, out.decode(), err.decode()))
        return told

    async def forget(self, host: str, known: str = "") -> None:
        pass

    async def close(self) -> None:
        pass


class Logins:
    """One for all switches."""

    async def current(self, _name: str) -> tuple[str, Secret]:
        return USER, Secret(PASSWORD)


class StoredParts:
    """The parts of a node as its rows have them: this lab has switches and hosts, and no BMC."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def list_library_minimums(self, node: Node) -> tuple[LibraryMinimum, ...]:
        return ()  # no release is pinned here

    async def find_objections(self, node: Node, vrf: str) -> tuple[Blocker, ...]:
        return ()

    async def read_standing(self, node: Node, vrf: str) -> ReleaseConditions:
        inventory = await self._store.evidence.get_inventory(node.id)
        assert isinstance(inventory, Inventory)
        return handover.standing_of(node, inventory, vrf)


class World:
    """One daemon's parts. After a crash another one is made of the same site and store."""

    def __init__(self, site: FrrSite, store: Any, **settings: Any) -> None:
        self.site = site
        self.store = store
        self.clock = WallClock()
        given: dict[str, Any] = {**QUICK, **settings}
        self.settings = Settings(**given)
        self.transport = SwitchHttps()
        logins: Any = Logins()
        bmcs: Any = None
        self.reach = Reach(bmcs, make_switches(self.transport), logins)
        nobody: Any = None  # asked for nothing here
        parts: Any = StoredParts(store)
        self.effects = Effects(
            clock=self.clock,
            settings=self.settings,
            reach=self.reach,
            runner=nobody,
            shell=Shells(site.boxes),
            agents=nobody,
            artifacts=nobody,
        )
        self.tenancy = Tenancy(self.effects, store)
        self.performer = Performer(
            Context(store, self.clock, self.settings),
            observer=parts,
            identifier=nobody,
            executor=nobody,
            tenancy=self.tenancy,
            eraser=nobody,
            certifier=nobody,
        )
        vrfs = VrfIsolation(store, PLAN, self.reach, self.clock, self.settings)
        sessions = TenantSessions(store, self.reach, self.clock, self.settings)
        self.keeper = TenantKeeper(store, self.clock, [vrfs], vrfs.fabric, sessions.missing)

    async def close(self) -> None:
        await self.tenancy.close()
        await self.transport.close()

    async def node(self, number: int) -> Node:
        found = await self.store.nodes.get(self.site.nodes[number])
        assert isinstance(found, Node)
        return found

    async def fence(self, number: int) -> Sequence[Blocker]:
        """Into maintenance, as the reconciler's turn does it; a customer's node is reclaimed."""
        return await self._turn(number, Fence())

    async def release(self, number: int, tenant: str) -> Sequence[Blocker]:
        """A certified node to a tenant, as the reconciler's turn does it."""
        node = await self.node(number)
        given = {"state": State.CERTIFIED, "certificate": uuid4().hex, "tenant": tenant}
        certified = node.model_copy(update=given)
        await self.store.nodes.save(certified)
        return await self._turn(number, Release(vrf=tenant.upper()))

    async def proof(self, number: int) -> ReleaseProof:
        found = await self.store.evidence.get_proof(self.site.nodes[number])
        assert isinstance(found, ReleaseProof)
        return found

    async def tenant(self, name: str, **asked: Any) -> None:
        """A tenant with its network on both leaves."""
        answer = await self.keeper.create(Request(name=name, **asked))
        assert answer.blockers == (), answer.blockers

    async def _turn(self, number: int, turn: Any) -> Sequence[Blocker]:
        node = await self.node(number)
        operation = await self.store.operations.open(node.id, "journey", self.clock.now())
        if operation is None:  # left by a crash
            active = await self.store.operations.list_active()
            operation = next(o for o in active if o.node == node.id)
        hold = Hold(self.store, self.clock, await self.store.operations.take(operation.id))
        if isinstance(turn, Release):
            inventory = Inventory(node=node.id, vendor="generic")
            await hold.record(certificate=_certificate(node), inventory=inventory)
        blockers = await self.performer.perform(hold, node, turn, None)
        await self.store.operations.end(hold.operation, OperationStatus.DONE, "")
        return blockers


@contextlib.asynccontextmanager
async def opened(site: FrrSite, **settings: Any) -> AsyncIterator[World]:
    """A new store that knows the site's switches and nodes, and a daemon's parts on it."""
    store = open_store(":memory:", inline=True)
    for name, api in site.nvue.items():
        # by name: its address is this machine's own, which every box has as well
        url = api.url.replace("127.0.0.1", "localhost")
        pin = BmcRef(name="api", url=url, pin=api.pin)
        await store.nodes.add(Node(id=name, kind=NodeKind.SWITCH, address=url, bmcs=(pin,)))
    for number in range(NODES):
        await store.nodes.add(_host(site, number))
    world = World(site, store, **settings)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield world
    finally:
        await world.close()
        await store.close()


def _host(site: FrrSite, number: int) -> Node:
    ports = []
    for rail in range(PLAN.rails):
        end = site.end(number, rail)
        ports.append(
            Port(
                switch=site.leaves[rail],
                interface=site.ports.name_leaf_port(end.other),
                rail=rail,
                nic_slot=site.ports.name_card(end),
                address=site.addressing.format_ipv4(end.other),
            )
        )
    return Node(
        id=site.nodes[number],
        kind=NodeKind.HOST,
        state=State.CERTIFIED,
        placement=Placement.MIXED,
        profile="given",
        release="given",
        address=site.in_band(number),
        location=Location(index=number),
        bmcs=(BmcRef(name="host", url=f"https://{BMC}"),),
        ports=tuple(ports),
    )


def _certificate(node: Node) -> Certificate:
    return Certificate(
        id=node.certificate,
        node=node.id,
        release=node.release,
        profile=node.profile,
        serials=(),
        versions=(),
        boot_id="",
        location=str(node.location),
        ports=tuple(sorted(f"{p.switch}/{p.interface}" for p in node.ports)),
        report_digest="",
        matrix_digest="",
        issued_at=0,
        expires_at=10**12,
    )
