"""Repeat offenders: a score over a node's cases leads to deeper tests, or to retirement. Pure.

The score is the sum of each case's weight, halved with every `half_life_s` since it was opened. The
weights are ours, because no source publishes any; the same part again counts double, a case without
a fault half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from provisioner.checks.check import Check
from provisioner.model.base import Record
from provisioner.model.case import Case, Ending, RemedyKind, RemedyOutcome
from provisioner.model.health import Gate
from provisioner.planning.certification.check_selection import (
    Change,
    FaultRecord,
    Selection,
    SelectionPolicy,
    select_checks,
)
from provisioner.planning.repair.case_policy import is_planned

DAY_S = 86400.0
CASES_MAX = 64  # the newest cases of a node that are counted


class Advice(StrEnum):
    """The consequence of a node's history."""

    NOTHING = "nothing"
    DEEPER = "deeper"  # every test, also the long burn, before it is certified
    RETIRE = "retire"  # people decide; it gets no tenant before that


class OffenderPolicy(Record):
    """`deeper_at`, `retire_at`: scores; the settings of the same names document them."""

    half_life_s: float = 60 * DAY_S
    deeper_at: float = 2.0
    retire_at: float = 5.0


class Offence(Record):
    """A node's score with its components, for people."""

    node: str
    score: float
    cases: int
    again: tuple[str, ...] = ()  # parts that were suspected before
    advice: Advice


def compute_score(node: str, cases: Sequence[Case], now: float, policy: OffenderPolicy) -> Offence:
    """Return the score of all cases of one node, the open one included, in any order."""
    mine = sorted((c for c in cases if c.node == node), key=lambda c: -c.opened_at)[:CASES_MAX]
    cases_of = Counter(c.suspect.part for c in mine if c.suspect is not None and c.suspect.rule)
    total = 0.0
    for case in mine:
        age_s = max(0.0, now - case.opened_at)
        total += compute_weight(case, cases_of) * 0.5 ** (age_s / policy.half_life_s)
    advice = Advice.NOTHING
    if total >= policy.retire_at:
        advice = Advice.RETIRE
    elif total >= policy.deeper_at:
        advice = Advice.DEEPER
    return Offence(
        node=node,
        score=round(total, 3),
        cases=len(mine),
        again=tuple(sorted(part for part, count in cases_of.items() if count > 1)),
        advice=advice,
    )


def compute_weight(case: Case, seen: Counter[str]) -> float:
    """Return the weight of one case against a node."""
    if case.ending is Ending.REPLACED:
        return 0.0  # it was another host
    if is_planned(case):  # it had no fault
        return 0.0  # nothing was wrong with it
    if case.ending is Ending.NO_FAULT:
        return 0.5
    weight_of_case = 1.0
    suspect = case.suspect
    if suspect is not None and seen[suspect.part] > 1:
        weight_of_case = 2.0  # the same part again: the remedy did not last
    if suspect is not None and suspect.kind.value == "leaf":
        return 0.0  # not the node's fault
    cured = case.tries[-1] if case.tries else None
    easily = cured is not None and cured.outcome is RemedyOutcome.CURED
    if easily and cured is not None and cured.remedy is RemedyKind.RERUN:
        weight_of_case /= 2
    return weight_of_case


def select_deeper_checks(
    change: Change,
    catalogue: Sequence[Check],
    policy: SelectionPolicy,
    standing: FaultRecord | None,
    *,
    limit_s: float,
) -> Selection:
    """Return the selection with further tests of gates B and D, within a time limit.

    Added tests are left out again if they take longer than `limit_s` or the site's own budget; the
    tests that the site demands never are.
    """
    selection = select_checks(change, catalogue, policy, standing)
    for more in (frozenset({Gate.B, Gate.D}), frozenset({Gate.B})):
        gates = policy.gates | more
        wider = select_checks(
            change, catalogue, policy.model_copy(update={"gates": gates}), standing
        )
        if wider.blocker is None and wider.seconds - selection.seconds <= limit_s:
            return wider
    return selection
