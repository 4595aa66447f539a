"""The search's model of a node: tracks, rules, and the consequences of each version change.

A track is all slots of one component kind that are in the same situation, so that eight equal cards
are one variable. Slots that share a name (a card's bundle and its NIC firmware) are grouped
together, so that the parts of one card's bundle never change another card.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from provisioner.model.inventory import Activation
from provisioner.model.matrix import Requirement
from provisioner.planning.path import activation as act
from provisioner.planning.path import conditions
from provisioner.planning.path.hops import Hop, Moves

MIXED = "mixed"  # the parts of the bundle match no single version of it


class Staged(NamedTuple):
    """A version that is written and waits for its activation."""

    version: str
    activation: Activation
    carries: tuple[tuple[str, str], ...] = ()


class ReportedSlot(NamedTuple):
    """One slot with its versions as the device prints them."""

    slot: str
    version: str
    staged: str | None
    bmc: str


@dataclass(frozen=True, slots=True)
class Track:
    """Slots of one kind in the same situation.

    `goal` is None for a component that is not pinned: it changes only when another one carries it.
    """

    kind: str
    slots: tuple[str, ...]
    running: str
    staged: Staged | None
    reported: tuple[ReportedSlot, ...]
    goal: frozenset[str] | None
    derived: bool = False
    updateable: bool = True
    exhausted: frozenset[str] = frozenset()  # versions that were tried too often
    without_effect: frozenset[str] = frozenset()  # those among them whose tries all ended well


Running = tuple[str, ...]  # by track index
Waiting = tuple[Staged | None, ...]


@dataclass(slots=True)
class Problem:
    """One node and one release. Its caches store results of pure functions only."""

    tracks: tuple[Track, ...]
    moves: Moves
    rules: tuple[Requirement, ...]
    neighbours: Mapping[str, tuple[str, ...]]  # kind -> versions at the other ends of the cables
    by_kind: dict[str, tuple[int, ...]] = field(init=False)
    _targets: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    at_end_only: frozenset[int] = frozenset()  # positions of rules that need not hold on the way
    _derived: dict[Running, Running] = field(init=False, default_factory=dict)
    _broken: dict[Running, frozenset[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        kinds: dict[str, list[int]] = {}
        for index, track in enumerate(self.tracks):
            kinds.setdefault(track.kind, []).append(index)
        self.by_kind = {kind: tuple(indexes) for kind, indexes in kinds.items()}

    def is_at_goal(self, index: int, version: str) -> bool:
        goal = self.tracks[index].goal
        return goal is None or version in goal

    def name_goal(self, index: int) -> str:
        """Return the version that a pinned track must run, where the pin approves several."""
        track = self.tracks[index]
        pinned = self.moves.normalize_version(track.kind, self.moves.pins[track.kind].version)
        return pinned if track.goal is None or pinned in track.goal else min(track.goal)

    def find_hops(self, index: int, version: str) -> tuple[Hop, ...]:
        """Return the hops without objections that a track at `version` may take."""
        track = self.tracks[index]
        if track.goal is None:
            return ()
        hops = self.moves.find_hops(track.kind, version)
        return tuple(
            h
            for h in hops
            if not h.objections
            and h.to not in track.exhausted
            and (track.updateable or not h.method.startswith(("redfish", "bluefield")))
        )

    def find_targets(self, index: int, kind: str) -> tuple[int, ...]:
        """Return the tracks of `kind` that change when track `index` carries that kind."""
        key = (index, kind)
        if key not in self._targets:
            own = set(self.tracks[index].slots)
            theirs = self.by_kind.get(kind, ())
            family = {
                s for i in self.by_kind[self.tracks[index].kind] for s in self.tracks[i].slots
            }
            shared = any(family & set(self.tracks[i].slots) for i in theirs)
            self._targets[key] = tuple(
                i for i in theirs if not shared or own & set(self.tracks[i].slots)
            )
        return self._targets[key]

    def apply_changes(self, running: Running, changes: Sequence[tuple[int, Staged]]) -> Running:
        """Return the running versions after these versions are activated.

        The versions that they carry are set first, then their own, then derived bundles.
        """
        after = list(running)
        for index, staged in changes:
            for kind, version in staged.carries:
                for target in self.find_targets(index, kind):
                    after[target] = version
        for index, staged in changes:
            after[index] = staged.version
        key = tuple(after)
        if key not in self._derived:
            for index, track in enumerate(self.tracks):
                if track.derived:
                    after[index] = self.identify_bundle(track.kind, after)
            self._derived[key] = tuple(after)
        return self._derived[key]

    def identify_bundle(self, kind: str, running: Sequence[str]) -> str:
        """Return the one bundle version whose parts all run (the most detailed one), or MIXED."""
        best: list[tuple[int, str]] = []
        for version in self.moves.matrix.bundles.get(kind, {}):
            parts = self.moves.get_contents(kind, version)
            if parts and all(self._all_run(part, v, running) for part, v in parts.items()):
                best.append((len(parts), self.moves.normalize_version(kind, version)))
        best.sort()
        if not best or (len(best) > 1 and best[-1][0] == best[-2][0]):
            return MIXED
        return best[-1][1]

    def _all_run(self, kind: str, version: str, running: Sequence[str]) -> bool:
        indexes = self.by_kind.get(kind, ())
        return bool(indexes) and all(running[i] == version for i in indexes)

    def build_view(self, running: Running) -> conditions.Running:
        """Return a lookup of running versions: the node's own components, else its neighbours'."""

        def versions_of(kind: str) -> Collection[str] | None:
            if own := self.by_kind.get(kind):
                return {running[i] for i in own}
            return self.neighbours.get(kind)

        return versions_of

    def find_broken_rules(self, running: Running) -> frozenset[int]:
        """Return the positions in `rules` of the rules that do not hold.

        A rule that cannot be evaluated is broken. Two rules of one name are two rules.
        """
        if running not in self._broken:
            view = self.build_view(running)
            self._broken[running] = frozenset(
                number for number, r in enumerate(self.rules) if self._is_broken(r, view)
            )
        return self._broken[running]

    def take_part(
        self,
        indexes: Sequence[int],
        rules: Sequence[int],
        outside: Mapping[str, tuple[str, ...]],
        at_end_only: frozenset[int] = frozenset(),
    ) -> Problem:
        """Return the problem of some tracks and rules alone.

        `outside` are versions of kinds that the part only reads. The part must contain every track
        that one of its tracks carries, and all parts of its derived tracks.
        """
        position = {index: number for number, index in enumerate(indexes)}
        kinds = {self.tracks[index].kind for index in indexes}
        targets = {
            (position[index], kind): tuple(
                position[t] for t in self.find_targets(index, kind) if t in position
            )
            for index in indexes
            for kind in kinds
        }
        return Problem(
            tuple(self.tracks[i] for i in indexes),
            self.moves,
            tuple(self.rules[number] for number in rules),
            {**self.neighbours, **outside},
            targets,
            frozenset(n for n, number in enumerate(rules) if number in at_end_only),
        )

    def _is_broken(self, rule: Requirement, view: conditions.Running) -> bool:
        grammars = self.moves.grammars
        concerned = all(
            conditions.any_version_satisfies(text, kind, grammars, view) is not False
            for kind, text in rule.when.items()
        )
        return concerned and not all(
            conditions.all_versions_satisfy(text, kind, grammars, view) is True
            for kind, text in rule.needs.items()
        )

    def find_unmet_conditions(self, hop: Hop, running: Running) -> tuple[tuple[str, str], ...]:
        """Return the conditions of a push that the running versions do not meet."""
        view = self.build_view(running)
        grammars = self.moves.grammars
        return tuple(
            (kind, text)
            for kind, text in hop.requires
            if conditions.all_versions_satisfy(text, kind, grammars, view) is not True
        )


# ------------------------------------------------------------------------------
# The states of a node on its way to its pins, and the moves between them.
#
# Rules must hold in every state that the plan creates. If a rule is broken at the start, the plan
# may pass through states that break no further rule; at the end all rules hold. `joining` finds the
# cheapest order of moves; this module decides only which single moves are legal.


Cost = tuple[int, int, int]  # outages, resets, seconds; compared in this order


@dataclass(frozen=True, slots=True)
class Push:
    """Write one hop to the slots of one track."""

    track: int
    hop: Hop


@dataclass(frozen=True, slots=True)
class Reset:
    """Carry out one reset, which activates the staged versions of `tracks`."""

    reset: Activation
    tracks: tuple[int, ...]


Move = Push | Reset


class State(NamedTuple):
    """The running and the staged version of each track."""

    running: Running
    waiting: Waiting


@dataclass(slots=True)
class Hindrances:
    """The causes that forbade moves while states were searched, for the explanation of a refusal.

    All tracks are indexes of the whole node.
    """

    conditions: set[tuple[int, str, str, str]] = field(default_factory=set)  # track, to, kind, text
    rules: set[int] = field(default_factory=set)  # positions in the list of rules
    reached: set[int] = field(default_factory=set)  # tracks that were at their goal in some state


@dataclass(slots=True)
class SearchResult:
    """The result of a search. `moves` is None if there is no plan."""

    moves: tuple[tuple[Move, State], ...] | None = None  # each with the state before it
    cost: Cost = (0, 0, 0)
    exhausted: bool = False  # the budget ended before every order was tried
    hindrances: Hindrances = field(default_factory=Hindrances)


def initial_state(problem: Problem) -> State:
    """Return the state in which the node is now."""
    return State(tuple(t.running for t in problem.tracks), tuple(t.staged for t in problem.tracks))


def is_goal(problem: Problem, state: State) -> bool:
    """Return whether every pin runs, no pinned version is staged, and every rule holds."""
    return (
        all(problem.is_at_goal(i, v) for i, v in enumerate(state.running))
        and all(w is None or problem.tracks[i].goal is None for i, w in enumerate(state.waiting))
        and not problem.find_broken_rules(state.running)
    )


def cost_of_push(hop: Hop) -> tuple[int, int]:
    """Return the outages and seconds of one push."""
    return (int(act.is_outage(hop.disruption)), hop.duration_s)


def cost_of_reset(reset: Activation) -> Cost:
    return (int(act.is_outage(act.get_disruption(reset))), 1, act.estimate_duration_s(reset))


def push_hop(
    problem: Problem, state: State, index: int, hop: Hop, hindrances: Hindrances | None = None
) -> State | None:
    """Return the state after a push, or None if it is not allowed now.

    A version that the plan staged itself is activated before the track is written again; one that
    was staged before the plan may be replaced.
    """
    waiting = state.waiting[index]
    if waiting is not None and (
        waiting != problem.tracks[index].staged or waiting.version == hop.to
    ):
        return None
    staged = Staged(hop.to, hop.activation, hop.carries)
    if _collides(problem, state, index, staged):
        return None
    if unmet := problem.find_unmet_conditions(hop, state.running):
        if hindrances is not None:
            hindrances.conditions.update((index, hop.to, kind, text) for kind, text in unmet)
        return None
    if hop.activation not in act.AT_ONCE:
        after = (*state.waiting[:index], staged, *state.waiting[index + 1 :])
        return State(state.running, after)
    running = problem.apply_changes(state.running, [(index, staged)])
    if not _is_allowed(problem, state.running, running, hindrances):
        return None
    after = tuple(None if i == index else w for i, w in enumerate(state.waiting))
    return State(running, _drop_running(running, after))


def activate_staged(problem: Problem, state: State, reset: Activation) -> tuple[State, Reset]:
    """Return the state after a reset and the reset with its tracks. Rules are not looked at."""
    changes = [
        (i, w)
        for i, w in enumerate(state.waiting)
        if w is not None and act.covers_activation(reset, w.activation)
    ]
    if not changes:
        return state, Reset(reset, ())
    running = problem.apply_changes(state.running, changes)
    activated = {i for i, _ in changes}
    after = tuple(None if i in activated else w for i, w in enumerate(state.waiting))
    return State(running, _drop_running(running, after)), Reset(reset, tuple(sorted(activated)))


def waits_exactly(state: State, reset: Activation) -> bool:
    return any(w is not None and w.activation is reset for w in state.waiting)


def _is_allowed(
    problem: Problem, before: Running, after: Running, hindrances: Hindrances | None
) -> bool:
    broken = problem.find_broken_rules(after) - problem.at_end_only
    newly = broken - problem.find_broken_rules(before) if broken else broken
    if newly and hindrances is not None:
        hindrances.rules |= newly
    return not newly


def _drop_running(running: Running, waiting: Waiting) -> Waiting:
    """Remove the staged versions that already run."""
    return tuple(
        None if w is not None and w.version == r else w
        for r, w in zip(running, waiting, strict=True)
    )


def _collides(problem: Problem, state: State, index: int, staged: Staged) -> bool:
    """Return whether two staged writes would give one component two different versions."""
    for kind, version in staged.carries:
        for target in problem.find_targets(index, kind):
            other_staged = state.waiting[target]
            if target != index and other_staged is not None and other_staged.version != version:
                return True
    for i, other_staged in enumerate(state.waiting):
        if other_staged is None or i == index:
            continue
        for kind, version in other_staged.carries:
            if index in problem.find_targets(i, kind) and version != staged.version:
                return True
    return False
