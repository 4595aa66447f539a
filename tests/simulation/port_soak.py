"""A random life of ports: releases and reclaims by the real reconciler while everything fails.

Real here: reconciler, `lifecycle.decide`, performer, store, tenancy, leaf, the words of Cumulus.
Simulated: the switches' NVUE (`provisioner.sim`), behind a wire that delays and loses. Given, not
simulated: what a host's BMCs and checks would say (`Hosts`), because no port depends on how it is
read. Time is virtual and all chance comes from one seed: a seed replays a run exactly.

A step is one act of chance on the world: a release, reclaim or retry begun, a certificate
withdrawn, a crash of the daemon, a leaf that reboots or is cut off, a leak that appears or ends,
a revision that somebody else left or applies, a request or an answer that is lost. Requests that
arrive, turns and polls are counted apart, and are no steps.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from port_truth import MAINTENANCE, PortTruth, Row, Violated
from virtual_time import VirtualClock

from provisioner.control.performer import Performer
from provisioner.control.reconciler import Reconciler
from provisioner.execution.hold import Hold
from provisioner.execution.reach import Reach
from provisioner.execution.tenancy import Tenancy
from provisioner.execution.work import Site as Effects
from provisioner.model.certificate import Certificate
from provisioner.model.health import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.operation import OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan
from provisioner.model.tenant import Tenant
from provisioner.planning import certification, requests
from provisioner.planning.lifecycle import View
from provisioner.planning.port_isolation import placement_of
from provisioner.ports import Call, Reply, Secret, SwitchAddress, Unreachable
from provisioner.settings import Settings
from provisioner.sim.clock import Schedule
from provisioner.sim.nvue import NvueService
from provisioner.sim.switch import Switch, SwitchDurations
from provisioner.store import open_store

TENANTS = {"red": "RED", "blue": "BLUE"}
LEAVES = 2
RESTS_WITHIN_S = 6 * 3600.0  # of virtual time, once nothing fails any more
ACTS = {  # what chance does, and how often against the others
    "release": 30,
    "reclaim": 20,
    "retry": 10,
    "withdraw": 4,
    "crash": 4,
    "reboot": 1,
    "cut off": 2,
    "leak": 3,
    "leak ends": 4,
    "left revision": 4,
    "stale revision": 4,
}


class WatchedSwitch(Switch):
    """Tells the truth's keeper of every port that changes its VRF."""

    truth: PortTruth | None = None

    def note(self, now: float, kind: str, subject: str, detail: str = "") -> None:
        if kind == "vrf" and self.truth is not None:
            self.truth.port_moved(*subject.split("/", 1))


class Wire:
    """`SwitchTransport` onto the simulated switches; what has left the daemon arrives."""

    def __init__(self, soak: Soak) -> None:
        self.soak = soak
        self.lost = 0.02
        self.requests = 0

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        task = asyncio.ensure_future(self._request(switch, call))
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        return await asyncio.shield(task)

    async def _request(self, switch: SwitchAddress, call: Call) -> Reply:
        soak, rng = self.soak, self.soak.rng
        self.requests += 1
        name = urlsplit(switch.url).hostname or ""
        await asyncio.sleep(rng.uniform(0.01, 0.2))
        roll = rng.random()
        if roll < self.lost / 2:
            soak.count("lost request")
            raise Unreachable("connection refused", maybe_executed=False)
        assert switch.secret is not None
        parts = urlsplit(call.path)
        pair = base64.b64encode(f"{switch.username}:{switch.secret.reveal()}".encode()).decode()
        soak.advance()
        told = soak.nvue[name].handle(
            call.method,
            parts.path,
            dict(parse_qsl(parts.query)),
            {"authorization": f"Basic {pair}"},
            b"" if call.body is None else json.dumps(call.body).encode(),
        )
        if told.status == 0:
            raise Unreachable("connection reset", maybe_executed=False)
        await asyncio.sleep(rng.uniform(0.01, 0.2))
        if roll < self.lost:
            soak.count("lost answer")
            raise Unreachable("the answer was lost", maybe_executed=True)
        return Reply(told.status, {}, told.body)

    async def close(self) -> None:
        return None


class Credentials:
    """One for all switches."""

    async def current(self, name: str) -> tuple[str, Secret]:
        return "cumulus", Secret("cumulus")


class Hosts:
    """What is seen and done of hosts, given: the same parts for ever, and all checks pass."""

    def __init__(self, soak: Soak, tenancy: Tenancy) -> None:
        self._soak, self._tenancy = soak, tenancy

    async def observe(self, node: Node, operation: str) -> View:
        """As the daemon's observer does: ports are read anew, and never in `released`."""
        plan = Plan(node=node.id, release=node.release, profile=node.profile)
        if node.state in (State.VALIDATING, State.RELEASED, State.QUARANTINED):
            report = HealthReport(
                node=node.id, inventory_digest="", started_at=0, ended_at=0, results=()
            )
            return View(plan=plan, report=report)
        read = await self._tenancy.read(node.ports)
        if isinstance(read, Blocker):
            return View(unseen=(read,))
        placement, vrf = placement_of(node.ports, read)
        view = View(plan=plan, placement=placement, vrf=vrf)
        if node.state is not State.CERTIFIED or placement is not Placement.MAINTENANCE:
            return view
        store = self._soak.store
        certificate = await store.certificate(node.certificate)
        assert certificate is not None
        problems = certification.validity(
            certificate=certificate,
            inventory=Inventory(node=node.id, vendor="given"),
            node=node,
            signed=True,
            revoked=await store.revoked(certificate.id),
            now=self._soak.clock.now(),
        )
        told = {"certificate": certificate, "certificate_blockers": problems}
        return view.model_copy(update={**told, "tenant_vrf": TENANTS.get(node.tenant, "")})

    async def certify(self, hold: Hold, node: Node, view: View) -> tuple[Blocker, ...]:
        """A new certificate for what is always there; the host counts as erased."""
        soak = self._soak
        soak.issued += 1
        now = soak.clock.now()
        certificate = Certificate(
            id=f"certificate-{soak.issued}",
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
            issued_at=now,
            expires_at=now + 10**9,
        )
        soak.truth.valid.add(certificate.id)
        changes = {"certificate": certificate.id, "served": "", "tenant": ""}
        await hold.record(node=node.moved(State.CERTIFIED, now, **changes), certificate=certificate)
        return ()


class WatchedStore:
    """The store itself; what it is given of nodes is told to the truth's keeper."""

    def __init__(self, store: Any, soak: Soak) -> None:
        self._store, self._soak = store, soak

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def record(self, operation: Any, **given: Any) -> Any:
        told = await self._store.record(operation, **given)
        self._soak.saw(told[1])
        return told

    async def save_node(self, node: Node) -> Node:
        stored: Node = await self._store.save_node(node)
        self._soak.saw(stored)
        return stored

    async def revoke(self, certificate: str, reason: str, now: float) -> None:
        self._soak.truth.valid.discard(certificate)
        await self._store.revoke(certificate, reason, now)


class Soak:
    """One world: a few leaves and nodes, a store, and daemons that come and go."""

    def __init__(self, seed: int, nodes: int = 4, pace_s: float = 4.0) -> None:
        self.seed, self.pace_s = seed, pace_s
        self.rng = random.Random(f"ports {seed}")
        self.clock = VirtualClock()
        self.schedule = Schedule()
        self.steps: Counter[str] = Counter()
        self.issued = 0
        self.switches: dict[str, Switch] = {}
        self.cut: dict[str, float] = {}  # leaf -> when it answers again
        self.left: list[tuple[str, str]] = []  # (leaf, revision) of somebody else
        self.last = ""  # what chance did last, for people
        durations = SwitchDurations(reboot_s=20.0)
        for number in range(LEAVES):
            switch = WatchedSwitch(
                f"leaf-{number}",
                self.schedule,
                seed=f"{seed}/{number}",
                version="5.12.1",
                durations=durations,
            )
            for vrf in (MAINTENANCE, *TENANTS.values()):
                switch.add_vrf(vrf, 65000 + number)
            self.switches[switch.name] = switch
        self.nvue = {n: NvueService(s, self.clock) for n, s in self.switches.items()}
        for name, service in self.nvue.items():
            service.reachable = lambda name=name: self.clock.now() >= self.cut.get(name, 0.0)
        self.hosts = [self._host(number) for number in range(nodes)]
        self.truth = PortTruth(
            self.switches,
            {
                n.id: tuple(
                    (p.switch, p.interface, str(ipaddress.ip_interface(p.address).network))
                    for p in n.ports
                )
                for n in self.hosts
            },
            TENANTS,
            self.clock.now,
        )
        for switch in self.switches.values():
            assert isinstance(switch, WatchedSwitch)
            switch.truth = self.truth
        self.wire = Wire(self)
        self.settings = Settings(
            switch_apply_limit_s=20.0, switch_poll_s=1.0, retry_s=2.0, retry_max_s=30.0
        )
        self.store: Any = WatchedStore(open_store(":memory:", inline=True), self)
        self.driving: dict[str, asyncio.Task[None]] = {}

    def _host(self, number: int) -> Node:
        ports = []
        for rail in range(LEAVES):
            address = f"172.{32 * rail}.0.{2 * number + 1}/31"
            self.switches[f"leaf-{rail}"].add_port(f"swp{number + 1}", address)
            ports.append(
                Port(
                    switch=f"leaf-{rail}",
                    interface=f"swp{number + 1}",
                    rail=rail,
                    nic_slot=f"NIC_{rail}",
                    address=address,
                )
            )
        return Node(
            id=f"node-{number}",
            kind=NodeKind.HOST,
            state=State.INTAKE,
            profile="given",
            release="given",
            location=Location(index=number),
            ports=tuple(ports),
        )

    # --- a life

    async def live(self, steps: int) -> None:
        """At least so many steps, then rest. Raises `Violated`."""
        for switch in self.switches:
            url = f"https://{switch}"
            await self.store.add_node(Node(id=switch, kind=NodeKind.SWITCH, address=url))
        for node in self.hosts:
            self.saw(await self.store.add_node(node))
        for name, vrf in TENANTS.items():
            await self.store.put_tenant(Tenant(name=name, vrf=vrf, nodes_wanted=9))
        self._start()
        for node in self.hosts:
            await self._operation(node.id)
        acts, weights = list(ACTS), list(ACTS.values())
        while self.steps.total() < steps:
            await self.clock.sleep(self.rng.expovariate(1 / self.pace_s))
            self.advance()
            act = self.rng.choices(acts, weights)[0]
            if await getattr(self, "_" + act.replace(" ", "_"))():
                self.last = act
                self.count(act)
            await self._reap()
            self.truth.look()
            self.truth.judge()
        await self._rest()
        await self.store.close()

    async def _rest(self) -> None:
        """Nothing fails any more: everything comes to its rest, and is known there."""
        self.wire.lost = 0.0
        self.cut.clear()
        for switch in self.switches.values():
            switch.leaks.clear()
        until = self.clock.now() + RESTS_WITHIN_S
        while self.driving:
            if self.clock.now() > until:
                raise Violated(f"no rest within {RESTS_WITHIN_S} s: {sorted(self.driving)}")
            await self.clock.sleep(5.0)
            await self._reap()
        self.advance()
        for node in self.hosts:
            self.truth.at_rest(node.id)
        self.truth.judge()
        assert not await self.store.active_operations()
        await self.tenancy.close()

    def advance(self) -> None:
        """Everything that is due happens."""
        self.schedule.advance(self.clock.now())

    def count(self, what: str) -> None:
        """One step."""
        self.steps[what] += 1

    def saw(self, node: Node | None) -> None:
        """A row was written."""
        if node is None or node.kind is not NodeKind.HOST:
            return
        self.advance()
        row = Row(
            state=node.state.value,
            placement=node.placement.value,
            vrf=node.vrf,
            tenant=node.tenant,
            served=node.served,
            certificate=node.certificate,
        )
        self.truth.row_written(node.id, row)

    # --- the daemon

    def _start(self) -> None:
        effects = Effects(
            clock=self.clock,
            settings=self.settings,
            reach=Reach(None, self.wire, Credentials()),  # type: ignore[arg-type]
            runner=None,
            shell=None,
            agents=None,
            artifacts=None,
        )
        self.tenancy = Tenancy(effects, self.store)
        hosts: Any = Hosts(self, self.tenancy)
        nobody: Any = None  # asked for nothing in these states
        performer = Performer(
            self.store,
            self.clock,
            self.settings,
            observer=hosts,
            identifier=nobody,
            executor=nobody,
            tenancy=self.tenancy,
            eraser=nobody,
            certifier=hosts,
        )
        self.reconciler = Reconciler(self.store, self.clock, self.settings, hosts, performer)

    async def _operation(self, node: str) -> bool:
        operation = await self.store.open_operation(node, "journey", self.clock.now())
        if operation is None:
            return False
        self._drive(operation)
        return True

    def _drive(self, operation: Any) -> None:
        task = asyncio.create_task(self.reconciler.drive(operation.id), name=operation.id)
        self.driving[operation.node] = task

    async def _reap(self) -> None:
        """Operations that have ended: whoever rests is known."""
        for node, task in list(self.driving.items()):
            if task.done():
                del self.driving[node]
                task.result()
                ended = await self.store.operation(task.get_name())
                if ended.status is not OperationStatus.DONE:
                    raise Violated(f"{node} is parked: a fault of ours")
                self.truth.at_rest(node)

    async def _idle(self, *states: State) -> Node | None:
        """A node on which nobody works, in one of these states."""
        for node in self.rng.sample(self.hosts, len(self.hosts)):
            if node.id not in self.driving and self.truth.rows[node.id].state in states:
                found: Node | None = await self.store.node(node.id)
                return found
        return None

    # --- what chance does; False: there was nothing to do it to

    async def _release(self) -> bool:
        node = await self._idle(State.CERTIFIED)
        if node is None:
            return False
        tenant = self.rng.choice(list(TENANTS))
        await self.store.save_node(node.model_copy(update={"tenant": tenant}))
        return await self._operation(node.id)

    async def _reclaim(self) -> bool:
        node = await self._idle(State.RELEASED)
        if node is None:
            return False
        asked = requests.reclaim(node, self.clock.now())
        assert isinstance(asked, Node)
        await self.store.save_node(asked)
        return await self._operation(node.id)

    async def _retry(self) -> bool:
        node = await self._idle(State.QUARANTINED)
        if node is None:
            return False
        asked = requests.retry(node, self.clock.now())
        assert isinstance(asked, Node), asked
        await self.store.save_node(asked)
        return await self._operation(node.id)

    async def _withdraw(self) -> bool:
        """A certificate is withdrawn, of whatever node; a tenant's is taken back for it."""
        node = self.rng.choice(self.hosts)
        row = self.truth.rows[node.id]
        if row.certificate not in self.truth.valid:
            return False
        await self.store.revoke(row.certificate, "withdrawn by chance", self.clock.now())
        stored = await self.store.node(node.id)
        if row.state == "released" and node.id not in self.driving:
            asked = requests.reclaim(stored, self.clock.now())
            await self.store.save_node(asked)
            await self._operation(node.id)
        return True

    async def _crash(self) -> bool:
        """The daemon is gone between two awaits; its successor finds what is still open."""
        for task in self.driving.values():
            task.cancel()
        await asyncio.gather(*self.driving.values(), return_exceptions=True)
        self.driving.clear()
        await self.tenancy.close()
        await self.clock.sleep(self.rng.choice((0.0, 0.5, 3.0, 60.0)))
        self.advance()
        self._start()
        for operation in await self.store.active_operations():
            assert operation.status is OperationStatus.ACTIVE
            self._drive(operation)
        return True

    async def _reboot(self) -> bool:
        self.switches[self._leaf()].reboot(self.clock.now())
        return True

    async def _cut_off(self) -> bool:
        self.cut[self._leaf()] = self.clock.now() + self.rng.expovariate(1 / 20.0)
        return True

    async def _leak(self) -> bool:
        leaf, _, prefix = self.rng.choice(self.truth.ports[self.rng.choice(self.hosts).id])
        vrf = self.rng.choice((MAINTENANCE, *TENANTS.values()))
        self.switches[leaf].leaks[prefix] = vrf
        self.truth.leaked_at[leaf, prefix] = self.clock.now()
        return True

    async def _leak_ends(self) -> bool:
        leaks = self.switches[self._leaf()].leaks
        if not leaks:
            return False
        del leaks[self.rng.choice(sorted(leaks))]
        return True

    async def _left_revision(self) -> bool:
        """Somebody else prepares to fence a port, and leaves it at that."""
        leaf = self._leaf()
        interface = f"swp{self.rng.randrange(len(self.hosts)) + 1}"
        revision = self.switches[leaf].new_revision()
        change: Mapping[str, Any] = {"interface": {interface: {"ip": {"vrf": MAINTENANCE}}}}
        revision.changes.append(((), change))
        self.left.append((leaf, revision.id))
        return True

    async def _stale_revision(self) -> bool:
        """... and applies it when the world has moved on."""
        if not self.left:
            return False
        leaf, name = self.left.pop(self.rng.randrange(len(self.left)))
        revision = self.switches[leaf].revisions.get(name)
        if revision is None or not self.switches[leaf].up(self.clock.now()):
            return False
        for _, change in revision.changes:
            for interface in change["interface"]:
                node = f"node-{int(interface.removeprefix('swp')) - 1}"
                self.truth.disturbed[node] = self.clock.now()
        self.switches[leaf].apply(revision, self.clock.now())
        return True

    def _leaf(self) -> str:
        return self.rng.choice(list(self.switches))
