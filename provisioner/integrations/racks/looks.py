"""What a look at a rack judged, kept as a file, and what is known of its water beside that.

A verdict counts for the plan that it was judged against: once the rack's plan is another, nobody
knows whether its units are members.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from provisioner.integrations.racks.membership import RackVerdict, UnitVerdict, Water
from provisioner.integrations.racks.plan import UNITS_MAX, PlannedRack
from provisioner.integrations.racks.water import UnitWater, WaterState, judge_water_in
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker
from provisioner.runtime.whole_files import replace_file

SERIAL_MAX = 200  # characters of a text that a machine chose
FOLDER = "looks"  # in the racks' folder of a daemon
_STATES = {
    Water.WET: WaterState.WET,
    Water.DRY: WaterState.DRY,
    Water.UNKNOWN: WaterState.UNKNOWN,
}


class UnitLook(Record):
    """What a look judged of one unit. `read`: its BMC answered."""

    name: str
    read: bool
    member: bool
    power: str
    serial: str
    water: Water
    findings: tuple[Blocker, ...] = ()


class RackLook(Record):
    """One look at a rack, and the plan that it was held against."""

    at: float
    planned: PlannedRack
    proved: bool
    findings: tuple[Blocker, ...] = ()
    units: tuple[UnitLook, ...] = Field(max_length=UNITS_MAX)


def keep_look(folder: Path, verdict: RackVerdict, at: float) -> None:
    """Write a look as RACK.json, in place of an older one. Raises InputError."""
    look = RackLook(
        at=at,
        planned=verdict.rack,
        proved=verdict.proved,
        findings=verdict.findings,
        units=tuple(_keep_unit(one) for one in verdict.units),
    )
    file = folder / f"{verdict.rack.name}.json"
    try:
        folder.mkdir(exist_ok=True)
        # `mode` is less the umask: the daemon may run as another user
        replace_file(file, look.model_dump_json(indent=2) + "\n", mode=0o666, lasting=True)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--keep", str(file), problem, "Name another folder.") from None


def _keep_unit(one: UnitVerdict) -> UnitLook:
    reading = one.reading
    return UnitLook(
        name=one.unit.name,
        read=reading is not None and not reading.unread,
        member=one.member,
        power="" if reading is None else reading.power,
        serial="" if reading is None else reading.serial[:SERIAL_MAX],
        water=one.water,
        findings=one.findings,
    )


def join_water(
    rack: PlannedRack, kept: Mapping[str, UnitWater], look: RackLook | None
) -> Mapping[str, UnitWater]:
    """Return what is known of each unit's water by name; of one that is absent nothing is known.

    The latch's file is believed first: of what it has, the last look makes a unit wet, never dry.
    """
    known = {unit.name: kept[unit.name] for unit in rack.units if unit.name in kept}
    if look is not None:
        for one in look.units:
            state = _STATES.get(one.water)
            before = known.get(one.name)
            wet = state is WaterState.WET and before is not None and before.state is not state
            if state is not None and (before is None or wet):
                said = f"the last look says {state}"
                known[one.name] = UnitWater(state=state, because=said, since=look.at)
    judged = judge_water_in(rack, known)
    return {
        name: one.model_copy(update={"state": judged[name][0], "because": judged[name][1]})
        for name, one in known.items()
        if name in judged
    }
