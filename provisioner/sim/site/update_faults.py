"""BMC faults of updates and values; their numbers are those of the fault catalogue."""

from __future__ import annotations

from typing import Any

from provisioner.sim.faults.faults import Rule
from provisioner.sim.site.fault_preset import (
    Preset,
    answer_fault,
    error_body,
    trouble_fault,
    wire_fault,
)
from provisioner.sim.site.site import Site

V1 = "/redfish/v1"
TASKS = f"{V1}/TaskService/Tasks/*"
INVENTORY = f"{V1}/UpdateService/FirmwareInventory"
PUSH = f"{V1}/UpdateService/[!A]*"  # the targets of images; actions are elsewhere


def _answer_fields(status: int, body: Any = None, **headers: str) -> dict[str, Any]:
    return {"status": status, "body": body, "headers": headers}


def _purged(site: Site, node: str, part: str) -> None:
    site.machines[node].bmcs[part or "host"].troubles.add("writes_nothing")


GONE = error_body("Base.1.12.ResourceMissingAtURI", "Not found.")

IN_UPDATES = (
    Preset(
        "task_purged",
        "U3",
        "the task is gone at once, and nothing was written",
        "bmc",
        (Rule("task_purged", "replace", path=TASKS, value=_answer_fields(404, GONE)),),
        act=_purged,
    ),
    answer_fault(
        "monitor_ahead",
        "U5",
        "the monitor says done while the task runs",
        204,
        None,
        path="*/TaskMonitors/*",
    ),
    wire_fault(
        "nothing_matched",
        "U8",
        "nothing matched the package, and yet: Completed",
        "merge",
        {
            "TaskState": "Completed",
            "TaskStatus": "OK",
            "PercentComplete": 100,
            "Messages": [
                {
                    "MessageId": "ResourceEvent.1.0.ResourceErrorsDetected",
                    "Message": "The resource property Firmware Update Service has detected "
                    "errors of type 'No Matching Devices'.",
                    "MessageSeverity": "Warning",
                    "MessageArgs": ["Firmware Update Service", "No Matching Devices"],
                }
            ],
        },
        path=TASKS,
        status=200,
    ),
    trouble_fault(
        "skips_identical", "U9", "the image is skipped as if it were there", "writes_nothing"
    ),
    trouble_fault(
        "activates_itself", "U11", "the version runs before anybody resets", "self_activates"
    ),
    answer_fault(
        "flaps_after_update",
        "U12",
        "every second look fails for a while",
        503,
        error_body("Base.1.12.ServiceTemporarilyUnavailable", "Not ready."),
        path=f"{INVENTORY}*",
        method="GET",
        skip=1,
        every=2,
        count=10,
    ),
    answer_fault(
        "reboot_before_update",
        "U13",
        "an update needs a restart of the host before it",
        400,
        error_body(
            "NvidiaUpdate.1.0.DeviceUnavailable",
            "MCTP endpoint not found.",
            Resolution="Restart the host and retry.",
        ),
        path=PUSH,
        method="POST",
    ),
    wire_fault(
        "task_in_words",
        "U14",
        "the answer is no task; its address is in a message",
        "headers",
        {"Location": None},
        path=PUSH,
        method="POST",
        status=202,
    ),
    wire_fault(
        "task_two_names",
        "U15",
        "a task calls itself otherwise than its address",
        "merge",
        {"Id": "9", "@odata.id": f"{V1}/TaskService/Tasks/9"},
        path=TASKS,
        status=200,
    ),
    trouble_fault(
        "waits_for_start",
        "U16",
        "an image waits for StartUpdate, which nobody sends",
        "waits_for_start",
    ),
    answer_fault(
        "unlicensed",
        "U18",
        "no licence for updates over the network",
        403,
        error_body("SMC.1.0.OemLicenseNotPassed", "Not licensed to perform this request."),
        path=PUSH,
        method="POST",
    ),
)
IN_VALUES = (
    wire_fault(
        "wrong_members",
        "V4",
        "a collection of systems lists what is none",
        "more_members",
        [f"{V1}/Chassis/1", f"{V1}/Managers/1"],
        path=f"{V1}/Systems",
        method="GET",
    ),
    wire_fault(
        "item_renamed",
        "V8",
        "an inventory item has another name than before",
        "substitute",
        ["BIOS", "HostBIOS_0"],
        path=f"{INVENTORY}*",
        method="GET",
    ),
    trouble_fault("pages", "V9", "three members a page", "pages"),
    wire_fault(
        "dangling_links",
        "V9",
        "a collection lists what is not there",
        "more_members",
        [f"{V1}/Chassis/Gone1", f"{V1}/Chassis/Gone2"],
        path=f"{V1}/Chassis",
        method="GET",
    ),
    trouble_fault(
        "override_ignored",
        "V10",
        "a boot override is accepted and stays as it was",
        "override_ignored",
    ),
    answer_fault(
        "on_refused_a_while",
        "P1",
        "409 to On for a while after Off",
        409,
        error_body("IDRAC.2.8.PSU501", "The power state cannot be changed now."),
        path="*ComputerSystem.Reset",
        method="POST",
        skip=1,
        count=2,
    ),
    wire_fault(
        "media_by_hand",
        "P2",
        "virtual media have no action to insert them",
        "merge",
        {"Actions": None},
        path="*/VirtualMedia/*",
        method="GET",
        status=200,
    ),
)
