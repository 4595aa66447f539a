"""Watch released nodes' ports, and take back a node whose ports are not where they were proved.

A port that is observed elsewhere is fenced at once; any other fault of the gate counts only in the
watch after a release, and only if it is present in two looks. Fencing can be undone, an erasure
cannot: a node that was taken back waits for a person, who decides about its tenant's data. A leaf
without an answer moves no node: its silence is no fault of the node's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from zlib import crc32

from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.execution.tenancy.release_sequence import Releases
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.adoption.capability import Capability
from provisioner.model.alert import Classification
from provisioner.model.events.node_events import NodeTakenBack
from provisioner.model.node import Node, NodeKind, Placement, State, TenantData
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.tenant import PortPlacement, ReleaseProof
from provisioner.planning.lifecycle import operator_requests
from provisioner.planning.release.entitlement import SITE_VRFS, mark_served
from provisioner.planning.release.port_isolation import find_misplaced_ports
from provisioner.planning.watch.watch_rules import Found
from provisioner.ports import StaleWrite

log = logging.getLogger(__name__)

ROUND_S = 10.0  # a node that was released just now is looked at within this and its turn
LOOKS_MAX = 64  # nodes at once; nodes on the same leaves share a look
SOURCE = "watch.release"


class ReleaseWatch:
    """`run` watches for ever. `submit` hands an operation to the engine."""

    def __init__(
        self,
        context: Context,
        tenancy: Tenancy,
        submit: Callable[[str], Awaitable[None]],
        keeper: AlertKeeper | None = None,
    ) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._tenancy = tenancy
        self._releases = Releases(tenancy.site, context.store, tenancy)
        self._submit = submit
        self._keeper = keeper
        self._due: dict[str, float] = {}
        self._suspected: dict[str, frozenset[str]] = {}  # node -> rows that failed at the last look
        self._alerted: set[str] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.run_round()
            await self._clock.sleep(ROUND_S)

    async def run_round(self) -> None:
        """Look at every released node whose turn it is."""
        nodes = await self._store.nodes.list()
        now = self._clock.now()
        if self._keeper is not None:  # a predecessor's words count as well
            standing = await self._keeper.book.list()
            self._alerted = {a.node for a in standing if a.active and a.source == SOURCE}
        mine = {
            n.id: n
            for n in nodes
            if n.state is State.RELEASED and n.kind is NodeKind.HOST and n.ports and n.vrf
        }
        for name in [n for n in self._due if n not in mine]:
            del self._due[name]
            self._suspected.pop(name, None)
        for name in mine:
            # spread by name, so that a start is no storm
            share = crc32(name.encode()) / 2**32
            self._due.setdefault(name, now + share * self._settings.watch_ports_s)
        turns = sorted((at, name) for name, at in self._due.items() if at <= now)[:LOOKS_MAX]
        for _, name in turns:
            self._due[name] = now + self._settings.watch_ports_s
        outcomes = await asyncio.gather(
            *(self.check_ports(mine[name]) for _, name in turns), return_exceptions=True
        )
        for (_, name), problem in zip(turns, outcomes, strict=True):
            if isinstance(problem, BaseException):
                log.error("watch of the ports of %s failed", name, exc_info=problem)
        await self._tidy({n.id: n for n in nodes})

    async def check_ports(self, node: Node) -> None:
        """Read this node's ports; it is taken back if they are not where they were proved."""
        read = await self._tenancy.read(node.ports)
        if isinstance(read, Blocker):
            await self._tell(node, [_found("PortsUnread", read.subject, read.detail, unread=True)])
            return
        elsewhere = find_misplaced_ports(node.ports, read, node.vrf)
        if elsewhere:
            customers = [p for p in read if p.vrf not in {*SITE_VRFS, node.vrf}]
            await self._take_back(node, elsewhere, mixed=True, exposed=customers)
            return
        proof = await self._store.evidence.get_proof(node.id)
        fresh = proof is not None and proof.certificate == node.certificate
        until = proof.confirmed_at + self._settings.release_watch_s if proof else 0.0
        if proof is not None and fresh and self._clock.now() <= until:
            await self._judge(node, proof)
        elif node.id in self._alerted:
            await self._tell(node, [])

    async def _judge(self, node: Node, proof: ReleaseProof) -> None:
        """Judge the whole gate, compared with the state at the release."""
        rows = await self._releases.judge_standing(node, node.vrf, proof.after)
        failed = [r for r in rows if r.verdict is RowVerdict.FAIL]
        names = frozenset(f"{r.check} {r.subject}" for r in failed)
        stands = names & self._suspected.get(node.id, frozenset())
        self._suspected[node.id] = names
        at_once = any(r.check in _AT_ONCE for r in failed)
        if failed and (at_once or stands):
            blockers = self._releases.list_blockers(rows)
            await self._take_back(node, blockers, mixed=at_once)
        elif node.id in self._alerted:
            await self._tell(node, [])

    async def take_back(self, node: Node, why: Sequence[Blocker]) -> None:
        """Have a node taken back that has a port in another customer's network."""
        await self._take_back(node, why, mixed=True)

    async def _take_back(
        self,
        node: Node,
        why: Sequence[Blocker],
        *,
        mixed: bool,
        exposed: Sequence[PortPlacement] = (),
    ) -> None:
        """Fence it and ask a person about its tenant's data; it stays its tenant's.

        `mixed`: its place is unknown. `exposed`: ports in another customer's network, which its
        data has to be erased for unless a person decides otherwise.

        A concurrent change of the row wins: then the next round looks again.
        """
        now = self._clock.now()
        conditions = [_found("PortElsewhere", b.subject, b.detail) for b in why[:8]]
        await self._tell(node, conditions)
        if await self._context.refuse_act(node, Capability.ISOLATION, f"take it back: {why[0]}"):
            return
        reclaimed = operator_requests.reclaim_node(node, now, for_repair=True)
        if isinstance(reclaimed, str):
            return
        changes: dict[str, Any] = {
            "note": f"taken back: {why[0]}",
            "blockers": tuple(why),
            "tenant_data": TenantData.ASKED,  # fenced at once, and erased by no reading alone
            "served": mark_served(reclaimed.served, [p.vrf for p in exposed]),
        }
        if mixed:
            changes |= {"placement": Placement.MIXED, "vrf": ""}
        try:
            await self._store.nodes.save(reclaimed.model_copy(update=changes))
        except StaleWrite:
            return
        reasons = tuple(str(b) for b in why[:20])
        event = NodeTakenBack(about=node.id, why=reasons, vrf=node.vrf)
        await self._store.journal.append(event, now)
        operation = await self._store.operations.open(node.id, "alert", now)
        if operation is not None:  # else a driver works on it already, and sees the new state
            await self._submit(operation.id)

    async def _tell(self, node: Node, found: Sequence[Found]) -> None:
        if self._keeper is None:
            return
        await self._keeper.level(node.id, {SOURCE: found})
        (self._alerted.add if found else self._alerted.discard)(node.id)

    async def _tidy(self, nodes: dict[str, Node]) -> None:
        """Clear a node's reports once it is fenced."""
        for name in sorted(self._alerted):
            node = nodes.get(name)
            if node is not None and node.placement is Placement.MAINTENANCE:
                await self._tell(node, [])


# a leak, or a port that is in another network: not waited for
_AT_ONCE = frozenset({GateCheck.PORT_VRF, GateCheck.ONE_VRF, GateCheck.REMAINDER})


def _found(name: str, target: str, message: str, *, unread: bool = False) -> Found:
    kind = Classification.UNOBSERVED if unread else Classification.PREVENT_ALLOCATIONS
    return Found(id=name, target=target, classifications=(kind,), message=message[:300])
