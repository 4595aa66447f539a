"""The certificate of a rack: what was proved of it after a campaign, signed as a DSSE envelope.

It is judged by readings that were made anew after the last act. Nothing is in it that was not read:
a unit that did not answer, or whose place, water or versions are not proved, is a reason for none.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.membership import Water, judge_rack
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.update_packages import find_missed
from provisioner.integrations.racks.update_start import RackReadings
from provisioner.model.base import Record

RACK_PAYLOAD = "application/vnd.gpu-provisioner.rack+json"
NOT_JUDGED = (
    "the GPUs' view of the NVLink fabric",
    "partitions and IMEX",
    "links and loads",
    "components without a target",
)
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
    """What holds of a rack at `judged_at` (Unix time), and what nobody judged."""

    rack: str
    chassis_serial: str
    campaign: str
    targets: Mapping[Kind, Mapping[str, str]]
    units: tuple[CertifiedUnit, ...] = Field(max_length=128)
    not_judged: tuple[str, ...] = NOT_JUDGED
    judged_at: float


def certify_rack(
    plan: RackPlan, name: str, asked: CampaignFile, read: RackReadings, campaign: str, now: float
) -> RackCertificate | tuple[str, ...]:
    """Return the certificate of a rack, or why it gets none."""
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
        judged_at=now,
    )
