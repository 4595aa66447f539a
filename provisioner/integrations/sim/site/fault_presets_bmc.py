"""The rest of the fault catalogue: BMC faults of sessions and connections.

Numbers are the catalogue's (docs/sources/bmc-faults.md), whose entries name the place of each
occurrence.
"""

from __future__ import annotations

from typing import Any

from provisioner.integrations.sim.faults.faults import Rule
from provisioner.integrations.sim.site.fault_preset import (
    Preset,
    answer_fault,
    error_body,
    trouble_fault,
    wire_fault,
)
from provisioner.integrations.sim.site.site import Site

# ------------------------------------------------------------------------------
# BMC faults of updates and values; their numbers are those of the fault catalogue.


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


SESSIONS = f"{V1}/SessionService/Sessions"
EVERYTHING = f"{V1}/[A-RT-Z]*"  # except the root, and the paths that a login needs
SETTINGS = f"{V1}/Systems/1/SD"
TO_SETTINGS = f'"@Redfish.Settings":{{"SettingsObject":{{"@odata.id":"{SETTINGS}"}}}},"Boot":{{'
# the attributes in the settings object of a recorded DGX H100 (libredfish, mockups/nvidia_viking)
BOOT_OF_DGX = {
    "BootSourceOverrideEnabled": "Disabled",
    "BootSourceOverrideMode": None,
    "BootSourceOverrideTarget": "None",
    "HttpBootUri": None,
}
LATER_S = 3600.0


def _several(name: str, catalogue: str, meaning: str, *rules: Rule) -> Preset:
    return Preset(name, catalogue, meaning, "bmc", rules)


NO_SESSION = error_body("Base.1.12.NoValidSession", "There is no valid session.")
MUST_CHANGE = error_body(
    "Base.1.12.PasswordChangeRequired",
    "The password provided for this account must be changed before access is granted.",
    MessageArgs=[f"{V1}/AccountService/Accounts/2"],
)
NO_METHOD = error_body("Base.1.12.OperationNotAllowed", "The HTTP method is not allowed.")
UPDATING = error_body(
    "UpdateService.1.0.UpdateInProgress", "Another update is in progress. Retry the operation."
)

IN_SESSIONS = (
    answer_fault(
        "logout_fails",
        "S2",
        "sessions cannot be closed: the table fills",
        500,
        error_body("Base.1.12.InternalError", "Internal error."),
        path=f"{SESSIONS}/*",
        method="DELETE",
    ),
    _several(
        "refresh_fails",
        "S3",
        "a session ends, and one new login fails",
        Rule(
            "refresh_fails",
            "replace",
            path=EVERYTHING,
            method="GET",
            skip=3,
            count=1,
            value=_answer_fields(401, NO_SESSION),
        ),
        Rule(
            "refresh_fails",
            "replace",
            path=SESSIONS,
            method="POST",
            skip=1,
            count=1,
            value=_answer_fields(500),
        ),
    ),
    answer_fault(
        "session_service_guarded",
        "S5",
        "the session service itself wants a login",
        401,
        NO_SESSION,
        path=f"{V1}/SessionService",
    ),
    answer_fault(
        "token_dies_while_waiting",
        "S8",
        "401 in the middle of a task's polls",
        401,
        NO_SESSION,
        path=TASKS,
        method="GET",
        skip=1,
        count=1,
    ),
    _several(
        "password_must_change",
        "S10",
        "the password must be changed first",
        Rule(
            "password_must_change",
            "replace",
            path=EVERYTHING,
            method="GET",
            value=_answer_fields(403, MUST_CHANGE),
        ),
    ),
    trouble_fault("short_sessions", "S12", "a session ends between two looks", "short_sessions"),
    answer_fault(
        "account_slots",
        "S13",
        "accounts are slots: none is created or deleted",
        405,
        NO_METHOD,
        path=f"{V1}/AccountService/Accounts*",
        method="[PD][OE][SL]*",
    ),
)
ON_CONNECTIONS = (
    wire_fault(
        "resets_reused",
        "T2",
        "a connection is reset when it is used again",
        "drop",
        when={":nth": "[2-9]*"},
    ),
    answer_fault(
        "identity_refused",
        "T9",
        "Accept-Encoding: identity is refused",
        406,
        None,
        when={"accept-encoding": "identity"},
    ),
    answer_fault(
        "chunks_refused",
        "T10",
        "chunked uploads are refused",
        411,
        None,
        when={"transfer-encoding": "chunked"},
    ),
    wire_fault(
        "connections_run_out",
        "T11",
        "beyond 200 connections nothing is answered",
        "latency",
        LATER_S,
        when={":open": "[2-9][0-9][0-9]"},
    ),
    trouble_fault("new_certificate", "T15", "a restart makes a new certificate", "new_certificate"),
    wire_fault(
        "closes_each",
        "T16",
        "as HTTP/1.0: a connection for each request",
        "headers",
        {"Connection": "close"},
    ),
)
IN_HTTP = (
    answer_fault(
        "if_match_needed",
        "E2",
        "PATCH without If-Match is refused",
        428,
        error_body("Base.1.12.PreconditionRequired", "If-Match is required."),
        method="PATCH",
        when={"if-match": ""},
    ),
    wire_fault(
        "etag_twice", "E5", "two ETag headers", "headers", {"ETag": ['"1"', '"2"']}, method="GET"
    ),
    _several(
        "etag_number",
        "E6",
        "the ETag is a number in the body, and no header",
        Rule(
            "etag_number",
            "merge",
            path=f"{V1}/[A-Z]*",
            method="GET",
            status=200,
            value={"@odata.etag": 1700000000},
        ),
        Rule("etag_number", "headers", method="GET", value={"ETag": None}),
    ),
    answer_fault(
        "updating_400",
        "E9",
        "an update runs already, reported as 400",
        400,
        UPDATING,
        path=PUSH,
        method="POST",
        count=1,
    ),
    answer_fault(
        "updating_503",
        "E9",
        "an update runs already, reported as 503",
        503,
        UPDATING,
        path=PUSH,
        method="POST",
        count=1,
    ),
    answer_fault(
        "empty_body_refused",
        "E11",
        "an action without a body is refused",
        400,
        error_body("Base.1.12.MalformedJSON", "The body is no JSON."),
        path="*EjectMedia",
        method="POST",
        when={"content-length": "0"},
    ),
    _several(
        "settings_object",
        "E12",
        "settings go to the settings object only",
        Rule(
            "settings_object",
            "substitute",
            path=f"{V1}/Systems*",
            method="GET",
            status=200,
            value=['"Boot":{', TO_SETTINGS],
        ),
        Rule(
            "settings_object",
            "replace",
            path=SETTINGS,
            method="GET",
            value=_answer_fields(200, {"@odata.id": SETTINGS, "Boot": BOOT_OF_DGX}),
        ),
        Rule(
            "settings_object", "replace", path=SETTINGS, method="PATCH", value=_answer_fields(200)
        ),
        Rule(
            "settings_object",
            "replace",
            path=f"{V1}/Systems/1",
            method="PATCH",
            value=_answer_fields(405, NO_METHOD),
        ),
    ),
)
ALL = (*IN_SESSIONS, *ON_CONNECTIONS, *IN_HTTP, *IN_UPDATES, *IN_VALUES)
