"""Virtual media of a simulated BMC, with the vendors' peculiarities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Device
from provisioner.integrations.sim.redfish.redfish_power import make_link
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Request,
    Resource,
    Tree,
    answer_done,
    get_allowed_value,
    make_error,
    make_patch_check,
)
from provisioner.integrations.sim.redfish.shape import Shape

# ------------------------------------------------------------------------------
# The NVLink ports of a simulated HGX host's GPUs and NVSwitches, with their counters.
#
# Paths, names and types are those of a DGX H100's recorded tree (libredfish's capture); a GPU has
# 18 links, an NVSwitch 32 there. A port is made when it is asked for: a host has 272 of them.
# Counts of bytes are as recorded, by link; the trait `nvlink_errors` of a GPU is the errors of its
# first link.


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


INSERT = "VirtualMedia.InsertMedia"


class Slot:
    """One virtual drive. The host boots from a BMC's first."""

    def __init__(self, machine: Machine, shape: Shape, bmc: str, path: str, *, boots: bool) -> None:
        self.machine = machine
        self.shape = shape
        self.path = path
        self.boots = boots
        self.bmc = machine.bmcs[bmc]
        self.image = ""

    def read(self) -> Json:
        """The VirtualMedia resource."""
        target = f"{self.path}/Actions/VirtualMedia"
        actions: Json = {
            "Actions": {
                f"#{INSERT}": {"target": f"{target}.InsertMedia"},
                "#VirtualMedia.EjectMedia": {"target": f"{target}.EjectMedia"},
            }
        }
        return {
            **({} if self.shape.media_by_patch else actions),
            "@odata.type": "#VirtualMedia.v1_4_1.VirtualMedia",
            "Id": self.path.rpartition("/")[2],
            "Name": "Virtual Removable Media",
            "MediaTypes": ["CD", "DVD"],
            "Inserted": bool(self.image),
            "Image": self.image or None,
            "ImageName": self.image.rpartition("/")[2] or None,
            "ConnectedVia": "URI" if self.image else "NotConnected",
            "WriteProtected": True,
            "TransferMethod": "Stream",
            "TransferProtocolType": None,
        }

    def patch(self, body: Json, request: Request) -> Answer | None:
        """PATCH of Image, Inserted and WriteProtected, where the drive has no actions."""
        fault = make_patch_check("Image", "Inserted", "WriteProtected")(body)
        if fault:
            return fault
        if body.get("Image") and body.get("Inserted", True) is True:
            self._hold(str(body["Image"]), request.now, "insert")
        elif "Image" in body or body.get("Inserted") is False:
            self._hold("", request.now, "eject")
        return None

    def _hold(self, image: str, now: float, act: str) -> None:
        self.image = image
        if self.boots:
            self.machine.host.media = image
        self.machine.log_event(now, "media", "host", f"{act} {image}".strip())

    def insert(self, request: Request) -> Answer:
        """InsertMedia."""
        body = request.json or {}
        image = body.get("Image")
        if not isinstance(image, str) or not image:
            return make_error(400, "ActionParameterMissing", INSERT, "Image")
        needed = ("UserName", "Password") if self.shape.media_needs_login else ()
        for name in needed:
            if name not in body:
                return make_error(400, "ActionParameterMissing", INSERT, name)
        if self.image:
            return make_error(409, "ResourceInUse")
        self._hold(image, request.now, "insert")
        return answer_done()

    def eject(self, request: Request) -> Answer:
        """EjectMedia."""
        if not self.image:
            return make_error(400, "ResourceInUse", resolution="No media is inserted.")
        if "media_sticks" not in self.bmc.troubles:
            self.image = ""
        if self.boots:
            self.machine.host.media = ""
        self.machine.log_event(request.now, "media", "host", "eject")
        return answer_done()


def mount_first_boot(tree: Tree, machine: Machine, parent: str) -> Json:
    """Put Dell's attributes of the boot device into the tree; return the manager's link to them.

    source: captured tree of a PowerEdge R750, Links.Oem.Dell.DellAttributes
    """
    path = f"{parent}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"
    allowed = {
        "Lockdown.1.SystemLockdown": ("Enabled", "Disabled"),
        "SysLog.1.SysLogEnable": ("Enabled", "Disabled"),
        "ServerBoot.1.BootOnce": ("Enabled", "Disabled"),
        "ServerBoot.1.FirstBootDevice": ("Normal", "PXE", "HDD", "BIOS", "VCD-DVD", "vFDD"),
    }

    def patch(body: Json, _: Request) -> Answer | None:
        attributes = body.get("Attributes")
        if not isinstance(attributes, dict):
            return make_error(400, "PropertyMissing", "Attributes", prop="Attributes")
        for name, value in attributes.items():
            if name.startswith("SysLog.1.Server") and isinstance(value, str):
                continue  # source: captured tree of a PowerEdge R750: a text
            if name not in allowed:
                return make_error(400, "PropertyUnknown", name, prop=f"Attributes/{name}")
            if value not in allowed[name]:
                return make_error(400, "PropertyValueNotInList", str(value), name, prop=name)
        machine.host.first_boot.update(attributes)
        return None

    def read() -> Json:
        return {
            "@odata.type": "#DellAttributes.v1_0_0.DellAttributes",
            "Id": "iDRAC.Embedded.1",
            "Name": "OEMAttributeRegistry",
            "Attributes": dict(machine.host.first_boot),
        }

    tree.add_live(path, read, patch=patch)
    return {"Oem": {"Dell": {"DellAttributes": [{"@odata.id": path}]}}}


def mount_media(tree: Tree, machine: Machine, shape: Shape, bmc: str, parent: str) -> None:
    """Put the slots below a manager into the tree."""
    path = f"{parent}/VirtualMedia"
    machine.host.media_target = shape.media_target
    shown = [not shape.media_enable]
    tree.add_collection(path, "VirtualMediaCollection", lambda: shape.media if shown[0] else ())
    if shape.media_enable:

        def enable(request: Request) -> Answer:
            state = get_allowed_value(
                request, shape.media_enable, "RMediaState", ("Enable", "Disable")
            )
            if isinstance(state, Answer):
                return state
            shown[0] = state == "Enable"
            return answer_done()

        tree.add_action(f"{parent}/Actions/Oem/{shape.media_enable}", enable)
    for n, name in enumerate(shape.media):
        slot = Slot(machine, shape, bmc, f"{path}/{name}", boots=n == 0)
        if shape.media_by_patch:
            tree.add_live(slot.path, slot.read, patch=slot.patch)
            continue
        tree.add_live(slot.path, slot.read)
        tree.add_action(f"{slot.path}/Actions/VirtualMedia.InsertMedia", slot.insert)
        tree.add_action(f"{slot.path}/Actions/VirtualMedia.EjectMedia", slot.eject)
