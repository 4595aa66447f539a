"""Water in racks: what each unit's detectors showed, what that forbids, and who may end it.

Pure. A unit that was wet stays wet until two whole looks in a row were dry *and* a person said that
it is: coolant that ran off a detector is still in the chassis. A look that shows less than was ever
shown may raise and never clears. What nobody read is unknown, and unknown gets no power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from pydantic import Field

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit
from provisioner.model.base import Record
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker, Reason

DRY_LOOKS_MIN = 2
KEPT_S = 90.0  # for how long a look that shows nothing new is not written: each 60 s one is taken
SLOTS_MAX = 256  # of one unit; trays have four to eight detectors
TAKING = frozenset({"ForceOff", "GracefulShutdown"})  # every other act may give power


class WaterState(StrEnum):
    """What is known of the water in a unit. WARN: a unit above it in the rack is wet."""

    DRY = "dry"
    WARN = "warn"
    WET = "wet"
    UNKNOWN = "unknown"


class UnitWater(Record):
    """What is kept of a unit over all looks. `dry_looks` counts whole dry ones in a row."""

    state: WaterState = WaterState.UNKNOWN
    latched: bool = False  # it was wet, and no person has cleared it
    because: str = Field(default="it was not read yet", max_length=400)
    since: float = 0.0
    dry_looks: int = 0
    slots: tuple[str, ...] = Field(default=(), max_length=SLOTS_MAX)  # detectors ever shown
    cleared_by: str = Field(default="", max_length=200)
    lost: bool = False  # whether it was wet nobody can tell, and no person has looked


def fold_look(before: UnitWater, detectors: Sequence[LeakDetector] | None, now: float) -> UnitWater:
    """Return what is known after a look; `detectors` None: nothing could be read."""
    shown = tuple(detectors or ())  # two may have one name: each counts
    wet = [one for one in shown if one.moisture is Moisture.WET]
    named = list(dict.fromkeys([*before.slots, *(one.slot for one in shown)]))
    slots = tuple(named[:SLOTS_MAX])
    missing = [slot for slot in before.slots if slot not in {one.slot for one in shown}]
    unread = [one.slot for one in shown if one.moisture is not Moisture.DRY]
    if wet:
        state = WaterState.WET
        because = "; ".join(f"{one.slot}: {one.detail}" for one in wet[:4])
    elif detectors is None:
        state = WaterState.UNKNOWN
        because = "it could not be read"
    elif not shown:
        state = WaterState.UNKNOWN
        because = "it shows no leak detector"
    elif len(named) > SLOTS_MAX:
        state = WaterState.UNKNOWN
        because = f"it shows more than {SLOTS_MAX} detectors, and not all would be remembered"
    elif missing or unread:
        state = WaterState.UNKNOWN
        because = f"not read: {', '.join((missing + unread)[:4])}"
    else:
        state = WaterState.DRY
        because = f"{len(shown)} detectors are dry"
    latched = before.latched or state is WaterState.WET
    dry = state is WaterState.DRY
    if before.lost and dry:
        state = WaterState.UNKNOWN
        because = "dry now, and the file that kept whether it was wet was lost: bring that back, "
        because += "or a person looks, and says so by `rack dry`"
    return UnitWater(
        state=WaterState.WET if latched else state,
        latched=latched,
        because=(before.because if before.latched and not wet else because)[:400],
        since=before.since if before.latched else now,
        dry_looks=before.dry_looks + 1 if dry else 0,
        slots=slots,
        cleared_by="" if latched else before.cleared_by,
        lost=before.lost,
    )


def is_news(before: UnitWater, after: UnitWater) -> bool:
    """Return whether a look has to be kept: it shows anything new, or the last one kept is old."""
    known, shown = (
        {**vars(one), "since": 0.0, "dry_looks": min(one.dry_looks, DRY_LOOKS_MIN)}
        for one in (before, after)
    )
    return known != shown or not 0 <= after.since - before.since < KEPT_S


def forget_look(before: UnitWater, why: str) -> UnitWater:
    """Return what is known of a unit that nobody could look at: neither wet nor dry, and whole dry
    looks of others count.
    """
    if before.latched:
        return before
    update = {"state": WaterState.UNKNOWN, "because": why[:400]}
    return before.model_copy(update=update)


def clear_latch(name: str, known: UnitWater, who: str, why: str) -> UnitWater | Blocker:
    """Return the unit without its latch, or why a person's word does not suffice."""
    if not (who.strip() and why.strip()):
        return _refuse(name, "nobody says that it is dry, or not why", "Give --who and --why.")
    if not (known.latched or known.lost):
        return _refuse(name, "it is not held as wet", "There is nothing to clear.")
    if known.dry_looks < DRY_LOOKS_MIN:
        detail = f"{known.dry_looks} whole looks in a row were dry, and {DRY_LOOKS_MIN} are needed"
        return _refuse(name, detail, "Dry it, then look again: `provisioner rack water`.")
    said = f"{who.strip()}: {why.strip()}"[:200]
    state = WaterState.DRY
    update = {"state": state, "latched": False, "lost": False, "because": "a person cleared it"}
    return known.model_copy(update=update | {"cleared_by": said})


def judge_water_in(
    rack: PlannedRack, known: Mapping[str, UnitWater]
) -> Mapping[str, tuple[WaterState, str]]:
    """Return each unit's state and why: dry ones below a wet one are to be warned of."""
    wet = [u for u in rack.units if known.get(u.name, UnitWater()).state is WaterState.WET]
    judged = {}
    for unit in rack.units:
        own = known.get(unit.name, UnitWater())
        above = [w.name for w in wet if w.u > unit.u]
        if own.state is WaterState.DRY and above:
            judged[unit.name] = (WaterState.WARN, f"{above[0]} above it is wet")
        else:
            judged[unit.name] = (own.state, own.because)
    return judged


def find_power_refusals(
    rack: PlannedRack,
    unit: PlannedUnit,
    act: str,
    known: Mapping[str, UnitWater],
    building: WaterState | None = None,
) -> tuple[Blocker, ...]:
    """Return every reason why a unit may not be given power; none for an act that takes it away.

    `known` has to come from looks of now. `building`: the rack's own sensor, None where the site
    plans none. A shelf feeds every unit of its rack: all of them have to be dry.
    """
    if act in TAKING:
        return ()
    refused = []
    if building not in (None, WaterState.DRY):
        remedy = "Ask the building's operators; it has to be dry."
        refused.append(_refuse(rack.name, f"the rack's own sensor is {building}", remedy))
    judged = judge_water_in(rack, known)
    asked = [unit] if unit.kind is not Kind.POWER_SHELF else list(rack.units)
    for one in asked:
        state, because = judged[one.name]
        if one.kind is Kind.POWER_SHELF or state is WaterState.DRY:
            continue
        remedy = "See docs/racks.md#water."
        refused.append(_refuse(one.name, f"{state}: {because}", remedy))
    return tuple(refused)


def find_wet(rack: PlannedRack, known: Mapping[str, UnitWater]) -> tuple[PlannedUnit, ...]:
    """Return the units that have to be off."""
    return tuple(u for u in rack.units if known.get(u.name, UnitWater()).latched)


def _refuse(subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.LEAK, subject=subject, detail=detail, unblock=unblock)
