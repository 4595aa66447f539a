"""Named faults of BMC sessions, connections and HTTP semantics (S, T and E of the catalogue)."""

from __future__ import annotations

from provisioner.integrations.sim.faults.faults import HUGE_BYTES
from provisioner.integrations.sim.site.fault_preset import (
    Preset,
    answer_fault,
    error_body,
    trouble_fault,
    wire_fault,
)
from provisioner.integrations.sim.site.site import Site

# ------------------------------------------------------------------------------
# Named faults in the content of BMC answers: updates, values, power (U, V and P).


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


SESSIONS = "/redfish/v1/SessionService/Sessions"
HTML = "<!DOCTYPE html><html><body><h1>{}</h1></body></html>"
BUSY = error_body("Base.1.12.ServiceTemporarilyUnavailable", "Retry in 5 seconds.")
ON_WIRE = (
    answer_fault(
        "session_table_full",
        "S1",
        "no more sessions until one is deleted",
        503,
        error_body("IDRAC.2.8.RAC0218", "The maximum number of user sessions is reached."),
        path=SESSIONS,
        method="POST",
    ),
    answer_fault(
        "token_expires",
        "S4",
        "three requests are refused though logged in",
        401,
        error_body("Base.1.12.NoValidSession", "There is no valid session."),
        path="/redfish/v1/[A-RT-Z]*",
        method="GET",
        count=3,
    ),
    answer_fault(
        "root_needs_login",
        "S6",
        "the service root wants a login",
        401,
        None,
        path="/redfish/v1",
        when={"x-auth-token": "", "authorization": ""},
    ),
    wire_fault(
        "session_without_location",
        "S7",
        "a session is created, its address is not given",
        "headers",
        {"Location": None},
        path=SESSIONS,
        method="POST",
    ),
    wire_fault(
        "session_elsewhere",
        "S7",
        "a session's address names another host",
        "headers",
        {"Location": "https://192.0.2.1{}"},
        path=SESSIONS,
        method="POST",
    ),
    answer_fault(
        "locked_out",
        "S9",
        "the account is locked after failed logins",
        401,
        error_body("Base.1.12.ResourceAtUriUnauthorized", "Account temporarily locked out."),
        path=SESSIONS,
        method="POST",
    ),
    answer_fault(
        "forbidden_as_html",
        "S11",
        "403 comes as XHTML",
        403,
        HTML.format("403 Forbidden"),
        path=INVENTORY,
    ),
    wire_fault(
        "drops_connections",
        "T1",
        "every seventh connection ends without an answer",
        "drop",
        every=7,
    ),
    wire_fault(
        "post_lost_after",
        "T3",
        "one POST is carried out, its answer lost",
        "drop_after",
        method="POST",
        path="*/Actions/*",
        count=1,
    ),
    answer_fault(
        "flapping_service",
        "T4",
        "every second request meets a service not ready",
        503,
        BUSY,
        every=2,
        headers={"Retry-After": "5"},
    ),
    answer_fault(
        "gateway_timeout",
        "T5",
        "504 as HTML until the BMC is reset",
        504,
        HTML.format("504 Gateway Timeout"),
        path="/redfish/v1/[A-Z]*",
    ),
    wire_fault(
        "slow_patch",
        "T6",
        "a minute and more until a PATCH is answered",
        "latency",
        65.0,
        method="PATCH",
    ),
    wire_fault(
        "slow_inventory",
        "T7",
        "twenty seconds for the firmware inventory",
        "latency",
        20.0,
        path=INVENTORY,
    ),
    wire_fault(
        "hangs",
        "T8",
        "one resource never answers",
        "latency",
        3600.0,
        path="/redfish/v1/Chassis/*/NetworkAdapters*",
    ),
    wire_fault(
        "truncated_json",
        "T12",
        "a complete answer with half of its JSON",
        "truncate",
        200,
        path=INVENTORY,
        method="GET",
    ),
    wire_fault(
        "broken_off",
        "T12",
        "the connection ends within the body",
        "break",
        100,
        path="/redfish/v1/UpdateService",
        method="GET",
    ),
    wire_fault(
        "huge_answer",
        "T13",
        "100 MB for one resource",
        "pad",
        HUGE_BYTES,
        path="/redfish/v1/UpdateService",
        method="GET",
        count=3,
    ),
    wire_fault(
        "empty_body",
        "T14",
        "200 with nothing in it",
        "truncate",
        0,
        path="/redfish/v1/Systems",
        method="GET",
        count=3,
    ),
    wire_fault(
        "garbage",
        "T12",
        "bytes that are no JSON",
        "garbage",
        path="/redfish/v1/Chassis*",
        method="GET",
    ),
    answer_fault(
        "etag_refused",
        "E1",
        "the right If-Match is answered with 412",
        412,
        error_body("Base.1.12.PreconditionFailed", "The ETag does not match."),
        method="PATCH",
        count=4,
    ),
    # like nginx when it compresses an answer: the tag stays the same
    wire_fault(
        "etag_weak",
        "E3",
        "a proxy makes every ETag weak",
        "headers",
        {"ETag": "W/{}"},
        method="GET",
    ),
    wire_fault("etag_empty", "E4", "every ETag is empty", "headers", {"ETag": ""}, method="GET"),
    answer_fault(
        "busy",
        "E7",
        "503 with Retry-After, three times",
        503,
        BUSY,
        count=3,
        headers={"Retry-After": "5"},
    ),
    answer_fault(
        "busy_as_400",
        "E8",
        "busy is reported as a bad request",
        400,
        error_body("iLO.2.14.UnableToModifyDuringSystemPOST", "Not during POST."),
        method="P*",
        count=2,
        when={"x-auth-token": "?*"},
    ),
    answer_fault(
        "task_late",
        "E10",
        "a new task is not found at first",
        404,
        error_body("Base.1.12.ResourceMissingAtURI", "Not found."),
        path=TASKS,
        count=2,
    ),
    answer_fault(
        "info_is_object",
        "E13",
        "ExtendedInfo is an object, not a list",
        400,
        {
            "error": {
                "code": "x",
                "message": "x",
                "@Message.ExtendedInfo": {"MessageId": "GeneralError", "Message": "x"},
            }
        },
        method="PATCH",
        count=2,
    ),
    wire_fault(
        "no_task_location",
        "E14",
        "202 does not say where the task is",
        "headers",
        {"Location": None},
        method="POST",
        path="*Update*",
        status=202,
    ),
)
