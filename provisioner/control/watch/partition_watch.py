"""Watch the members of every InfiniBand partition: one of ours without entitlement is fenced.

It works as the watch of leaf ports (`leaf_watch.py`), regardless of the mover: UFM lists all
members of all partitions in one answer. A first reading makes suspects; a second one lies between
two readings of their rows, and only members without entitlement in both count. A GUID that no row
has is listed and never moved: UFM does not report whether it is a host's, and storage and gateways
are members by right.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from provisioner.control.context import Context
from provisioner.control.watch.isolation_violations import (
    IsolationViolations,
    TakeBack,
    ViolationFence,
    placement_facts,
)
from provisioner.execution.tenancy.tenancy import MoveOutcome, Tenancy
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement, Tenant
from provisioner.planning.release import entitlement
from provisioner.ports import Partitions

log = logging.getLogger(__name__)

LISTED_MAX = 4096  # members that are not ours, for people
NO_ROW = "no node's row has this GUID: it may be storage or a gateway"
Owners = Mapping[str, Sequence[tuple[Node, Port]]]  # GUID -> the nodes whose rows have it
Suspects = dict[str, tuple[PortPlacement, ...]]  # node -> its ports without entitlement


class PartitionWatch:
    """`run` watches for ever. `take_back` has a released node taken back by its driver."""

    def __init__(
        self,
        context: Context,
        tenancy: Tenancy,
        partitions: Partitions,
        violations: IsolationViolations,
        take_back: TakeBack,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._partitions = partitions
        # GUIDs of ours that two looks in a row saw in no customer's network, before they came to
        # one: a single look may be wrong, as of a UFM that has just started
        self._idle: frozenset[str] = frozenset()
        self._rested: frozenset[str] = frozenset()  # at the last look
        self._silent = ""  # why UFM could not be read, as the log has it

        async def move(ports: Sequence[Port], node: Node | None) -> MoveOutcome:
            return await tenancy.move(ports, MAINTENANCE_VRF, look_for_leaks=False, node=node)

        self._fences = ViolationFence(
            context, violations, take_back, move, "the watch of partitions"
        )
        self.listed: dict[str, str] = {}  # "GUID in network" -> why it is not moved, for people

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(self._settings.watch_ports_s)

    async def look(self) -> None:
        """Read all partitions; members of ours without entitlement are recorded, then fenced.

        A node whose row changes meanwhile is judged in the next round.
        """
        members = await self._read()
        nodes = await self._store.nodes.list()
        aside = await self._store.nodes.list_set_aside()
        owners = _find_owners([*nodes, *aside])
        damaged = frozenset(n.id for n in aside)
        if members is None:
            return
        suspects, self.listed = self._judge(members, owners, damaged, await self._vrfs())
        idle = frozenset(g for g in owners if members.get(g, frozenset()) <= entitlement.SITE_VRFS)
        listed = {name.partition(" ")[0] for name in self.listed}
        self._idle = ((self._idle & owners.keys()) | (idle & self._rested)) - listed
        self._rested = idle
        if not suspects:
            return
        before = await self._store.nodes.list_named(suspects)
        members = await self._read()
        after = await self._store.nodes.list_named(suspects)
        if members is None:
            return
        owners = _find_owners([*(n for n in nodes if n.id not in after), *aside, *after.values()])
        confirmed, self.listed = self._judge(members, owners, damaged, await self._vrfs())
        for name, ports in confirmed.items():
            row = after.get(name)
            if row is not None and placement_facts(before.get(name)) == placement_facts(row):
                await self._fences.fence_node(row, ports)

    async def _vrfs(self) -> Mapping[str, str]:
        return {t.name: t.vrf for t in await self._store.tenants.list()}

    async def _read(self) -> Mapping[str, frozenset[str]] | None:
        """Return the networks of each GUID; None if UFM cannot be read, which the log says once."""
        tenants: Sequence[Tenant] = await self._store.tenants.list()
        members = await self._partitions.read_members(tenants)
        why = str(members) if isinstance(members, Blocker) else ""
        if why and why != self._silent:
            log.warning("partitions cannot be watched: %s", why)
        self._silent = why
        return None if isinstance(members, Blocker) else members

    def _judge(
        self,
        members: Mapping[str, frozenset[str]],
        owners: Owners,
        damaged: frozenset[str],
        vrf_of: Mapping[str, str],
    ) -> tuple[Suspects, dict[str, str]]:
        """Return ports without entitlement by node, and members that are not to be moved."""
        suspects: Suspects = {}
        listed: dict[str, str] = {}
        for guid, networks in sorted(members.items()):
            outside = sorted(networks - entitlement.SITE_VRFS)
            if not outside:
                continue
            came = guid in self._idle
            wrong, why = _judge_member(owners.get(guid, ()), outside, damaged, vrf_of, came=came)
            for name, ports in wrong.items():
                suspects[name] = (*suspects.get(name, ()), *ports)
            if why and len(listed) < LISTED_MAX:
                listed[f"{guid} in {' and '.join(outside)}"] = why
        return suspects, listed


def _judge_member(
    owners: Sequence[tuple[Node, Port]],
    outside: Sequence[str],
    damaged: frozenset[str],
    vrf_of: Mapping[str, str],
    *,
    came: bool,
) -> tuple[Suspects, str]:
    """Return the node that a member in these customers' networks stands for, or why none."""
    if not owners:
        return {}, NO_ROW
    if aside := next((n.id for n, _ in owners if n.id in damaged), ""):
        return {}, f"node {aside} is set aside for a damaged row: see `doctor`"
    wrong: Suspects = {}
    for node, port in owners:
        placed = [
            PortPlacement(switch=port.switch, interface=port.interface, vrf=vrf) for vrf in outside
        ]
        wrong[node.id] = entitlement.find_isolation_violations(node, placed, vrf_of)
    if not all(wrong.values()):
        return {}, ""  # one of them is entitled: the GUID's former owner is retired
    if detached := next((n for n, _ in owners if n.origin is Origin.DETACHED), None):
        return {}, entitlement.describe_detached(detached)
    node = min((n for n, _ in owners), key=lambda n: (n.state is State.RETIRED, n.id))
    why = entitlement.why_not_taken_in(node, came=came)
    return ({}, why) if why else ({node.id: wrong[node.id]}, "")


def _find_owners(nodes: Sequence[Node]) -> Owners:
    owners: dict[str, list[tuple[Node, Port]]] = {}
    for node in nodes:
        if node.kind is NodeKind.HOST:
            for port in node.ports:
                if port.guid:
                    owners.setdefault(port.guid, []).append((node, port))
    return owners
