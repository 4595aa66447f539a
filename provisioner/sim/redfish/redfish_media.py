"""Virtual media of a simulated BMC, with the vendors' peculiarities."""

from __future__ import annotations

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.redfish_answers import Answer, Json, answer_done, make_error
from provisioner.sim.redfish.redfish_tree import (
    Request,
    Tree,
    get_allowed_value,
    make_patch_check,
)
from provisioner.sim.redfish.shape import Shape

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
