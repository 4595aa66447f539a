"""Begins the update of a domain: what is read of it first, and what speaks against it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.integrations.racks.campaign import (
    ActKind,
    Campaign,
    CampaignFile,
    UnitState,
    group_units,
    plan_campaign,
)
from provisioner.integrations.racks.campaign_run import Step
from provisioner.integrations.racks.cold_reboot_run import COLD_REBOOT, OVER
from provisioner.integrations.racks.identity import Kind, Place
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.membership import UnitReading, judge_rack
from provisioner.integrations.racks.plan import PlannedUnit, RackPlan
from provisioner.integrations.racks.reading import read_switch_location, read_unit
from provisioner.integrations.racks.update_log import NOTED, Line, UpdateLog
from provisioner.integrations.racks.update_packages import find_missed
from provisioner.integrations.racks.update_world import Update, wait_all
from provisioner.model.input_error import InputError

AT_ONCE = 16
_CAMPAIGN = "campaign"
OTHER = "another version"


def limit_plan(plan: RackPlan, asked: Iterable[str]) -> RackPlan:
    """Return the racks that an update of racks touches: those that share an NVLink domain, too."""
    racks = set(asked)
    while True:
        inside = [r for r in plan.racks if r.name in racks]
        domains = {domain_of(r, u) for r in inside for u in r.units} - {""}
        more = {r.name for r in plan.racks if domains & {domain_of(r, u) for u in r.units}} | racks
        if more == racks:
            return plan.model_copy(update={"racks": tuple(inside), "outside": ()})
        racks = more


def check_packages(asked: CampaignFile, plan: RackPlan, folder: Path) -> None:
    """Refuse a target without a package, and a file that is not the pinned one.

    Raises InputError that names the field.
    """
    kinds = {unit.kind for rack in plan.racks for unit in rack.units}
    for kind, targets in asked.targets.items():
        for component in targets if kind in kinds else ():
            package = asked.packages.get(kind, {}).get(component)
            where = f"packages.{kind}.{component}"
            if package is None:
                problem = "a target is given for it, and no package"
                raise InputError(where, "", problem, "Name its files and versions.")
            for file in package.files:
                if not file.file and kind is not Kind.NVLINK_SWITCH:
                    problem = "only NVOS fetches a file by `url`"
                    raise InputError(where, file.url, problem, "Give its `file` and `sha256`.")
                if file.file:
                    check_file(where, folder / file.file, file.sha256)


class UnreadFile(InputError):
    """What a file holds cannot be told now."""


def check_file(where: str, file: Path, wanted: str) -> None:
    """Refuse a file that is not the pinned one. Raises InputError; UnreadFile, if nobody can tell
    which it is.
    """
    try:
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise UnreadFile(where, str(file), problem, "Put it beside the campaign's file.") from None
    if found != wanted:
        raise InputError(where, str(file), "its SHA-256 is another one", "Fetch it again.")


async def prepare(update: Update, log: UpdateLog) -> Campaign:
    """Return the campaign: of what is read now; once an act of it was begun, of what the journal
    says was read before that.

    Raises InputError where the journal is another campaign's.
    """
    written = update.asked.model_dump_json(exclude={"units"})  # who uses a tray may change
    digest = hashlib.sha256(written.encode()).hexdigest()
    kept = log.of(_CAMPAIGN).note("states")
    if any(log.steps()):
        read = json.loads(kept)
        if read["campaign"] != digest:
            problem = "it is the journal of another campaign, or the campaign's file has changed"
            raise InputError("--journal", "", problem, "Name another file for another campaign.")
        units = read["units"].items()
        states: Mapping[str, UnitState] = {n: UnitState.model_validate(one) for n, one in units}
    else:
        states = await read_states(update)
        said = {name: one.model_dump(mode="json") for name, one in states.items()}
        detail = json.dumps({"campaign": digest, "units": said})
        log.write(Line(_CAMPAIGN, NOTED, "states", update.now(), detail))
        await log.sync()
    # who uses a tray now is asked again before each act (`update_guard`)
    return plan_campaign(update.plan, update.asked.model_copy(update={"units": states}))


@dataclass(frozen=True)
class RackReadings:
    """What every unit showed: itself, and its versions by inventory id; None: not read."""

    units: Mapping[str, UnitReading]
    running: Mapping[str, Mapping[str, str] | None]


async def read_rack_units(update: Update) -> RackReadings:
    """Read every unit of the plan: itself, its place, its water and its versions."""
    units = [unit for rack in update.plan.racks for unit in rack.units]
    slots = asyncio.Semaphore(AT_ONCE)
    readings: dict[str, UnitReading] = {}
    running: dict[str, Mapping[str, str] | None] = {}

    async def one(unit: PlannedUnit) -> None:
        if unit.name not in update.addresses:
            return
        async with slots:
            reading = await read_unit(update.bmcs, update.addresses[unit.name])
            if (nvos := update.nvos.get(unit.name)) is not None:
                told = await read_switch_location(update.switches, nvos)
                if isinstance(told, Place):
                    reading = replace(reading, places=(*reading.places, told))
                else:
                    reading = replace(reading, gaps=(*reading.gaps, told))
            readings[unit.name] = reading
            running[unit.name] = await update.read_running(unit)

    await wait_all(one(unit) for unit in units)
    return RackReadings(readings, running)


async def read_states(update: Update) -> Mapping[str, UnitState]:
    """Read every unit, and who uses it."""
    tenants = await update.read_tenants()
    read = await read_rack_units(update)
    states: dict[str, UnitState] = {}
    for rack in update.plan.racks:
        for verdict in judge_rack(update.plan, rack.name, read.units).units:
            states[verdict.unit.name] = UnitState(
                running=_name_versions(
                    update, verdict.unit.kind, read.running.get(verdict.unit.name)
                ),
                tenant=tenants.get(verdict.unit.name),
                water=verdict.water,
                member=verdict.member,
            )
            for finding in verdict.findings:
                update.say(f"{finding.subject}: {finding.detail}")
    return states


def _name_versions(
    update: Update, kind: Kind, running: Mapping[str, str] | None
) -> Mapping[str, str]:
    """Return by component its target where all of it runs, and another word where it does not."""
    if running is None:
        return {}
    named = {}
    for component, target in update.asked.targets.get(kind, {}).items():
        package = update.asked.packages.get(kind, {}).get(component)
        missed = package is None or list(find_missed(package, running))
        named[component] = OTHER if missed else target
    return named


def find_unproved(plan: RackPlan, log: UpdateLog) -> Mapping[str, Sequence[str]]:
    """Return the trays of each job of which a write may have been executed, and not every version
    was proved since: of its trays, its switches or its shelves.

    Raises InputError where a write was begun at what the plan does not have (any more), unless each
    job of the journal was proved.
    """
    last = dict(log.steps())
    jobs = group_units(plan)
    named = {
        job: {name for rack, unit in units for name in (rack.name, unit.name)} | set(job.split("+"))
        for job, units in jobs.items()
    }
    begun = {key: set(key.rpartition("/")[0].split("+")) for key in _list_begun(log)}
    drained = [key.rpartition("/")[0] for key in last if key.endswith(f"/{ActKind.DRAIN}")]
    proved = {job for job in {*jobs, *drained} if last.get(f"{job}/{ActKind.PROVE}") == Step.DONE}
    for job in proved & jobs.keys():
        looked = log.of(f"{job}/{ActKind.PROVE}").read_step_detail().split()
        moved = {unit.name for _, unit in jobs[job]}.difference(looked) if looked else ()
        if any(not parts.isdisjoint(moved) for parts in begun.values()):
            proved = proved - {job}  # a unit came from another domain, and no proof looked at it
    for key, parts in begun.items():
        over = bool(drained) and proved.issuperset(drained) and not key.endswith(f"/{COLD_REBOOT}")
        if not over and all(parts.isdisjoint(names) for names in named.values()):
            problem = "a write was begun there, and the plan has neither such a unit nor a rack"
            remedy = "Give it its name back; or move the journal away, and then `rack vouch`."
            raise InputError("journal", key, problem, remedy)
    return {
        job: [unit.name for _, unit in units if unit.kind is Kind.COMPUTE_TRAY]
        for job, units in jobs.items()
        if job not in proved and any(not named[job].isdisjoint(parts) for parts in begun.values())
    }


def _list_begun(log: UpdateLog) -> Iterable[str]:
    """Yield each act of which a write may have been executed, but a cold reboot that is over."""
    for key in log.list_keys():
        act = log.of(key)
        if act.has_begun() and not (key.endswith(f"/{COLD_REBOOT}") and act.noted(OVER)):
            yield key


def find_reasons(campaign: Campaign) -> Sequence[str]:
    """Return each reason why the domain is held, as a sentence."""
    return [
        f"{reason.subject}: {reason.detail}. {reason.unblock}"
        for reasons in campaign.held.values()
        for reason in reasons
    ]
