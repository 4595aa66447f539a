"""`provisioner rack isolate`: asks the building to cut water and power of a rack."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.tables import strip_controls
from provisioner.integrations.building_water.isolation import Request, RequestFile
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import build_graph, derive_impact
from provisioner.integrations.racks.locks import hold_name
from provisioner.integrations.racks.plan import PlannedRack, RackPlan, read_plan, read_record
from provisioner.integrations.racks.water import UnitWater
from provisioner.integrations.racks.water_commands import (
    ISOLATE_MIN,
    BuildingOption,
    PlanFile,
    WaterOption,
    ask_person,
)
from provisioner.integrations.racks.water_file import BUILDING, WaterFile, read_isolation
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime.whole_files import replace_file

TRIES = 100  # of the requests' file, which each command has for a moment


def find_isolation_refusal(
    rack: PlannedRack, known: Mapping[str, UnitWater], *, isolate: bool
) -> Blocker | None:
    """Return why isolation may not be asked for, or not be taken back: by what the latch holds."""
    wet = [unit.name for unit in rack.units if known.get(unit.name, UnitWater()).latched]
    own = known.get(f"{BUILDING}{rack.name}", UnitWater()).latched
    unread = [u.name for u in rack.units if u.kind is not Kind.POWER_SHELF and u.name not in known]
    lost = [u.name for u in rack.units if u.name in known and known[u.name].lost]
    if isolate and not own and len(wet) < ISOLATE_MIN:
        detail = f"{len(wet)} of its units are held as wet, and {ISOLATE_MIN} are needed"
        remedy = "Force the unit off: `rack water --off`. The building's operators decide the rest."
    elif not isolate and (own or wet or unread or lost):
        detail = f"held as wet: {', '.join([*wet, *(['its own sensor'] if own else [])][:4])}"
        remedy = "Dry it, look twice, then say so: `rack dry`."
        if not (own or wet):
            detail = f"the file of the latch has no look at {', '.join(unread[:4])}"
            remedy = "Look at them: `rack water`; is it the file that the daemon keeps?"
        if lost and not (own or wet):
            detail = f"an earlier file of the latch was lost: was {', '.join(lost[:4])} wet?"
            remedy = "Bring it back; or look, and say so: `rack dry`."
    else:
        return None
    return Blocker(reason=Reason.LEAK, subject=rack.name, detail=detail, unblock=remedy)


def isolate(
    plan: PlanFile,
    rack: Annotated[str, typer.Argument(help="Name of a rack of the plan.")],
    file: WaterOption,
    requests: Annotated[
        Path, typer.Option(help="File that `building-water watch --requests` sends.")
    ],
    who: Annotated[str, typer.Option(help="Who asks.")],
    why: Annotated[str, typer.Option(help="What was seen.")],
    building: BuildingOption = None,
    end: Annotated[
        bool, typer.Option("--end", help="Take the request back, once nothing is held as wet.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Ask the building to isolate a rack, water and power together, where two units leak.

    The request stands in a file, and is repeated to the building until --end takes it back. The
    building decides; with --building the command prints what its own points say.

    Exit code 1: it was refused.

    Example: provisioner rack isolate racks.yaml r01 --water water.json --requests isolation.json
    --who amy --why "two trays drip"
    """
    planned = read_plan(plan)
    wanted = planned.find(rack)
    if not file.is_file():
        problem = "there is no such file, which is the latch"
        raise InputError("--water", str(file), problem, "Look first: `rack water`.")
    _check(file, wanted, end=end)
    if not end:
        typer.echo(f"lost without {rack}: {_say_lost(planned, wanted)}")
    ask_person(f"{'take back' if end else 'ask for'} the isolation of {rack}", yes=yes)
    busy = InputError("--requests", str(requests), "another command writes it", "Give it again.")
    try:
        with hold_name(requests.with_name(f".{requests.name}.lock"), busy, TRIES, shared=True):
            _check(file, wanted, end=end)  # coolant may have come while a person thought
            _store(requests, rack, Request(isolate=not end, who=who, why=why, at=time.time()))
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--requests", str(requests), problem, "Make room.") from None
    typer.echo(f"{rack}: {'no isolation' if end else 'isolation'} is asked for in {requests}")
    told = None if building is None else read_isolation(building, rack, time.time())
    for name, said in ({} if told is None else told.told).items():
        typer.echo(f"{name}: {strip_controls(said)}")
    if told is None:
        typer.echo("What the building did is not known: give --building, or look there.")


def _say_lost(planned: RackPlan, rack: PlannedRack) -> str:
    lost = derive_impact(build_graph(planned), [unit.name for unit in rack.units])
    return ", ".join(list(lost.lost)[:40])


def _check(file: Path, rack: PlannedRack, *, end: bool) -> None:
    """Say why it is refused, and exit, by what the latch holds now."""
    known = read_record(file, WaterFile).units
    if (refused := find_isolation_refusal(rack, known, isolate=not end)) is not None:
        typer.echo(f"refused: {refused.subject}: {refused.detail}. {refused.unblock}", err=True)
        raise typer.Exit(1)


def _store(file: Path, rack: str, asked: Request) -> None:
    """Write the request beside the others. Raises InputError for a damaged file, which is kept, and
    OSError.
    """
    before = read_record(file, RequestFile).racks if file.exists() else {}
    written = RequestFile(racks={**before, rack: asked}).model_dump_json(indent=2)
    replace_file(file, written + "\n", mode=0o666, lasting=True)
