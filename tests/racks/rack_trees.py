"""Redfish trees of racks' units, in the shape of public ones (docs/sources/hardware.md#racks)."""

from __future__ import annotations

from typing import Any

Tree = dict[str, dict[str, Any]]
ROOT = "/redfish/v1"


def ref(path: str) -> dict[str, str]:
    return {"@odata.id": f"{ROOT}/{path}"}


def collect(tree: Tree, path: str, names: list[str]) -> None:
    members = [ref(f"{path}/{name}") for name in names]
    tree[f"{ROOT}/{path}"] = {"Members": members, "Members@odata.count": len(members)}


def tray(slot: int = 12, index: int = 1, chassis: str = "1820001", *, wet: str = "OK") -> Tree:
    """Return a tray of four GPUs with a cable cartridge and one leak detector."""
    root = {"Vendor": "Supermicro", "Product": "GB NVL", "RedfishVersion": "1.17.0"}
    tree: Tree = {ROOT: {**root, "Systems": ref("Systems"), "Chassis": ref("Chassis")}}
    collect(tree, "Systems", ["System_0", "HGX_Baseboard_0"])
    collect(tree, "Chassis", ["Chassis_0", "CBC_0", "HGX_GPU_0"])
    tree[f"{ROOT}/Systems/System_0"] = {
        "Id": "System_0",
        "Model": "GB NVL",
        "SerialNumber": f"T{slot}",
        "PowerState": "On",
    }
    tree[f"{ROOT}/Systems/HGX_Baseboard_0"] = {
        "Id": "HGX_Baseboard_0",
        "Processors": ref("Systems/HGX_Baseboard_0/Processors"),
    }
    collect(tree, "Systems/HGX_Baseboard_0/Processors", [f"GPU_{n}" for n in range(4)])
    for gpu in range(4):
        place = {
            "ChassisSerialNumber": chassis,
            "TraySlotNumber": slot,
            "TraySlotIndex": index,
            "TraySerialNumber": "NA",
            "HostID": 1,
            "ModuleID": gpu + 1,
        }
        tree[f"{ROOT}/Systems/HGX_Baseboard_0/Processors/GPU_{gpu}"] = {
            "Id": f"GPU_{gpu}",
            "ProcessorType": "GPU",
            "Oem": {"Nvidia": {"MNNVLinkTopology": place}},
        }
    cartridge = {"ChassisPhysicalSlotNumber": slot, "ComputeTrayIndex": index, "TopologyId": 128}
    tree[f"{ROOT}/Chassis/CBC_0"] = {
        "Id": "CBC_0",
        "SerialNumber": "C77",
        "Oem": {"Nvidia": cartridge},
    }
    tree[f"{ROOT}/Chassis/HGX_GPU_0"] = {"Id": "HGX_GPU_0", "ChassisType": "Component"}
    thermal = "Chassis/Chassis_0/ThermalSubsystem"
    tree[f"{ROOT}/Chassis/Chassis_0"] = {"Id": "Chassis_0", "ThermalSubsystem": ref(thermal)}
    tree[f"{ROOT}/{thermal}"] = {"LeakDetection": ref(f"{thermal}/LeakDetection")}
    tree[f"{ROOT}/{thermal}/LeakDetection"] = {
        "LeakDetectors": ref(f"{thermal}/LeakDetection/LeakDetectors")
    }
    name = "Chassis_0_LeakDetector_0_ColdPlate"
    collect(tree, f"{thermal}/LeakDetection/LeakDetectors", [name])
    tree[f"{ROOT}/{thermal}/LeakDetection/LeakDetectors/{name}"] = {
        "Id": name,
        "DetectorState": wet,
        "Status": {"State": "Enabled", "Health": "OK"},
    }
    return tree


def liteon(states: tuple[object, ...] = (True, True)) -> Tree:
    """Return a shelf that lists itself under two names, with supplies' states as booleans."""
    tree: Tree = {ROOT: {"RedfishVersion": "1.9.0", "Chassis": ref("Chassis")}}
    collect(tree, "Chassis", ["PowerShelf_0", "powershelf"])
    for name in ("PowerShelf_0", "powershelf"):
        tree[f"{ROOT}/Chassis/{name}"] = {
            "Id": name,
            "Manufacturer": "LITE-ON TECHNOLOGY CORP.",
            "Model": "PF-1333-7RB",
            "SerialNumber": "S1",
            "Links": {"ManagedBy": [ref("Managers/bmc")]},
            "PowerSubsystem": ref(f"Chassis/{name}/PowerSubsystem"),
        }
        supplies = f"Chassis/{name}/PowerSubsystem/PowerSupplies"
        tree[f"{ROOT}/Chassis/{name}/PowerSubsystem"] = {"PowerSupplies": ref(supplies)}
        collect(tree, supplies, [str(n) for n in range(len(states))])
        for number, state in enumerate(states):
            tree[f"{ROOT}/{supplies}/{number}"] = {"Id": str(number), "PowerState": state}
    return tree


def switch() -> Tree:
    tree: Tree = {ROOT: {"Vendor": "NVIDIA", "Product": "P3809", "Chassis": ref("Chassis")}}
    tree[ROOT]["Systems"] = ref("Systems")
    collect(tree, "Systems", ["System_0"])
    tree[f"{ROOT}/Systems/System_0"] = {"Id": "System_0", "PowerState": "On"}
    collect(tree, "Chassis", ["MGX_NVSwitch_0", "MGX_NVSwitch_1"])
    for n in range(2):
        tree[f"{ROOT}/Chassis/MGX_NVSwitch_{n}"] = {
            "Id": f"MGX_NVSwitch_{n}",
            "Model": "N5200_LD",
            "SerialNumber": "MT7",
        }
    return tree
