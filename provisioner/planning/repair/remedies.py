"""Choice of the next remedy: an escalation order for each kind of part, bounded and rate-limited.
Pure.

The orders are data (`remedy_ladders.csv`), from the cheapest remedy. A remedy that was tried as
often as its line allows within its window, in this case or an earlier one, is not tried again;
after `replace` only a person can decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from provisioner import components
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
from provisioner.model.inventory import Activation, Inventory
from provisioner.model.matrix import Edge, Matrix
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.model.shipped_tables import read_table
from provisioner.planning.path import activation
from provisioner.planning.path.hops import NO_FILE, SLOT

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
# what takes the whole host away
NOWHERE = frozenset({"", "host", "node"})  # not the name of a slot
RESETS = frozenset({RemedyKind.COLD_BOOT, RemedyKind.AC_CYCLE, RemedyKind.REFLASH})


class Rung(Record):
    kind: PartClass
    remedy: RemedyKind
    tries_max: int  # on one part within `window_h`
    window_h: float
    component: str = ""  # REFLASH: the component of the matrix that is written again
    work: str = ""  # BY_PEOPLE: the instruction; {part}: the suspect and its serial
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
    orders: dict[PartClass, tuple[Rung, ...]] = {}
    for row in read_table("provisioner.planning.repair", "remedy_ladders.csv"):
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
    serial = f", serial {suspect.serial}" if suspect.serial else ""
    work = rung.work.replace("{part}", where + serial).replace("{serial}", serial)
    if rung.remedy is RemedyKind.REPLACE and suspect.confidence < limits.confidence_min:
        sure = f"{suspect.confidence:.0%}"
        work = f"Diagnose {suspect.part} before anything is replaced: it is {sure} sure. {work}"
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


# ------------------------------------------------------------------------------
# The steps of a remedy, for the executor. Pure.
#
# Their `reason` names case and try, by which the ledger identifies steps that were already carried
# out.


GPU_RESET = "gpu_reset"  # the executor's method of this name
_RESETS = {RemedyKind.COLD_BOOT: Activation.COLD_BOOT, RemedyKind.AC_CYCLE: Activation.AC_CYCLE}


def plan_steps(
    tried: RemedyTry, words: str, node: Node, inventory: Inventory | None, matrix: Matrix
) -> tuple[Step, ...] | str:
    """Return the steps in order; () for a remedy without any; or why it cannot be carried out."""
    if tried.remedy is RemedyKind.RERUN:
        return ()
    if inventory is None:
        return "the node was never read, so its parts are unknown"
    if tried.remedy is RemedyKind.GPU_RESET:
        is_logged = any(key.startswith("check:kernel_log") for key in tried.before)
        # the log of this boot keeps earlier events: only a new boot shows which ones recur
        anew = (_reset(Activation.WARM_REBOOT, f"{words}: the kernel's log begins anew"),)
        return (plan_gpu_reset(words), *(anew if is_logged else ()))
    if tried.remedy is RemedyKind.REFLASH:
        return _reflash(tried, words, node, inventory, matrix)
    assert tried.remedy in _RESETS, tried.remedy
    return (_reset(_RESETS[tried.remedy], words),)


def plan_gpu_reset(reason: str) -> Step:
    """Return the reset of all GPUs of a node at once."""
    return Step(
        kind=StepKind.ACTIVATE,
        component="hgx.gpu",
        method=GPU_RESET,
        activation=Activation.NONE,
        disruption=Disruption.HOST,
        duration_s=120,
        expected=(),
        reason=reason,
    )


def _reset(reset: Activation, words: str, activates: tuple[tuple[str, str], ...] = ()) -> Step:
    return Step(
        kind=StepKind.ACTIVATE,
        activation=reset,
        activates=activates,
        disruption=activation.get_disruption(reset),
        duration_s=activation.estimate_duration_s(reset),
        expected=(),
        reason=words,
    )


def _reflash(
    tried: RemedyTry, words: str, node: Node, inventory: Inventory, matrix: Matrix
) -> tuple[Step, ...] | str:
    """Return the update of the pinned version over itself, then the reset that its edge needs."""
    kind = next(
        (
            r.component
            for r in load_escalation_orders()[tried.kind]
            if r.remedy is RemedyKind.REFLASH
        ),
        "",
    )
    release = matrix.releases.get(node.release)
    profile = release.profiles.get(node.profile) if release is not None else None
    pin = profile.pins.get(kind) if profile is not None else None
    declared = components.ALL.get(kind)
    if pin is None or not pin.known or declared is None:
        return f"{node.release} pins no version of {kind or tried.kind} for this node"
    edge = next((e for e in matrix.edges.get(kind, ()) if e.to == pin.version), None)
    if edge is None:
        return f"the matrix has no way of writing {kind} {pin.version}"
    method = edge.method or declared.method
    artifact, sha256 = _file(edge, pin.artifact, pin.sha256)
    if method not in NO_FILE and not (artifact and sha256):
        return f"there is no file of {kind} {pin.version} with its digest"
    slots = (SLOT,) if declared.derived else _slots(tried.part, kind, inventory)
    if not slots:
        return f"the node shows no {kind}"
    write = Step(
        kind=StepKind.UPDATE,
        component=kind,
        slots=slots,
        from_version=pin.version,
        to_version=pin.version,
        method=method,
        artifact=artifact,
        sha256=sha256,
        force=True,  # "Component image is identical": skipped otherwise
        activation=edge.activates_by,
        disruption=Disruption.NONE,
        duration_s=edge.duration_s or 1800,
        expected=(),
        reason=f"{words}: {kind} is written once more",
    )
    if edge.activates_by in activation.AT_ONCE:
        return (write,)
    activates = tuple((f"{kind}/{slot}", pin.version) for slot in slots)
    return write, _reset(edge.activates_by, f"{words}: it is activated", activates)


def _file(edge: Edge, artifact: str, sha256: str) -> tuple[str, str]:
    return (edge.artifact, edge.sha256) if edge.artifact else (artifact, sha256)


def _slots(part: str, kind: str, inventory: Inventory) -> tuple[str, ...]:
    """Return the suspect's own slot where the component has one; otherwise all of its slots."""
    slots = tuple(c.slot for c in inventory.of_kind(kind))
    return (part,) if part in slots else slots


def find_latest(entries: Sequence[LedgerEntry], step: Step) -> LedgerEntry | None:
    """Return the newest settled row of this very step; the case's words identify it."""
    mine = [
        e
        for e in entries
        if e.before.get("step", {}).get("reason") == step.reason
        and e.status in (ActionStatus.CONFIRMED, ActionStatus.FAILED)
    ]
    return max(mine, key=lambda e: e.settled_at, default=None)
