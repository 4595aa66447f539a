"""Move a node's ports between VRFs, and prove where they are.

The result is the leaves' behaviour (operational state, routes, startup configuration), never the
request sent to them. Everything is absolute and idempotent: an unsure caller observes and does it
again. Towards a customer, leaves are taken one after the other for a host, so that one mistake
meets one rail and never both leaves of a redundant pair; with one leaf per rail, a pair is any two
of its leaves. Towards maintenance all leaves are changed at once: each second counts there. Only
the reconciler's performer and observer reach this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from provisioner.execution.actions.reach import Lookup, SwitchSource
from provisioner.execution.actions.work import Site
from provisioner.execution.tenancy.leaf import Leaf, LeafOutcome, Objections, Routes
from provisioner.execution.tenancy.memberships import Memberships
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.model.host_filter import DatabaseMark, Door, FilterState, PortLabel, write_label
from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow, LeafState, RowVerdict
from provisioner.model.switch import Move, TenantPort
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement, Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.place_ports import plan_port_filter
from provisioner.planning.release import release_cables
from provisioner.planning.release.port_isolation import (
    find_misplaced_ports,
    find_route_leaks,
    make_leak_blocker,
    prefixes_of,
)
from provisioner.ports import Clock, HostShell, PortError, SwitchAddress
from provisioner.runtime.event_loop import end_tasks
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Looks at one leaf for the gate of a release, in looks that callers share.
#
# A caller that comes while a look is being read gets the next one, because the part of its question
# may have changed after that part was read.


GATHER_PART = 0.2  # of `switch_gather_s`


class LeafLook:
    """Looks at one leaf. `state` may be called by any number of nodes at once."""

    def __init__(self, source: SwitchSource, clock: Clock, limits: Settings) -> None:
        self._source = source
        self._clock = clock
        self._limits = limits
        self._wanted: set[str] = set()
        self._next: asyncio.Task[LeafState | Blocker] | None = None
        self._reading: set[asyncio.Task[LeafState | Blocker]] = set()

    async def state(self, interfaces: Collection[str]) -> LeafState | Blocker:
        """Return the leaf with at least these ports, read after this was called."""
        self._wanted |= set(interfaces)
        if self._next is None:
            self._next = asyncio.create_task(self._look(), name=f"look at {self._source.name}")
            self._reading.add(self._next)
            self._next.add_done_callback(self._reading.discard)
        return await asyncio.shield(self._next)

    async def heard(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return the devices that one port hears by LLDP; () if the leaf does not report them."""
        try:
            return await (await self._source.open()).read_neighbours(interface)
        except PortError as problem:
            self._source.describe(problem)
            return frozenset()

    async def learned(self) -> Mapping[str, frozenset[str]]:
        """Return port -> MACs learned there; {} if the leaf does not report them."""
        try:
            return await (await self._source.open()).read_macs()
        except PortError as problem:
            self._source.describe(problem)
            return {}

    async def close(self) -> None:
        await end_tasks(*self._reading)

    async def _look(self) -> LeafState | Blocker:
        try:
            await self._clock.sleep(self._limits.switch_gather_s * GATHER_PART)
        finally:
            interfaces = sorted(self._wanted)
            self._wanted = set()
            self._next = None
        try:
            return await (await self._source.open()).read_state(interfaces)
        except PortError as problem:
            return self._source.describe(problem)


# ------------------------------------------------------------------------------
# Moves of ports into a tenant's VRF, each with the filter of the tenant's security groups.


def plan_move(port: Port, vrf: str, label: str, tenant: Tenant | None, node: Node | None) -> Move:
    bond = port.bond if port.bond and port.bond.made else None
    move = Move(port.interface, vrf, port.address, description=label, bond=bond)
    if tenant is None:
        return move
    guard, rules = plan_port_filter(tenant, "" if node is None else node.id, port.rail)
    return replace(move, guard=guard, rules=rules)


def sort_by_switch(ports: Sequence[Port], moves: Sequence[Move]) -> dict[str, list[Move]]:
    """Return the moves of these ports by their leaf, both in order."""
    by_switch: dict[str, list[Move]] = {}
    pairs = zip(ports, moves, strict=True)
    for port, move in sorted(pairs, key=lambda p: (p[0].switch, p[0].interface)):
        by_switch.setdefault(port.switch, []).append(move)
    return by_switch


def find_changed_groups(before: Tenant | None, after: Tenant | None) -> tuple[Blocker, ...]:
    """Return a blocker if the groups by which ports were moved are no longer the tenant's."""
    if before is None or (after and after.security_groups == before.security_groups):
        return ()
    return (
        Blocker(
            reason=Reason.PRECONDITION,
            subject=before.name,
            detail="its security groups were changed during the move",
            unblock="It is tried again with the new ones.",
        ),
    )


Count = tuple[float, int]  # when a port's counter was read, and the bytes that it has sent
Key = TypeVar("Key")
Answer = TypeVar("Answer")

# Why a leaf may have refused a fence because of the filter that came with it.
_OF_FILTER = (Reason.SWITCH_REFUSED, Reason.MALFORMED, Reason.ISOLATION)


@dataclass(frozen=True)
class MoveOutcome:
    """The result of a move. No blockers: every port is proved in the VRF, without a leak, and
    saved.

    With blockers, `placements` is the last reading (possibly empty); `revisions` are
    "switch:revision" of the changes.
    """

    placements: tuple[PortPlacement, ...] = ()
    revisions: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    persisted: bool = False


class Tenancy:
    """All leaves of the site; each is looked up in the store when it is first needed."""

    def __init__(
        self,
        site: Site,
        store: SqlStore,
        plan: AddressPlan | None = None,
        spaces: TenantSpaces | None = None,
        memberships: Memberships | None = None,
    ) -> None:
        """`plan` gives tenants' route targets; without it, those configured count. `spaces`: of the
        site's shared storage. `memberships`: of what integrations bring beside it.
        """
        self.site = self._site = site
        self.plan = plan
        self._store = store
        self.spaces = spaces
        self.memberships = memberships
        self.mark: DatabaseMark | None = None  # None: ports' descriptions are left alone
        self._leaves: dict[str, Leaf] = {}
        self._looks: dict[str, LeafLook] = {}

    def name_ports(self, mark: DatabaseMark | None) -> None:
        """Describe moved ports by node, tenant and epoch from now on: a restored database learns
        from them what it lacks. Not before the rows were compared with them.
        """
        self.mark = mark

    async def read(self, ports: Sequence[Port]) -> tuple[PortPlacement, ...] | Blocker:
        """The VRF of every port; one that is not settled is named with each VRF it may be in."""
        answers = await _answers(
            {
                switch: self._leaf(switch).vrfs([p.interface for p in mine])
                for switch, mine in _by_leaf(ports).items()
            }
        )
        placements = []
        for switch, vrfs in answers.items():
            if isinstance(vrfs, Blocker):
                return vrfs
            placements += [
                PortPlacement(switch=switch, interface=interface, vrf=vrf)
                for interface, vrfs_of_port in sorted(vrfs.items())
                for vrf in sorted(vrfs_of_port)
            ]
        return tuple(placements)

    async def read_group(self, ports: Sequence[Port]) -> tuple[PortPlacement, ...] | Blocker:
        """Return the VRF of every port of several nodes, as `read` does of one."""
        return await self.read(ports)

    def find_unjudged(self, ports: Sequence[Port]) -> Blocker | None:
        """Return why no reading shows the networks of a node with these ports; None if one does."""
        return None

    def group_ports(self, ports: Sequence[Port]) -> Mapping[str, Sequence[Port]]:
        """Return ports by the device that lists their networks: their leaf."""
        return _by_leaf(ports)

    async def tenant_ports(
        self, switch: str, site_vrfs: Collection[str]
    ) -> Mapping[str, TenantPort] | Blocker:
        """Return every port of one leaf that is, or will be, in a VRF not in `site_vrfs`."""
        return await self._leaf(switch).tenant_ports(site_vrfs)

    async def read_labels(self, switch: str) -> Mapping[str, PortLabel] | Blocker:
        """Return what our descriptions at one leaf's ports say."""
        return await self._leaf(switch).labels()

    async def look(self, ports: Sequence[Port]) -> dict[str, LeafState] | Blocker:
        """Return all that the gate of a release judges, of every leaf of these ports, read now."""
        answers = await _answers(
            {
                switch: self._look(switch).state([p.interface for p in mine])
                for switch, mine in _by_leaf(ports).items()
            }
        )
        states = {}
        for switch, state in answers.items():
            if isinstance(state, Blocker):
                return state
            states[switch] = state
        return states

    async def look_at(self, leaves: Sequence[str]) -> dict[str, LeafState]:
        """Return the same of these leaves, without a port; one that gave no answer is not in it."""
        answers = await _answers({name: self._look(name).state(()) for name in leaves})
        return {n: s for n, s in answers.items() if isinstance(s, LeafState)}

    async def heard(
        self, ports: Sequence[Port]
    ) -> dict[tuple[str, str], frozenset[tuple[str, str]]]:
        """Return the LLDP neighbours of the leaves' ports: (leaf, interface) -> (system, port)."""
        plugs = [p.plug for p in ports if not p.guid]
        return await _answers({plug: self._look(plug[0]).heard(plug[1]) for plug in plugs})

    async def learned(self, leaves: Collection[str]) -> dict[tuple[str, str], frozenset[str]]:
        """Return (leaf, interface) -> MACs that the leaf learned at that port."""
        answers = await _answers({name: self._look(name).learned() for name in leaves})
        return {
            (name, port): macs for name, ports in answers.items() for port, macs in ports.items()
        }

    async def partitions(self, ports: Sequence[Port], vrf: str) -> tuple[GateRow, ...]:
        """The gate's rows of InfiniBand ports; leaves have none, so that they are unknown here."""
        return tuple(
            GateRow(check=GateCheck.PORT_VRF, subject=port.guid, verdict=RowVerdict.UNKNOWN)
            for port in ports
        )

    async def deny(self, ports: Sequence[Port], vrf: str) -> tuple[Blocker, ...]:
        """Let nothing through these ports, which stay in `vrf`; () if every leaf says so."""
        answers = await asyncio.gather(
            *(
                self._leaf(s).move([Move(p.interface, vrf, p.address, denied=True) for p in mine])
                for s, mine in _by_leaf(ports).items()
            )
        )
        return tuple(b for outcome in answers for b in outcome.blockers)

    async def quiet(self, ports: Sequence[Port], limit_s: float) -> bool:
        """Wait until nothing goes out of these ports any more, at most `limit_s`."""
        clock = self._site.clock
        settings = self._site.settings
        until = clock.now() + limit_s
        last: dict[tuple[str, str], Count] = {}
        while clock.now() < until:
            states = await self.look(ports)
            if isinstance(states, Blocker):
                return False
            busy = False
            new = {}
            for port in ports:
                at = states[port.switch].at
                state = states[port.switch].ports[port.interface]
                key = (port.switch, port.interface)
                if state.out_bytes is None:
                    return False  # it does not count: nothing to wait for
                new[key] = (at, state.out_bytes)
                busy = busy or not is_idle(last.get(key), new[key], settings.switch_idle_bps)
            if not busy:
                return True
            last = new
            await clock.sleep(settings.switch_poll_s)
        return False

    @property
    def _beside(self) -> Sequence[Memberships | TenantSpaces]:
        """What a node is in beside networks, in the order in which it enters and is taken back."""
        return [one for one in (self.memberships, self.spaces) if one is not None]

    async def leave(self, node: Node) -> tuple[Blocker, ...]:
        """Take a node out of what it is in beside networks; () if that is proved. The first that
        refuses ends it.
        """
        for one in self._beside:
            if refused := await one.expel(node):
                return refused
        return ()

    async def list_beside(self, node: Node) -> tuple[str, ...]:
        """Return the systems that a release may bring a node into, as its row has them before."""
        return () if self.memberships is None else await self.memberships.list_owed(node)

    async def judge_beside(self, node: Node) -> tuple[GateRow, ...]:
        """Return the gate's rows of it; () for a node and a tenant without any."""
        return tuple([row for one in self._beside for row in await one.judge(node)])

    async def try_mounts(self, node: Node, shell: HostShell) -> tuple[GateRow, ...]:
        """Return the rows of what a host in its tenant's network mounts."""
        return () if self.spaces is None else await self.spaces.try_mounts(node, shell)

    async def move(
        self,
        ports: Sequence[Port],
        vrf: str,
        *,
        look_for_leaks: bool = True,
        objections: Objections | None = None,
        node: Node | None = None,
    ) -> MoveOutcome:
        """Bring exactly these ports into `vrf`, and their node in or out of storage and what else
        it is in; prove all.

        A node leaves storage before its ports leave the tenant's network, and enters all after they
        are in it; what it left before the move (`leave`) is only proved by it. Towards maintenance
        the ports are moved although one refuses: each is a fence by itself, and what is left open
        is a blocker.
        """
        move = partial(
            self.move_ports,
            *(ports, vrf),
            look_for_leaks=look_for_leaks,
            objections=objections,
            node=node,
        )
        if node is None or not self._beside:
            return await move()
        if vrf == MAINTENANCE_VRF:
            held = () if self.spaces is None else await self.spaces.expel(node)
            moved = await move()
            if self.memberships is not None:  # after the ports: no fence waits for a slow system
                held = (*held, *await self.memberships.expel(node))
            blockers = (*moved.blockers, *held)
            return replace(moved, blockers=blockers, persisted=moved.persisted and not held)
        moved = await move()
        if moved.blockers:
            return moved
        for one in self._beside:
            if isinstance(one, Memberships) and not one.systems:
                continue  # nothing to enter: nobody is asked for objections once more
            refused = () if objections is None else tuple(await objections())
            if refused := refused or await one.admit(node):
                return replace(moved, blockers=refused, persisted=False)
        return replace(moved, persisted=True)

    async def move_ports(
        self,
        ports: Sequence[Port],
        vrf: str,
        *,
        look_for_leaks: bool = True,
        objections: Objections | None = None,
        node: Node | None = None,
    ) -> MoveOutcome:
        """Bring exactly these ports into `vrf`, and prove it.

        `node`: the stored row of their node, which their descriptions name from then on.

        `look_for_leaks`: not where the gate of a release looks at all of it right after.
        Towards a customer leaves are taken one after the other, `objections` are read before
        each, and the first obstacle ends it. Towards maintenance every leaf is tried, all at once:
        each port that is fenced is one less in a customer's network.
        """
        assert vrf
        prefixes = prefixes_of(ports)
        if isinstance(prefixes, Blocker):
            if vrf != MAINTENANCE_VRF:
                return MoveOutcome(blockers=(prefixes,))
            prefixes = ()
        blockers: list[Blocker] = []
        revisions: list[str] = []
        tenant = await self._find_tenant(vrf)
        label = self._label(node, vrf)
        moves = [plan_move(p, vrf, label, tenant, node) for p in ports]
        async for switch, outcome in self._moved(sort_by_switch(ports, moves), vrf, objections):
            if outcome.revision:
                revisions.append(f"{switch}:{outcome.revision}")
            blockers += outcome.blockers
        placements = await self.read(ports)
        if isinstance(placements, Blocker):
            return MoveOutcome((), tuple(revisions), (*blockers, placements))
        if not blockers:
            blockers += find_misplaced_ports(ports, placements, vrf)
            blockers += find_changed_groups(tenant, await self._find_tenant(vrf))
        if not blockers and look_for_leaks:
            blockers += await self._leaks(ports, prefixes, vrf)
        return MoveOutcome(placements, tuple(revisions), tuple(blockers), persisted=not blockers)

    async def filter_state(self, switch: str) -> FilterState | Blocker:
        """Return the filter between hosts, and the ports that have it, on one leaf."""
        return await self._leaf(switch).filter_state()

    async def keep_apart(
        self, switch: str, interfaces: Sequence[str], doors: Sequence[Door]
    ) -> LeafOutcome:
        """Put the filter between hosts onto these ports, with exactly these doors; proved, saved.

        The ports stay in their VRFs.
        """
        exactly = tuple(sorted(doors))
        moves = [Move(i, "", apart=True, doors=exactly) for i in sorted(interfaces)]
        return await self._leaf(switch).move(moves) if moves else LeafOutcome()

    async def fence(self, ports: Sequence[Port], node: Node | None = None) -> MoveOutcome:
        """Bring ports of leaves into the maintenance VRF, and prove where they are."""
        return await self.move_ports(ports, MAINTENANCE_VRF, look_for_leaks=False, node=node)

    def _label(self, node: Node | None, vrf: str) -> str:
        if node is None or self.mark is None:
            return ""
        tenant = "" if vrf == MAINTENANCE_VRF else node.tenant
        return write_label(self.mark, node.id, tenant, node.generation)

    async def _find_tenant(self, vrf: str) -> Tenant | None:
        """Return the tenant of a VRF as it is recorded now; None for one without a tenant."""
        if vrf == MAINTENANCE_VRF:
            return None
        return next((t for t in await self._store.tenants.list() if t.vrf == vrf), None)

    async def _moved(
        self, moves: Mapping[str, Sequence[Move]], vrf: str, objections: Objections | None
    ) -> AsyncIterator[tuple[str, LeafOutcome]]:
        """Yield each leaf's outcome; of a customer's VRF up to the first leaf with a blocker."""
        if vrf == MAINTENANCE_VRF:
            fences = {switch: self._fence_on(switch, mine) for switch, mine in moves.items()}
            for fenced in (await _answers(fences)).items():
                yield fenced
            return
        for switch, mine in moves.items():
            outcome = await self._leaf(switch).move(mine, objections)
            yield switch, outcome
            if outcome.blockers:
                return

    async def _fence_on(self, switch: str, moves: Sequence[Move]) -> LeafOutcome:
        """Move ports of one leaf into maintenance, with the filter between hosts where it is on.

        A leaf that takes no filter is fenced all the same; the gate's row and the watch say that
        the filter is missing.
        """
        leaf = self._leaf(switch)
        if not self._site.settings.keeps_hosts_apart:
            return await leaf.move(moves)
        outcome = await leaf.move([replace(m, apart=True) for m in moves])
        if any(b.reason in _OF_FILTER for b in outcome.blockers):
            return await leaf.move([replace(m, apart=None) for m in moves])
        return outcome

    async def close(self) -> None:
        await asyncio.gather(*(leaf.close() for leaf in self._leaves.values()))
        await asyncio.gather(*(look.close() for look in self._looks.values()))
        await asyncio.gather(*(one.close() for one in self._beside))

    async def _leaks(
        self, ports: Sequence[Port], prefixes: tuple[str, ...], vrf: str
    ) -> tuple[Blocker, ...]:
        """The routes to the node in any other VRF of its leaves; a withdrawal is given its time."""
        if not prefixes:
            return ()
        settings = self._site.settings
        until = self._site.clock.now() + settings.switch_apply_limit_s
        switches = list(_by_leaf(ports))
        while True:
            answers = await _answers({s: self._leaf(s).routes() for s in switches})
            leaks = [
                problem
                for switch, routes in answers.items()
                if (problem := _leaking(switch, routes, prefixes, vrf)) is not None
            ]
            if not leaks or self._site.clock.now() >= until:
                return tuple(leaks)
            await self._site.clock.sleep(settings.switch_poll_s)

    def _leaf(self, switch: str) -> Leaf:
        if switch not in self._leaves:
            site = self._site
            self._leaves[switch] = Leaf(self._source(switch), site.clock, site.settings)
        return self._leaves[switch]

    def _look(self, switch: str) -> LeafLook:
        if switch not in self._looks:
            site = self._site
            self._looks[switch] = LeafLook(self._source(switch), site.clock, site.settings)
        return self._looks[switch]

    def _source(self, switch: str) -> SwitchSource:
        site = self._site
        lookup = self._lookup(switch)
        return SwitchSource(switch, lookup, site.reach.switches, site.clock, site.settings)

    def _lookup(self, switch: str) -> Lookup:
        async def lookup() -> SwitchAddress | Blocker:
            node = await self._store.nodes.get(switch)
            if node is None:
                return Blocker(
                    reason=Reason.NOT_EXPECTED,
                    subject=switch,
                    detail=f"no switch {switch} is known",
                    unblock="Add it to the expected-hardware list and take it in.",
                )
            return await self._site.reach.switch(node)

        return lookup


def is_idle(then: Count | None, now: Count, limit_bps: float) -> bool:
    """Return whether a port sent no more than the limit between two readings of its counter.

    One reading shows nothing, nor does a second one that is no newer.
    """
    if then is None or now[0] <= then[0]:
        return False
    return (now[1] - then[1]) / (now[0] - then[0]) <= limit_bps


async def _answers(asked: Mapping[Key, Awaitable[Answer]]) -> dict[Key, Answer]:
    """Wait for all at once; each answer under the key that it was asked by."""
    return dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))


def _by_leaf(ports: Sequence[Port]) -> dict[str, list[Port]]:
    by_leaf: dict[str, list[Port]] = {}
    for port in sorted(ports, key=lambda p: (p.switch, p.interface)):
        by_leaf.setdefault(port.switch, []).append(port)
    return by_leaf


def _leaking(
    switch: str, routes: Routes | Blocker, prefixes: tuple[str, ...], vrf: str
) -> Blocker | None:
    if isinstance(routes, Blocker):
        return routes
    listed = find_route_leaks(prefixes, routes, vrf)
    return make_leak_blocker(switch, listed) if listed else None


# ------------------------------------------------------------------------------
# Reads both ends of a node's cables, and returns those that are not as planned.
#
# LLDP is asked first. Where a leaf's port hears no neighbour, the MACs that all leaves of the node
# learned are compared with those of the cards; they are read only then, because the table of a leaf
# is long.


async def find_wrong_cables(
    tenancy: Tenancy, rechecks: Rechecks, node: Node, *, running: bool = True
) -> tuple[Blocker, ...]:
    """Return a blocker for each cable of the node that a person has to plug elsewhere.

    Without `running`, the node may be off: () while no leaf hears it by LLDP.
    """
    heard = await tenancy.heard(node.ports)
    if not running and not any(heard.values()):
        return ()
    leaves = {switch for switch, _ in heard}
    learned = {} if all(heard.values()) else await tenancy.learned(leaves)
    wrong = await rechecks.find_miscablings(node, heard, learned)
    return release_cables.make_cable_blockers(wrong)
