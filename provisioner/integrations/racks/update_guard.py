"""What is looked at again before an act writes: who uses its domain, and where its unit sits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from provisioner.integrations.racks.identity import Kind, Place
from provisioner.integrations.racks.membership import CERTAIN, find_misplaced
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit
from provisioner.integrations.racks.reading import read_switch_location, read_unit
from provisioner.integrations.racks.update_steps import Next, done, fail, wait
from provisioner.integrations.racks.update_world import Update
from provisioner.model.outcome import Reason

CUTS = frozenset({"off", "ac", "bmc-reset", "reboot", "hosts-off"})  # writes that take power away


def judge_drain(tenants: Mapping[str, str | None], left_s: float) -> Next:
    """Return whether nobody uses a domain's trays; `left_s`: of the time that tenants have.

    A tenant leaves by a person's word alone; here is only looked at who is there.
    """
    for name, tenant in tenants.items():
        reason = Reason.CANNOT_TELL if tenant is None else Reason.NOT_CONFIRMED
        why = f"{tenant} uses {name}: reclaim its nodes first"
        if tenant is None:
            why = f"nobody looked whose host {name} is"
        if tenant != "":
            return wait(why) if left_s > 0 else fail(reason, why)
    return done("no tenant is in the domain")


async def find_moved(update: Update, rack: PlannedRack, unit: PlannedUnit) -> Next | None:
    """Read a unit's place once more; return why it is not the planned one, or cannot be told."""
    address = update.addresses.get(unit.name)
    if address is None:
        return fail(Reason.NOT_EXPECTED, "no address is planned")
    reading = await read_unit(update.bmcs, address)
    nvos = update.nvos.get(unit.name)
    if unit.kind is Kind.NVLINK_SWITCH and nvos is not None:
        told = await read_switch_location(update.switches, nvos)
        if isinstance(told, Place):  # NVOS may be dead: then its BMC alone says what it is
            reading = replace(reading, places=(*reading.places, told))
    found = find_misplaced(update.plan, rack.name, {unit.name: reading}, unit)
    if not found:
        return None
    certain = next((one for one in found if one.reason in CERTAIN), None)
    if certain is not None:
        return fail(certain.reason, f"{certain.detail}. {certain.unblock}")
    return replace(wait(found[0].detail), reason=found[0].reason)
