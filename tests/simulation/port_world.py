"""The world of the soak of ports: leaves, a wire that loses, nodes, a store, and one daemon."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from port_given import TENANTS, Credentials, GivenEraser, Hosts, watch_store
from port_members import NEAR_MS, Members
from port_truth import MAINTENANCE, PortTruth, Row
from virtual_time import VirtualClock

from provisioner.control.context import Context
from provisioner.control.node.performer import Performer
from provisioner.control.node.reconciler import Reconciler
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.control.watch.leaf_watch import LeafWatch
from provisioner.control.watch.release_watch import ReleaseWatch
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.integrations.sim.hardware.clock import Schedule
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.integrations.sim.switches.switch import Neighbour, Switch, SwitchDurations
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.ports import Call, Reply, SwitchAddress, Unreachable
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings
from provisioner.store import open_store

LEAVES = 2
WATCH_S = 30.0
# One way. A few times only, so that what is sent together often arrives together: a turn of the
# event loop costs as much as a request, and thousands of them took half of the soak's time.
WIRE_S = (0.01, 0.04, 0.1, 0.2)
NO_ANSWER_S = 3.0  # until a request to a device that cannot be reached is given up
CUT_SHORT = 0.3  # of the half answers; in the others members are missing
MEMBERS = 2
BMCS = 2  # of a host; nothing asks them here, but a daemon reaches them or not


class Lie(NamedTuple):
    """What is shown of a port instead of what is so, in so many answers."""

    vrf: str
    left: int
    counted: str


class WatchedSwitch(Switch):
    """Tells the truth's keeper of every port that changes its VRF."""

    truth: PortTruth | None = None
    heard = 0

    def log_event(self, now: float, kind: str, subject: str, detail: str = "") -> None:
        self.heard += 1
        if kind == "vrf" and self.truth is not None:
            leaf, interface = subject.split("/", 1)
            self.truth.port_moved(leaf, interface)
            self.truth.had.setdefault((leaf, interface), set()).add(self.get_vrf(interface))


class Wire:
    """`SwitchTransport` onto the simulated switches; what has left the daemon arrives."""

    def __init__(self, soak: PortWorld) -> None:
        self.soak = soak
        self.lost = 0.02
        self.halves: Counter[str] = Counter()  # leaf -> answers left of which a part is missing
        self.lies: dict[tuple[str, str], Lie] = {}  # by port
        self.requests = 0

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        if call.method == "GET":
            return await self._request(switch, call)  # nothing comes of it if nobody waits
        task = asyncio.ensure_future(self._request(switch, call))
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        return await asyncio.shield(task)

    async def _request(self, switch: SwitchAddress, call: Call) -> Reply:
        soak, rng = self.soak, self.soak.rng
        self.requests += 1
        name = urlsplit(switch.url).hostname or ""
        if not soak.member.reaches((name,)):
            await asyncio.sleep(NO_ANSWER_S)
            raise Unreachable("no route from this machine", maybe_executed=False)
        await asyncio.sleep(rng.choice(WIRE_S))
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
        await asyncio.sleep(rng.choice(WIRE_S))
        if roll < self.lost:
            soak.count("lost answer")
            raise Unreachable("the answer was lost", maybe_executed=True)
        body = told.body if call.method != "GET" else self._misread(name, told.body)
        return Reply(told.status, {}, body)

    def _misread(self, leaf: str, body: bytes) -> bytes:
        """An answer as it is read: a part of it alone, or a port in another network than it is."""
        if self.halves[leaf]:
            self.halves[leaf] -= 1
            self.soak.count("half answer")
            return self._halve(body)
        mine = {port: lie for port, lie in self.lies.items() if port[0] == leaf}
        if not mine:
            return body
        tree = json.loads(body)
        for port, lie in mine.items():
            shown = tree.get(port[1]) if isinstance(tree, dict) else None
            if not isinstance(shown, dict) or "vrf" not in shown.get("ip", {}):
                continue
            shown["ip"]["vrf"] = lie.vrf
            self.soak.count(lie.counted)
            self.lies[port] = lie._replace(left=lie.left - 1)
            if lie.left <= 1:
                del self.lies[port]
        return json.dumps(tree).encode()

    def _halve(self, body: bytes) -> bytes:
        """Cut short, or with half of its members."""
        tree, rng = json.loads(body), self.soak.rng
        if not isinstance(tree, dict) or len(tree) < 2 or rng.random() < CUT_SHORT:
            return body[: len(body) // 2]
        kept = sorted(rng.sample(sorted(tree), len(tree) // 2))
        return json.dumps({key: tree[key] for key in kept}).encode()

    async def close(self) -> None:
        return None


class PortWorld:
    """A few leaves and nodes, a store, and the reconciler with all that it needs for ports."""

    def __init__(
        self,
        seed: int,
        nodes: int = 4,
        pace_s: float = 4.0,
        sabotage: Callable[[PortWorld], None] = lambda _world: None,
    ) -> None:
        """`sabotage` spoils each daemon before it begins: the truth's keeper has to see it."""
        self.seed, self.pace_s, self.sabotage = seed, pace_s, sabotage
        self.rng = random.Random(f"ports {seed}")
        self.clock = VirtualClock()
        self.schedule = Schedule()
        self.steps: Counter[str] = Counter()
        self.issued = self.swaps = 0
        self.valid_s = 3600.0  # of a certificate: some end within a life
        self.switches: dict[str, Switch] = {}
        self.cut: dict[str, float] = {}  # leaf -> when it answers again
        self.left: list[tuple[str, str]] = []  # (leaf, revision) of somebody else
        self.unsaved: set[tuple[str, str]] = set()  # (leaf, interface) that a stale revision fenced
        self.kept: dict[str, Any] = {}  # leaf -> a copy of what it started with
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
        self.truth.drives = {n.id: f"{n.id}-drive-0" for n in self.hosts}
        for switch in self.switches.values():
            assert isinstance(switch, WatchedSwitch)
            switch.truth = self.truth
        self._join_members()
        self.wire = Wire(self)
        self.settings = Settings(
            switch_apply_limit_s=20.0,
            switch_poll_s=1.0,
            retry_s=2.0,
            retry_max_s=30.0,
            release_settle_s=15.0,
            watch_ports_s=WATCH_S,
            release_probes="off",  # no hosts here: what packets do is tried in tests/fabric
        )
        self.store = open_store(":memory:", inline=True)
        watch_store(self.store, self)
        for lane in (self.store.writer, self.store.reader):
            lane.run = self._far(lane.run)
        self.driving: dict[str, asyncio.Task[None]] = {}
        self.watching: list[asyncio.Task[None]] = []

    def _join_members(self) -> None:
        """Two daemons on one database, of which one runs."""
        devices = [*self.switches, *(f"{n.id}-bmc{k}" for n in self.hosts for k in range(BMCS))]
        self.members = Members(MEMBERS, devices, self.rng)
        self.member = self.members.all[0]  # whose daemon runs
        self.worse_at: float | None = None  # since when another member could do its work better
        self.idle_at: dict[str, float] = {}  # operations that nobody drives -> since when
        self.driverless_s = 0.0  # the longest of those times

    def _host(self, number: int) -> Node:
        ports = []
        for rail in range(LEAVES):
            address = f"172.{32 * rail}.0.{2 * number + 1}/31"
            mac = f"94:6d:ae:00:{rail:02x}:{number:02x}"
            card = Neighbour(f"node-{number}", f"rail{rail}", mac)
            self.switches[f"leaf-{rail}"].add_port(f"swp{number + 1}", address, card)
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

    def _far(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The store's work as the daemon sees it that runs: its database is near, or far."""

        async def ran(work: Any) -> Any:
            way_s = 0.0 if self.member.round_trip_ms == NEAR_MS else self.member.round_trip_ms / 2e3
            if not way_s:
                return await run(work)
            await self.clock.sleep(way_s)
            result = await run(work)
            await self.clock.sleep(way_s)  # committed, and nobody here knows yet
            return result

        return ran

    def advance(self) -> None:
        """Everything that is due happens."""
        self.schedule.advance(self.clock.now())

    def inventory(self, node: str) -> Inventory:
        """The parts of a host as they are now: one drive."""
        drive = Device(kind=DeviceKind.STORAGE, slot="0", serial=self.truth.drives[node])
        return Inventory(node=node, vendor="given", devices=(drive,))

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

    async def submit(self, operation: str) -> None:
        """As the engine does."""
        raise NotImplementedError

    def _start(self) -> None:
        parts = build_parts(self, self.store, self.clock, self.wire, self.submit)
        self.tenancy, self.reconciler = parts.tenancy, parts.reconciler
        self.given, self.violations = parts.given, parts.violations
        self.leaf_watch = parts.leaf_watch
        self.sabotage(self)
        self.watching = [
            asyncio.create_task(w.run()) for w in (parts.release_watch, parts.leaf_watch)
        ]


class PortParts(NamedTuple):
    """The parts of one daemon that ports depend on."""

    tenancy: Tenancy
    reconciler: Reconciler
    given: Any
    violations: IsolationViolations
    release_watch: ReleaseWatch
    leaf_watch: LeafWatch


def build_parts(soak: Any, store: Any, clock: Any, wire: Any, submit: Any) -> PortParts:
    """Return the parts of a daemon on this store, behind this wire; `soak` gives its hosts."""
    effects = Effects(
        clock=clock,
        settings=soak.settings,
        reach=Reach(None, make_switches(wire), Credentials()),  # type: ignore[arg-type]
        runner=None,
        shell=None,
        agents=None,
        artifacts=None,
    )
    tenancy = Tenancy(effects, store)
    hosts: Any = Hosts(soak, tenancy)
    eraser: Any = GivenEraser(soak)
    violations = IsolationViolations(store, clock)
    nobody: Any = None  # asked for nothing in these states
    context = Context(store, clock, soak.settings)
    performer = Performer(
        context,
        observer=hosts,
        identifier=nobody,
        executor=nobody,
        tenancy=tenancy,
        eraser=eraser,
        certifier=hosts,
        violations=violations,
    )
    released = ReleaseWatch(context, tenancy, submit)
    leaves = LeafWatch(context, tenancy, violations, released.take_back)
    reconciler = Reconciler(context, hosts, performer)
    return PortParts(tenancy, reconciler, hosts, violations, released, leaves)
