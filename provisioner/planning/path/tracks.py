"""A node as the search sees it: tracks, rules, and what each change of what runs entails.

A track is all slots of one component kind that are in the same situation, so that eight equal cards
are one variable. Slots that share a name (a card's bundle and its NIC firmware) are grouped
together, so that what one card's bundle carries never touches another card.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from provisioner.model.inventory import Activation
from provisioner.model.matrix import Requirement
from provisioner.planning.path import conditions
from provisioner.planning.path.hops import Hop, Moves

MIXED = "mixed"  # a bundle whose parts are not those of any one version


class Staged(NamedTuple):
    """A version that is written and waits."""

    version: str
    activation: Activation
    carries: tuple[tuple[str, str], ...] = ()


class Seen(NamedTuple):
    """One slot as the device spells it."""

    slot: str
    version: str
    staged: str | None
    bmc: str


@dataclass(frozen=True, slots=True)
class Track:
    """`goal` is None for a component that is not pinned: it moves only when it is carried."""

    kind: str
    slots: tuple[str, ...]
    running: str
    staged: Staged | None
    seen: tuple[Seen, ...]
    goal: frozenset[str] | None
    derived: bool = False
    updateable: bool = True
    exhausted: frozenset[str] = frozenset()  # versions that failed too often


Running = tuple[str, ...]  # by track index
Waiting = tuple[Staged | None, ...]


@dataclass(slots=True)
class Problem:
    """One node, one release. Holds memories of pure functions; nothing in it changes meaning."""

    tracks: tuple[Track, ...]
    moves: Moves
    rules: tuple[Requirement, ...]
    neighbours: Mapping[str, tuple[str, ...]]  # kind -> versions at the other ends of the cables
    by_kind: dict[str, tuple[int, ...]] = field(init=False)
    _targets: dict[tuple[int, str], tuple[int, ...]] = field(init=False, default_factory=dict)
    _derived: dict[Running, Running] = field(init=False, default_factory=dict)
    _broken: dict[Running, frozenset[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        kinds: dict[str, list[int]] = {}
        for index, track in enumerate(self.tracks):
            kinds.setdefault(track.kind, []).append(index)
        self.by_kind = {kind: tuple(indexes) for kind, indexes in kinds.items()}

    def at_goal(self, index: int, version: str) -> bool:
        """True if the track may stay at this version."""
        goal = self.tracks[index].goal
        return goal is None or version in goal

    def hops(self, index: int, version: str) -> tuple[Hop, ...]:
        """What may be pushed to a track that runs `version`: nothing that is objected to."""
        track = self.tracks[index]
        if track.goal is None:
            return ()
        found = self.moves.from_(track.kind, version)
        return tuple(
            h
            for h in found
            if not h.objections
            and h.to not in track.exhausted
            and (track.updateable or not h.method.startswith(("redfish", "bluefield")))
        )

    def targets(self, index: int, kind: str) -> tuple[int, ...]:
        """The tracks of `kind` that change along with track `index` when it carries that kind."""
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

    def changed(self, running: Running, changes: Sequence[tuple[int, Staged]]) -> Running:
        """What runs after these versions begin to run; what they carry first, then themselves."""
        after = list(running)
        for index, staged in changes:
            for kind, version in staged.carries:
                for target in self.targets(index, kind):
                    after[target] = version
        for index, staged in changes:
            after[index] = staged.version
        key = tuple(after)
        if key not in self._derived:
            for index, track in enumerate(self.tracks):
                if track.derived:
                    after[index] = self.bundle(track.kind, after)
            self._derived[key] = tuple(after)
        return self._derived[key]

    def bundle(self, kind: str, running: Sequence[str]) -> str:
        """The one bundle version whose contents all run (the most detailed one), or MIXED."""
        best: list[tuple[int, str]] = []
        for version in self.moves.matrix.bundles.get(kind, {}):
            parts = self.moves.contents(kind, version)
            if parts and all(self._all_run(part, v, running) for part, v in parts.items()):
                best.append((len(parts), self.moves.spelled(kind, version)))
        best.sort()
        if not best or (len(best) > 1 and best[-1][0] == best[-2][0]):
            return MIXED
        return best[-1][1]

    def _all_run(self, kind: str, version: str, running: Sequence[str]) -> bool:
        indexes = self.by_kind.get(kind, ())
        return bool(indexes) and all(running[i] == version for i in indexes)

    def view(self, running: Running) -> conditions.Running:
        """What conditions look at: the node's own components first, else its neighbours'."""

        def of(kind: str) -> Collection[str] | None:
            if own := self.by_kind.get(kind):
                return {running[i] for i in own}
            return self.neighbours.get(kind)

        return of

    def broken(self, running: Running) -> frozenset[str]:
        """Names of the rules that do not hold for what runs. What cannot be told is broken."""
        if running not in self._broken:
            view = self.view(running)
            self._broken[running] = frozenset(r.name for r in self.rules if self._breaks(r, view))
        return self._broken[running]

    def _breaks(self, rule: Requirement, view: conditions.Running) -> bool:
        grammars = self.moves.grammars
        concerned = all(
            conditions.any_holds(text, kind, grammars, view) is not False
            for kind, text in rule.when.items()
        )
        return concerned and not all(
            conditions.holds(text, kind, grammars, view) is True
            for kind, text in rule.needs.items()
        )

    def unmet(self, hop: Hop, running: Running) -> tuple[tuple[str, str], ...]:
        """The conditions of a push that what runs does not meet."""
        view, grammars = self.view(running), self.moves.grammars
        return tuple(
            (kind, text)
            for kind, text in hop.requires
            if conditions.holds(text, kind, grammars, view) is not True
        )
