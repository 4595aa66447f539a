"""The NVLink ports of a simulated HGX host's GPUs and NVSwitches, with their counters.

Paths, names and types are those of a DGX H100's recorded tree (libredfish's capture); a GPU has 18
links, an NVSwitch 32 there. A port is made when it is asked for: a host has 272 of them. Counts of
bytes are as recorded, by link; the trait `nvlink_errors` of a GPU is the errors of its first link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from provisioner.sim.hardware.parts import Device
from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_power import make_link
from provisioner.sim.redfish.redfish_tree import ROOT, Resource, Tree

FABRIC = "HGX_NVLinkFabric_0"
GPU_LINKS = 18
SWITCH_LINKS = 32
RECORDED_BYTES = 2_869_255_395  # of the first link of the first GPU
STEP_BYTES = 1_048_576


def mount_nvlinks(
    tree: Tree, gpus: Sequence[Device], switches: Sequence[Device], board: str
) -> None:
    """Put the fabric, its switches and all ports into the tree; `board`: the GPUs' system."""
    for gpu in gpus:
        path = f"{ROOT}/Systems/{board}/Processors/{gpu.slot}/Ports"
        _mount_ports(tree, path, GPU_LINKS, gpu)
    path = f"{ROOT}/Fabrics"
    tree.add_collection(path, "FabricCollection", lambda: [FABRIC], partial=False)
    tree.add_fixed(
        f"{path}/{FABRIC}",
        {
            "@odata.type": "#Fabric.v1_2_0.Fabric",
            "Id": FABRIC,
            "Name": f"{FABRIC} Resource",
            "FabricType": "NVLink",
            "Switches": make_link("Fabrics", FABRIC, "Switches"),
        },
        partial=False,
    )
    path = f"{path}/{FABRIC}/Switches"
    present = [s for s in switches if s.present]
    tree.add_collection(path, "SwitchCollection", lambda: [s.slot for s in present], partial=False)
    for switch in switches:
        tree.add_live(f"{path}/{switch.slot}", partial(_show_switch, switch), partial=False)
        _mount_ports(tree, f"{path}/{switch.slot}/Ports", SWITCH_LINKS, switch)


def _show_switch(switch: Device) -> Json | None:
    if not switch.present:
        return None
    return {
        "@odata.type": "#Switch.v1_8_0.Switch",
        "Id": switch.slot,
        "Name": f"{switch.slot} Resource",
        "Manufacturer": "NVIDIA",
        "SwitchType": "NVLink",
        "SupportedProtocols": ["NVLink"],
        "Status": {"Health": switch.health, "State": "Enabled"},
        "Ports": make_link("Fabrics", FABRIC, "Switches", switch.slot, "Ports"),
    }


def _mount_ports(tree: Tree, path: str, links: int, device: Device) -> None:
    names = [f"NVLink_{number}" for number in range(links)]

    def resolve(name: str) -> Resource | None:
        if name not in names or not device.present:
            return None
        metrics = f"{path}/{name}/Metrics"
        tree.put(metrics, _make_resource(metrics, partial(_show_metrics, device, name)))
        return _make_resource(f"{path}/{name}", partial(_show_port, name, metrics))

    def listed() -> list[str]:
        return names if device.present else []

    tree.add_collection(path, "PortCollection", listed, resolve=resolve, partial=False)


def _make_resource(path: str, read: Callable[[], Json]) -> Resource:
    return Resource(lambda: {"@odata.id": path, **read()}, partial=False)


def _show_port(name: str, metrics: str) -> Json:
    return {
        "@odata.type": "#Port.v1_4_0.Port",
        "Id": name,
        "Name": f"{name} Resource",
        "PortProtocol": "NVLink",
        "LinkState": "Enabled",
        "LinkStatus": "LinkUp",
        "Metrics": {"@odata.id": metrics},
    }


def _show_metrics(device: Device, name: str) -> Json:
    number = int(name.rpartition("_")[2])
    carried = RECORDED_BYTES + number * STEP_BYTES
    errors = int(device.traits.get("nvlink_errors", 0)) if number == 0 else 0
    counts = {"DataCRCCount": 0, "FlitCRCCount": 0, "RecoveryCount": 0, "ReplayCount": errors}
    return {
        "@odata.type": "#PortMetrics.v1_3_0.PortMetrics",
        "Id": "Metrics",
        "Name": f"{name} Port Metrics",
        "RXBytes": carried,
        "TXBytes": carried,
        "Oem": {
            "Nvidia": {
                "@odata.type": "#NvidiaPortMetrics.v1_0_0.NvidiaPortMetrics",
                "NVLinkErrors": {**counts, "RuntimeError": False, "TrainingError": False},
            }
        },
    }
