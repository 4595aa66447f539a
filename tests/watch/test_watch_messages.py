"""What BMCs say of themselves, in the forms that registries and NVIDIA's baseboards have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.adapters.redfish.eventing import event_stream as sse
from provisioner.adapters.redfish.eventing import events
from provisioner.model.alert import Classification
from provisioner.ports import TooLarge

NOW = 1_790_000_000.0
C = Classification


def event(ident: str, *args: str, **changes: Any) -> dict[str, Any]:
    record = {"MessageId": ident, "MessageArgs": list(args), "Message": "words", **changes}
    return {"@odata.type": "#Event.v1_7_0.Event", "Events": [record]}


def told(document: object) -> list[tuple[str, str, bool, set[C]]]:
    found = events.find_signals(events.read_document(document), "n1", "host", NOW)
    return [(s.id, s.target, s.active, set(s.classifications)) for s in found]


CRITICAL, WARNING = {C.SENSOR_CRITICAL, C.HARDWARE}, {C.SENSOR_WARNING}
XID = "[1700000000][7][0] XID {} {}"


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        (event("SensorEvent.1.0.1.ReadingAboveUpperCriticalThreshold", "Fan_1", "9"),
         ("SensorReading", "Fan_1", True, CRITICAL)),
        (event("SensorEvent.1.0.ReadingNoLongerCritical", "Fan_1", "9"),
         ("SensorReading", "Fan_1", True, WARNING)),
        (event("SensorEvent.1.0.1.SensorReadingNormalRange", "Fan_1"),
         ("SensorReading", "Fan_1", False, set())),
        (event("SensorEvent.1.0.1.SensorFailure", "Fan_1"),
         ("SensorFailure", "Fan_1", True, {C.SENSOR_FAILURE})),
        (event("ResourceEvent.1.4.2.ResourceStatusChangedCritical", "/redfish/v1/Systems/1"),
         ("ResourceHealth", "1", True, {C.HARDWARE})),
        (event("ResourceEvent.1.4.2.ResourceStatusChangedOK", "/redfish/v1/Systems/1"),
         ("ResourceHealth", "1", False, set())),
        (event("ResourceEvent.1.0.ResourceErrorsDetected", "GPU_SXM_1 Driver Event Message",
               XID.format(79, "GPU has fallen off the bus.")),
         ("Xid79", "GPU_SXM_1", True, {C.FATAL_EVENT, C.HARDWARE})),
        (event("ResourceEvent.1.0.ResourceErrorsDetected", "GPU_SXM_1 Driver Event Message",
               XID.format(31, "page fault")), ("Xid31", "GPU_SXM_1", True, {C.HARDWARE})),
        (event("ResourceEvent.1.0.ResourceErrorsDetected", "GPU_SXM_1 Driver Event Message",
               XID.format(43, "ended")), None),  # the application's own
        (event("ResourceEvent.1.0.ResourceErrorsDetected", "GPU_SXM_1 Driver Event Message",
               XID.format(9999, "?")),  # nobody publishes it: the worst
         ("Xid9999", "GPU_SXM_1", True, {C.FATAL_EVENT, C.HARDWARE})),
        (event("ResourceEvent.1.0.ResourceErrorsDetected", "PSU_1 Output", "overcurrent"),
         ("ResourceErrors", "PSU_1", True, {C.HARDWARE})),
        (event("IDRAC.2.8.PSU0003", "1", MessageSeverity="Critical"),
         ("IDRAC.PSU0003", "1", True, {C.HARDWARE})),
        (event("IDRAC.2.8.PSU0003", "1", Severity="OK"), None),
        (event("StorageDevice.1.1.DriveFailure", "Disk_3", Severity="Critical"),
         ("StorageDevice.DriveFailure", "Disk_3", True, {C.HARDWARE})),
        (event("StorageDevice.1.1.DriveFailureCleared", "Disk_3", Severity="OK"),
         ("StorageDevice.DriveFailure", "Disk_3", False, set())),
        (event("Base.1.18.Success", Severity="Critical"), None),
        (event("TaskEvent.1.0.3.TaskStarted", Severity="Warning"), None),
        (event("Nonsense", Severity="Critical"), ("Nonsense", "", True, {C.HARDWARE})),
        (event("A.1.0.B\x1b[31m", Severity="Critical"), None),
        (event("SensorEvent.1.0.1.ReadingCritical", "Fan_1", SpecificEventExistsInGroup=True),
         None),
    ],
)  # fmt: skip
def test_an_event_is_judged_by_its_registry_and_key(document, wanted):
    assert told(document) == ([] if wanted is None else [wanted])


def test_the_worst_reading_and_the_normal_one_are_one_alert():
    ids = {
        ident
        for key in ("ReadingCritical", "ReadingWarning", "SensorReadingNormalRange")
        for ident, *_ in told(event(f"SensorEvent.1.0.1.{key}", "Fan_1"))
    }

    assert ids == {"SensorReading"}


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({"Health": "OK"}, []),
        ({"Health": "OK", "HealthRollup": "Critical"}, [("ResourceHealth", True)]),
        ({"Health": "Warning"}, [("ResourceHealth", True)]),
        ({"Health": None}, []),
        ({"Health": "Critical", "Conditions": [
            {"MessageId": "ResourceEvent.1.0.ResourceErrorThresholdExceeded",
             "MessageArgs": ["PSU_1"], "Severity": "Critical"}]}, [("ErrorThreshold", True)]),
    ],
)  # fmt: skip
def test_a_systems_own_status_is_an_event_that_stands(status, wanted):
    found = events.read_conditions({"@odata.id": "/redfish/v1/Systems/1", "Status": status})
    signals = events.find_signals(events.Pushed(events=found), "n1", "host", NOW)

    assert [(s.id, s.active) for s in signals] == wanted


def test_a_metric_report_is_numbers_by_property():
    values = [
        {"MetricProperty": "/a#/B", "MetricValue": "4"},
        {"MetricId": "x", "MetricValue": "1.5"},
        {"MetricProperty": "/a#/C", "MetricValue": "nan"},
        {"MetricProperty": 7},
    ]
    found = events.read_document({"MetricValues": values})

    assert [(m.name, m.value) for m in found.metrics] == [("/a#/B", 4.0), ("x", 1.5)]


def test_parts_that_come_and_go_ask_for_a_look():
    assert events.read_document(event("ResourceEvent.1.0.ResourceRemoved")).asks_for_a_look
    assert not events.read_document(event("ResourceEvent.1.0.ResourceChanged")).asks_for_a_look


def test_a_document_of_thousands_of_events_is_cut():
    many = {"Events": event("IDRAC.2.8.X1", Severity="Critical")["Events"] * 10_000}

    assert len(events.read_document(many).events) == events.EVENTS_MAX


LINK = {"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0/LogServices/EventLog/Entries/77"}
FAN = {"MessageId": "SensorEvent.1.0.1.ReadingCritical", "MessageArgs": ["Fan_1"]}


@pytest.mark.parametrize(
    "document",
    [
        {"Events": [LINK]},
        {"Events": [FAN, LINK]},
        {"Events": LINK},  # an object for a list
        LINK,  # the whole document
        {"Events": [{"OriginOfCondition": LINK, "Severity": "Critical"}]},
        {"Events": [{"Message": "a fan stands still", "Severity": "Critical"}]},
        {"Events": [{"MessageId": None, "Severity": "OK"}]},
        {"Events": [{"MessageId": "A.1.0." + "B" * 600, "Severity": "Critical"}]},
        {"Events": [{"MessageId": "A.1.0.B\x1b[31m", "Severity": "Critical"}]},
        {"Events": [{"MessageId": {"a": 1}}]},
        {"Events": [{"SpecificEventExistsInGroup": True}]},
        {"Events": [{**FAN, "SpecificEventExistsInGroup": True}]},  # the exact one is not there
        {
            "Events": [
                {**FAN, "EventGroupId": 7, "SpecificEventExistsInGroup": True},
                {**FAN, "EventGroupId": 8},
            ]
        },
        {"Events": ["text", FAN]},
        {"Events": "text"},
        {"Events": 7},
        {"Events": None},
        {"Events": [FAN] * (events.EVENTS_MAX + 1)},
        {"Events": [{"MessageId": "Vendor.1.0.Odd"}]},  # no severity, and nobody's registry
        {"Events": [{"MessageId": "Vendor.1.0.Odd", "Severity": "Very bad"}]},
        {"something": "else"},
        [FAN],
        "text",
        None,
    ],
)
def test_a_record_that_cannot_be_read_leads_to_a_look_at_the_node(document: object) -> None:
    assert events.read_document(document).asks_for_a_look


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"Events": []},
        {"Events": [FAN]},
        {"MetricValues": [7, None]},
        {"Events": [{**FAN, "SpecificEventExistsInGroup": True}, FAN]},
        {
            "Events": [
                {**FAN, "EventGroupId": 7, "SpecificEventExistsInGroup": True},
                {**FAN, "EventGroupId": "7"},
            ]
        },
        event("Base.1.18.Success"),
        event("IDRAC.2.8.PSU0003", Severity="OK"),
        event("Security.1.0.LoginFailure"),
    ],
)
def test_a_document_that_is_read_wholly_leads_to_no_look(document: object) -> None:
    assert not events.read_document(document).asks_for_a_look


def test_records_that_are_links_are_named_and_read_as_log_entries() -> None:
    entry = {
        "@odata.id": LINK["@odata.id"],
        "MessageId": "ResourceEvent.1.0.ResourceErrorsDetected",
        "MessageArgs": ["GPU_SXM_3 Driver Event Message", XID.format(79, "off the bus")],
        "Created": "2026-01-01T00:00:00Z",
        "Links": {"OriginOfCondition": {"@odata.id": "/redfish/v1/Chassis/HGX_GPU_SXM_3"}},
    }
    read = events.read_entry(entry)

    assert events.read_document({"Events": [LINK, LINK, FAN]}).linked == (LINK["@odata.id"],)
    assert (read.events[0].origin, read.events[0].timestamp) == (
        "/redfish/v1/Chassis/HGX_GPU_SXM_3",
        "2026-01-01T00:00:00Z",
    )
    assert [s.id for s in events.find_signals(read, "n1", "host", NOW)] == ["Xid79"]


@pytest.mark.parametrize(
    "ident",
    [
        "Security.1.0.0.LoginFailure",
        "UpdateService.1.0.0.InvalidFileVariable",
        "CertificateService.1.0.0.InvalidCertificateString",
        "SyncAgent.1.0.0.InsertMediaError",
        "Ami.1.0.0.ServiceEnabled",
        "LenovoFirmwareUpdateRegistry.1.0.UpdateVerifyFailed",
        "NvidiaUpdate.1.0.0.DebugTokenEraseFailed",
        "AccountService.1.0.0.AccountLocked",
        "iLO.2.14.UnsupportedOperation",
        "iLOEvents.3.2.SecurityCertificateExpired",
        "OpenBMC.0.4.InvalidLoginAttempted",
        "OpenBMC.0.4.BMCFirmwareUpdateFailed",
        "License.1.0.LicenseExpired",
        "Vendor.1.0.PasswordExpired",
        "Vendor.1.0.SessionTimeout",
        "IDRAC.2.8.RAC0232",
        "IDRAC.2.8.RAC0720",
        "IDRAC.2.8.RAC0904",
        "IDRAC.2.8.VRM0021",
        "IDRAC.2.8.LIC017",
        "IDRAC.2.8.SUP0501",
        "IDRAC.2.8.USR0032",
        "IDRAC.2.8.JCP028",
        "IDRAC.2.8.DH006",
        "IDRAC.2.8.RED014",
        "IDRAC.2.8.SYS410",
        "RAC0232",
    ],
)
@pytest.mark.parametrize("severity", ["Critical", "Warning"])
def test_events_about_logins_certificates_licences_and_updates_are_no_hardware_faults(
    ident: str, severity: str
) -> None:
    assert told(event(ident, MessageSeverity=severity)) == []


@pytest.mark.parametrize(
    "path", ["AccountService/Accounts/3", "UpdateService", "Managers/1/VirtualMedia/CD1"]
)
def test_an_event_that_began_at_a_service_is_no_hardware_fault(path: str) -> None:
    origin = {"@odata.id": f"/redfish/v1/{path}"}

    assert told(event("Vendor.1.0.Odd", Severity="Critical", OriginOfCondition=origin)) == []


@pytest.mark.parametrize(
    "ident",
    [
        "IDRAC.2.8.PSU0003",
        "IDRAC.2.8.MEM0001",
        "IDRAC.2.8.SYS1003",
        "IDRAC.2.8.SEC0031",
        # no source tells what these letters mean: told by their severity
        "IDRAC.2.8.RAC0001",
        "IDRAC.2.8.SWU0001",
        "IDRAC.2.8.OSD0001",
        "IDRAC.2.8.VME0001",
        "IDRAC.2.8.TST0001",
        "IDRAC.2.8.RSI0001",
        "StorageDevice.1.1.MediaErrors",
        "iLOEvents.3.2.DimmUncorrectableError",
        "OpenBMC.0.4.PowerSupplyFailed",
        "OpenBMC.0.4.CatalogOfFansLost",
        "Vendor.1.0.FanNotRecovered",
        "Vendor.1.0.RedundancyNotRestored",
    ],
)
def test_a_critical_event_about_anything_else_is_a_hardware_fault(ident: str) -> None:
    [(_, _, active, classes)] = told(event(ident, "x", Severity="Critical"))

    assert (active, classes) == (True, {C.HARDWARE})


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ([LINK], ["ResourceHealth"]),
        ([{"Severity": "Critical", "Message": "words"}], ["ResourceHealth"]),
        ([{"MessageId": "License.1.0.Expired", "Severity": "Critical"}], ["ResourceHealth"]),
        ([{**FAN}], ["SensorReading"]),
    ],
)
def test_a_bad_health_is_told_unless_a_condition_explains_it(
    conditions: list[Any], wanted: list[str]
) -> None:
    status = {"Health": "Critical", "Conditions": conditions}
    found = events.read_conditions({"@odata.id": "/redfish/v1/Systems/1", "Status": status})
    signals = events.find_signals(events.Pushed(events=found), "n1", "host", NOW)

    assert [s.id for s in signals] == wanted


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["Events", "MessageId", "MessageArgs", "Message", "Severity", "OriginOfCondition",
                 "MetricValues", "MetricProperty", "MetricValue", "Context", "@odata.id"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(json_values)
def test_no_document_raises(document):
    events.find_signals(events.read_document(document), "n1", "host", NOW)
    resource = document if isinstance(document, dict) else {}
    events.read_conditions({"Status": {"Conditions": document, "Health": document}, **resource})


def frames(text: bytes, size: int) -> list[sse.Frame]:
    reader = sse.SseReader()
    return [f for i in range(0, len(text), size) for f in reader.feed(text[i : i + size])]


STREAM = (
    b": hello\n\nid: 1\ndata: {\"a\":\r\ndata: 1}\r\n\r\nid:2\rdata:{\"a\": 2}\r\r"
    b"event: x\ndata: no json\n\nretry: 3000\n\nid: 3\x00bad\ndata: [3]\n\ndata: cut off"
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_is_the_same_however_it_is_cut(size):
    assert [tuple(f) for f in frames(STREAM, size)] == [
        ("1", {"a": 1}),
        ("2", {"a": 2}),
        ("2", None),
        ("2", [3]),
    ]


@pytest.mark.parametrize(
    "endless",
    [b"data: " + b"x" * 70_000, b"data: x\n" * 9_000, b"x" * 70_000],
)
def test_a_stream_without_end_is_over_its_bounds(endless):
    with pytest.raises(TooLarge):
        frames(endless * 200, len(endless))


def test_an_event_nested_too_deep_is_no_event():
    deep = b"data: " + b"[" * 100_000 + b"\n\n"

    assert [f.data for f in sse.SseReader().feed(deep)] == [None]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_raise(pieces):
    reader = sse.SseReader()
    for piece in pieces:
        for frame in reader.feed(piece):
            json.dumps(frame.data)
