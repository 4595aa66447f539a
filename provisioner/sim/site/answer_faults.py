"""Named faults in the content of BMC answers: updates, values, power (U, V and P)."""

from __future__ import annotations

from provisioner.sim.site.fault_preset import (
    Preset,
    answer_fault,
    error_body,
    trouble_fault,
    wire_fault,
)
from provisioner.sim.site.site import Site

TASKS = "/redfish/v1/TaskService/Tasks/*"
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory*"


def _bfb_never_completes(site: Site, node: str, part: str) -> None:
    site.machines[node].bmcs[part or "DPU_0"].troubles.add("update_hangs")


def _host_keeps_dpu_on(site: Site, node: str, _part: str) -> None:
    for card in site.machines[node].bluefields.values():
        card.host_power_cycles_it = False


IN_ANSWERS = (
    answer_fault(
        "task_vanishes",
        "U1",
        "a task is gone when it has ended",
        404,
        error_body("Base.1.12.ResourceMissingAtURI", "Not found."),
        path=TASKS,
        skip=3,
    ),
    wire_fault(
        "task_new",
        "U4",
        "a task says New for a while",
        "merge",
        {"TaskState": "New"},
        path=TASKS,
        count=3,
        status=200,
    ),
    wire_fault(
        "completed_critical",
        "U6",
        "Completed, 100 percent, and Critical",
        "merge",
        {"TaskState": "Completed", "PercentComplete": 100, "TaskStatus": "Critical"},
        path=TASKS,
        status=200,
    ),
    wire_fault(
        "exception_with_ok",
        "U7",
        "Exception, but its status is OK",
        "merge",
        {"TaskState": "Exception", "TaskStatus": "OK"},
        path=TASKS,
        status=200,
    ),
    wire_fault(
        "task_stuck",
        "U17",
        "a task says Running for ever",
        "merge",
        {"TaskState": "Running", "PercentComplete": 40},
        path=TASKS,
        status=200,
    ),
    wire_fault(
        "copy_stuck",
        "U10",
        "the background copy never ends",
        "merge",
        {"Oem": {"Nvidia": {"BackgroundCopyStatus": "InProgress"}}},
        path="/redfish/v1/Chassis/*ERoT*",
        method="GET",
        status=200,
    ),
    trouble_fault("update_hangs", "U17", "an update begins and never ends", "update_hangs"),
    trouble_fault(
        "resets_itself", "U2", "an update ends with a BMC restart; tasks are lost", "resets_itself"
    ),
    Preset(
        "bfb_never_completes",
        "U17",
        "a BlueField's installation runs for ever",
        "node",
        act=_bfb_never_completes,
    ),
    Preset(
        "dpu_stays_on",
        "U19",
        "a host power cycle does not reach the cards",
        "node",
        act=_host_keeps_dpu_on,
    ),
    wire_fault("numbers_as_strings", "V1", "every number is a string", "stringify", method="GET"),
    wire_fault(
        "members_null",
        "V2",
        "a collection's members are null",
        "merge",
        {"Members": None},
        path=INVENTORY.rstrip("*"),
        method="GET",
    ),
    wire_fault(
        "member_twice",
        "V2",
        "a collection lists a member twice",
        "repeat_members",
        path=INVENTORY.rstrip("*"),
        method="GET",
    ),
    wire_fault(
        "no_vendor",
        "V3",
        "the root names no vendor and no product",
        "merge",
        {"Vendor": None, "Product": None},
        path="/redfish/v1",
        method="GET",
    ),
    wire_fault(
        "bad_dates",
        "V5",
        "a clock that was never set",
        "substitute",
        ['"DateTime":"', '"LastResetTime":"00:00:00Z","DateTime":"0000-00-00T00:00:00Z '],
        path="/redfish/v1/Managers*",
        method="GET",
        status=200,
    ),
    wire_fault(
        "empty_uuid",
        "V6",
        "UUID and serial are empty",
        "merge",
        {"UUID": "", "SerialNumber": ""},
        path="/redfish/v1/Systems/*",
        method="GET",
        status=200,
    ),
    wire_fault(
        "odd_version",
        "V7",
        "a version with blanks around it",
        "substitute",
        ['"Version":"', '"Version":"  '],
        path=INVENTORY,
        method="GET",
        status=200,
    ),
    trouble_fault(
        "reset_ignored", "P1", "a reset is accepted and nothing happens", "ignores_reset"
    ),
    trouble_fault("media_sticks", "P2", "ejected media stay inserted", "media_sticks"),
)
