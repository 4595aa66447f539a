"""Routes of racks: the elevation of each, with what is known of membership, power and water.

Nothing is read from a device: the plan, the water's latch and the last look of each rack are files
in the folder that `racks_folder` names. What they do not say stays null.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import VIEWERS, Route
from provisioner.integrations.racks.duty.approval import RackCampaign, list_campaigns
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.looks import FOLDER, RackLook, UnitLook, join_water
from provisioner.integrations.racks.plan import (
    PlannedRack,
    PlannedUnit,
    R,
    RackPlan,
    read_record,
)
from provisioner.integrations.racks.water import UnitWater, WaterState
from provisioner.integrations.racks.water_file import BUILDING, WaterFile
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import InstantOrNone

TAG = "hardware"
FILES_KEPT = 64  # plans, latches and looks that are in memory; a look of 35 units takes some 100 KB


class RackUnit(Record):
    """One unit of an elevation."""

    name: str = Field(description="Name in the plan.")
    kind: Kind = Field(description="What the plan has there.")
    u: int = Field(description="Rack unit, counted from the floor.")
    slot: int | None = Field(description="Planned slot; null: a power shelf states none.")
    tray_index: int | None = Field(description="Planned index; null: a power shelf states none.")
    member: bool | None = Field(
        description="Whether at the last look every witness was read and agreed with the plan;"
        " null: it did not answer, was never looked at, or the rack's plan has changed since."
    )
    power: str | None = Field(description="Power at the last look; null: unknown.")
    serial: str | None = Field(description="Serial number at the last look; null: unknown.")
    water: WaterState | None = Field(
        description="What is known of coolant, with the latch; null: it was never read."
    )
    water_says: str = Field(description="Why; empty: nothing is known.")
    water_at: InstantOrNone = Field(
        description="When it was read last, or, of one held as wet, since when it is; null: never."
    )
    latched: bool = Field(description="It was wet, and no person has cleared it yet.")
    findings: tuple[Blocker, ...] = Field(
        description="What spoke against it at the last look, and what to do."
    )


class RackSummary(Record):
    """A rack of the plan in a line."""

    name: str = Field(description="Name of the rack in the plan.")
    chassis_serial: str = Field(description="Planned serial number of its chassis.")
    domain: str = Field(description="NVLink domain; empty: the plan names none.")
    units: int = Field(description="Units that the plan has.")
    proved: bool | None = Field(
        description="Whether the last look proved it to be the planned rack; null: nobody looked,"
        " or its plan has changed since."
    )
    looked_at: InstantOrNone = Field(description="When the last look was kept; null: never.")
    wet: int = Field(description="Units that are wet, or held as wet.")
    unknown: int = Field(description="Trays and switches of whose water nothing is known.")


class RackElevation(RackSummary):
    """A rack, unit by unit."""

    items: tuple[RackUnit, ...] = Field(description="Its units, the highest first.")
    findings: tuple[Blocker, ...] = Field(
        description="What its units together showed against the plan at the last look."
    )
    building: WaterState | None = Field(
        description="What the building's own sensors of this rack said; null: they were not asked."
    )
    campaigns: tuple[RackCampaign, ...] = Field(
        description="Firmware campaigns that were approved for it, as the daemon last carried them."
    )
    unread: tuple[str, ...] = Field(
        description="Files that could not be read or do not count any more, each with the reason."
    )


class RackList(Record):
    """The racks of the plan."""

    items: tuple[RackSummary, ...] = Field(description="Racks, in the order of the plan.")


def read_file(file: Path, record: type[R]) -> R | None:
    """Return the record of a file, None where there is none; it is read again once it changes.

    Raises InputError.
    """
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its permissions.") from None
    stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
    read: R = _read_stamped(file, record, stamp)
    return read


@lru_cache(maxsize=FILES_KEPT)
def _read_stamped(file: Path, record: type[R], _stamp: tuple[int, int, int]) -> R:
    return read_record(file, record)


def show_rack(folder: Path, rack: PlannedRack) -> RackElevation:
    """Return what the files of a folder say of a rack of its plan."""
    unread: list[str] = []
    water = _read_or_tell(folder / "water.json", WaterFile, unread)
    look = _read_or_tell(folder / FOLDER / f"{rack.name}.json", RackLook, unread)
    kept: Mapping[str, UnitWater] = {} if water is None else water.units
    known = join_water(rack, kept, look)
    judged = look
    if look is not None and look.planned != rack:
        unread.append(f"{FOLDER}/{rack.name}.json: this rack's plan has changed since that look")
        judged = None
    looks = {one.name: one for one in (() if judged is None else judged.units)}
    placed = [unit.name for unit in rack.units if unit.kind is not Kind.POWER_SHELF]
    building = kept.get(f"{BUILDING}{rack.name}")
    return RackElevation(
        name=rack.name,
        chassis_serial=rack.chassis_serial,
        domain=rack.domain,
        units=len(rack.units),
        proved=None if judged is None else judged.proved,
        looked_at=0.0 if look is None else look.at,
        wet=sum(one.state is WaterState.WET for one in known.values()),
        unknown=sum(n not in known or known[n].state is WaterState.UNKNOWN for n in placed),
        items=tuple(
            _show_unit(unit, looks.get(unit.name), known.get(unit.name))
            for unit in sorted(rack.units, key=lambda each: -each.u)
        ),
        findings=() if judged is None else judged.findings,
        building=None if building is None else building.state,
        campaigns=tuple(_read_campaigns(folder, rack.name, unread)),
        unread=tuple(unread),
    )


def _read_campaigns(folder: Path, rack: str, unread: list[str]) -> Sequence[RackCampaign]:
    try:
        files = [campaign / "state.json" for campaign in list_campaigns(folder)]
    except InputError as error:
        unread.append(_say(error))
        return ()
    read = (_read_or_tell(file, RackCampaign, unread) for file in files)
    return [one for one in read if one is not None and rack in one.racks]


def _read_or_tell(file: Path, record: type[R], unread: list[str]) -> R | None:
    try:
        return read_file(file, record)
    except InputError as error:
        unread.append(_say(error))
        return None


def _say(error: InputError) -> str:
    where = f", {error.where}" if error.where else ""
    return f"{error.source}{where}: {error.problem}"


def _show_unit(unit: PlannedUnit, look: UnitLook | None, water: UnitWater | None) -> RackUnit:
    read = look is not None and look.read
    power = "" if look is None or look.power == "Unknown" else look.power
    return RackUnit(
        name=unit.name,
        kind=unit.kind,
        u=unit.u,
        slot=unit.slot,
        tray_index=unit.tray_index,
        member=look.member if look is not None and read else None,
        power=power or None,
        serial=None if look is None else look.serial or None,
        water=None if water is None else water.state,
        water_says="" if water is None else water.because,
        water_at=0.0 if water is None else water.since,
        latched=water is not None and water.latched,
        findings=() if look is None else look.findings,
    )


async def list_racks(ask: Ask) -> Reply:
    folder, plan = await _read_plan(ask)

    def summarise() -> RackList:
        shown = (show_rack(folder, rack) for rack in plan.racks)
        fields = set(RackSummary.model_fields)
        return RackList(items=tuple(RackSummary(**e.model_dump(include=fields)) for e in shown))

    return Reply(await asyncio.to_thread(summarise))


async def show_elevation(ask: Ask) -> Reply:
    folder, plan = await _read_plan(ask)
    name = ask.read_word("rack")
    rack = next((each for each in plan.racks if each.name == name), None)
    if rack is None:
        raise refuse_missing("rack")
    return Reply(await asyncio.to_thread(show_rack, folder, rack))


async def _read_plan(ask: Ask) -> tuple[Path, RackPlan]:
    named = ask.parts.settings.racks_folder
    remedy = "Set `racks_folder` to a folder with racks.yaml; docs/racks.md has an example."
    if not named:
        raise build_refusal(409, "racks", "This site has no plan of racks", remedy)
    file = Path(named) / "racks.yaml"
    try:
        plan = await asyncio.to_thread(read_file, file, RackPlan)
    except InputError as error:
        title = "The plan of racks cannot be read"
        raise build_refusal(409, "racks", title, error.remedy, _say(error)) from None
    if plan is None:
        raise build_refusal(409, "racks", "There is no plan of racks", remedy, f"no file {file}")
    return file.parent, plan


REFUSALS = {409: "No folder with a plan of racks is set, or its plan cannot be read."}
ROUTES = (
    Route(
        "GET",
        "/racks",
        "list_racks",
        TAG,
        "List the racks of the plan: proved at the last look, wet units, unknown ones.",
        VIEWERS,
        list_racks,
        {200: RackList},
        refusals=REFUSALS,
        heavy=True,
    ),
    Route(
        "GET",
        "/racks/{rack}",
        "show_elevation",
        TAG,
        "Show a rack's elevation: each unit's place, membership, power and water as last read.",
        VIEWERS,
        show_elevation,
        {200: RackElevation},
        refusals=REFUSALS,
        heavy=True,
    ),
)
