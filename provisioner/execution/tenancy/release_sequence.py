"""Release and reclaim of one node: observe, move leaf by leaf, judge everything, probe, repeat.

This module does not decide that a node is a customer's; it reports the observations and the
objections. The caller takes the node back if there are any. Nothing in memory matters: after an
interruption at any point the ports are found again by observing, and a release begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.execution.actions.work import Site
from provisioner.execution.tenancy.leaf import Objections, apart_filter
from provisioner.execution.tenancy.release_recheck import ROWS, Rechecks, answers_of, run_probes
from provisioner.execution.tenancy.tenancy import MoveOutcome, Tenancy, find_wrong_cables
from provisioner.model.certificate import Certificate
from provisioner.model.events.node_events import NodeReleased
from provisioner.model.host_filter import Door
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateCheck, GateRow, LeafRecord, LeafState, RowVerdict
from provisioner.model.tenant import MAINTENANCE_VRF, LibraryMinimum, ReleaseProof
from provisioner.planning.release import (
    release_cables,
    release_gate,
    release_gate_routes,
    release_probes,
)
from provisioner.planning.release.port_isolation import GateAsk, ask_of, far_leaves, record_of
from provisioner.planning.release.release_probes import Partners, seal_proof
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Keep hosts apart on the network where agents are looked up: observe, restore, prove by packets.
#
# The required filters follow from the settings and the rows alone (the tests among nodes that are
# under way), so that a successor after a crash restores them by observing. Nothing is kept here.


@dataclass(frozen=True)
class SeenApart:
    """One leaf as it was read. `gaps`: the missing parts, as sentences.

    `untouched`: no tree has a trace of the filter, as on a leaf that was never prepared.
    """

    guarded: tuple[str, ...]
    gaps: tuple[str, ...]
    untouched: bool
    doors: tuple[Door, ...]


class HostsApart:
    """The filter between hosts on every leaf of a site."""

    def __init__(self, site: Site, store: SqlStore, tenancy: Tenancy) -> None:
        self._site = site
        self._store = store
        self._tenancy = tenancy

    @property
    def enabled(self) -> bool:
        return self._site.settings.keeps_hosts_apart

    async def doors(self) -> tuple[Door, ...]:
        """Return the pairs of hosts that tests let connect now, by the rows."""
        sessions = await self._store.fabric.list_sessions()
        names = {name for s in sessions for group in s.doors for name in group}
        return release_cables.doors_of(sessions, await self._store.nodes.list_named(names))

    async def look(self, leaf: str, owned: Collection[str]) -> SeenApart | Blocker:
        """Read one leaf. `owned`: its ports that hosts are cabled to."""
        state = await self._tenancy.filter_state(leaf)
        if isinstance(state, Blocker):
            return state
        settings = self._site.settings
        doors = await self.doors()
        now = state.ports["operational"]
        guarded = release_cables.guarded_ports(leaf, owned, now, settings.lookup_ports)
        gaps = release_cables.find_gaps(
            apart_filter(settings, doors), state.filters, state.ports, guarded
        )
        bound = any(has for ports in state.ports.values() for _, has in ports.values())
        untouched = not bound and all(held is None for held in state.filters.values())
        return SeenApart(guarded, gaps, untouched, doors)

    async def put_back(self, leaf: str, seen: SeenApart) -> tuple[Blocker, ...]:
        """Write the missing parts on one leaf; () if they are proved by reading, and saved."""
        return (await self._tenancy.keep_apart(leaf, seen.guarded, seen.doors)).blockers

    async def bring(self, nodes: Collection[Node]) -> tuple[Blocker, ...]:
        """Bring the leaves of these nodes to the state that the rows demand now: doors opened or
        closed.
        """
        if not self.enabled:
            return ()
        owned = await self._owned({p.switch for n in nodes for p in n.ports if not p.guid})

        async def bring_one(leaf: str, ports: Collection[str]) -> tuple[Blocker, ...]:
            state = await self.look(leaf, ports)
            if isinstance(state, Blocker):
                return (state,)
            return await self.put_back(leaf, state) if state.gaps else ()

        outcomes = await asyncio.gather(*(bring_one(leaf, ports) for leaf, ports in owned.items()))
        return tuple(blocker for blockers in outcomes for blocker in blockers)

    async def rows(self, node: Node) -> tuple[GateRow, ...]:
        """Return the rows of the gate for a node that is still in maintenance."""
        settings = self._site.settings
        if not self.enabled:
            why = "the site's own switches keep hosts apart (lookup_isolation)"
            if settings.lookup_isolation == "leaves":
                why = "no lookup_networks are set"
            return (release_cables.none_row(node.id, why),)
        rows_of: list[GateRow] = []
        owned = await self._owned({p.switch for p in node.ports if not p.guid})
        looks = await asyncio.gather(*(self.look(leaf, ports) for leaf, ports in owned.items()))
        for leaf, state in zip(owned, looks, strict=True):
            gaps = None if isinstance(state, Blocker) else state.gaps
            rows_of.append(release_cables.leaf_row(leaf, gaps))
        if any(row.bad for row in rows_of):
            return tuple(rows_of)
        return (*rows_of, *await self._packets(node))

    async def _packets(self, node: Node) -> tuple[GateRow, ...]:
        if self._site.settings.release_probes == "off":
            return (release_cables.none_row(node.id, "the site's settings have probes off"),)
        networks = self._site.settings.lookup_networks
        nodes = await self._store.nodes.list()
        probe_sets = release_cables.probe_sets_of(node, nodes, networks, await self.doors())
        if not probe_sets:
            return (
                release_cables.none_row(node.id, "no other host in maintenance could be asked"),
            )
        return release_cables.judge_probes(probe_sets, await answers_of(self._site, probe_sets))

    async def _owned(self, leaves: Collection[str]) -> Mapping[str, Sequence[str]]:
        owned: dict[str, list[str]] = {leaf: [] for leaf in sorted(leaves)}
        for node in await self._store.nodes.list():
            if node.kind is NodeKind.HOST and node.origin is not Origin.DETACHED:
                for port in node.ports:
                    if port.switch in owned and not port.guid:
                        owned[port.switch].append(port.interface)
        return owned


@dataclass(frozen=True)
class ReleaseOutcome:
    """No blockers: every row of the gate is good, and was so again a while later."""

    moved: MoveOutcome
    began_at: float
    rows: tuple[GateRow, ...] = ()
    before: tuple[LeafRecord, ...] = ()
    after: tuple[LeafRecord, ...] = ()
    watched_s: float = 0.0
    blockers: tuple[Blocker, ...] = ()


# What another node's move on the same leaf may show for some seconds.
_OF_OTHERS = frozenset({GateCheck.PERSISTED})


@dataclass
class _Judged:
    rows: tuple[GateRow, ...] = ()
    leaves: dict[str, LeafState] = field(default_factory=dict)


class Releases:
    """Carries out releases and reclaims over the leaves of a site."""

    def __init__(
        self, site: Site, store: SqlStore, tenancy: Tenancy, rechecks: Rechecks | None = None
    ) -> None:
        """`rechecks`: readings in hosts; without it, a proof records that no host was read."""
        self._site = site
        self._rechecks = rechecks
        self._store = store
        self._tenancy = tenancy
        self._apart = HostsApart(site, store, tenancy)

    async def release(
        self, node: Node, vrf: str, objections: Objections | None = None
    ) -> ReleaseOutcome:
        """Bring every port of a node into a tenant's VRF, and prove it by the whole gate.

        `objections` are read before each leaf is changed, and again before the long parts.
        """
        assert vrf != MAINTENANCE_VRF
        clock = self._site.clock
        settings = self._site.settings
        began = clock.now()
        states = await self._tenancy.look(node.ports)
        if isinstance(states, Blocker):
            return ReleaseOutcome(MoveOutcome(), began, blockers=(states,))
        before = make_records(node, states)
        apart = await self._apart.rows(node)
        if _bad(apart):
            blockers = release_gate.list_gate_blockers(apart)
            return ReleaseOutcome(MoveOutcome(), began, apart, before, blockers=blockers)
        moved = await self._tenancy.move(
            node.ports, vrf, look_for_leaks=False, objections=objections, node=node
        )
        if moved.blockers:
            return ReleaseOutcome(moved, began, before=before, blockers=moved.blockers)
        ask = await self.build_ask(node, vrf)
        settled_at = clock.now()
        judged = await self._settled(ask, before)
        rows = apart + judged.rows
        if not _bad(rows):
            rows += await self._elsewhere(node, ask)
        if not _bad(rows):
            rows += await self._tenancy.judge_beside(node)
        if not _bad(rows):
            rows += await self._hosts(node, ask, judged.leaves)
            if not _bad(rows) and settings.release_probes != "off":
                rows += await self._tenancy.try_mounts(node, self._site.shell)
        elif self._rechecks and any(r.check is GateCheck.CABLE for r in rows if r.bad):
            heard = release_cables.heard_by(judged.leaves)  # the other ends are asked as well
            rows += release_cables.make_fault_rows(
                await self._rechecks.find_miscablings(node, heard)
            )
        if not _bad(rows) and objections is not None and (objected := tuple(await objections())):
            return ReleaseOutcome(moved, began, rows=rows, before=before, blockers=objected)
        if not _bad(rows) and settings.release_confirm_s:
            await clock.sleep(settings.release_confirm_s)
            again = await self._settled(ask, before, _OF_OTHERS)
            rows += _standing(node.id, again.rows, clock.now() - settled_at)
            judged = again if again.leaves else judged
        return ReleaseOutcome(
            moved,
            began,
            rows=rows,
            before=before,
            after=make_records(node, judged.leaves),
            watched_s=clock.now() - settled_at,
            blockers=release_gate.list_gate_blockers(rows),
        )

    async def judge_standing(
        self, node: Node, vrf: str, baseline: Sequence[LeafRecord]
    ) -> tuple[GateRow, ...]:
        """The gate of a node that is a customer's, compared with the state at its release."""
        judged = await self.judge(await self.build_ask(node, vrf), tuple(baseline))
        # one damaged frame in half an hour takes no node out of service: rates are the watch's own
        # rules
        return tuple(r for r in judged.rows if r.check is not GateCheck.LINK_ERRORS)

    def list_blockers(self, rows: Sequence[GateRow]) -> tuple[Blocker, ...]:
        """Return the bad ones among these rows, as what keeps a node from its tenant."""
        return release_gate.list_gate_blockers(rows)

    async def build_ask(self, node: Node, vrf: str) -> GateAsk:
        """Return the requirements of a node's ports in a VRF, from its tenant's present record."""
        settings = self._site.settings
        return ask_of(
            node,
            vrf,
            await self._store.tenants.list(),
            mtu=settings.port_mtu,
            front_mtu=settings.front_mtu,
            acls=settings.release_port_acls,
            plan=self._tenancy.plan,
        )

    async def judge(self, ask: GateAsk, before: tuple[LeafRecord, ...]) -> _Judged:
        """Read all leaves once and judge them. A leaf without an answer has a row as unknown."""
        states = await self._tenancy.look(ask.ports)
        if isinstance(states, Blocker):
            row = GateRow(
                check=GateCheck.HEALTH,
                subject=states.subject,
                verdict=RowVerdict.UNKNOWN,
                seen=states.detail[:300],
            )
            return _Judged((row,))
        rows = release_gate.judge(ask, {r.switch: r for r in before}, states)
        return _Judged((*rows, *await self._tenancy.partitions(ask.guids, ask.vrf)), states)

    async def list_miscablings(self, node: Node) -> tuple[Blocker, ...]:
        """Return the wrong cables of a node under intake, as far as either end reports a
        neighbour. One that does not run yet is heard later, by gate A.
        """
        if self._rechecks is None or node.state is not State.INTAKE or not node.address:
            return ()
        return await find_wrong_cables(self._tenancy, self._rechecks, node, running=False)

    async def reclaim(self, node: Node) -> MoveOutcome:
        """Move a node out of a customer's VRF: denied first, moved when it is quiet, or after a
        while.

        A leaf that takes no filter is moved all the same: the move is the better fence. Its GPUs'
        partitions and storage are left first: while they cannot be, it stays with its tenant.
        """
        if refused := await self._tenancy.leave(node):
            return MoveOutcome(blockers=refused)
        placed = await self._tenancy.read(node.ports)
        if not isinstance(placed, Blocker):
            # a successor of an interrupted release finds some of them moved already
            moved = {(p.switch, p.interface) for p in placed if p.vrf != node.vrf}
            remaining = [p for p in node.ports if (p.switch, p.interface) not in moved]
            if not await self._tenancy.deny(remaining, node.vrf):
                await self._tenancy.quiet(remaining, self._site.settings.reclaim_idle_s)
        return await self._tenancy.move(node.ports, MAINTENANCE_VRF, node=node)

    async def _settled(
        self,
        ask: GateAsk,
        before: tuple[LeafRecord, ...],
        passing: frozenset[GateCheck] = frozenset(GateCheck),
    ) -> _Judged:
        """Judge until all rows pass, for as long as routes and neighbours may take to follow.

        `passing`: rows that may still become good; any other bad row ends it at once.
        """
        clock = self._site.clock
        settings = self._site.settings
        until = clock.now() + settings.release_settle_s
        while True:
            judged = await self.judge(ask, before)
            bad = {r.check for r in judged.rows if r.bad}
            if not bad or clock.now() >= until or not bad <= passing:
                return judged
            await clock.sleep(settings.switch_poll_s)

    async def _elsewhere(self, node: Node, ask: GateAsk) -> tuple[GateRow, ...]:
        """The rows of leaves of other units with ports of the tenant: routes follow there later."""
        clock = self._site.clock
        settings = self._site.settings
        leaves = far_leaves(node, ask.vrf, await self._store.nodes.list())
        until = clock.now() + settings.release_settle_s
        while True:
            states = await self._tenancy.look_at(leaves)
            rows = [
                release_gate.make_unread_row(GateCheck.HEALTH, n) for n in leaves if n not in states
            ]
            rows += [
                r for leaf in states.values() for r in release_gate_routes.judge_far_leaf(ask, leaf)
            ]
            if not _bad(rows) or clock.now() >= until:
                return tuple(rows)
            await clock.sleep(settings.switch_poll_s)

    async def _hosts(
        self, node: Node, ask: GateAsk, leaves: Mapping[str, LeafState]
    ) -> tuple[GateRow, ...]:
        """Return the rows from the moved host and its partners: packets, RDMA, NICs, cables."""
        settings = self._site.settings
        if settings.release_probes == "off":
            return _unasked(node, _OF_HOSTS, "the site's settings have them off")
        partners = Partners(
            nodes=tuple(await self._store.nodes.list()),
            tenants=tuple(await self._store.tenants.list()),
            reached=settings.release_reached,
            never=settings.release_never_reached,
            size=settings.probe_bytes,
            rdma=settings.release_rdma,
            canaries=settings.release_rdma_canaries,
        )
        probe_sets = release_probes.plan_probe_sets(node, ask, partners)
        if self._rechecks is None:
            rows = await run_probes(self._site, probe_sets)
            return rows + _unasked(node, ROWS, "the host was not read")
        before = await self._rechecks.read_counters(node)
        rows = await run_probes(self._site, probe_sets)
        return rows + await self._rechecks.judge_host(node, before, leaves)


_OF_HOSTS = (*release_probes.CLASSES, *ROWS)


def _unasked(node: Node, checks: Iterable[GateCheck], words: str) -> tuple[GateRow, ...]:
    return tuple(
        GateRow(check=check, subject=node.id, verdict=RowVerdict.NONE, seen=words)
        for check in checks
    )


def seal_release(
    node: Node,
    vrf: str,
    outcome: ReleaseOutcome,
    certificate: Certificate | None,
    now: float,
    libraries: tuple[LibraryMinimum, ...] = (),
) -> ReleaseProof:
    """The document of a release without blockers, sealed and bound to the node's certificate."""
    assert not outcome.blockers
    proof = ReleaseProof(
        node=node.id,
        certificate=node.certificate,
        tenant=node.tenant,
        vrf=vrf,
        placements=outcome.moved.placements,
        persisted=outcome.moved.persisted,
        revisions=outcome.moved.revisions,
        confirmed_at=now,
        began_at=outcome.began_at,
        before=outcome.before,
        after=outcome.after,
        gate=outcome.rows,
        watched_s=round(outcome.watched_s, 3),
        libraries=libraries,
    )
    return seal_proof(proof, certificate)


def describe_handover(proof: ReleaseProof) -> NodeReleased:
    return NodeReleased(
        tenant=proof.tenant,
        certificate=proof.certificate,
        proof=proof.sha256,
        libraries=tuple(str(one) for one in proof.libraries),
    )


def make_records(node: Node, seen: dict[str, LeafState]) -> tuple[LeafRecord, ...]:
    """Return the stored part of a look at a node's leaves."""
    return tuple(
        record_of(leaf, [p.interface for p in node.ports if p.switch == name])
        for name, leaf in sorted(seen.items())
    )


def _bad(rows: Sequence[GateRow]) -> bool:
    return any(r.bad for r in rows)


def _standing(node: str, rows: Sequence[GateRow], after_s: float) -> tuple[GateRow, ...]:
    """Return the rows that were good and are not any more, or one row that they still are."""
    bad = tuple(r for r in rows if r.bad)
    if bad:
        return bad
    reading = f"all rows again after {after_s:.0f} s"
    return (GateRow(check=GateCheck.STANDS, subject=node, verdict=RowVerdict.PASS, seen=reading),)
