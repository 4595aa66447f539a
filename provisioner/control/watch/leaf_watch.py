"""Watch every port of every leaf: one without entitlement in a customer's network is fenced.

The watch of released nodes (`release_watch.py`) looks at ports that we moved; this one looks at the
leaves, regardless of the mover: an old configuration that a leaf came back with, a person, a node
that is quarantined or retired. A reading and the rows are never of one moment, so that a suspicion
of a first look is checked once more between two readings of the rows, and only ports without
entitlement in both count. They are recorded before they are fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import NamedTuple

from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.control.watch.isolation_violations import (
    IsolationViolations,
    TakeBack,
    ViolationFence,
    placement_facts,
)
from provisioner.control.watch.port_owners import HEARS_A_SWITCH, PortOwners, UnownedPorts
from provisioner.control.watch.shards import JUST_BEFORE_S, Shards
from provisioner.control.watch.watched_nodes import ReadQueue
from provisioner.execution.tenancy.release_sequence import HostsApart, SeenApart
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.alert import Classification, Signal
from provisioner.model.events.fleet_events import HostsKeptApart, HostsNotApart
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.model.switch import TenantPort
from provisioner.model.tenant import PortPlacement, Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.release import entitlement
from provisioner.planning.watch.shards import find_shard
from provisioner.planning.watch.watch_rules import find_later_turn, find_next_turn
from provisioner.ports import Clock
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.recovery import SqlRecoveryRepository
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Watch, leaf by leaf, that hosts are kept apart on the network where agents are looked up.
#
# A leaf that was never prepared is prepared by it; filters that a foreign change removed are put
# back and reported. A gap in a first look is read once more: a test may have opened or closed its
# doors between the reading and the rows.


SOURCE = "watch.apart"
ALERT = "HostsNotApart"


class ApartWatch:
    """`look` is called for each leaf by the watch of leaves. `book` None: no alerts."""

    def __init__(
        self,
        store: SqlStore,
        clock: Clock,
        apart: HostsApart,
        book: SqlAlertRepository | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._apart = apart
        self._keeper = None if book is None else AlertKeeper(book, store, clock, _submit_nothing)
        self._proved: set[str] = set()  # leaves that were whole when they were read last

    async def check_leaf(self, leaf: str, owned: Collection[str]) -> None:
        """Read one leaf; record missing parts, then put them back."""
        if not self._apart.enabled:
            return
        state = await self._apart.look(leaf, owned)
        if not isinstance(state, Blocker) and state.gaps:
            state = await self._apart.look(leaf, owned)
        if isinstance(state, Blocker):
            return  # a leaf that is silent is reported by the watch of its nodes
        if not state.gaps:
            if leaf not in self._proved:
                self._proved.add(leaf)
                await self._report(leaf, None)
            return
        foreign = leaf in self._proved or not state.untouched
        self._proved.discard(leaf)
        gaps = HostsNotApart(about=leaf, gaps=tuple(state.gaps[:8]), alert=foreign)
        await self._store.journal.append(gaps, self._clock.now())
        if foreign:
            await self._report(leaf, state)
        blockers = await self._apart.put_back(leaf, state)
        apart = HostsKeptApart(
            about=leaf,
            ports=len(state.guarded),
            confirmed=not blockers,
            problems=tuple(str(b) for b in blockers[:4]),
        )
        await self._store.journal.append(apart, self._clock.now())

    async def _report(self, leaf: str, seen: SeenApart | None) -> None:
        """Raise the leaf's alert, or end it. None: nothing is missing."""
        if self._keeper is None:
            return
        now = self._clock.now()
        signals = []
        if seen is not None:
            message = f"hosts were not kept apart there: {'; '.join(seen.gaps)}"[:300]
            signals = [
                Signal(
                    node=leaf,
                    id=ALERT,
                    target="",
                    classifications=(Classification.PREVENT_ALLOCATIONS,),
                    message=message,
                    source=SOURCE,
                    at=now,
                )
            ]
        await self._keeper.level(leaf, {SOURCE: signals})


async def _submit_nothing(_operation: str) -> None:
    """Submit nothing: these alerts revoke nothing, so that no operation is opened for them."""


ROUND_S = 10.0
LEAVES_MAX = 64  # read at the same time, a few requests each
LOOKS_MAX = 4  # at one leaf until rows stand still
LISTED_MAX = 4096  # ports that are not ours, for people


class Suspects(NamedTuple):
    """Ports of one leaf without entitlement: by node, and those that no node owns."""

    by_node: dict[str, tuple[PortPlacement, ...]]
    unowned: tuple[PortPlacement, ...]
    listed: dict[str, str]  # "leaf/port" -> why it is not moved


class LeafWatch:
    """`run` watches for ever. `take_back` has a released node taken back by its driver."""

    duty = "leaf looks"

    def __init__(
        self,
        context: Context,
        tenancy: Tenancy,
        violations: IsolationViolations,
        take_back: TakeBack,
        plan: AddressPlan | None = None,
        book: SqlRecoveryRepository | None = None,
        apart: ApartWatch | None = None,
        shards: Shards | None = None,
    ) -> None:
        """`book`: ports that a person adopted after a restore; None: there are none.

        `apart`: watches the filter between hosts of each leaf that is read. `shards`: whose leaves
        are read here; None: all.
        """
        self._shards = shards or Shards(context.store, context.clock)
        self._shards.attend(self)
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._tenancy = tenancy
        self._violations = violations
        self._fences = ViolationFence(
            context, violations, take_back, tenancy.fence, "the watch of leaves"
        )
        self._unowned = UnownedPorts(context.settings, tenancy, plan)
        self._book = book
        self._apart = apart
        self._adopted: Mapping[str, str] = {}  # "leaf/port" -> the VRF that it may stand in
        self._owners = PortOwners()
        self._aside: frozenset[str] = frozenset()  # nodes with damaged rows
        self._ports_unknown = ""  # one of them whose ports cannot be read
        # per leaf: ports that two looks in a row saw in no customer's network, at some time: a
        # single look may be wrong, as of a leaf that has just started
        self._idle: dict[str, frozenset[str]] = {}
        self._rested: dict[str, frozenset[str]] = {}  # at the last look
        self._due: dict[str, float] = {}
        self._generation = -1
        self._lane = ReadQueue(LEAVES_MAX, self._begin)
        self.read: dict[str, float] = {}  # leaf -> when all its ports were read, for people
        self.listed: dict[str, str] = {}  # "leaf/port" -> why it is not moved, for people

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await self.run_round()
                await self._clock.sleep(min(ROUND_S, self._settings.watch_ports_s))
        finally:
            await self.close()

    async def close(self) -> None:
        await self._lane.close()

    async def run_round(self) -> None:
        """Begin to read the leaves whose turn it is, the longest overdue first."""
        nodes = await self._store.nodes.list()
        aside = await self._store.nodes.list_set_aside()  # they own their ports all the same
        self._owners.take([*nodes, *aside])
        self._aside = frozenset(n.id for n in aside)
        self._ports_unknown = next(
            (n.id for n in aside if n.kind is NodeKind.HOST and not n.ports), ""
        )
        if self._book is not None:
            self._adopted = await self._book.list_adopted_ports()
        now = self._clock.now()
        moved = self._generation != self._shards.generation
        self._generation = self._shards.generation
        leaves = {n: one for n, one in self._owners.leaves.items() if self._shards.holds(one)}
        for name in [n for n in self._due if n not in leaves]:
            del self._due[name]
            self.read.pop(name, None)
            self._idle.pop(name, None)
            self._rested.pop(name, None)
        for name, leaf in leaves.items():
            if name not in self._due:
                since = self._shards.find_start(leaf, self.duty) if moved else now
                self._due[name] = find_next_turn(name, self._settings.watch_ports_s, since)
        running = self._lane.running
        due = sorted((at, n) for n, at in self._due.items() if at <= now and n not in running)
        self._lane.due([name for _, name in due])

    def _begin(self, name: str) -> Coroutine[None, None, None] | None:
        if name not in self._due or not self._shards.holds(self._owners.leaves.get(name)):
            return None
        turn = self._settings.watch_ports_s, self._due[name], self._clock.now()
        self._due[name] = find_later_turn(name, *turn)
        return self.check_leaf(name)

    async def leave(self, shards: Collection[int]) -> float:
        """End the looks at leaves of shards that are given to peers (`shards.Duty`)."""
        leaves = self._owners.leaves.items()
        names = {name for name, leaf in leaves if find_shard(leaf) in shards}
        undone = [self._due[name] - JUST_BEFORE_S for name in names if name in self._due]
        reached = min([self._clock.now(), *undone])
        await self._lane.leave(names)
        return reached

    async def check_leaf(self, leaf: str) -> None:
        """Read one leaf; record ports without entitlement, then fence them."""
        ports = await self._tenancy.tenant_ports(leaf, entitlement.SITE_VRFS)
        if isinstance(ports, Blocker):
            return  # a leaf that is silent is reported by the watch of its nodes
        self.read[leaf] = self._clock.now()
        await self._drop_adopted(leaf, ports)
        tenants = await self._store.tenants.list() if ports else ()
        suspects = self._judge(leaf, ports, {}, tenants)
        for _ in range(LOOKS_MAX):
            if not (suspects.by_node or suspects.unowned):
                break
            # these rows are older than the reading that comes now, those after it are newer
            before = await self._rows(leaf, ports)
            ports = await self._tenancy.tenant_ports(leaf, entitlement.SITE_VRFS)
            if isinstance(ports, Blocker):
                return
            after = await self._rows(leaf, ports)
            tenants = await self._store.tenants.list()
            suspects = self._judge(leaf, ports, after, tenants)
            if {n: placement_facts(before.get(n)) for n in after} == {
                n: placement_facts(after[n]) for n in after
            }:
                await self._act(leaf, suspects, after)
                break
        else:
            self._due[leaf] = self._clock.now()  # its rows change all the time
        self._list(leaf, suspects.listed)
        idle = frozenset(self._owners.find_ports(leaf)) - set(ports)
        listed = {name.partition("/")[2] for name in suspects.listed}
        both = idle & self._rested.get(leaf, frozenset())
        self._idle[leaf] = (self._idle.get(leaf, frozenset()) | both) - listed
        self._rested[leaf] = idle
        if self._apart is not None:
            await self._apart.check_leaf(leaf, self._owners.find_ports(leaf))

    def _why_unknown(self, tenants: Sequence[Tenant]) -> str:
        """Return why a port without an owner may be one that serves, or ""."""
        if damaged := next((t.name for t in tenants if t.is_damaged), ""):
            return f"it may be storage of tenant {damaged}, whose row is damaged: see `doctor`"
        if not self._ports_unknown:
            return ""
        return f"it may belong to {self._ports_unknown}, whose row is damaged: see `doctor`"

    def _why_adopted(self, leaf: str, interface: str, port: TenantPort) -> str:
        """Return why a person's word after a restore keeps a port where it is, or ""."""
        vrf = self._adopted.get(f"{leaf}/{interface}")
        if vrf is None or port.vrfs != {vrf}:
            return ""
        return f"a person adopted it in {vrf} after a restore: take its node in"

    async def _drop_adopted(self, leaf: str, seen: Mapping[str, TenantPort]) -> None:
        if self._book is None:
            return
        for name, vrf in self._adopted.items():
            switch, _, interface = name.partition("/")
            if switch == leaf and (interface not in seen or vrf not in seen[interface].vrfs):
                await self._book.drop_adopted(name, self._clock.now())

    async def _rows(self, leaf: str, seen: Mapping[str, TenantPort]) -> Mapping[str, Node]:
        """Return the rows of the nodes that own these ports, read anew."""
        names = {n.id for port in seen for n in self._owners.find_owners(leaf, port)}
        return await self._store.nodes.list_named(names)

    # --- judging

    def _judge(
        self,
        leaf: str,
        seen: Mapping[str, TenantPort],
        rows: Mapping[str, Node],
        tenants: Sequence[Tenant],
    ) -> Suspects:
        vrf_of = {t.name: t.vrf for t in tenants}
        suspects = Suspects({}, (), {})
        unowned: list[PortPlacement] = []
        for interface, port in sorted(seen.items()):
            placed = [
                PortPlacement(switch=leaf, interface=interface, vrf=vrf)
                for vrf in sorted(port.vrfs)
            ]
            owners = [rows.get(n.id, n) for n in self._owners.find_owners(leaf, interface)]
            if not owners:
                excuse = self._unowned.why_not_ours(leaf, interface, port, tenants)
                excuse = excuse or self._why_adopted(leaf, interface, port)
                excuse = excuse or self._why_unknown(tenants)
                if excuse:
                    suspects.listed[f"{leaf}/{interface}"] = excuse
                else:
                    unowned += placed
                continue
            if damaged := next((n.id for n in owners if n.id in self._aside), ""):
                why = f"node {damaged} is set aside for a damaged row: see `doctor`"
                suspects.listed[f"{leaf}/{interface}"] = why
                continue
            wrong = [entitlement.find_isolation_violations(node, placed, vrf_of) for node in owners]
            if not all(wrong):
                continue  # one of them is entitled: the port's former owner is retired
            if detached := next((n for n in owners if n.origin is Origin.DETACHED), None):
                suspects.listed[f"{leaf}/{interface}"] = entitlement.describe_detached(detached)
                continue
            node = min(owners, key=lambda n: (n.state is State.RETIRED, n.id))
            adopted = self._why_adopted(leaf, interface, port)
            if adopted and node.state is State.RETIRED:
                suspects.listed[f"{leaf}/{interface}"] = adopted
                continue
            came = interface in self._idle.get(leaf, ())
            if why := entitlement.why_not_taken_in(node, came=came):
                suspects.listed[f"{leaf}/{interface}"] = why
                continue
            theirs = wrong[owners.index(node)]
            suspects.by_node[node.id] = (*suspects.by_node.get(node.id, ()), *theirs)
        return suspects._replace(unowned=tuple(unowned))

    # --- acting

    async def _act(self, leaf: str, found: Suspects, rows: Mapping[str, Node]) -> None:
        for name, ports in found.by_node.items():
            await self._fences.fence_node(rows[name], ports)
        unowned = found.unowned and await self._without_switches(found)
        if unowned:
            await self._violations.note_unowned(unowned)
            await self._fences.fence_ports(leaf, unowned)

    async def _without_switches(self, found: Suspects) -> tuple[PortPlacement, ...]:
        """Return the ports that no node owns and whose LLDP neighbour is no switch."""
        keys = {(p.switch, p.interface) for p in found.unowned}
        linked = await self._unowned.find_switch_links(sorted(keys), self._owners.leaves)
        for switch, interface in linked:
            found.listed[f"{switch}/{interface}"] = HEARS_A_SWITCH
        return tuple(p for p in found.unowned if (p.switch, p.interface) not in linked)

    def _list(self, leaf: str, listed: Mapping[str, str]) -> None:
        for name in [n for n in self.listed if n.startswith(f"{leaf}/") and n not in listed]:
            del self.listed[name]
        for name, why in listed.items():
            if len(self.listed) < LISTED_MAX:
                self.listed[name] = why
