"""A planned rack in the console's tests: one tray is wet, one lies in its serial, one is silent."""

from __future__ import annotations

from pathlib import Path

from console_fleet import EVIL

from provisioner.integrations.racks.duty.approval import (
    RackCampaign,
    RackCampaignState,
    keep_state,
)
from provisioner.integrations.racks.identity import Kind, Place
from provisioner.integrations.racks.looks import keep_look
from provisioner.integrations.racks.membership import UnitReading, judge_rack
from provisioner.integrations.racks.plan import RackPlan
from provisioner.model.inventory import LeakDetector, Moisture

RACK = "nvl-r01"
CAMPAIGN = "winter"
WET, LIAR, SILENT = "nvl-r01-t0", "nvl-r01-t1", "nvl-r01-t2"
_UNITS = [
    {"name": WET, "kind": "compute-tray", "u": 11, "slot": 10, "tray_index": 0},
    {"name": LIAR, "kind": "compute-tray", "u": 12, "slot": 11, "tray_index": 1},
    {"name": SILENT, "kind": "compute-tray", "u": 13, "slot": 12, "tray_index": 2},
    {"name": "nvl-r01-s0", "kind": "nvlink-switch", "u": 19, "slot": 20, "tray_index": 0},
    {"name": "nvl-r01-p0", "kind": "power-shelf", "u": 6},
]
PLAN = RackPlan.model_validate(
    {"racks": [{"name": RACK, "chassis_serial": "1820001", "domain": "d01", "units": _UNITS}]}
)


def _read(slot: int, index: int, serial: str, moisture: Moisture) -> UnitReading:
    place = Place(witness="GPU_0", chassis_serial="1820001", slot=slot, tray_index=index)
    leak = LeakDetector(slot="Leak_0", moisture=moisture, detail=EVIL, source="/redfish")
    return UnitReading(
        kind=Kind.COMPUTE_TRAY, serial=serial, power="On", places=(place,), gpus=1, leaks=(leak,)
    )


def put_racks(folder: Path, at: float) -> None:
    """Write the plan and a look at its rack into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "racks.yaml").write_text(PLAN.model_dump_json(), encoding="utf-8")
    readings = {
        WET: _read(10, 0, "T0", Moisture.WET),
        LIAR: _read(11, 1, EVIL, Moisture.DRY),
        SILENT: UnitReading(kind=None, unread=EVIL),
    }
    keep_look(folder / "looks", judge_rack(PLAN, RACK, readings), at)
    campaign = folder / "campaigns" / CAMPAIGN
    campaign.mkdir(parents=True, exist_ok=True)
    (campaign / "approved.json").touch()  # the console shows what the daemon wrote beside it
    keep_state(
        campaign,
        RackCampaign(
            name=CAMPAIGN,
            state=RackCampaignState.HELD,
            racks=(RACK,),
            domains=("d01",),
            done=3,
            left=4,
            says=(f"d01 is held at {WET}/activate: {EVIL}",),
            approved_by=EVIL,
            because="a fault of the BMC",
            at=at,
        ),
    )
