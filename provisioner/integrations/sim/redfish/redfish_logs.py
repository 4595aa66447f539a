"""Logs of a simulated BMC: its event log, and dumps that it creates on request (DSP0268).

Entries are those of the machine's `sel`; they survive every reset, as on flash. A dump runs as a
task for a while, then appears in the log with the address of its data. The baseboard's manager has
a journal instead, as in a DGX H100's recorded tree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Request,
    Resource,
    Tree,
    get_allowed_value,
)
from provisioner.integrations.sim.redfish.tasks import format_time

# ------------------------------------------------------------------------------
# TelemetryService of a simulated HGX host: metric reports that are created on request.
#
# Names and shapes follow NVIDIA's OpenBMC (a DGX H100's recorded tree, `#/` within the metric's
# property); the reports are of the type OnRequest, so that nothing streams them.


TELEMETRY = f"{ROOT}/TelemetryService"
ENVIRONMENT = "HGX_PlatformEnvironmentMetrics_0"
PROCESSORS = "HGX_ProcessorMetrics_0"
AT = "2020-12-11T16:40:46.613+00:00"  # as recorded: a BMC's clock may be years off


def mount_telemetry(tree: Tree, machine: Machine, board: str) -> None:
    """Put the service and its reports into the tree; `board`: the system of the GPUs."""
    tree.add_fixed(
        TELEMETRY,
        {
            "@odata.type": "#TelemetryService.v1_2_1.TelemetryService",
            "Id": "TelemetryService",
            "Name": "TelemetryService",
            "ServiceEnabled": True,
            "MinCollectionInterval": "PT10M",
            "MetricReports": {"@odata.id": f"{TELEMETRY}/MetricReports"},
        },
    )
    path = f"{TELEMETRY}/MetricReports"
    reports: dict[str, Callable[[], list[Json]]] = {
        ENVIRONMENT: lambda: _temperatures(machine),
        PROCESSORS: lambda: _errors(machine, board),
    }
    tree.add_collection(path, "MetricReportCollection", lambda: list(reports), partial=False)
    for name, values in reports.items():
        tree.add_live(f"{path}/{name}", partial(_report, name, values), partial=False)


def _report(name: str, values: Callable[[], list[Json]]) -> Json:
    kind = "#MetricReport.v1_3_0.MetricReport"
    return {"@odata.type": kind, "Id": name, "Name": name, "MetricValues": values()}


def _temperatures(machine: Machine) -> list[Json]:
    return [
        _metric(f"{ROOT}/Chassis/HGX_{d.slot}/Sensors/HGX_{d.slot}_TEMP_0", "38.000000")
        for d in machine.devices.values()
        if d.kind == "gpu" and d.present
    ]


def _errors(machine: Machine, board: str) -> list[Json]:
    """The counters of each GPU's PCIe link; a fault adds the trait `pcie_fatal`."""
    return [
        _metric(
            f"{ROOT}/Systems/{board}/Processors/{d.slot}/ProcessorMetrics#/PCIeErrors/{name}",
            str(d.traits.get(trait, 0)),
        )
        for d in machine.devices.values()
        if d.kind == "gpu" and d.present
        for name, trait in (("FatalErrorCount", "pcie_fatal"), ("NonFatalErrorCount", "pcie_some"))
    ]


def _metric(path: str, value: str) -> Json:
    return {
        "MetricProperty": path,
        "MetricValue": value,
        "Timestamp": AT,
    }


# ------------------------------------------------------------------------------
# Sensors of a simulated server's chassis: temperature, fans and power, with the BMC's limits.


_FANS = 6
INLET_C = 24.0
CPU_C = 48.0
GPU_C = 38.0
FAN_PERCENT = 45.0


def mount_sensors(tree: Tree, machine: Machine, chassis: str) -> Json:
    """Put the collection below a chassis; return the chassis's link to it."""
    path = f"{chassis}/Sensors"
    names = ["Inlet_Temp", *(f"Fan_{n + 1}" for n in range(_FANS))]
    names += [f"{d.slot}_Temp" for d in machine.devices.values() if d.kind in ("cpu", "gpu")]
    tree.add_collection(path, "SensorCollection", lambda: names)
    for name in names:
        tree.add_live(f"{path}/{name}", partial(_sensor, machine, name))
    return {"@odata.id": path}


def _sensor(machine: Machine, name: str) -> Json:
    device = machine.devices.get(name.removesuffix("_Temp"))
    on = machine.host.power == "On" and (device is None or device.present)
    fan = name.startswith("Fan_")
    value, limit = (FAN_PERCENT, None) if fan else (INLET_C, 45.0)
    if device is not None:
        value = float(device.traits.get("temperature", GPU_C if device.kind == "gpu" else CPU_C))
        limit = 92.0 if device.kind == "gpu" else 98.0
    if name in machine.faults:  # a fault with a sensor's name: its value is at the limit
        value = 0.0 if fan else 99.0
    shown: Json = {
        "@odata.type": "#Sensor.v1_2_0.Sensor",
        "Id": name,
        "Name": name.replace("_", " "),
        "Reading": value if on or not fan else None,
        "ReadingType": "Percent" if fan else "Temperature",
        "ReadingUnits": "%" if fan else "Cel",
        "Status": {"State": "Enabled" if on else "UnavailableOffline", "Health": "OK"},
    }
    side = "LowerCritical" if fan else "UpperCritical"
    shown["Thresholds"] = {side: {"Reading": 5.0 if limit is None else limit}}
    return shown


# ------------------------------------------------------------------------------
# Leak detectors of a simulated liquid-cooled chassis; without any, the chassis links to none.
#
# source: LambdaLabs/redfish_exporter, collector/testdata: thermal_subsystem.json,
# single_leak_detection.json, leak_detectors_single.json, leak_detector_leak.json (a tray of a
# GB200, whose wet detector prints LeakDetected); DMTF schema LeakDetector 1.1.0.


DRY = "OK"
WET = "LeakDetected"
_ENABLED = "Enabled"


def mount_leaks(tree: Tree, machine: Machine, chassis: str) -> None:
    """Put ThermalSubsystem and all below it into the tree; they exist while detectors do."""
    thermal = f"{chassis}/ThermalSubsystem"
    detection = f"{thermal}/LeakDetection"
    detectors = f"{detection}/LeakDetectors"

    def read_thermal() -> Json | None:
        if not machine.leak_detectors:
            return None
        return {
            "@odata.type": "#ThermalSubsystem.v1_3_0.ThermalSubsystem",
            "Id": "ThermalSubsystem",
            "Name": "Thermal Subsystem",
            "Status": {"State": _ENABLED, "Health": "OK"},
            "LeakDetection": {"@odata.id": detection},
        }

    def read_detection() -> Json | None:
        if not machine.leak_detectors:
            return None
        wet = any(state == WET for state in machine.leak_detectors.values())
        return {
            "@odata.type": "#LeakDetection.v1_0_0.LeakDetection",
            "Id": "LeakDetection",
            "Name": "Leak Detection",
            "Status": {"State": _ENABLED, "Health": "Critical" if wet else "OK"},
            "LeakDetectors": {"@odata.id": detectors},
        }

    tree.add_live(thermal, read_thermal)
    tree.add_live(detection, read_detection)

    def resolve(name: str) -> Resource | None:
        if name not in machine.leak_detectors:
            return None
        return Resource(partial(_detector, machine, name, f"{detectors}/{name}"))

    tree.add_collection(
        detectors,
        "LeakDetectorCollection",
        lambda: list(machine.leak_detectors),
        resolve=resolve,
    )


def link_thermal(machine: Machine, chassis: str) -> Json:
    """The chassis's link to its thermal subsystem, which a chassis cooled by air has not here."""
    if not machine.leak_detectors:
        return {}
    return {"ThermalSubsystem": {"@odata.id": f"{chassis}/ThermalSubsystem"}}


def _detector(machine: Machine, name: str, path: str) -> Json:
    state = machine.leak_detectors[name]
    return {
        "@odata.id": path,
        "@odata.type": "#LeakDetector.v1_1_0.LeakDetector",
        "Id": name,
        "Name": name.replace("_", " "),
        "LeakDetectorType": "Moisture",
        "DetectorState": state,
        "Status": {"State": _ENABLED, "Health": "Critical" if state == WET else "OK"},
    }


DUMP_S = 40.0
# as recorded from the HGX manager of a DGX H100, whose clock was years off
JOURNAL = "gpumgrd: GPUGetCurrentMemUtilization API failed with RC:263 DeviceId:{number}"
JOURNAL_AT = "2020-12-09T18:05:17+00:00"
JOURNAL_ID = 1607537117319077


def mount_logs(service: RedfishService, manager: str) -> Json:
    """Put a manager's LogServices with `SEL` and `Dump` into the tree; return the link."""
    path = f"{manager}/LogServices"
    service.tree.add_collection(
        path, "LogServiceCollection", lambda: ["SEL", "Dump"], partial=False
    )
    _event_log(service, f"{path}/SEL")
    _dump_log(service, f"{path}/Dump")
    return {"@odata.id": path}


def mount_journal(tree: Tree, manager: str, devices: int) -> Json:
    """Put a manager's LogServices with `Journal` into the tree; return the link."""
    path = f"{manager}/LogServices"
    journal = f"{path}/Journal"
    tree.add_collection(path, "LogServiceCollection", lambda: ["Journal"], partial=False)
    tree.add_fixed(
        journal,
        {
            "@odata.type": "#LogService.v1_1_0.LogService",
            "Id": "BMC Journal",
            "Name": "Open BMC Journal Log Service",
            "Description": "BMC Journal Log Service",
            "OverWritePolicy": "WrapsWhenFull",
            "Entries": {"@odata.id": f"{journal}/Entries"},
        },
        partial=False,
    )
    entries = {str(JOURNAL_ID + number): number for number in range(devices)}
    for name, number in entries.items():
        tree.add_fixed(
            f"{journal}/Entries/{name}",
            {
                "@odata.type": "#LogEntry.v1_9_0.LogEntry",
                "Id": name,
                "Name": "BMC Journal Entry",
                "Created": JOURNAL_AT,
                "EntryType": "Oem",
                "OemRecordFormat": "BMC Journal Entry",
                "Severity": "Warning",
                "Message": JOURNAL.format(number=number),
            },
        )
    tree.add_collection(
        f"{journal}/Entries", "LogEntryCollection", lambda: list(entries), partial=False
    )
    return {"@odata.id": path}


def _event_log(service: RedfishService, path: str) -> None:
    machine = service.machine
    tree = service.tree
    tree.add_fixed(
        path,
        {
            "@odata.type": "#LogService.v1_3_0.LogService",
            "Id": "SEL",
            "Name": "System Event Log",
            "LogEntryType": "SEL",
            "Entries": {"@odata.id": f"{path}/Entries"},
        },
        partial=False,
    )

    def list_entries() -> list[str]:
        for number, entry in enumerate(machine.sel, start=1):
            where = f"{path}/Entries/{number}"
            if where not in tree.resources:
                tree.add_fixed(
                    where,
                    {
                        "@odata.type": "#LogEntry.v1_13_0.LogEntry",
                        "Id": str(number),
                        "Name": f"Log Entry {number}",
                        "EntryType": "SEL",
                        **entry,
                    },
                )
        return [str(number) for number in range(1, len(machine.sel) + 1)]

    tree.add_collection(f"{path}/Entries", "LogEntryCollection", list_entries, partial=False)


def _dump_log(service: RedfishService, path: str) -> None:
    tree = service.tree
    tasks = service.tasks
    schedule = service.machine.schedule
    made: list[str] = []
    action = f"{path}/Actions/LogService.CollectDiagnosticData"
    tree.add_fixed(
        path,
        {
            "@odata.type": "#LogService.v1_3_0.LogService",
            "Id": "Dump",
            "Name": "Dump LogService",
            "Entries": {"@odata.id": f"{path}/Entries"},
            "Actions": {
                "#LogService.CollectDiagnosticData": {
                    "target": action,
                    "DiagnosticDataType@Redfish.AllowableValues": ["Manager", "OEM"],
                }
            },
        },
        partial=False,
    )
    tree.add_collection(f"{path}/Entries", "LogEntryCollection", lambda: made, partial=False)

    def collect(request: Request) -> Answer:
        kind = get_allowed_value(
            request, "CollectDiagnosticData", "DiagnosticDataType", ("Manager", "OEM")
        )
        if isinstance(kind, Answer):
            return kind
        task = tasks.add_task("Collect diagnostic data", request.now, action)

        def finish_dump(at: float) -> None:
            number = str(len(made) + 1)
            where = f"{path}/Entries/{number}"
            tree.add_fixed(
                where,
                {
                    "@odata.type": "#LogEntry.v1_13_0.LogEntry",
                    "Id": number,
                    "EntryType": "Event",
                    "Name": f"Dump {number}",
                    "Created": format_time(at),
                    "DiagnosticDataType": kind,
                    "AdditionalDataURI": f"{where}/attachment",
                },
            )
            tree.add_fixed(f"{where}/attachment", {"journal": f"what {service.bmc.name} remembers"})
            made.append(number)
            task.end_with("Completed", at)

        schedule.plan_act(request.now + DUMP_S, finish_dump)
        return tasks.answer_accepted(task)

    tree.add_action(action, collect)
