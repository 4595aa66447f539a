"""Counts of passed and failed trials by cell, from which blame is derived.

A failure counts against a cell only if the other end is proved good without it. A pass through a
cell never adds blame to it. Sums do not depend on the order of the observations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import log
from typing import NamedTuple

from provisioner.planning.fault_location.isolation_words import (
    ALL_RAILS,
    Cell,
    Fabric,
    FabricTest,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    Part,
    RailOutcome,
    RailResult,
)

_CROSSING_MAX = 256  # some MB where parts are many; a comparison asks for a few again and again
_Groups = dict[frozenset[Part], tuple[Counter[Part], Counter[Part]]]


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
        return self.other if cell == self.one else self.one


@dataclass
class Trials:
    """All trials by cell, without those that are already explained."""

    fabric: Fabric
    policy: IsolationPolicy
    by_cell: dict[Cell, list[Trial]] = field(default_factory=dict)
    groups: dict[str, list[frozenset[str]]] = field(default_factory=dict)  # passed, by node
    # node -> nodes that it was tested with, and how often
    partners: dict[str, Counter[str]] = field(default_factory=dict)
    tested: dict[str, int] = field(default_factory=dict)  # tests of a node, of any kind
    raw: Counter[Cell] = field(default_factory=Counter)  # passes minus failures
    # leaf -> passes and failures of its cells with other leaves
    _ways: dict[str, tuple[int, int]] = field(default_factory=dict)
    _sound: dict[Cell, bool] = field(default_factory=dict)  # good by all its trials

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
        if apart_from:
            return self._count_good(cell, apart_from)
        if cell not in self._sound:
            self._sound[cell] = self._count_good(cell, apart_from)
        return self._sound[cell]

    def _count_good(self, cell: Cell, apart_from: frozenset[str]) -> bool:
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

    def passed_far(self, cell: Cell) -> bool:
        passed = any(not (t.failed or t.local) for t in self.by_cell.get(cell, ()))
        return passed or _across(self, cell)[0] > 0

    def leave_out(self, explained: Iterable[Cell], shut: Iterable[Part] = ()) -> Trials:
        """Return a copy without trials through these cells, or over these paths."""
        cells = frozenset(explained)
        paths = frozenset(shut)
        if not cells and not paths:
            return self
        over = frozenset().union(*map(self.fabric.find_cells, paths))
        touched = over.union(
            trial.get_far_end(cell) for cell in cells | over for trial in self.by_cell.get(cell, ())
        )
        find_way = self.fabric.find_way
        unexplained: dict[Cell, list[Trial]] = {}
        raw = Counter(self.raw)
        for cell, trials in self.by_cell.items():
            if cell in cells:
                raw[cell] = len(self.groups.get(cell[0], ()))
                continue
            unexplained[cell] = trials
            if cell not in touched:
                continue
            mine = [t for t in trials if t.one not in cells and t.other not in cells]
            if paths:
                mine = [t for t in mine if t.local or paths.isdisjoint(find_way(t.one, t.other))]
            unexplained[cell] = mine
            balance = len(mine) - 2 * sum(t.failed for t in mine)
            raw[cell] = balance + len(self.groups.get(cell[0], ()))
        return Trials(
            self.fabric, self.policy, unexplained, self.groups, self.partners, self.tested, raw
        )


@dataclass
class CountedTrials(Trials):
    """All trials of a campaign, counted by part as they come: no count is ever made again."""

    listed: list[Trial] = field(default_factory=list)
    ways: list[frozenset[Part]] = field(default_factory=list)  # by trial: the parts on its way
    numbers_of: dict[Part, list[int]] = field(default_factory=dict)  # its trials, in order
    failures: Counter[Part] = field(default_factory=Counter)
    of_leaf: dict[str, list[int]] = field(default_factory=dict)  # its cells' results, and failures
    failed_count: int = 0
    any_corrupt: bool = False
    _numbers: dict[tuple[str, Cell, Cell], int] = field(default_factory=dict)  # test and cells
    _named: set[str] = field(default_factory=set)  # tests that are counted in `tested`
    _passed: dict[str, bool] = field(default_factory=dict)  # collective -> it passed
    # part -> its trials that are counted, and in how many of these each part is and failed
    _together: dict[Part, tuple[int, Counter[Part], Counter[Part]]] = field(default_factory=dict)
    # the same of its trials that cross some of other parts, by these; the last ones asked for
    _crossing: dict[tuple[Part, frozenset[Part]], tuple[int, _Groups]] = field(default_factory=dict)

    def add(self, observations: Iterable[Observation]) -> None:
        """Count these observations as well.

        A test that is reported twice counts once, and the worse report of a rail applies; nodes
        and rails that the fabric does not have are ignored.
        """
        self._ways.clear()
        self._sound.clear()
        for observation in observations:
            test = observation.test
            if any(name not in self.fabric.rails_of for name in test.nodes):
                continue
            if test.kind is FabricTestKind.GROUP:
                self._add_group(test, observation.results)
            elif test.nodes[0] != test.nodes[1]:
                self._add_pair(test, observation.results)

    def _add_group(self, test: FabricTest, results: Iterable[RailResult]) -> None:
        nodes = frozenset(test.nodes)
        self._name(test.name, nodes)
        ran = [
            result
            for result in results
            if result.rail == ALL_RAILS and result.shown is not RailOutcome.NOT_RUN
        ]
        if not ran:
            return
        before = self._passed.get(test.name)
        good = not any(_failed(r.shown, r.ratio, self.policy) for r in ran)
        self._passed[test.name] = good and before is not False
        if before is None and good:
            self._count_group(nodes, 1)
        elif before and not good:
            self._count_group(nodes, -1)

    def _count_group(self, nodes: frozenset[str], more: int) -> None:
        """Count a collective that passed, or take its count back."""
        for node in nodes:
            passed = self.groups.setdefault(node, [])
            if more > 0:
                passed.append(nodes)
            else:
                passed.remove(nodes)
            for rail in self.fabric.rails_of[node]:
                self.raw[node, rail] += more

    def _name(self, test: str, nodes: Iterable[str]) -> None:
        if test not in self._named:
            self._named.add(test)
            for node in nodes:
                self.tested[node] = self.tested.get(node, 0) + 1

    def _add_pair(self, test: FabricTest, results: Iterable[RailResult]) -> None:
        leaf_of = self.fabric.leaf_of
        one, another = sorted(test.nodes[:2])
        for result in results:
            a = (one, result.rail)
            b = (another, result.rail)
            if a not in leaf_of or b not in leaf_of or result.shown is RailOutcome.NOT_RUN:
                continue
            bad = _failed(result.shown, result.ratio, self.policy)
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
            self.any_corrupt |= trial.corrupt
            number = self._numbers.setdefault((test.name, a, b), len(self.listed))
            if number == len(self.listed):
                if test.name not in self._named:
                    self.partners.setdefault(one, Counter())[another] += 1
                    self.partners.setdefault(another, Counter())[one] += 1
                self._name(test.name, (one, another))
                self._append(trial, number)
            elif _badness(trial) > _badness(self.listed[number]):
                self._replace(trial, number)

    def count_ways(self, numbers: Collection[int]) -> tuple[Counter[Part], Counter[Part]]:
        """Return in how many of these trials each part is, and in how many that failed."""
        failed = (n for n in numbers if self.listed[n].failed)
        tests = Counter(chain.from_iterable(self.ways[n] for n in numbers))
        return tests, Counter(chain.from_iterable(self.ways[n] for n in failed))

    def count_together(self, part: Part) -> tuple[Counter[Part], Counter[Part]]:
        """Return the same of all trials of a part: only new ones are counted again."""
        counted, tests, failures = self._together.get(part, (0, Counter[Part](), Counter[Part]()))
        numbers = self.numbers_of.get(part, [])
        if counted < len(numbers):
            new = self.count_ways(numbers[counted:])
            tests.update(new[0])
            failures.update(new[1])
            self._together[part] = (len(numbers), tests, failures)
        return tests, failures

    def count_crossing(
        self, part: Part, others: frozenset[Part]
    ) -> Mapping[frozenset[Part], tuple[Counter[Part], Counter[Part]]]:
        """Return the same of a part's trials that cross these others, by those that they cross."""
        key = part, others
        counted, groups = self._crossing.pop(key, (0, {}))
        numbers = self.numbers_of.get(part, [])
        crossing: dict[frozenset[Part], list[int]] = {}
        for number in numbers[counted:] if others else ():
            if crossed := self.ways[number] & others:
                crossing.setdefault(crossed, []).append(number)
        for crossed, new in crossing.items():
            tests, failures = groups.setdefault(crossed, (Counter(), Counter()))
            more = self.count_ways(new)
            tests.update(more[0])
            failures.update(more[1])
        self._crossing[key] = len(numbers), groups
        if len(self._crossing) > _CROSSING_MAX:
            del self._crossing[next(iter(self._crossing))]
        return groups

    def _append(self, trial: Trial, number: int) -> None:
        way = self.fabric.find_way(trial.one, trial.other)
        self.listed.append(trial)
        self.ways.append(way)
        for part in way:
            self.numbers_of.setdefault(part, []).append(number)
        if trial.failed:
            self.failed_count += 1
            self.failures.update(way)
        for cell in (trial.one, trial.other):
            self.by_cell.setdefault(cell, []).append(trial)
            of_leaf = self.of_leaf.setdefault(self.fabric.leaf_of[cell], [0, 0])
            of_leaf[0] += 1
            of_leaf[1] += trial.failed
            self.raw[cell] += -1 if trial.failed else 1

    def _replace(self, trial: Trial, number: int) -> None:
        """Count a worse report of a trial in the place of the better one."""
        before = self.listed[number]
        self.listed[number] = trial
        worse = trial.failed and not before.failed
        if worse:
            self.failed_count += 1
            self.failures.update(self.ways[number])
            self._together.clear()
            self._crossing.clear()
        for cell in (trial.one, trial.other):
            mine = self.by_cell[cell]
            mine[mine.index(before)] = trial
            self.of_leaf[self.fabric.leaf_of[cell]][1] += worse
            self.raw[cell] -= 2 * worse


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
