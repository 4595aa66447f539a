"""Leak detectors of a simulated liquid-cooled chassis; without any, the chassis links to none.

source: LambdaLabs/redfish_exporter, collector/testdata: thermal_subsystem.json,
single_leak_detection.json, leak_detectors_single.json, leak_detector_leak.json (a tray of a GB200,
whose wet detector prints LeakDetected); DMTF schema LeakDetector 1.1.0.
"""

from __future__ import annotations

from functools import partial

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_tree import Resource, Tree

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
