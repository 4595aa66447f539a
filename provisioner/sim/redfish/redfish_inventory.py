"""FirmwareInventory of a simulated BMC: the running versions, in each vendor's list."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache, partial

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.hardware.parts import Firmware
from provisioner.sim.hardware.shapes_items import MIRRORS, NAMES
from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_tree import ROOT, Act, Resource, Tree
from provisioner.sim.redfish.shape import INVENTORY, Shape

SOFTWARE_IDS = (
    ("*ERoT*", "0xFF00"),
    ("HGX_FW_BMC_0", "0x0010"),
    ("HGX_FW_FPGA_0", "0x0050"),
    ("HGX_FW_GPU_*", "0x0020"),
    ("HGX_FW_NVSwitch_*", "0x0070"),
    ("HGX_FW_PCIeSwitch_*", "0x0040"),
    ("HGX_FW_PCIeRetimer_*", "0x8000"),
    ("BMC_Firmware", "0x0018"),
)


@cache
def _software_id(item_id: str) -> str | None:
    return next((s for p, s in SOFTWARE_IDS if fnmatchcase(item_id, p)), None)


def shown_id(item: Firmware) -> str:
    """The id in an item's list entry: iDRAC includes the version."""
    if "__" not in item.id:
        return item.id
    return re.sub(r"^(\w+-\d+-).*(__)", rf"\g<1>{item.running}\g<2>", item.id)


class FirmwareInventory:
    """The items of installed parts behind one BMC."""

    def __init__(self, machine: Machine, bmc: str, shape: Shape) -> None:
        self.machine = machine
        self.bmc = bmc
        self.shape = shape

    def show(self, item: Firmware) -> Json:
        """A SoftwareInventory resource."""
        path = f"{INVENTORY}/{shown_id(item)}"
        version = "" if item.hidden else item.running
        mirrored = self.machine.firmware.get((self.bmc, MIRRORS.get(item.id, "")))
        if mirrored and mirrored.staged is not None:
            version = mirrored.staged
        elif mirrored and item.id.startswith("Staging_"):
            version = mirrored.running  # as recorded of a BMC at rest
        shown: Json = {
            "@odata.id": path,
            "@odata.type": "#SoftwareInventory.v1_4_0.SoftwareInventory",
            "Id": shown_id(item),
            "Name": NAMES.get(item.id, item.id),
            "Updateable": item.updateable,
            "Status": {"State": "Enabled", "Health": "OK", "Conditions": []},
            "Version": version,
        }
        if not version and self.shape.name == "lenovo":
            del shown["Version"]  # the recorded UEFI-Pending has none
        software = _software_id(item.id)
        if software:
            shown["SoftwareId"] = software
        bmc_item, bios_item = self.shape.manager_items
        if fnmatchcase(item.id, bmc_item):
            related = f"{ROOT}/Managers/{self.shape.manager}"
        elif fnmatchcase(item.id, bios_item) or item.id.startswith("Capsule_"):
            related = f"{ROOT}/Systems/{self.shape.system}/Bios"
        else:
            return shown
        shown["RelatedItem"] = [{"@odata.id": related}]
        return shown

    def _members(self) -> list[str]:
        return [shown_id(item) for item in self.machine.list_items(self.bmc)]

    def _member(self, item_id: str) -> Resource | None:
        item = self.machine.firmware.get((self.bmc, item_id))
        if item is None or shown_id(item) != item_id:  # iDRAC's ids change with their version
            items = self.machine.list_items(self.bmc)
            item = next((i for i in items if shown_id(i) == item_id), None)
        if item and item.device and not self.machine.device_present(item.device):
            return None
        return None if item is None else Resource(partial(self.show, item), partial=False)

    def mount(self, tree: Tree, post: Act | None) -> None:
        """Put the collection into the tree; iDRAC accepts images there (`post`)."""
        tree.add_collection(
            INVENTORY,
            "SoftwareInventoryCollection",
            self._members,
            resolve=self._member,
            post=post,
            partial=False,
        )
