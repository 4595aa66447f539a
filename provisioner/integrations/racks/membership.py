"""Whether a rack is the planned one: what its trays and switches say, held against the plan.

A unit is a member when every witness that it has agrees with the plan. A witness that was not read
proves nothing, and a disagreement is a hold that a person clears: a tray was moved or swapped, a
rack cabled anew, or the plan is wrong. Nothing here changes a unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from provisioner.integrations.racks.identity import Kind, Place, Supply
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker, Gap, Reason

# a machine was read, and is another one: no reading of it that is missing
CERTAIN = frozenset({Reason.NOT_EXPECTED, Reason.DUPLICATE, Reason.CABLING})


class Water(StrEnum):
    """What the leak detectors of a unit say together."""

    DRY = "dry"
    WET = "wet"
    UNKNOWN = "unknown"
    NONE = "none"  # a unit that has no detector by its kind: a power shelf


@dataclass(frozen=True)
class UnitReading:
    """What was read of one unit. `kind` None: two kinds fit equally, or it was not read."""

    kind: Kind | None
    evidence: tuple[str, ...] = ()
    model: str = ""
    serial: str = ""
    power: str = "Unknown"
    places: tuple[Place, ...] = ()
    gpus: int = 0  # listed, with a place or without
    cartridges: tuple[str, ...] = ()  # their serials
    leaks: tuple[LeakDetector, ...] = ()
    supplies: tuple[Supply, ...] = ()
    supplies_ill: tuple[str, ...] = ()  # those that do not say that they are well
    gaps: tuple[Gap, ...] = ()
    unread: str = ""  # why nothing was read


@dataclass(frozen=True)
class UnitVerdict:
    """A unit of the plan, what stands there, and what speaks against it."""

    unit: PlannedUnit
    reading: UnitReading | None  # None: the plan gives no address
    water: Water
    member: bool  # every witness was read and agrees with the plan
    findings: tuple[Blocker, ...]


@dataclass(frozen=True)
class RackVerdict:
    """A rack against its plan: proved only if each tray and switch is a member."""

    rack: PlannedRack
    units: tuple[UnitVerdict, ...]
    proved: bool
    findings: tuple[Blocker, ...] = field(default=())


def judge_water(reading: UnitReading | None, kind: Kind) -> Water:
    """Return the wettest detector's state; unknown wherever one was not read, or none is shown."""
    if reading is None or reading.unread:
        return Water.UNKNOWN
    states = {detector.moisture for detector in reading.leaks}
    if Moisture.WET in states:
        return Water.WET
    if not states and kind is Kind.POWER_SHELF:
        return Water.NONE
    return Water.DRY if states == {Moisture.DRY} else Water.UNKNOWN


def judge_rack(plan: RackPlan, name: str, readings: Mapping[str, UnitReading]) -> RackVerdict:
    """Return a rack's verdict by the readings of its units, by name."""
    rack = plan.find(name)
    owners = {each.chassis_serial: each.name for each in plan.racks}
    units = tuple(_judge_unit(rack, u, readings.get(u.name), owners) for u in rack.units)
    findings = tuple(finding for _, finding in _judge_together(rack, units))
    placed = [u for u in units if u.unit.kind is not Kind.POWER_SHELF]
    proved = bool(placed) and all(u.member for u in placed) and not findings
    return RackVerdict(rack, units, proved, findings)


def find_misplaced(
    plan: RackPlan, name: str, readings: Mapping[str, UnitReading], unit: PlannedUnit
) -> tuple[Blocker, ...]:
    """Return why a unit that has no power yet is not proved to be the planned one; empty: it is.

    A tray that is off may have silent GPUs: its cartridges suffice, and at least one witness has to
    speak. A switch that is off states no place at all; see `find_unplaced`.
    """
    rack = plan.find(name)
    reading = readings.get(unit.name)
    owners = {each.chassis_serial: each.name for each in plan.racks}
    found = list(_find_strange(unit, reading))
    if not found and reading is not None and unit.kind is not Kind.POWER_SHELF:
        found = list(_find_contradictions(rack, unit, reading, owners))
        tray = unit.kind is Kind.COMPUTE_TRAY
        if tray and not found and not _collect(reading.places, "slot"):
            detail = "nothing states where it sits: neither a cable cartridge nor a GPU"
            found = [_hold(Reason.CANNOT_TELL, unit, detail, "Make its cartridge readable.")]
    if not found and reading is not None and unit.kind is Kind.POWER_SHELF:
        found = list(_find_half(unit, reading))
    units = tuple(_judge_unit(rack, u, readings.get(u.name), owners) for u in rack.units)
    found += [one for names, one in _judge_together(rack, units) if unit.name in names]
    return tuple(found)


def find_unplaced(
    plan: RackPlan, name: str, readings: Mapping[str, UnitReading], unit: PlannedUnit
) -> tuple[Blocker, ...]:
    """Return why a switch that states no place gets no power: no serial is planned, or its rack is
    not the planned one by its trays, or none of them tells.
    """
    reading = readings.get(unit.name)
    if unit.kind is not Kind.NVLINK_SWITCH or (reading and _collect(reading.places, "slot")):
        return ()
    if not unit.serial:  # one that is planned was compared
        detail = "a switch that is off states no place, and the plan has no serial of it"
        remedy = "Give its `serial` in the plan, as its label has it; or let its NVOS answer."
        return (_hold(Reason.CANNOT_TELL, unit, detail, remedy),)
    rack = plan.find(name)
    owners = {each.chassis_serial: each.name for each in plan.racks}
    trays = [u for u in rack.units if u.kind is Kind.COMPUTE_TRAY]
    read = [(u, readings[u.name]) for u in trays if u.name in readings]
    told = [(u, one) for u, one in read if _collect(one.places, "slot")]  # its GPUs may be off
    wrong = [f for u, one in told for f in _find_contradictions(rack, u, one, owners)]
    if trays and not told:
        detail = "it states no place, and no tray of its rack states one"
        wrong = [_hold(Reason.CANNOT_TELL, unit, detail, "Make a tray's BMC answer.")]
    return tuple(wrong[:4])


def _judge_unit(
    rack: PlannedRack,
    unit: PlannedUnit,
    reading: UnitReading | None,
    owners: Mapping[str, str],
) -> UnitVerdict:
    water = judge_water(reading, unit.kind)
    findings = list(_find_faults(rack, unit, reading, owners))
    if water is Water.WET:
        wet = ", ".join(d.slot for d in (reading.leaks if reading else ()) if d.moisture == "wet")
        findings.insert(
            0, _hold(Reason.LEAK, unit, f"coolant at {wet}", "Keep it off; see docs/racks.md#water")
        )
    return UnitVerdict(unit, reading, water, not findings, tuple(findings))


def _find_faults(
    rack: PlannedRack, unit: PlannedUnit, reading: UnitReading | None, owners: Mapping[str, str]
) -> Iterator[Blocker]:
    strange = list(_find_strange(unit, reading))
    yield from strange
    if strange or reading is None:
        return
    if unit.kind is Kind.POWER_SHELF:
        yield from _find_half(unit, reading)
    else:
        yield from _find_displaced(rack, unit, reading, owners)


def _find_half(unit: PlannedUnit, reading: UnitReading) -> Iterator[Blocker]:
    """Yield that a shelf answered half: what its other supplies give, nobody knows."""
    silent = sum(one is Supply.UNKNOWN for one in reading.supplies)
    if 0 < silent < len(reading.supplies):
        detail = f"{silent} of its {len(reading.supplies)} power supplies do not say whether"
        remedy = "Look at the shelf, and read it again."
        yield _hold(Reason.CANNOT_TELL, unit, f"{detail} they are on", remedy)


def _find_strange(unit: PlannedUnit, reading: UnitReading | None) -> Iterator[Blocker]:
    """Yield why this is not a machine of the planned kind."""
    if reading is None:
        yield _hold(Reason.NOT_EXPECTED, unit, "no address is planned", "Give its `bmc`.")
        return
    if reading.unread:
        yield _hold(
            Reason.UNREACHABLE, unit, reading.unread, "Make its BMC answer, then look again."
        )
        return
    told = "; ".join(reading.evidence) or "nothing tells its kind"
    if reading.kind is None:
        yield _hold(Reason.CANNOT_TELL, unit, f"two kinds fit equally ({told})", _LOOK)
        return
    if reading.kind is not unit.kind:
        detail = f"the plan has a {unit.kind} here, and this is {_say_kind(reading.kind)} ({told})"
        yield _hold(Reason.NOT_EXPECTED, unit, detail, _LOOK)
    elif why := find_other_serial(unit, reading.serial):
        yield _hold(Reason.NOT_EXPECTED, unit, why, _LOOK)


def find_other_serial(unit: PlannedUnit, said: str) -> str:
    """Return why a machine that says this serial is not the planned one; "" where it may be."""
    if not unit.serial or said == unit.serial:
        return ""
    return f"it says {f'serial {said}' if said else 'no serial'}, and the plan has {unit.serial}"


def _find_displaced(
    rack: PlannedRack, unit: PlannedUnit, reading: UnitReading, owners: Mapping[str, str]
) -> Iterator[Blocker]:
    """Yield what each witness of a tray or switch says against its planned place."""
    places = reading.places
    if any(place.is_bench for place in places):
        yield from _find_contradictions(rack, unit, reading, owners)
        return
    gpus = [p for p in places if p.witness.startswith("GPU")]
    if not any(place.chassis_serial for place in places):
        missing = "its GPUs" if unit.kind is Kind.COMPUTE_TRAY else "NVOS"
        detail = f"nothing states a chassis serial: {missing} did not answer it"
        remedy = "Power it on, let it boot, and look again."
        yield _hold(Reason.CANNOT_TELL, unit, detail, remedy)
    elif unit.kind is Kind.COMPUTE_TRAY and len(gpus) < reading.gpus:
        detail = f"{len(gpus)} of {reading.gpus} GPUs state a place"
        yield _hold(Reason.CANNOT_TELL, unit, detail, "Look again once all GPUs answer.")
    for gap in reading.gaps[:4]:
        detail = f"{gap.source} was not read: {gap.detail}"
        yield _hold(gap.reason, unit, detail, "Make it readable, then look again.")
    yield from _find_contradictions(rack, unit, reading, owners)


def _find_contradictions(
    rack: PlannedRack, unit: PlannedUnit, reading: UnitReading, owners: Mapping[str, str]
) -> Iterator[Blocker]:
    """Yield each witness that states another place than the planned one."""
    places = reading.places
    if any(place.is_bench for place in places):
        detail = "a single-slot bench cartridge states topology 0, slot 1, tray 0: no rack's place"
        yield _hold(Reason.NOT_EXPECTED, unit, detail, "Plug it into the rack's cartridge.")
        return
    wanted = {
        "chassis serial": rack.chassis_serial,
        "slot": str(unit.slot),
        "tray index": str(unit.tray_index),
    }
    for what, planned in wanted.items():
        said = _collect(places, what)
        others = {value: names for value, names in said.items() if value != planned}
        for value, names in sorted(others.items()):
            whose = f" ({owners[value]}'s)" if what == "chassis serial" and value in owners else ""
            detail = f"{', '.join(names)} state {what} {value}{whose}, and the plan has {planned}"
            yield _hold(Reason.NOT_EXPECTED, unit, detail, _MOVED)


def _collect(places: Sequence[Place], what: str) -> dict[str, list[str]]:
    """Return who states which value."""
    said: dict[str, list[str]] = {}
    for place in places:
        value = {
            "chassis serial": place.chassis_serial,
            "slot": place.slot,
            "tray index": place.tray_index,
        }[what]
        if value is not None:
            said.setdefault(str(value), []).append(place.witness)
    return said


def _judge_together(
    rack: PlannedRack, units: Sequence[UnitVerdict]
) -> Iterator[tuple[Sequence[str], Blocker]]:
    """Yield what only the units together show, with those concerned: one serial or slot twice."""
    by_serial: dict[tuple[str, str], list[str]] = {}
    by_slot: dict[str, list[str]] = {}
    for verdict in units:
        reading = verdict.reading
        if reading is None or reading.unread:
            continue
        if reading.serial:
            key = (reading.model, reading.serial)
            by_serial.setdefault(key, []).append(verdict.unit.name)
        for slot in _collect(reading.places, "slot"):
            by_slot.setdefault(slot, []).append(verdict.unit.name)
    for (_, serial), names in sorted(by_serial.items()):
        if len(names) > 1:
            detail = f"{' and '.join(names)} are one machine: serial {serial}"
            remedy = "Correct the addresses of the plan."
            yield names, _hold_rack(Reason.DUPLICATE, rack, detail, remedy)
    for slot, names in sorted(by_slot.items()):
        if len(names) > 1:
            detail = f"{' and '.join(names)} state the same slot {slot}"
            yield names, _hold_rack(Reason.DUPLICATE, rack, detail, _MOVED)
    yield from _compare_cartridges(rack, units)


def _compare_cartridges(
    rack: PlannedRack, units: Sequence[UnitVerdict]
) -> Iterator[tuple[Sequence[str], Blocker]]:
    """All trays of a rack read the same cartridges: a tray that reads others hangs elsewhere."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for verdict in units:
        if verdict.reading is not None and verdict.reading.cartridges:
            key = tuple(sorted(set(verdict.reading.cartridges)))
            sets.setdefault(key, []).append(verdict.unit.name)
    if len(sets) > 1:
        ranked = sorted(sets.values(), key=len)
        told = "; ".join(", ".join(names) for names in ranked[:-1])
        detail = f"cable cartridges differ within the rack: {told} read others than the rest"
        tied = len(ranked[-1]) == len(ranked[-2])  # nobody knows which of them are the rack's
        strange = [name for names in (ranked if tied else ranked[:-1]) for name in names]
        yield strange, _hold_rack(Reason.CABLING, rack, detail, _MOVED)


_LOOK = "Look at the unit and at the plan; correct the one that is wrong."
_MOVED = "A tray was moved or swapped, or the plan is wrong: a person corrects one of them."


def _say_kind(kind: Kind) -> str:
    return "no unit of a rack" if kind is Kind.OTHER else f"a {kind}"


def _hold(reason: Reason, unit: PlannedUnit, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=unit.name, detail=detail, unblock=unblock)


def _hold_rack(reason: Reason, rack: PlannedRack, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=rack.name, detail=detail, unblock=unblock)
