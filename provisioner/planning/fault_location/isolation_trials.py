"""Counts who passed and failed with whom: the sums from which blame is drawn.

Rules. A failure counts against a cell only if the other end is known to be good apart from it.
What is said of a cell never rises by a pass through it. Sums do not know in which order the
observations came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log

from provisioner.planning.fault_location.isolation_words import (
    ALL_RAILS,
    Cell,
    Fabric,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    Shown,
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One rail of one test between two cells."""

    test: str
    one: Cell
    other: Cell
    failed: bool
    corrupt: bool
    slow: bool  # it passed, too slowly
    ratio: float | None
    local: bool  # both cells on one leaf

    def end(self, cell: Cell) -> Cell:
        """The other end, seen from a cell."""
        return self.other if cell == self.one else self.one


@dataclass
class Trials:
    """All trials by cell, without those that are explained already."""

    fabric: Fabric
    policy: IsolationPolicy
    by_cell: dict[Cell, list[Trial]] = field(default_factory=dict)
    groups: dict[str, list[frozenset[str]]] = field(default_factory=dict)  # passed, by node
    partners: dict[str, set[str]] = field(default_factory=dict)  # who was tested with whom
    tested: dict[str, int] = field(default_factory=dict)  # tests of a node, of any kind
    raw: dict[Cell, int] = field(default_factory=dict)  # passes minus failures
    # leaf -> passes and failures of its cells with other leaves
    _ways: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """What one result is worth, as a logarithm of odds."""
        return log((1 - self.policy.noise) / self.policy.noise)

    @property
    def condemn_at(self) -> float:
        """Wald's bound: at this score noise condemns nobody in the whole campaign, but for
        `innocent_risk`."""
        return log(max(1, len(self.fabric.leaf_of)) / self.policy.innocent_risk)

    def known_good(self, cell: Cell, apart_from: frozenset[str]) -> bool:
        """Whether a cell is good by what it did with others than these nodes."""
        passes = sum(not (group & apart_from) for group in self.groups.get(cell[0], ()))
        failures = 0
        for trial in self.by_cell.get(cell, ()):
            other = trial.end(cell)
            if other[0] in apart_from:
                continue
            if not trial.failed:
                passes += 1
            elif self.raw[other] >= 0:  # not the other's failure, as far as one can tell
                failures += 1
        return passes >= 1 and passes > failures

    def counted(self, cell: Cell) -> tuple[list[Trial], int]:
        """The failures that count against a cell, and how often it passed."""
        mine = self.by_cell.get(cell, ())
        passes = sum(not t.failed for t in mine) + len(self.groups.get(cell[0], ()))
        return [t for t in mine if t.failed and self._counts(cell, t)], passes

    def _counts(self, cell: Cell, trial: Trial) -> bool:
        other = trial.end(cell)
        if not self.known_good(other, frozenset((cell[0],))):
            return False
        return trial.local or (self.way_out(cell) and self.way_out(other))

    def way_out(self, cell: Cell) -> bool:
        """Whether the way from a cell's leaf to other leaves is good, by what its mates did.

        Who has no mate on its leaf cannot be told apart from it: then it is taken for good.
        """
        leaf = self.fabric.leaf_of[cell]
        mates = self.fabric.cells_of_leaf[leaf]
        if len(mates) < 2:
            return True
        if not self._ways:
            self._ways.update(_ways(self))
        passes, failures = self._ways[leaf]
        own_passes, own_failures = _across(self, cell)
        return passes - own_passes > failures - own_failures

    def clear(self, cell: Cell, *, far: bool) -> bool:
        """Whether a cell is proved good: net passes to the bound, and no corrupted data.

        `far`: one of them must have gone to another leaf, else a bad way there stays hidden.
        """
        passes, failures = len(self.groups.get(cell[0], ())), 0
        if far and not _across(self, cell)[0]:
            return False
        for trial in self.by_cell.get(cell, ()):
            if trial.corrupt:
                return False
            if not trial.failed:
                passes += 1
            elif self.raw[trial.end(cell)] >= 0 or self.raw[cell] < 0:
                failures += 1
        return (passes - failures) * self.weight >= log(1 / self.policy.miss_risk)

    def without(self, explained: Iterable[Cell], uplinks: Iterable[str] = ()) -> Trials:
        """The same without trials through these cells, or across these leaves' uplinks."""
        cells, leaves = frozenset(explained), frozenset(uplinks)
        if not cells and not leaves:
            return self
        leaf_of = self.fabric.leaf_of
        kept: dict[Cell, list[Trial]] = {}
        for cell, trials in self.by_cell.items():
            if cell in cells:
                continue
            across = leaf_of[cell] in leaves
            kept[cell] = [
                t
                for t in trials
                if t.end(cell) not in cells
                and (t.local or not (across or leaf_of[t.end(cell)] in leaves))
            ]
        found = Trials(
            self.fabric, self.policy, kept, self.groups, self.partners, tested=self.tested
        )
        found.raw = _raw(found)
        return found


def trials_of(
    fabric: Fabric, observations: Iterable[Observation], policy: IsolationPolicy
) -> Trials:
    """Everything that the observations say of this fabric.

    A test that is reported twice counts once, and the worse report of a rail wins; nodes and rails
    that the fabric does not have are passed over.
    """
    found = Trials(fabric, policy)
    leaf_of = fabric.leaf_of
    merged: dict[tuple[str, int], Trial] = {}
    passed: dict[str, bool] = {}
    members: dict[str, frozenset[str]] = {}
    for seen in observations:
        test = seen.test
        if any(name not in fabric.rails_of for name in test.nodes):
            continue
        if test.kind is FabricTestKind.GROUP:
            members[test.name] = frozenset(test.nodes)
            for result in seen.results:
                if result.rail == ALL_RAILS and result.shown is not Shown.NOT_RUN:
                    good = not _failed(result.shown, result.ratio, policy)
                    passed[test.name] = good and passed.get(test.name, True)
            continue
        one, other = sorted(test.nodes[:2])
        for result in seen.results:
            a, b = (one, result.rail), (other, result.rail)
            if a not in leaf_of or b not in leaf_of or one == other:
                continue
            if result.shown is Shown.NOT_RUN:
                continue
            bad = _failed(result.shown, result.ratio, policy)
            trial = Trial(
                test=test.name,
                one=a,
                other=b,
                failed=bad,
                corrupt=result.shown is Shown.WRONG_DATA,
                slow=bad and result.shown is Shown.PASS,
                ratio=result.ratio,
                local=leaf_of[a] == leaf_of[b],
            )
            before = merged.get((test.name, result.rail))
            if before is None or _badness(trial) > _badness(before):
                merged[test.name, result.rail] = trial
    _fill(found, merged.values())
    for name, nodes in members.items():
        for node in nodes:
            found.tested[node] = found.tested.get(node, 0) + 1
            if passed.get(name):
                found.groups.setdefault(node, []).append(nodes)
    found.raw = _raw(found)
    return found


def _fill(found: Trials, trials: Iterable[Trial]) -> None:
    """Sorts trials by cell, and counts tests by node."""
    names: dict[str, set[str]] = {}
    for trial in trials:
        found.by_cell.setdefault(trial.one, []).append(trial)
        found.by_cell.setdefault(trial.other, []).append(trial)
        a, b = trial.one[0], trial.other[0]
        found.partners.setdefault(a, set()).add(b)
        found.partners.setdefault(b, set()).add(a)
        names.setdefault(a, set()).add(trial.test)
        names.setdefault(b, set()).add(trial.test)
    found.tested = {node: len(tests) for node, tests in names.items()}


def _failed(shown: Shown, ratio: float | None, policy: IsolationPolicy) -> bool:
    return shown is not Shown.PASS or (ratio is not None and ratio < policy.slow_below)


def _badness(trial: Trial) -> tuple[bool, bool, bool, float]:
    low = trial.ratio if trial.ratio is not None else 0.0
    return trial.corrupt, trial.failed, not trial.slow, -low


def _across(trials: Trials, cell: Cell) -> tuple[int, int]:
    """Passes and failures of a cell with other leaves."""
    far = [t.failed for t in trials.by_cell.get(cell, ()) if not t.local]
    leaf = trials.fabric.leaf_of[cell]
    wide = sum(
        any(trials.fabric.leaf_of.get((n, cell[1]), leaf) != leaf for n in group)
        for group in trials.groups.get(cell[0], ())
    )
    return far.count(False) + wide, far.count(True)


def _ways(trials: Trials) -> dict[str, tuple[int, int]]:
    """Per leaf, what its cells did with other leaves."""
    found = {}
    for leaf, cells in trials.fabric.cells_of_leaf.items():
        counts = [_across(trials, c) for c in cells]
        found[leaf] = sum(p for p, _ in counts), sum(f for _, f in counts)
    return found


def _raw(trials: Trials) -> dict[Cell, int]:
    """Passes minus failures of every cell of the fabric."""
    found = {}
    for cell in trials.fabric.leaf_of:
        mine = trials.by_cell.get(cell, ())
        failed = sum(t.failed for t in mine)
        found[cell] = len(mine) - 2 * failed + len(trials.groups.get(cell[0], ()))
    return found
