"""The planner: from an inventory and a target release to ordered steps, or to blockers.

Pure: the same input gives the same plan. `joining` states the order of costs, and `search` the
invariants that hold on the way. The
executor carries out the first step only; then the node is observed and planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from operator import attrgetter
from threading import Lock

from provisioner import components, quirks
from provisioner.components import ComponentKind
from provisioner.model.base import Record
from provisioner.model.inventory import Activation, BackgroundCopy, Inventory
from provisioner.model.matrix import Matrix, Pin, Release
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Neighbour, Plan, Precondition, Step, StepKind
from provisioner.planning.path import activation, refusals
from provisioner.planning.path.conditions import judge_pin
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.hops import Moves
from provisioner.planning.path.problem import (
    build_problem,
    explain_order,
    relevant_kinds,
    solve_in_order,
)
from provisioner.planning.path.solving import Shapes
from provisioner.planning.path.tracks import Move, Problem, Push, Reset, State
from provisioner.settings.maintenance import BootWay

# ------------------------------------------------------------------------------
# Turn the search's moves into steps with their preconditions, costs and reasons.


def build_steps(
    problem: Problem,
    moves: tuple[tuple[Move, State], ...],
    release: str,
    order: str = "",
    first: int = 0,
) -> tuple[Step, ...]:
    """Return one step per move, in order.

    `order` says why the `first` moves come before the others, where their costs do not.
    """
    out: list[Step] = []
    for position, (move, before) in enumerate(moves):
        later_moves = tuple(m for m, _ in moves[position + 1 :])
        if isinstance(move, Push):
            out.append(_update(problem, move, before, later_moves, release))
        else:
            ahead = order if position < first else ""
            out.append(_activate(problem, move, before, later_moves, ahead))
    return tuple(out)


def _update(
    problem: Problem, move: Push, before: State, later_moves: tuple[Move, ...], release: str
) -> Step:
    hop = move.hop
    track = problem.tracks[move.track]
    needed = [i for kind, _ in hop.requires for i in problem.by_kind.get(kind, ())]
    return Step(
        kind=StepKind.UPDATE,
        component=hop.kind,
        slots=track.slots,
        from_version=hop.start,
        to_version=hop.to,
        carries=hop.carries,
        method=hop.method,
        artifact=hop.artifact,
        sha256=hop.sha256,
        force=hop.downgrade,
        activation=hop.activation,
        bmcs=tuple(sorted({s.bmc for s in track.reported if s.bmc})),
        disruption=hop.disruption,
        duration_s=hop.duration_s,
        expected=_expected(problem, before, [move.track, *needed]),
        reason=_explain_update(problem, move, later_moves, release),
    )


def _explain_update(
    problem: Problem, move: Push, later_moves: tuple[Move, ...], release: str
) -> str:
    hop = move.hop
    goal = problem.name_goal(move.track)
    clauses = [f"{release} pins {hop.kind} to {goal}, {hop.start} runs"]
    if hop.to != goal:
        clauses.append(f"the way there leads through {hop.to}")
    if hop.requires:
        met = ", ".join(f"{kind} {text}" for kind, text in hop.requires)
        clauses.append(f"it may be written now because {met} is met")
    if hop.carries:
        clauses.append("it brings " + ", ".join(f"{k} {v}" for k, v in hop.carries))
    if hop.activation in activation.AT_ONCE:
        clauses.append("it runs at once")
    else:
        reset = next(
            (m.reset for m in later_moves if isinstance(m, Reset) and move.track in m.tracks),
            hop.activation,
        )
        merged = "" if reset is hop.activation else f" (which covers its {hop.activation})"
        clauses.append(f"it waits for the {reset}{merged}")
    if hop.evidence:
        clauses.append(f"vouched for by {hop.evidence}")
    return "; ".join(clauses) + "."


def _activate(
    problem: Problem, move: Reset, before: State, later_moves: tuple[Move, ...], order: str
) -> Step:
    names: list[tuple[str, str]] = []
    kinds: dict[str, str] = {}
    bmcs: set[str] = set()
    for index in move.tracks:
        track = problem.tracks[index]
        waiting = before.waiting[index]
        assert waiting is not None
        names += [(f"{track.kind}/{slot}", waiting.version) for slot in track.slots]
        kinds[f"{track.kind} {waiting.version}"] = waiting.activation
        bmcs |= _find_bmcs(problem, index)
    listed = ", ".join(
        name if waits == move.reset else f"{name} (waits for {waits}, which this covers)"
        for name, waits in kinds.items()
    )
    reason = f"{listed} {'is' if len(kinds) == 1 else 'are'} written and will run after this"
    later = [m.hop for m in later_moves if isinstance(m, Push) and m.track in move.tracks]
    after = {hop.kind for hop in later}
    if after:
        reason += f"; needed now because {', '.join(sorted(after))} goes on from there"
    elif later_moves and (asking := _find_dependents(problem, move, later_moves)):
        reason += f"; needed now because {asking} requires it"
    if order:
        reason += f"; {order}"
    return Step(
        kind=StepKind.ACTIVATE,
        activation=move.reset,
        bmcs=tuple(sorted(bmcs)) if move.reset is Activation.BMC_RESET else (),
        activates=tuple(names),
        disruption=activation.get_disruption(move.reset),
        duration_s=activation.estimate_duration_s(move.reset),
        expected=_expected(problem, before, move.tracks),
        reason=reason + ".",
    )


def _find_dependents(problem: Problem, move: Reset, later_moves: tuple[Move, ...]) -> str:
    kinds = {problem.tracks[i].kind for i in move.tracks}
    asking = [
        f"{m.hop.kind} {m.hop.to}"
        for m in later_moves
        if isinstance(m, Push) and any(kind in kinds for kind, _ in m.hop.requires)
    ]
    return ", ".join(dict.fromkeys(asking))


def _find_bmcs(problem: Problem, index: int) -> set[str]:
    """Return the BMCs that manage a track, or the parts of a derived track."""
    track = problem.tracks[index]
    bmcs = {s.bmc for s in track.reported if s.bmc}
    if track.derived:
        for part in problem.moves.get_contents(track.kind, next(iter(track.goal or ()), "")):
            for i in problem.by_kind.get(part, ()):
                bmcs |= {s.bmc for s in problem.tracks[i].reported if s.bmc}
    return bmcs


def _expected(
    problem: Problem, before: State, indexes: tuple[int, ...] | list[int]
) -> tuple[Precondition, ...]:
    """Return the versions that must still be reported before the step.

    They are in the device's own spelling if no earlier step changes them.
    """
    out: list[Precondition] = []
    for index in dict.fromkeys(_parts(problem, indexes)):
        track = problem.tracks[index]
        waiting = before.waiting[index]
        for slot in track.reported:
            same = before.running[index] == track.running
            was_staged_before = waiting is not None and waiting == track.staged
            out.append(
                Precondition(
                    kind=track.kind,
                    slot=slot.slot,
                    version=(slot.version or None) if same else before.running[index],
                    staged=(slot.staged if was_staged_before and slot.staged else waiting.version)
                    if waiting
                    else None,
                )
            )
    return tuple(out)


def _parts(problem: Problem, indexes: tuple[int, ...] | list[int]) -> list[int]:
    """Replace each derived track by the tracks of its parts, since no device reports it by name."""
    out: list[int] = []
    for index in indexes:
        track = problem.tracks[index]
        if not track.derived:
            out.append(index)
            continue
        for contents in problem.moves.matrix.bundles.get(track.kind, {}).values():
            out += [i for part in contents for i in problem.by_kind.get(part, ())]
    return out


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
        update={"steps": steps, "outages": outages, "resets": resets, "duration_s": duration_s}
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

    No reset and no push may interrupt such a copy (docs/sources/redfish.md#background-copy).
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
    if blocker.reason is not Reason.CONSTRAINT or "neighbours" not in blocker.detail:
        return blocker
    sentences = [
        f"{n.node} runs {', '.join(n.versions[blocker.subject])}"
        for n in sorted(neighbours, key=lambda n: n.node)
        if n.versions.get(blocker.subject)
    ]
    return blocker.model_copy(update={"detail": f"{blocker.detail} ({'; '.join(sentences[:8])})"})


# ------------------------------------------------------------------------------
# Rollback plans, computed before a campaign begins. Pure.
#
# The planner computes the way from a node that runs all pins of the new release back to the
# baseline. Its blockers (a fuse, a missing edge) and files that are not in the artifact store are
# reasons against a rollback. Irreversible steps are named one by one, so that an operator confirms
# each by its name.


NAMED_MAX = 20  # nodes listed by name; the others are counted


class WayBack(Record):
    """The rollback of one node.

    `one_way` names the steps that are irreversible or have no way back; an operator confirms them
    by name. `blockers` are all other reasons against a rollback.
    """

    node: str
    one_way: tuple[str, ...] = ()  # "component version"
    why: tuple[Blocker, ...] = ()  # the planner's blockers for `one_way`
    blockers: tuple[Blocker, ...] = ()
    steps: int = 0
    resets: int = 0
    minutes: int = 0


class RollbackPreview(Record):
    """The effect of a campaign's rollback on its nodes.

    `minutes` is the sum over all nodes. A rollback with `refused` does not begin.
    """

    campaign: str
    baseline: str
    nodes: tuple[str, ...] = ()
    steps: int = 0
    resets: int = 0
    minutes: int = 0
    tenants: tuple[str, ...] = ()  # tenants whose nodes are drained again
    refused: tuple[Blocker, ...] = ()

    def format_lines(self) -> tuple[str, ...]:
        """Return the sentences that an operator reads before the rollback begins."""
        cost = f"{self.steps} steps, {self.resets} resets, {self.minutes} node minutes"
        first = f"{len(self.nodes)} nodes of {self.campaign} go back to {self.baseline}: {cost}."
        if self.tenants:
            first += f" They are drained again from: {', '.join(self.tenants)}."
        more = len(self.nodes) - NAMED_MAX
        named = [f"  {name}" for name in self.nodes[:NAMED_MAX]]
        return (first, *named, *([f"  and {more} more"] if more > 0 else []))


def plan_way_back(
    node: PlanningNode, forth: Plan, baseline: str, cache: PlanCache, held: Set[str] | None = None
) -> WayBack:
    """Return the rollback to `baseline` after the plan `forth` has been carried out.

    `held` names the files in the artifact store; None means that it was not read, and files are
    then not checked.
    """
    name = node.inventory.node
    if not forth.steps:
        return WayBack(node=name)
    updated = apply_plan(node.inventory, forth, cache)
    back = cache.plan(
        replace(node, inventory=updated, release=baseline, history=type(node.history)())
    )
    reasons = [b.model_copy(update={"detail": f"back: {b.detail}"}) for b in back.blockers]
    if held is not None:
        reasons += [
            Blocker(
                reason=Reason.MISSING_ARTIFACT,
                subject=step.component,
                detail=f"back: {step.artifact} is not held",
                unblock=f"Put {step.artifact} into the artifact store before the campaign begins.",
            )
            for step in back.steps
            if step.artifact and step.artifact not in held
        ]
    ends = {s.component: s.to_version for s in forth.steps if s.kind is StepKind.UPDATE}
    stay = {kind for b in reasons if (kind := b.subject.partition("/")[0]) in ends}
    one_way = [
        *find_one_way_steps(forth, cache),
        *(f"{kind} {ends[kind]}" for kind in sorted(stay)),
    ]
    return WayBack(
        node=name,
        one_way=tuple(dict.fromkeys(one_way)),
        why=tuple(b for b in reasons if b.subject.partition("/")[0] in stay),
        blockers=tuple(b for b in reasons if b.subject.partition("/")[0] not in stay),
        steps=len(back.steps),
        resets=back.resets,
        minutes=-(-back.duration_s // 60),
    )


def find_one_way_steps(forth: Plan, cache: PlanCache) -> tuple[str, ...]:
    """Return the steps after which the matrix forbids going back, as "component version"."""
    release = cache.matrix.releases[forth.release]
    pins = {k: p for k, p in release.profiles[forth.profile].pins.items() if p.known}
    moves = Moves(cache.matrix, pins, cache.kinds, production=cache.production, leave=cache.leave)
    return tuple(
        dict.fromkeys(
            f"{step.component} {step.to_version}"
            for step in forth.steps
            if step.kind is StepKind.UPDATE
            and moves.find_one_way_edge(step.component, step.to_version, step.from_version)
        )
    )


def apply_plan(inventory: Inventory, forth: Plan, cache: PlanCache) -> Inventory:
    """Return the inventory after the plan: its versions run, and none is staged."""
    pins = cache.matrix.releases[forth.release].profiles[forth.profile].pins
    carried: dict[str, str] = {}
    written: dict[tuple[str, str], str] = {}
    for step in forth.steps:
        carried |= dict(step.carries)
        written |= {(step.component, slot): step.to_version for slot in step.slots}
    parts = []
    for part in inventory.components:
        version = written.get((part.kind, part.slot), carried.get(part.kind, part.version))
        pin = pins.get(part.kind)
        if pin and pin.known and not judge_pin(part.kind, version, pin).met:
            version = pin.version  # a bundle's parts follow it; the plan ends with every pin
        parts.append(part.model_copy(update={"version": version, "staged": None, "pending": None}))
    return inventory.model_copy(update={"components": tuple(parts)})
