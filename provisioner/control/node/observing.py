"""Reads every node in turn and keeps the readings, with the acts that would follow from them.

It takes the place of the scheduler and the engine in a daemon that observes. Nothing is written but
the inventory, which plans and drift are computed from. Each node is read in full every `watch_s`,
spread by its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from zlib import crc32

from provisioner import components
from provisioner.adapters.redfish.eventing.events import Pushed, find_signals
from provisioner.control.context import Context
from provisioner.control.node.credential_rotator import is_lifted
from provisioner.control.node.explaining import read_neighbours
from provisioner.control.node.observer import Observer
from provisioner.execution.observe.collector import Collector
from provisioner.execution.observe.identify import bill_of_materials
from provisioner.execution.observe.watch import OutOfBand
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.tenancy import Tenancy, find_wrong_cables
from provisioner.model.adoption.capability import Observation, PlannedStep
from provisioner.model.cohort import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan
from provisioner.model.tenant import PortPlacement
from provisioner.planning.certification import certification
from provisioner.planning.erasure import erasure
from provisioner.planning.lifecycle import credential_rotation
from provisioner.planning.lifecycle.decide import Rest, View, decide
from provisioner.planning.path.history import build_history, find_open_entries
from provisioner.planning.path.planner import PlanCache, PlanningNode
from provisioner.planning.path.profiles import choose_profile
from provisioner.planning.release import entitlement
from provisioner.ports import DamagedRow, PortError, StoreFailed
from provisioner.runtime import permit
from provisioner.runtime.event_loop import end_tasks
from provisioner.runtime.log_context import set_log_context

# ------------------------------------------------------------------------------
# Looks at nodes that rest: an operation is opened only where a look shows something to do.
#
# A look that changes nothing writes nothing: an idle fleet leaves its database, and with it every
# answer that is kept in memory, alone. What such a look saw is never acted upon; the operation that
# it opens observes and decides anew.
#
# The rule that a reader would otherwise break: every doubt is "something to do". A silent device, a
# damaged row, an open action, a stale reading and a bug of ours all go to the node's driver, which
# has the rules for them.


log = logging.getLogger(__name__)


def is_only_looked_at(node: Node) -> bool:
    """Return whether a look is all that this node can need: it rests until something changed."""
    return node.state is State.RELEASED or (node.state is State.CERTIFIED and not node.tenant)


class RestingLooks:
    """Reads nodes side by side, at most `operations_max` of them at once."""

    def __init__(
        self,
        context: Context,
        observer: Observer,
        submit: Callable[[str], Awaitable[None]],
        watch: Callable[[asyncio.Task[None]], object],
    ) -> None:
        """`watch` gets the task of each look: a failure, which is the store's, ends the daemon."""
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._observer = observer
        self._submit = submit
        self._watch = watch
        self._slots = asyncio.Semaphore(context.settings.operations_max)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> frozenset[str]:
        """Return the names of the nodes that are looked at, or wait for their look."""
        return frozenset(self._tasks)

    def begin(self, node: Node) -> None:
        """Look at a node, unless a look at it is under way; return at once."""
        if node.id in self._tasks or permit.is_observing():
            return
        task = asyncio.create_task(self._run(node.id), name=f"look at {node.id}")
        self._tasks[node.id] = task
        task.add_done_callback(lambda ended: self._drop(node.id, ended))
        self._watch(task)

    async def end(self, name: str) -> None:
        """End a look: the node's driver reads it from now on, and changes what would be seen."""
        task = self._tasks.pop(name, None)
        await end_tasks(task)

    async def close(self) -> None:
        for name in list(self._tasks):
            await self.end(name)

    def _drop(self, name: str, ended: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is ended:
            del self._tasks[name]

    async def _run(self, name: str) -> None:
        async with self._slots:
            with set_log_context(node=name):
                node = await self._store.nodes.get(name)
                if node is None or not is_only_looked_at(node) or await self._rests(node):
                    return
            self._tasks.pop(name, None)  # its driver, which may begin at once, ends no look
            operation = await self._store.operations.open(name, node.state.value, self._clock.now())
            if operation is not None:
                await self._submit(operation.id)

    async def _rests(self, node: Node) -> bool:
        """Return whether the node is seen to be as its rows say, with nothing left to do."""
        try:
            rows = await self._store.operations.list_entries(node.id)
            if find_open_entries(rows) or is_lifted(rows):
                return False
            if node.id in self._store.nodes.find_damaged():
                return False
            view = await self._observer.observe(node, "")
            return await self._changes_nothing(node, view)
        except StoreFailed:
            raise
        except (PortError, DamagedRow):
            return False
        except Exception:  # our own bug: the driver meets it too, and parks the node
            log.exception("the look at %s failed", node.id)
            return False

    async def _changes_nothing(self, node: Node, view: View) -> bool:
        """Return whether the driver of this node would record nothing new."""
        if view.unseen or not isinstance(decide(node, view, self._settings.poll_s), Rest):
            return False
        if node.state is State.CERTIFIED:
            return True
        causes = certification.list_causes(view.certificate_blockers)
        if causes != node.blockers:
            return False
        if certification.is_lost(causes) and not await self._store.evidence.is_revoked(
            node.certificate
        ):
            return False
        # the next look compares its boot with what is stored
        last = await self._store.evidence.get_inventory(node.id)
        seen = view.inventory
        return seen is None or (last is not None and last.digest() == seen.digest())


ROUND_S = 5.0
NODES_MAX = 16  # read at the same time; each BMC has its own limits beside it
LISTED_MAX = 4096  # ports without a node, for people


@dataclass(frozen=True)
class Eyes:
    """The readers that a node is observed with."""

    collector: Collector
    tenancy: Tenancy
    rechecks: Rechecks
    bmcs: OutOfBand


class SiteObserver:
    """`run` observes for ever; `observations` and `ports` have the last readings."""

    def __init__(self, context: Context, eyes: Eyes, matrix: Matrix) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._eyes = eyes
        self._matrix = matrix
        leave = frozenset(context.settings.switch_methods_allowed)
        way = context.settings.maintenance_boot
        production = context.settings.production
        self._plans = PlanCache(matrix, components.ALL, production, leave, way)
        self._erasure = erasure.policy_of(context.settings)
        self._due: dict[str, float] = {}
        self.observations: dict[str, Observation] = {}
        self.ports: dict[str, str] = {}  # "leaf/port" -> why it is strange

    @property
    def tenancy(self) -> Tenancy:
        return self._eyes.tenancy

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            await self.round()
            await self._clock.sleep(ROUND_S)

    async def round(self) -> None:
        """Read the nodes and leaves whose turn it is, some at a time."""
        nodes = {n.id: n for n in await self._store.nodes.list() if n.state is not State.RETIRED}
        now = self._clock.now()
        for name in [n for n in self._due if n not in nodes]:
            del self._due[name]
            self.observations.pop(name, None)
        for name in nodes:
            first = name not in self.observations and name not in self._due
            share = crc32(name.encode()) / 2**32
            # the first reading of a node is not put off: a person waits for it
            self._due.setdefault(name, now if first else now + share * self._settings.watch_s)
        due = sorted((at, name) for name, at in self._due.items() if at <= now)
        places = asyncio.Semaphore(NODES_MAX)

        async def observe(name: str) -> None:
            async with places:
                await self._observe(nodes[name])

        await asyncio.gather(*(observe(name) for _, name in due))
        if due:
            await self._list_ports(nodes)

    async def _observe(self, node: Node) -> None:
        self._due[node.id] = self._clock.now() + self._settings.watch_s
        try:
            self.observations[node.id] = await self.look(node)
        except DamagedRow as error:
            log.error("%s is not observed: %s", node.id, error)

    async def look(self, node: Node) -> Observation:
        """Read one node: inventory, ports, cables, health; plan and judge it by that."""
        inventory, unread = await self._read_parts(node)
        read = await self._read_ports(node)
        unread = (*unread, read) if isinstance(read, Blocker) else unread
        placed = () if isinstance(read, Blocker) else read
        judged, wrong = self._choose_profile(node, inventory)
        plan = await self._plan(judged, inventory)
        vrf_of = {t.name: t.vrf for t in await self._store.tenants.list()}
        misplaced = credential_rotation.judge_ports(node, placed, vrf_of)
        if isinstance(read, Blocker):
            misplaced = ()
        refused = await self._judge_certificate(judged, inventory, plan)
        view = credential_rotation.build_view(
            node, inventory, plan, None if isinstance(read, Blocker) else read
        ).model_copy(update={"unseen": unread, **await self._read_rows(node, vrf_of, refused)})
        return Observation(
            node=node.id,
            at=self._clock.now(),
            state=node.state,
            vrfs=tuple(sorted({p.vrf for p in placed if p.vrf})),
            would=credential_rotation.list_would_acts(node, view, placed, misplaced),
            steps=_list_steps(plan),
            resets=0 if plan is None else plan.resets,
            duration_s=0 if plan is None else plan.duration_s,
            plan_blockers=(*wrong, *(() if plan is None else plan.blockers)),
            ports=misplaced,
            cabling=await self._compare_cables(node),
            health=await self._read_health(node),
            certificate=refused,
            unread=unread,
        )

    async def _read_parts(self, node: Node) -> tuple[Inventory | None, tuple[Blocker, ...]]:
        """Return the inventory, partial where a source is silent; a full one is stored."""
        inventory, unread = await self._eyes.collector.collect(node)
        if inventory is not None and not unread:
            await self._store.evidence.put_inventory(inventory, self._clock.now())
            return inventory, ()
        return await self._eyes.collector.survey(node), unread

    async def _read_ports(self, node: Node) -> tuple[PortPlacement, ...] | Blocker:
        if node.kind is not NodeKind.HOST or not node.ports:
            return ()
        return await self._eyes.tenancy.read(node.ports)

    async def _read_rows(
        self, node: Node, vrf_of: Mapping[str, str], refused: tuple[Blocker, ...]
    ) -> dict[str, object]:
        """Return the rows' part of a view: certificate, owed erasure, and the tenant's VRF."""
        held = None
        if node.certificate:
            held = await self._store.evidence.get_certificate(node.certificate)
        return {
            "certificate": held,
            "certificate_blockers": () if held is None else refused,
            "owed": erasure.require_erasure(node, self._erasure),
            "tenant_vrf": vrf_of.get(node.tenant, ""),
        }

    def _choose_profile(
        self, node: Node, inventory: Inventory | None
    ) -> tuple[Node, tuple[Blocker, ...]]:
        """Return the node with the profile that fits its parts; its row is not changed."""
        release = self._matrix.releases.get(node.release)
        if inventory is None or release is None or node.profile:
            return node, ()
        profile = choose_profile(inventory, release, node.kind)
        if isinstance(profile, Blocker):
            return node, (profile,)
        wrong = bill_of_materials(node, inventory, profile, release.profiles[profile])
        return node.model_copy(update={"profile": profile}), wrong

    async def _plan(self, node: Node, inventory: Inventory | None) -> Plan | None:
        if inventory is None or not node.profile:
            return None
        past = build_history(await self._store.operations.list_entries(node.id), "")
        around = await read_neighbours(self._store, node)
        posed = PlanningNode(inventory, node.release, node.profile, past, around)
        return await asyncio.to_thread(self._plans.plan, posed)

    async def _compare_cables(self, node: Node) -> tuple[Blocker, ...]:
        if node.kind is not NodeKind.HOST or not node.ports:
            return ()
        return await find_wrong_cables(self._eyes.tenancy, self._eyes.rechecks, node)

    async def _read_health(self, node: Node) -> tuple[str, ...]:
        now = self._clock.now()
        conditions: list[str] = []
        for bmc in node.bmcs:
            if bmc.kind == "switch":
                continue
            entries = await self._eyes.bmcs.read_log(node, bmc)
            if isinstance(entries, Blocker):
                continue  # it is among the sources that gave no answer
            received = find_signals(Pushed(events=entries), node.id, bmc.name, now)
            conditions += [f"{s.target}: {s.message}" for s in received if s.active]
        return tuple(dict.fromkeys(conditions))

    async def _judge_certificate(
        self, node: Node, inventory: Inventory | None, plan: Plan | None
    ) -> tuple[Blocker, ...]:
        """Return why the certificate in force is invalid, or why none would be issued."""
        if inventory is None:
            return ()
        now = self._clock.now()
        evidence = self._store.evidence
        certificate = await evidence.get_certificate(node.certificate) if node.certificate else None
        if certificate is not None:
            signed, revoked = await evidence.read_trust(certificate)
            return certification.find_invalidity(
                certificate=certificate,
                inventory=inventory,
                node=node,
                signed=signed,
                revoked=revoked,
                now=now,
            )
        if plan is None:
            return ()
        unchecked = HealthReport(
            node=node.id,
            inventory_digest=certification.identify_installation(inventory),
            started_at=now,
            ended_at=now,
            results=(),
        )
        report = await evidence.get_report(node.id) or unchecked
        return certification.find_blockers(
            node=node, inventory=inventory, plan=plan, report=report, now=now
        )

    async def _list_ports(self, nodes: Mapping[str, Node]) -> None:
        """List the ports that stand in a tenant's VRF and belong to no node."""
        owned = {(p.switch, p.interface) for n in nodes.values() for p in n.ports}
        listed: dict[str, str] = {}
        for leaf in sorted({switch for switch, _ in owned}):
            ports = await self._eyes.tenancy.tenant_ports(leaf, entitlement.SITE_VRFS)
            if isinstance(ports, Blocker):
                listed[leaf] = f"its ports were not read: {ports.detail}"
                continue
            for interface, port in ports.items():
                if (leaf, interface) not in owned and len(listed) < LISTED_MAX:
                    vrfs = " and ".join(sorted(port.vrfs))
                    listed[f"{leaf}/{interface}"] = f"it stands in VRF {vrfs}; no node owns it"
        self.ports = listed


def _list_steps(plan: Plan | None) -> tuple[PlannedStep, ...]:
    steps = () if plan is None else plan.steps
    return tuple(PlannedStep(title=s.title, method=s.method, reason=s.reason) for s in steps)
