"""The certificate of a rack: what was proved of it after a campaign, signed as a DSSE envelope.

It is judged by readings that were made anew after the last act. Nothing is in it that was not read:
a unit that did not answer, or whose place, water or versions are not proved, is a reason for none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.duty.node_holds import NodeHolds
from provisioner.integrations.racks.fabric.fabric_proof import find_lack
from provisioner.integrations.racks.fabric.link_gate import judge_domain
from provisioner.integrations.racks.fabric.switch_looks import look_at_switches
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.membership import Water, judge_rack
from provisioner.integrations.racks.partitions.partition_proof import find_partition_lack
from provisioner.integrations.racks.plan import PlannedRack, RackPlan
from provisioner.integrations.racks.update_packages import find_missed
from provisioner.integrations.racks.update_start import RackReadings
from provisioner.integrations.racks.update_world import Update
from provisioner.model.base import Record

RACK_PAYLOAD = "application/vnd.gpu-provisioner.rack+json"
NOT_JUDGED = ("loads", "components without a target")
OLD = "a proof is older than this campaign; `rack fabric --keep` makes a new one"
REASONS_MAX = 8


class CertifiedUnit(Record):
    """One unit, as it was read."""

    name: str
    kind: Kind
    serial: str
    model: str
    domain: str
    slot: int | None
    tray_index: int | None
    water: str
    versions: Mapping[str, str] = Field(max_length=512)


class RackCertificate(Record):
    """What holds of a rack at `judged_at` (Unix time), and what nobody proved, with the reason.

    `fabric`: what was proved of its NVLink domains.
    """

    rack: str
    chassis_serial: str
    campaign: str
    targets: Mapping[Kind, Mapping[str, str]]
    units: tuple[CertifiedUnit, ...] = Field(max_length=128)
    fabric: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = NOT_JUDGED
    judged_at: float


def certify_rack(
    plan: RackPlan,
    name: str,
    asked: CampaignFile,
    read: RackReadings,
    campaign: str,
    now: float,
    fabric: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> RackCertificate | tuple[str, ...]:
    """Return the certificate of a rack, or why it gets none. `fabric`: as `judge_fabric` has it."""
    verdict = judge_rack(plan, name, read.units)
    why = [f"{one.subject}: {one.detail}" for one in verdict.findings]
    units: list[CertifiedUnit] = []
    for one in verdict.units:
        unit = one.unit
        why += [f"{each.subject}: {each.detail}" for each in one.findings]
        running = read.running.get(unit.name)
        if one.reading is None or running is None:
            why.append(f"{unit.name}: it was not read")
            continue
        if one.water not in {Water.DRY, Water.NONE if unit.kind is Kind.POWER_SHELF else Water.DRY}:
            why.append(f"{unit.name}: its water is {one.water}")
        own = asked.packages.get(unit.kind, {})
        for component in asked.targets.get(unit.kind, {}):
            missed = find_missed(own[component], running) if component in own else ("no package",)
            why += [f"{unit.name}: {component}: {each}" for each in missed]
        units.append(
            CertifiedUnit(
                name=unit.name,
                kind=unit.kind,
                serial=one.reading.serial,
                model=one.reading.model,
                domain=domain_of(verdict.rack, unit),
                slot=unit.slot,
                tray_index=unit.tray_index,
                water=one.water,
                versions=running,
            )
        )
    if why or not verdict.proved:
        return tuple(dict.fromkeys(why))[:REASONS_MAX] or (f"{name}: it is not proved",)
    return RackCertificate(
        rack=name,
        chassis_serial=verdict.rack.chassis_serial,
        campaign=campaign,
        targets=asked.targets,
        units=tuple(units),
        fabric=tuple(fabric[0]),
        not_judged=(*fabric[1], *NOT_JUDGED),
        judged_at=now,
    )


async def judge_fabric(
    update: Update, rack: PlannedRack, holds: NodeHolds, *, acted: bool
) -> tuple[Sequence[str], Sequence[str]]:
    """Return what is proved of a rack's NVLink domains now, and what is not, with the reason.

    `acted`: the campaign wrote something, so that a person's proof is of what ran before it.
    """
    plan = update.plan
    folder = Path(holds.parts.settings.racks_folder)
    said: list[tuple[str, str]] = []  # what, and why it is not proved
    placed = await holds.find_nodes(plan)
    trays = [unit for unit in rack.units if unit.kind is Kind.COMPUTE_TRAY]
    for domain in sorted({domain_of(rack, unit) for unit in trays}):
        views = await look_at_switches(
            plan, domain, update.switches, lambda unit: update.nvos.get(unit.name)
        )
        faults = judge_domain(plan, domain, views)
        first = f"{faults[0].subject}: {faults[0].detail} (1 of {len(faults)})" if faults else ""
        said.append((f"links and control plane of {domain or rack.name}", first))
        lack = OLD if acted else ""
        for tray in (unit.name for unit in trays if domain_of(rack, unit) == domain):
            if lack:
                break
            seen = None
            if tray in placed:
                seen = await holds.parts.store.evidence.get_inventory(placed[tray][0].id)
            now = holds.parts.clock.now()
            lack = await asyncio.to_thread(find_lack, folder, plan, domain, now, tray, seen)
        said.append((f"the GPUs' fabric, IMEX and NCCL of {domain or rack.name}", lack))
        lack = await find_partition_lack(update, domain, holds)
        said.append((f"partitions of {domain or rack.name}", lack))
    proved = [what for what, why in said if not why]
    return proved, [f"{what}: {why}"[:300] for what, why in said if why]
