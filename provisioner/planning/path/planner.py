"""From what is and what should be to ordered steps with reasons, or to what blocks and unblocks.

Pure: the same input gives the same plan. `search` says what is kept true on the way; the executor
does the first step only, then everything is observed and planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from provisioner import components
from provisioner.components import ComponentKind
from provisioner.model.inventory import BackgroundCopy, Inventory
from provisioner.model.matrix import Matrix, Pin, Release
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Neighbour, Plan
from provisioner.planning.path import refusals
from provisioner.planning.path.hops import Moves
from provisioner.planning.path.problem import pose, relevant_kinds
from provisioner.planning.path.search import search
from provisioner.planning.path.steps import steps

_NO_HISTORY = History()

# what a plan depends on in a component; read for every component of a fleet
_FACTS = attrgetter("kind", "slot", "version", "staged", "pending", "updateable", "bmc", "source")


@dataclass(frozen=True, slots=True)
class PlanningNode:
    """One node of a fleet, as `plan_fleet` takes it."""

    inventory: Inventory
    release: str
    profile: str
    history: History = _NO_HISTORY
    neighbours: tuple[Neighbour, ...] = ()


@dataclass(slots=True)
class _Target:
    """What one profile of one release asks for, worked out once."""

    moves: Moves
    release: Release
    relevant: frozenset[str]
    unknown: tuple[Blocker, ...]


@dataclass(slots=True)
class PlanCache:
    """Plans by everything that they depend on, for one matrix: a fleet costs its distinct vectors.

    An explicit value: whoever plans many nodes makes one, and drops it with the matrix.
    """

    matrix: Matrix
    kinds: Mapping[str, ComponentKind]
    production: bool
    leave: frozenset[str] = frozenset()  # methods that the site allows beyond the usual ones
    searches: int = 0  # plans that were worked out rather than remembered
    _targets: dict[tuple[str, str], _Target] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)

    def plan(self, node: PlanningNode) -> Plan:
        """The plan of one node, remembered if its situation was seen before."""
        inventory = node.inventory
        release = self.matrix.releases.get(node.release)
        if release is None or node.profile not in release.profiles:
            return _nowhere(node)
        copying = _copying(inventory)
        if copying:  # rare and short-lived: look again later, do nothing meanwhile
            return Plan(
                node=inventory.node, release=node.release, profile=node.profile, in_flight=copying
            )
        target = self._target(node.release, release, node.profile)
        key = _situation(node, target.relevant)
        found = self._plans.get(key)
        if found is None:
            self.searches += 1
            found = self._plans[key] = _work_out(node, target)
        named = tuple(_named(b, node.neighbours) for b in found.blockers)
        return found.model_copy(update={"node": inventory.node, "blockers": named})

    def _target(self, name: str, release: Release, profile: str) -> _Target:
        key = (name, profile)
        if key not in self._targets:
            pins = release.profiles[profile].pins
            unknown = tuple(_unknown(kind, name) for kind, p in sorted(pins.items()) if not p.known)
            known: dict[str, Pin] = {kind: p for kind, p in pins.items() if p.known}
            moves = Moves(
                self.matrix, known, self.kinds, production=self.production, leave=self.leave
            )
            relevant = relevant_kinds(moves, release)
            self._targets[key] = _Target(
                moves, release, relevant, unknown if self.production else ()
            )
        return self._targets[key]


def plan(
    inventory: Inventory,
    matrix: Matrix,
    release: str,
    profile: str,
    *,
    kinds: Mapping[str, ComponentKind] = components.ALL,
    history: History = _NO_HISTORY,
    neighbours: tuple[Neighbour, ...] = (),
    production: bool = True,
    leave: frozenset[str] = frozenset(),
) -> Plan:
    """The cheapest steps that bring one node to a profile of a release, or why there are none.

    In production, unknown pins block, and so do edges without evidence and what has no file or no
    digest of it; otherwise unknown pins are left alone, and a step may name no file yet.
    """
    cache = PlanCache(matrix, kinds, production, leave)
    return cache.plan(PlanningNode(inventory, release, profile, history, neighbours))


def plan_fleet(nodes: Iterable[PlanningNode], cache: PlanCache) -> list[Plan]:
    """The plans of many nodes, in their order; equal situations are worked out once."""
    return [cache.plan(node) for node in nodes]


def _work_out(node: PlanningNode, target: _Target) -> Plan:
    inventory = node.inventory
    blank = Plan(node=inventory.node, release=node.release, profile=node.profile)
    problem, unseen = pose(
        inventory, target.moves, target.release, target.relevant, node.history, node.neighbours
    )
    blockers = (*target.unknown, *unseen, *refusals.exhausted(problem))
    told = {b.subject for b in blockers}
    blockers += tuple(b for b in refusals.per_track(problem) if b.subject not in told)
    if blockers:
        return blank.model_copy(update={"blockers": blockers})
    found = search(problem)
    if found.moves is None:
        return blank.model_copy(
            update={"blockers": refusals.of_search(problem, found, node.release)}
        )
    outages, resets, duration_s = found.cost
    return blank.model_copy(
        update={
            "steps": steps(problem, found.moves, node.release),
            "outages": outages,
            "resets": resets,
            "duration_s": duration_s,
        }
    )


def _situation(node: PlanningNode, relevant: frozenset[str]) -> tuple[object, ...]:
    """Everything that a plan depends on, and nothing that tells equal nodes apart."""
    waiting = {fact.kind for fact in node.history.staged}
    return (
        node.release,
        node.profile,
        tuple(
            _FACTS(c)
            for c in node.inventory.components
            if c.kind in relevant or c.staged is not None or c.kind in waiting
        ),
        tuple((f.kind, f.slot, f.version, f.activation) for f in node.history.staged),
        node.history.failures,
        frozenset(
            (kind, version)
            for neighbour in node.neighbours
            for kind, versions in neighbour.versions.items()
            for version in versions
        ),
    )


def _copying(inventory: Inventory) -> tuple[str, ...]:
    """Flash that is being copied. No reset and no push may meet it (facts: redfish 3.1)."""
    return tuple(
        f"{c.kind}/{c.slot}: background copy is {c.background_copy}"
        for c in inventory.components
        if c.background_copy not in (None, BackgroundCopy.COMPLETED)
    )


def _nowhere(node: PlanningNode) -> Plan:
    return Plan(
        node=node.inventory.node,
        release=node.release,
        profile=node.profile,
        blockers=(
            Blocker(
                reason=Reason.NO_PROFILE,
                subject=node.inventory.node,
                detail=f"the matrix has no profile {node.profile!r} in release {node.release!r}",
                unblock="Set the node's release and profile to ones of the matrix.",
            ),
        ),
    )


def _unknown(kind: str, release: str) -> Blocker:
    return Blocker(
        reason=Reason.UNKNOWN_PIN,
        subject=kind,
        detail=f"{release} does not say which version of {kind} it was tested with",
        unblock=f"Pin {kind} in an overlay with a version that you have evidence for.",
    )


def _named(blocker: Blocker, neighbours: tuple[Neighbour, ...]) -> Blocker:
    """A blocker at the other end of a cable names who stands there."""
    if blocker.reason is not Reason.CONSTRAINT or "neighbours" not in blocker.detail:
        return blocker
    there = [
        f"{n.node} runs {', '.join(n.versions[blocker.subject])}"
        for n in sorted(neighbours, key=lambda n: n.node)
        if n.versions.get(blocker.subject)
    ]
    return blocker.model_copy(update={"detail": f"{blocker.detail} ({'; '.join(there[:8])})"})
