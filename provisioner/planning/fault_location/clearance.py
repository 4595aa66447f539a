"""Cells that are proved good: their passes exclude the failure rate that is looked for. Pure."""

from __future__ import annotations

from math import log

from provisioner.planning.fault_location.isolation_trials import Trials
from provisioner.planning.fault_location.isolation_words import PART_ORDER, Cell, Culprit, Part
from provisioner.planning.fault_location.rate_fit import Fit, bound_noise, weigh_result

_LINK = PART_ORDER.index(Culprit.LINK)


class Clearance:
    """The odds that a cell fails at `rate_min`, beside the parts that explain its failures.

    The share of wrong results is that of all trials that no part explains.
    """

    def __init__(self, fit: Fit, remaining: Trials) -> None:
        self._fit = fit
        self._remaining = remaining
        self._policy = remaining.policy
        tests, failures = fit.count_unexplained()
        self.noise = bound_noise(self._policy, failures / tests if tests else 0.0)

    def is_clear(self, cell: Cell, *, far: bool) -> bool:
        """Return whether a cell is proved good.

        It passed often enough to exclude a failure rate of `rate_min`, with no corrupted data.

        `far`: one pass must have been with another leaf, because a bad path there would stay
        hidden.
        """
        rate = self._policy.rate_min
        enough = log(self._policy.miss_risk)
        odds = self._fit.weigh(Part(_LINK, *cell), rate, self.noise)
        mine = self._remaining.by_cell.get(cell, ())
        raw = self._remaining.raw
        if odds > enough and raw[cell] >= 0:
            far_ends = [trial.get_far_end(cell) for trial in mine if trial.failed]
            excused = sum(raw[far_end] < 0 for far_end in far_ends)  # it fails with most partners
            odds -= excused * weigh_result(self.noise, 1.0, rate)[0]
        if odds > enough or (self._fit.trials.any_corrupt and any(t.corrupt for t in mine)):
            return False
        return not far or self._remaining.passed_far(cell)
