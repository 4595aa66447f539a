"""The planner: from an inventory and a target release to ordered steps, or to blockers.

Pure: the same input gives the same plan. `joining` states the order of costs, and `search` the
invariants that hold on the way. The
executor carries out the first step only; then the node is observed and planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock

from provisioner import components, quirks
from provisioner.components import ComponentKind
from provisioner.model.inventory import BackgroundCopy, Inventory
from provisioner.model.matrix import Matrix, Pin, Release
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Neighbour, Plan
from provisioner.planning.path import refusals
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.flash_order import explain_order, solve_in_order
from provisioner.planning.path.hops import Moves
from provisioner.planning.path.problem import build_problem, relevant_kinds
from provisioner.planning.path.solving import Shapes
from provisioner.planning.path.steps import build_steps
from provisioner.settings.maintenance import BootWay

_NO_HISTORY = History()
PLANS_MAX = 20_000  # some 100 MB; a fleet of 65,536 nodes has some thousand distinct situations

# the fields of a component that a plan depends on; read for every component of a fleet
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
    """The moves, rules and unknown pins of one profile of one release, computed once."""

    moves: Moves
    release: Release
    relevant: frozenset[str]
    unknown: tuple[Blocker, ...]
    shapes: Shapes = field(default_factory=Shapes)


@dataclass(slots=True)
class PlanCache:
    """Plans of one matrix, stored by everything that they depend on.

    A fleet costs one search per distinct situation. A caller that plans many nodes creates one
    cache and discards it together with the matrix.
    """

    matrix: Matrix
    kinds: Mapping[str, ComponentKind]
    production: bool
    leave: frozenset[str] = frozenset()  # methods that the site allows beyond the usual ones
    way: BootWay = "vendor"  # how the site boots the maintenance image
    searches: int = 0  # plans that were not in the cache
    _targets: dict[tuple[str, str], _Target] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # callers plan in threads, beside the event loop

    def plan(self, node: PlanningNode) -> Plan:
        """Return the plan of one node, from the cache if an equal situation was planned before."""
        with self._lock:
            return self._plan(node)

    def _plan(self, node: PlanningNode) -> Plan:
        inventory = node.inventory
        release = self.matrix.releases.get(node.release)
        if release is None or node.profile not in release.profiles:
            return _refuse_profile(node)
        copying = _find_background_copies(inventory)
        if copying:  # rare and short: wait and plan again later
            return Plan(
                node=inventory.node, release=node.release, profile=node.profile, in_flight=copying
            )
        target = self._get_target(node.release, release, node.profile)
        key = _build_cache_key(node, target.relevant)
        stored_plan = self._plans.get(key)
        if stored_plan is None:
            self.searches += 1
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            stored_plan = self._plans[key] = _compute_plan(node, target, self.way)
        named = tuple(_name_neighbours(b, node.neighbours) for b in stored_plan.blockers)
        return stored_plan.model_copy(update={"node": inventory.node, "blockers": named})

    def _get_target(self, name: str, release: Release, profile: str) -> _Target:
        key = (name, profile)
        if key not in self._targets:
            pins = release.profiles[profile].pins
            unknown = tuple(
                _refuse_unknown_pin(kind, name, p.sought or self.matrix.sought.get(kind, ""))
                for kind, p in sorted(pins.items())
                if not p.known
            )
            known_pins: dict[str, Pin] = {kind: p for kind, p in pins.items() if p.known}
            moves = Moves(
                self.matrix, known_pins, self.kinds, production=self.production, leave=self.leave
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
    way: BootWay = "vendor",
) -> Plan:
    """Return the cheapest steps that bring a node to a profile of a release, or the blockers.

    In production, unknown pins, edges without evidence and files without a name or digest block the
    plan. Otherwise unknown pins are ignored, and a step may name no file yet.
    """
    cache = PlanCache(matrix, kinds, production, leave, way)
    return cache.plan(PlanningNode(inventory, release, profile, history, neighbours))


def plan_fleet(nodes: Iterable[PlanningNode], cache: PlanCache) -> list[Plan]:
    """Return the plans of many nodes, in their order; equal situations are planned once."""
    return [cache.plan(node) for node in nodes]


def _compute_plan(node: PlanningNode, target: _Target, way: BootWay) -> Plan:
    inventory = node.inventory
    blank = Plan(node=inventory.node, release=node.release, profile=node.profile)
    problem, unseen = build_problem(
        inventory, target.moves, target.release, target.relevant, node.history, node.neighbours
    )
    blockers = (*target.unknown, *unseen, *refusals.explain_failed_activations(problem))
    distances = Distances(problem)
    reported_subjects = {b.subject for b in blockers}
    unreachable = refusals.explain_unreachable_pins(problem, distances)
    blockers += tuple(b for b in unreachable if b.subject not in reported_subjects)
    if blockers:
        return blank.model_copy(update={"blockers": blockers})
    bmc_first = _get_order_rule(inventory.vendor)
    ordered = solve_in_order(problem, distances, target.shapes, bmc_first=bool(bmc_first))
    result = ordered.result
    if result.moves is None:
        return blank.model_copy(
            update={"blockers": refusals.explain_failed_search(problem, result, node.release)}
        )
    steps = build_steps(
        problem, result.moves, node.release, explain_order(ordered, bmc_first), ordered.first
    )
    if obstacles := refusals.explain_obstacles(steps, inventory.obstacles, way):
        return blank.model_copy(update={"blockers": obstacles})
    outages, resets, duration_s = result.cost
    return blank.model_copy(
        update={
            "steps": steps,
            "outages": outages,
            "resets": resets,
            "duration_s": duration_s,
        }
    )


def _build_cache_key(node: PlanningNode, relevant: frozenset[str]) -> tuple[object, ...]:
    """Return everything that a plan depends on, so that equal nodes get equal keys."""
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
        node.history.completed,
        node.inventory.obstacles,
        _get_order_rule(node.inventory.vendor),
        frozenset(
            (kind, version)
            for neighbour in node.neighbours
            for kind, versions in neighbour.versions.items()
            for version in versions
        ),
    )


def _get_order_rule(vendor: str) -> str:
    """Return why this vendor's BMC is updated first; "" if nothing says so."""
    quirk = quirks.ALL.get(vendor)
    return quirk.bmc_first if quirk is not None else ""


def _find_background_copies(inventory: Inventory) -> tuple[str, ...]:
    """Return the flash parts with a background copy under way.

    No reset and no push may interrupt such a copy (facts: redfish 3.1).
    """
    return tuple(
        f"{c.kind}/{c.slot}: background copy is {c.background_copy}"
        for c in inventory.components
        if c.background_copy not in (None, BackgroundCopy.COMPLETED)
    )


def _refuse_profile(node: PlanningNode) -> Plan:
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


def _refuse_unknown_pin(kind: str, release: str, sought: str) -> Blocker:
    return Blocker(
        reason=Reason.UNKNOWN_PIN,
        subject=kind,
        detail=f"{release} does not say which version of {kind} it was tested with",
        unblock=f"Pin {kind} in an overlay with a version that you have evidence for."
        + refusals.name_sought(sought),
    )


def _name_neighbours(blocker: Blocker, neighbours: tuple[Neighbour, ...]) -> Blocker:
    """Add the names and versions of the neighbours to a blocker that concerns them."""
    if blocker.reason is not Reason.CONSTRAINT or "neighbours" not in blocker.detail:
        return blocker
    sentences = [
        f"{n.node} runs {', '.join(n.versions[blocker.subject])}"
        for n in sorted(neighbours, key=lambda n: n.node)
        if n.versions.get(blocker.subject)
    ]
    return blocker.model_copy(update={"detail": f"{blocker.detail} ({'; '.join(sentences[:8])})"})
