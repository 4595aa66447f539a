"""Watches every port of every leaf: one that stands in a customer's network unentitled is fenced.

The watch of released nodes (`release_watch.py`) looks at ports that we moved; this one looks at the
leaves, whoever moved what: an old configuration that a leaf came back with, a person, a node that
is quarantined or retired. A reading and the rows are never of one moment, so that what a first look
suspects is looked at once more between two readings of the rows, and only what both rows deny is
believed. What is found is recorded before it is fenced.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from provisioner.control.watch.look_lane import LookLane
from provisioner.control.watch.port_owners import PortOwners
from provisioner.control.watch.trespasses import Trespasses, describe
from provisioner.execution.tenancy.leaf_line import TenantPort
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import PortPlacement, Tenant
from provisioner.planning.lifecycle.journey import may_enter
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports
from provisioner.planning.release import entitlement
from provisioner.ports import Clock, StaleWrite, Store
from provisioner.settings import Settings

ROUND_S = 10.0
LEAVES_MAX = 64  # read at the same time, a few requests each
LOOKS_MAX = 4  # at one leaf until rows stand still
LISTED_MAX = 4096  # ports that are not ours, for people
TakeBack = Callable[[Node, Sequence[Blocker]], Awaitable[None]]

_PARKED = frozenset(
    {State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING, State.CERTIFIED}
)


class Suspects(NamedTuple):
    """Ports of one leaf without entitlement: by node, and those that no node owns."""

    by_node: dict[str, tuple[PortPlacement, ...]]
    unowned: tuple[PortPlacement, ...]
    listed: dict[str, str]  # "leaf/port" -> why it is not moved


class LeafWatch:
    """`run` watches for ever. `take_back` has a released node taken back by its driver."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        tenancy: Tenancy,
        trespasses: Trespasses,
        take_back: TakeBack,
        plan: AddressPlan | None = None,
    ) -> None:
        self._store, self._clock, self._settings = store, clock, settings
        self._tenancy, self._trespasses, self._take_back = tenancy, trespasses, take_back
        self._places = None if plan is None else Ports(Addressing(plan))
        self._owners = PortOwners()
        self._aside: frozenset[str] = frozenset()  # nodes with damaged rows
        self._ports_unknown = ""  # one of them whose ports cannot be read
        self._due: dict[str, float] = {}
        self._lane = LookLane(LEAVES_MAX, self._begin)
        self.read: dict[str, float] = {}  # leaf -> when all its ports were read, for people
        self.listed: dict[str, str] = {}  # "leaf/port" -> why it is not moved, for people

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await self.round()
                await self._clock.sleep(min(ROUND_S, self._settings.watch_ports_s))
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop looking."""
        await self._lane.close()

    async def round(self) -> None:
        """Begin to read the leaves whose turn it is, the longest overdue first."""
        nodes = await self._store.nodes()
        aside = await self._store.set_aside()  # they own their ports all the same
        self._owners.take([*nodes, *aside])
        self._aside = frozenset(n.id for n in aside)
        self._ports_unknown = next(
            (n.id for n in aside if n.kind is NodeKind.HOST and not n.ports), ""
        )
        now, leaves = self._clock.now(), self._owners.leaves
        for name in [n for n in self._due if n not in leaves]:
            del self._due[name]
            self.read.pop(name, None)
        for name in leaves:
            if name not in self._due:
                share = crc32(name.encode()) / 2**32
                self._due[name] = now + share * self._settings.watch_ports_s
        running = self._lane.running
        due = sorted((at, n) for n, at in self._due.items() if at <= now and n not in running)
        self._lane.due([name for _, name in due])

    def _begin(self, name: str) -> Coroutine[None, None, None] | None:
        if name not in self._due:
            return None
        self._due[name] = self._clock.now() + self._settings.watch_ports_s
        return self.look(name)

    async def look(self, leaf: str) -> None:
        """Read one leaf; what stands there without entitlement is recorded, then fenced."""
        seen = await self._tenancy.tenant_ports(leaf, entitlement.SITE_VRFS)
        if isinstance(seen, Blocker):
            return  # a leaf that is silent is reported by the watch of its nodes
        self.read[leaf] = self._clock.now()
        tenants = await self._store.tenants() if seen else ()
        found = self._judge(leaf, seen, {}, tenants)
        for _ in range(LOOKS_MAX):
            if not (found.by_node or found.unowned):
                break
            # these rows are older than the reading that comes now, those after it are newer
            before = await self._rows(leaf, seen)
            seen = await self._tenancy.tenant_ports(leaf, entitlement.SITE_VRFS)
            if isinstance(seen, Blocker):
                return
            after = await self._rows(leaf, seen)
            tenants = await self._store.tenants()
            found = self._judge(leaf, seen, after, tenants)
            if {n: _facts(before.get(n)) for n in after} == {n: _facts(after[n]) for n in after}:
                await self._act(leaf, found, after)
                break
        else:
            self._due[leaf] = self._clock.now()  # its rows change all the time
        self._list(leaf, found.listed)

    def _why_unknown(self) -> str:
        """Return why a port without an owner may be one that serves, or ""."""
        if not self._ports_unknown:
            return ""
        return f"it may belong to {self._ports_unknown}, whose row is damaged: see `doctor`"

    async def _rows(self, leaf: str, seen: Mapping[str, TenantPort]) -> Mapping[str, Node]:
        """Rows of the nodes that own these ports, read anew."""
        names = {n.id for port in seen for n in self._owners.owners(leaf, port)}
        return await self._store.nodes_named(names)

    # --- judging

    def _judge(
        self,
        leaf: str,
        seen: Mapping[str, TenantPort],
        rows: Mapping[str, Node],
        tenants: Sequence[Tenant],
    ) -> Suspects:
        vrf_of = {t.name: t.vrf for t in tenants}
        found = Suspects({}, (), {})
        unowned: list[PortPlacement] = []
        for interface, port in sorted(seen.items()):
            placed = [
                PortPlacement(switch=leaf, interface=interface, vrf=vrf)
                for vrf in sorted(port.vrfs)
            ]
            owners = [rows.get(n.id, n) for n in self._owners.owners(leaf, interface)]
            if not owners:
                no = self._why_not_ours(leaf, interface, port, tenants) or self._why_unknown()
                if no:
                    found.listed[f"{leaf}/{interface}"] = no
                else:
                    unowned += placed
                continue
            if damaged := next((n.id for n in owners if n.id in self._aside), ""):
                words = f"node {damaged} is set aside for a damaged row: see `doctor`"
                found.listed[f"{leaf}/{interface}"] = words
                continue
            wrong = [entitlement.find_trespasses(node, placed, vrf_of) for node in owners]
            if not all(wrong):
                continue  # one of them is entitled: the port's former owner is retired
            node = min(owners, key=lambda n: (n.state is State.RETIRED, n.id))
            if node.taken or entitlement.is_stranger(node):
                words = f"node {node.id} was not taken in yet: see `intake --take`"
                found.listed[f"{leaf}/{interface}"] = words
                continue
            theirs = wrong[owners.index(node)]
            found.by_node[node.id] = (*found.by_node.get(node.id, ()), *theirs)
        return found._replace(unowned=tuple(unowned))

    def _why_not_ours(
        self, leaf: str, interface: str, port: TenantPort, tenants: Sequence[Tenant]
    ) -> str:
        place = None if self._places is None else self._places.switch_called(leaf)
        planned = None
        if self._places is not None and place is not None:
            planned = self._places.end_of(place, interface) is not None
        peers = [o.peer for t in tenants for o in t.outside if o.switch == leaf]
        return entitlement.why_not_ours(
            f"{leaf}/{interface}",
            min(port.vrfs),
            declared=self._settings.ports_not_ours,
            planned=planned,
            storage=frozenset(vrf for t in tenants for vrf in t.storage),
            sessions=any(_reaches(address, peer) for address in port.addresses for peer in peers),
        )

    # --- acting

    async def _act(self, leaf: str, found: Suspects, rows: Mapping[str, Node]) -> None:
        for name, ports in found.by_node.items():
            await self._fence_node(rows[name], ports)
        unowned = found.unowned and await self._without_switches(found)
        if unowned:
            await self._trespasses.note_unowned(unowned)
            await self._fence(leaf, unowned, {})

    async def _without_switches(self, found: Suspects) -> tuple[PortPlacement, ...]:
        """Ports that no node owns and at whose other end no switch is heard."""
        ports = {(p.switch, p.interface): p for p in found.unowned}
        heard = await self._tenancy.heard([_port(p) for p in ports.values()])
        switches = self._owners.leaves
        linked = {
            key
            for key, ends in heard.items()
            if any(system in switches or system.split(".")[0] in switches for system, _ in ends)
        }
        for switch, interface in linked:
            found.listed[f"{switch}/{interface}"] = "it hears a switch"
        return tuple(p for p in found.unowned if (p.switch, p.interface) not in linked)

    async def _fence_node(self, node: Node, found: Sequence[PortPlacement]) -> None:
        """Record and fence ports of a node, which then waits for a person if it was no tenant's."""
        node = await self._trespasses.note(node, found, "the watch of leaves")
        blockers = entitlement.trespass(found)
        if node.state is State.RELEASED:
            await self._take_back(node, blockers)  # its driver fences all of it
        mine = {(p.switch, p.interface): p for p in node.ports}
        confirmed = await self._fence(node.id, found, mine)
        if confirmed and node.state is not State.RELEASED:
            await self._park(node, blockers)

    async def _fence(
        self,
        subject: str,
        found: Sequence[PortPlacement],
        planned: Mapping[tuple[str, str], Port],
    ) -> bool:
        """Move ports into the maintenance VRF; the journal has it whatever becomes of a row."""
        keys = dict.fromkeys((p.switch, p.interface) for p in found)
        by_key = {(p.switch, p.interface): p for p in found}
        ports = [planned.get(key) or _port(by_key[key]) for key in keys]
        outcome = await self._tenancy.fence(ports)
        detail = describe(found) | {
            "confirmed": not outcome.blockers,
            "seen_by": "the watch of leaves",
            "problems": [str(b) for b in outcome.blockers[:4]],
        }
        await self._store.journal("fence", subject, detail, self._clock.now())
        return not outcome.blockers

    async def _park(self, node: Node, blockers: tuple[Blocker, ...]) -> None:
        """Into quarantine, where it waits for a person; whoever drives it sees the new row."""
        now = self._clock.now()
        if node.state is State.QUARANTINED:
            more = tuple(b for b in blockers if b not in node.blockers)
            changed = node.model_copy(update={"blockers": (*node.blockers, *more)[:20]})
            if not more:
                return
        elif node.state in _PARKED and may_enter(node, State.QUARANTINED, node.placement):
            why = str(blockers[0])
            changed = node.moved(State.QUARANTINED, now, blockers=blockers, note=why)
        else:
            return
        try:
            await self._store.save_node(changed)
        except StaleWrite:
            return  # its erasure is owed; whoever changed the row sees it there
        if changed.state is not node.state:
            detail = {
                "from": node.state.value,
                "to": changed.state.value,
                "why": changed.note,
                "blockers": [b.model_dump(mode="json") for b in blockers],
            }
            await self._store.journal("state", node.id, detail, now)

    def _list(self, leaf: str, listed: Mapping[str, str]) -> None:
        for name in [n for n in self.listed if n.startswith(f"{leaf}/") and n not in listed]:
            del self.listed[name]
        for name, why in listed.items():
            if len(self.listed) < LISTED_MAX:
                self.listed[name] = why


def _facts(node: Node | None) -> tuple[object, ...]:
    """The part of a row that says where its ports may be."""
    if node is None:
        return ()
    when = (node.entered_at, node.fenced_at)
    return (node.state, node.placement, node.vrf, node.tenant, node.served, *when)


def _port(place: PortPlacement) -> Port:
    return Port(switch=place.switch, interface=place.interface, rail=-1, nic_slot="")


def _reaches(address: str, peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer) in ipaddress.ip_interface(address).network
    except ValueError:
        return False
