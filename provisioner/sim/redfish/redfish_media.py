"""Virtual media of a simulated BMC, with the vendors' peculiarities."""

from __future__ import annotations

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.redfish_answers import Answer, Json, answer_done, make_error
from provisioner.sim.redfish.redfish_tree import Request, Tree
from provisioner.sim.redfish.shapes import Shape

INSERT = "VirtualMedia.InsertMedia"


class Slot:
    """One virtual drive. The host boots from a BMC's first."""

    def __init__(self, machine: Machine, shape: Shape, bmc: str, path: str, *, boots: bool) -> None:
        self.machine, self.shape, self.path, self.boots = machine, shape, path, boots
        self.bmc = machine.bmcs[bmc]
        self.image = ""

    def read(self) -> Json:
        """The VirtualMedia resource."""
        target = f"{self.path}/Actions/VirtualMedia"
        return {
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
            "Actions": {
                f"#{INSERT}": {"target": f"{target}.InsertMedia"},
                "#VirtualMedia.EjectMedia": {"target": f"{target}.EjectMedia"},
            },
        }

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
        self.image = image
        if self.boots:
            self.machine.host.media = image
        self.machine.log_event(request.now, "media", "host", f"insert {image}")
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


def mount_media(tree: Tree, machine: Machine, shape: Shape, bmc: str, parent: str) -> None:
    """Put the slots below a manager into the tree."""
    path = f"{parent}/VirtualMedia"
    tree.add_collection(path, "VirtualMediaCollection", lambda: shape.media)
    for n, name in enumerate(shape.media):
        slot = Slot(machine, shape, bmc, f"{path}/{name}", boots=n == 0)
        tree.add_live(slot.path, slot.read)
        tree.add_action(f"{slot.path}/Actions/VirtualMedia.InsertMedia", slot.insert)
        tree.add_action(f"{slot.path}/Actions/VirtualMedia.EjectMedia", slot.eject)
