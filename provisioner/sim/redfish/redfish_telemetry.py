"""TelemetryService of a simulated HGX host: metric reports that are created on request.

Names and shapes follow NVIDIA's OpenBMC (a DGX H100's recorded tree, `#/` within the metric's
property); the reports are of the type OnRequest, so that nothing streams them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_tree import ROOT, Tree

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
