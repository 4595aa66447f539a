"""Repeat offenders: a score over a node's cases decides deeper tests, or that it is retired. Pure.

The score is the weight of each case, halved with every `half_life_s` since it was opened. Weights
are ours: no source publishes any; the same part again counts double, what was nobody's fault half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from provisioner.checks.check import Check
from provisioner.model.base import Record
from provisioner.model.case import Case, Ending, Outcome, RemedyKind
from provisioner.model.health import Gate
from provisioner.planning.certification.check_selection import (
    Change,
    Selection,
    SelectionPolicy,
    Standing,
    select,
)
from provisioner.planning.repair.case_policy import is_planned

DAY_S = 86400.0
CASES_MAX = 64  # the newest of a node that are looked at


class Advice(StrEnum):
    """What a history asks for."""

    NOTHING = "nothing"
    DEEPER = "deeper"  # every test, also the long burn, before it is certified
    RETIRE = "retire"  # people decide; it is not given to a tenant before


class OffenderPolicy(Record):
    """`deeper_at`, `retire_at`: scores; see the settings of the same words."""

    half_life_s: float = 60 * DAY_S
    deeper_at: float = 2.0
    retire_at: float = 5.0


class Offence(Record):
    """A node's score, and what it is made of, for people."""

    node: str
    score: float
    cases: int
    again: tuple[str, ...] = ()  # parts that were suspected before
    advice: Advice


def score(node: str, cases: Sequence[Case], now: float, policy: OffenderPolicy) -> Offence:
    """Of all cases of one node, the open one included; their order means nothing."""
    mine = sorted((c for c in cases if c.node == node), key=lambda c: -c.opened_at)[:CASES_MAX]
    seen = Counter(c.suspect.part for c in mine if c.suspect is not None and c.suspect.rule)
    total = 0.0
    for case in mine:
        age_s = max(0.0, now - case.opened_at)
        total += weight(case, seen) * 0.5 ** (age_s / policy.half_life_s)
    advice = Advice.NOTHING
    if total >= policy.retire_at:
        advice = Advice.RETIRE
    elif total >= policy.deeper_at:
        advice = Advice.DEEPER
    return Offence(
        node=node,
        score=round(total, 3),
        cases=len(mine),
        again=tuple(sorted(part for part, count in seen.items() if count > 1)),
        advice=advice,
    )


def weight(case: Case, seen: Counter[str]) -> float:
    """How much one case says against a node."""
    if case.ending is Ending.REPLACED:
        return 0.0  # it was another host
    if is_planned(case):
        return 0.0  # nothing was wrong with it
    if case.ending is Ending.NO_FAULT:
        return 0.5
    found = 1.0
    suspect = case.suspect
    if suspect is not None and seen[suspect.part] > 1:
        found = 2.0  # the same part again: what was done to it did not last
    if suspect is not None and suspect.kind.value == "leaf":
        return 0.0  # not the node's fault
    cured = case.tries[-1] if case.tries else None
    easily = cured is not None and cured.outcome is Outcome.CURED
    if easily and cured is not None and cured.remedy is RemedyKind.RERUN:
        found /= 2
    return found


def beyond(
    change: Change,
    catalogue: Sequence[Check],
    policy: SelectionPolicy,
    standing: Standing | None,
    *,
    limit_s: float,
) -> Selection:
    """As `select`, and the tests of gates B and D that the site does not demand, within a time.

    What is added is left out again if it takes longer than `limit_s` or the site's own budget:
    the tests that the site demands never are.
    """
    asked = select(change, catalogue, policy, standing)
    for more in (frozenset({Gate.B, Gate.D}), frozenset({Gate.B})):
        gates = policy.gates | more
        wider = select(change, catalogue, policy.model_copy(update={"gates": gates}), standing)
        if wider.blocker is None and wider.seconds - asked.seconds <= limit_s:
            return wider
    return asked
