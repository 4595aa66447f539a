"""Counts of passed and failed trials by cell, from which blame is derived.

A failure counts against a cell only if the other end is proved good without it. A pass through a
cell never adds blame to it. Sums do not depend on the order of the observations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple

from provisioner.planning.fault_location.isolation_words import (
    ALL_RAILS,
    Cell,
    Fabric,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    RailOutcome,
)


class Trial(NamedTuple):
    """One rail of one test between two cells."""

    test: str
    one: Cell
    other: Cell
    failed: bool
    corrupt: bool
    slow: bool  # it passed, but too slowly
    ratio: float | None
    local: bool  # both cells on one leaf

    def get_far_end(self, cell: Cell) -> Cell:
        """Return the other end of the trial."""
        return self.other if cell == self.one else self.one


@dataclass
class Trials:
    """All trials by cell, without those that are already explained."""

    fabric: Fabric
    policy: IsolationPolicy
    by_cell: dict[Cell, list[Trial]] = field(default_factory=dict)
    groups: dict[str, list[frozenset[str]]] = field(default_factory=dict)  # passed, by node
    # node -> nodes that it was tested with
    partners: dict[str, set[str]] = field(default_factory=dict)
    tested: dict[str, int] = field(default_factory=dict)  # tests of a node, of any kind
    raw: dict[Cell, int] = field(default_factory=dict)  # passes minus failures
    # leaf -> passes and failures of its cells with other leaves
    _ways: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def suspect_at(self) -> float:
        """Return the gain from which a part is suspicious, and stays under test.

        Noise alone makes one cell of the fabric suspicious, on average.
        """
        return log(max(2, len(self.fabric.leaf_of)))

    @property
    def condemn_at(self) -> float:
        """Return Wald's bound: at this score the probability that noise condemns any part in the
        whole campaign is `innocent_risk`.
        """
        return log(max(1, len(self.fabric.leaf_of)) / self.policy.innocent_risk)

    def is_good(self, cell: Cell, apart_from: frozenset[str]) -> bool:
        """Return whether a cell is good by its trials with nodes other than these."""
        passes = sum(not (group & apart_from) for group in self.groups.get(cell[0], ()))
        failures = 0
        for trial in self.by_cell.get(cell, ()):
            far_end = trial.get_far_end(cell)
            if far_end[0] in apart_from:
                continue
            if not trial.failed:
                passes += 1
            elif (
                self.raw[far_end] >= 0
            ):  # as far as the counts show, the other cell did not cause it
                failures += 1
        return passes >= 1 and passes > failures

    def count_against(self, cell: Cell) -> tuple[list[Trial], int]:
        """Return the failures that count against a cell, and the number of its passes."""
        mine = self.by_cell.get(cell, ())
        passes = sum(not t.failed for t in mine) + len(self.groups.get(cell[0], ()))
        return [t for t in mine if t.failed and self._counts(cell, t)], passes

    def _counts(self, cell: Cell, trial: Trial) -> bool:
        far_end = trial.get_far_end(cell)
        if not self.is_good(far_end, frozenset((cell[0],))):
            return False
        return trial.local or (self.has_path_out(cell) and self.has_path_out(far_end))

    def has_path_out(self, cell: Cell) -> bool:
        """Return whether the path from a cell's leaf to other leaves is good, by its neighbours'
        trials.

        A cell without neighbours on its leaf cannot be separated from the leaf; the path then
        counts as good.
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

    def is_clear(self, cell: Cell, *, far: bool) -> bool:
        """Return whether a cell is proved good.

        It passed often enough to exclude a failure rate of `rate_min`, with no corrupted data.

        `far`: one pass must have been with another leaf, because a bad path there would stay
        hidden.
        """
        passes = len(self.groups.get(cell[0], ()))
        failures = 0
        if far and not _across(self, cell)[0]:
            return False
        for trial in self.by_cell.get(cell, ()):
            if trial.corrupt:
                return False
            if not trial.failed:
                passes += 1
            elif self.raw[trial.get_far_end(cell)] >= 0 or self.raw[cell] < 0:
                failures += 1
        by_failure, by_pass = self.policy.weigh_result()
        return passes * by_pass + failures * by_failure <= -log(1 / self.policy.miss_risk)

    def leave_out(self, explained: Iterable[Cell], uplinks: Iterable[str] = ()) -> Trials:
        """Return a copy without trials through these cells, or across these leaves' uplinks."""
        cells = frozenset(explained)
        leaves = frozenset(uplinks)
        if not cells and not leaves:
            return self
        leaf_of = self.fabric.leaf_of
        unexplained: dict[Cell, list[Trial]] = {}
        for cell, trials in self.by_cell.items():
            if cell in cells:
                continue
            across = leaf_of[cell] in leaves
            unexplained[cell] = [
                t
                for t in trials
                if t.get_far_end(cell) not in cells
                and (t.local or not (across or leaf_of[t.get_far_end(cell)] in leaves))
            ]
        remaining = Trials(
            self.fabric, self.policy, unexplained, self.groups, self.partners, tested=self.tested
        )
        remaining.raw = _raw(remaining)
        return remaining


def collect_trials(
    fabric: Fabric, observations: Iterable[Observation], policy: IsolationPolicy
) -> Trials:
    """Return all trials of these observations in this fabric.

    A test that is reported twice counts once, and the worse report of a rail applies; nodes and
    rails that the fabric does not have are ignored.
    """
    collected = Trials(fabric, policy)
    leaf_of = fabric.leaf_of
    merged: dict[tuple[str, int], Trial] = {}
    passed: dict[str, bool] = {}
    members: dict[str, frozenset[str]] = {}
    for observation in observations:
        test = observation.test
        if any(name not in fabric.rails_of for name in test.nodes):
            continue
        if test.kind is FabricTestKind.GROUP:
            members[test.name] = frozenset(test.nodes)
            for result in observation.results:
                if result.rail == ALL_RAILS and result.shown is not RailOutcome.NOT_RUN:
                    good = not _failed(result.shown, result.ratio, policy)
                    passed[test.name] = good and passed.get(test.name, True)
            continue
        one, another = sorted(test.nodes[:2])
        for result in observation.results:
            a = (one, result.rail)
            b = (another, result.rail)
            if a not in leaf_of or b not in leaf_of or one == another:
                continue
            if result.shown is RailOutcome.NOT_RUN:
                continue
            bad = _failed(result.shown, result.ratio, policy)
            trial = Trial(
                test=test.name,
                one=a,
                other=b,
                failed=bad,
                corrupt=result.shown is RailOutcome.WRONG_DATA,
                slow=bad and result.shown is RailOutcome.PASS,
                ratio=result.ratio,
                local=leaf_of[a] == leaf_of[b],
            )
            before = merged.get((test.name, result.rail))
            if before is None or _badness(trial) > _badness(before):
                merged[test.name, result.rail] = trial
    _fill(collected, merged.values())
    for name, nodes in members.items():
        for node in nodes:
            collected.tested[node] = collected.tested.get(node, 0) + 1
            if passed.get(name):
                collected.groups.setdefault(node, []).append(nodes)
    collected.raw = _raw(collected)
    return collected


def _fill(collected: Trials, trials: Iterable[Trial]) -> None:
    """Sort trials by cell, and count tests by node."""
    names: dict[str, set[str]] = {}
    for trial in trials:
        collected.by_cell.setdefault(trial.one, []).append(trial)
        collected.by_cell.setdefault(trial.other, []).append(trial)
        a = trial.one[0]
        b = trial.other[0]
        collected.partners.setdefault(a, set()).add(b)
        collected.partners.setdefault(b, set()).add(a)
        names.setdefault(a, set()).add(trial.test)
        names.setdefault(b, set()).add(trial.test)
    collected.tested = {node: len(tests) for node, tests in names.items()}


def _failed(shown: RailOutcome, ratio: float | None, policy: IsolationPolicy) -> bool:
    return shown is not RailOutcome.PASS or (ratio is not None and ratio < policy.slow_below)


def _badness(trial: Trial) -> tuple[bool, bool, bool, float]:
    low = trial.ratio if trial.ratio is not None else 0.0
    return trial.corrupt, trial.failed, not trial.slow, -low


def _across(trials: Trials, cell: Cell) -> tuple[int, int]:
    """Return passes and failures of a cell with other leaves."""
    far = [t.failed for t in trials.by_cell.get(cell, ()) if not t.local]
    leaf = trials.fabric.leaf_of[cell]
    wide = sum(
        any(trials.fabric.leaf_of.get((n, cell[1]), leaf) != leaf for n in group)
        for group in trials.groups.get(cell[0], ())
    )
    return far.count(False) + wide, far.count(True)


def _ways(trials: Trials) -> dict[str, tuple[int, int]]:
    """Return the passes and failures of each leaf's cells with other leaves."""
    by_leaf = {}
    for leaf, cells in trials.fabric.cells_of_leaf.items():
        counts = [_across(trials, c) for c in cells]
        by_leaf[leaf] = sum(p for p, _ in counts), sum(f for _, f in counts)
    return by_leaf


def _raw(trials: Trials) -> dict[Cell, int]:
    """Return passes minus failures of every cell of the fabric."""
    balance = {}
    for cell in trials.fabric.leaf_of:
        mine = trials.by_cell.get(cell, ())
        failed = sum(t.failed for t in mine)
        balance[cell] = len(mine) - 2 * failed + len(trials.groups.get(cell[0], ()))
    return balance
