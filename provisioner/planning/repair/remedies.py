"""Choice of the next remedy: an escalation order for each kind of part, bounded and rate-limited.
Pure.

The orders are data (`remedy_ladders.csv`), from the cheapest remedy. A remedy that was tried as
often as its line allows within its window, in this case or an earlier one, is not tried again;
after `replace` only a person can decide.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

from provisioner.model.base import Record
from provisioner.model.case import (
    BY_PEOPLE,
    Case,
    PartClass,
    RemedyKind,
    RemedyOutcome,
    RemedyTry,
    Suspect,
)

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
# what takes the whole host away
NOWHERE = frozenset({"", "host", "node"})  # not the name of a slot
RESETS = frozenset({RemedyKind.COLD_BOOT, RemedyKind.AC_CYCLE, RemedyKind.REFLASH})


class Rung(Record):
    """One remedy for one kind of part."""

    kind: PartClass
    remedy: RemedyKind
    tries_max: int  # on one part within `window_h`
    window_h: float
    component: str = ""  # REFLASH: the component of the matrix that is written again
    work: str = ""  # BY_PEOPLE: the instruction; {part} is the suspect
    why: str


class Limits(Record):
    """Limits of the site; the settings of the same names document them."""

    resets_per_day: int = 4  # of one node, over all its cases
    confidence_min: float = 0.4  # below it no part is replaced before a person has diagnosed
    shortest_s: float = 0.0  # between two remedies of one node


class Try(Record):
    """Decision to carry out this remedy on that suspect now."""

    rung: Rung
    suspect: Suspect
    attempt: int


class Later(Record):
    """Decision to wait until a time."""

    at: float
    why: str


class People(Record):
    """Decision that a person works on the node: reseat, replace, or diagnose."""

    rung: Rung | None  # None: the escalation order is at its end
    suspect: Suspect
    attempt: int
    work: str


Choice = Try | Later | People


@cache
def load_escalation_orders() -> Mapping[PartClass, tuple[Rung, ...]]:
    """Return every escalation order by kind of part."""
    text = resources.files("provisioner.planning.repair").joinpath("remedy_ladders.csv").read_text()
    orders: dict[PartClass, tuple[Rung, ...]] = {}
    for row in csv.DictReader(text.splitlines()):
        rung = Rung.model_validate(row)
        orders[rung.kind] = (*orders.get(rung.kind, ()), rung)
    return orders


def choose_remedy(
    case: Case,
    start: RemedyKind | None,
    past: Sequence[RemedyTry],
    limits: Limits,
    now: float,
    unable: Iterable[RemedyKind] = (),
) -> Choice:
    """Return the next remedy for the first suspect. `past`: tries of this node's earlier cases.

    `unable`: remedies that cannot be carried out on this node at all (no image to write, a BMC that
    does not answer).
    """
    assert case.suspects
    suspect = case.suspects[0]
    tries = [*past, *case.tries]
    barred = frozenset(unable)
    for rung in _from(load_escalation_orders()[suspect.kind], start, case):
        if rung.remedy in barred or _hopeless(rung, suspect, case.tries):
            continue
        recent = _recent(rung, suspect, tries, now)
        if len(recent) >= rung.tries_max:
            continue
        attempt = 1 + sum(t.remedy is rung.remedy and _same(t, suspect) for t in case.tries)
        if rung.remedy in BY_PEOPLE:
            return _people(rung, suspect, attempt, limits)
        if (later := _held(rung, tries, limits, now)) is not None:
            return later
        return Try(rung=rung, suspect=suspect, attempt=attempt)
    work = f"Every remedy was tried on {suspect.part}: look at the node, then retire or replace it."
    return People(rung=None, suspect=suspect, attempt=0, work=work)


def _from(ladder: Sequence[Rung], start: RemedyKind | None, case: Case) -> Sequence[Rung]:
    """Return the escalation order from its first useful remedy."""
    names = [r.remedy for r in ladder]
    first = names.index(start) if start in names else 0
    return ladder[first:]


def _recent(
    rung: Rung, suspect: Suspect, tries: Sequence[RemedyTry], now: float
) -> list[RemedyTry]:
    since = now - rung.window_h * HOUR_S
    return [
        t
        for t in tries
        if t.remedy is rung.remedy
        and t.started_at >= since
        and _same(t, suspect)
        and t.outcome is not RemedyOutcome.CURED
    ]


def _hopeless(rung: Rung, suspect: Suspect, tries: Sequence[RemedyTry]) -> bool:
    """Return whether a remedy already could not be carried out in this case."""
    return any(
        t.remedy is rung.remedy and t.outcome is RemedyOutcome.NOT_DONE and _same(t, suspect)
        for t in tries
    )


def _same(tried: RemedyTry, suspect: Suspect) -> bool:
    return tried.part == suspect.part and tried.kind is suspect.kind


def _held(rung: Rung, tries: Sequence[RemedyTry], limits: Limits, now: float) -> Later | None:
    """Return the wait that the node's own limits impose, for any part; None if there is none."""
    last = max((t.started_at for t in tries), default=float("-inf"))
    if now - last < limits.shortest_s:
        return Later(at=last + limits.shortest_s, why="the last remedy was tried just now")
    if rung.remedy not in RESETS:
        return None
    day = sorted(t.started_at for t in tries if t.remedy in RESETS and now - t.started_at < DAY_S)
    if len(day) < limits.resets_per_day:
        return None
    why = f"{len(day)} resets within a day: the node is left alone until one is a day old"
    return Later(at=day[-limits.resets_per_day] + DAY_S, why=why)


def _people(rung: Rung, suspect: Suspect, attempt: int, limits: Limits) -> People:
    unknown = suspect.part in NOWHERE and suspect.kind not in (PartClass.HOST, PartClass.SOFTWARE)
    where = "(which one: diagnose first)" if unknown else suspect.part
    work = rung.work.replace("{part}", where)
    if rung.remedy is RemedyKind.REPLACE and suspect.confidence < limits.confidence_min:
        sure = f"{suspect.confidence:.0%}"
        work = f"Diagnose {suspect.part} before anything is replaced: it is {sure} sure. {work}"
    if suspect.serial:
        work += f" (serial {suspect.serial})"
    return People(rung=rung, suspect=suspect, attempt=attempt, work=work)


def measure_try(tried: RemedyTry, after: Iterable[str], now: float, *, well: bool) -> RemedyTry:
    """Return the try with its effect. `after`: keys of the present faults."""
    before = set(tried.before)
    remaining = set(after)
    if well:
        outcome = RemedyOutcome.CURED
        remaining = set()
    elif not before & remaining and remaining:
        outcome = (
            RemedyOutcome.WORSE
            if remaining - before and not before - remaining
            else RemedyOutcome.LESS
        )
    elif remaining - before:
        outcome = RemedyOutcome.WORSE
    elif before - remaining:
        outcome = RemedyOutcome.LESS
    else:
        outcome = RemedyOutcome.SAME
    done_at = tried.done_at or now
    return tried.model_copy(
        update={
            "outcome": outcome,
            "after": tuple(sorted(remaining)),
            "measured_at": now,
            "done_at": done_at,
        }
    )
