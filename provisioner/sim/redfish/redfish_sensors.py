"""Sensors of a simulated server's chassis: temperature, fans and power, with the BMC's limits."""

from __future__ import annotations

from functools import partial

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_tree import Tree

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
