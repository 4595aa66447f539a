"""A BlueField-4's own BMC, as far as it is public (docs/sources/hardware.md#bluefield4).

Its ids, their spellings, and a card that is Paused. Versions other than its BMC's are published
nowhere and are left out; so is its update: nothing is written here.
"""

from __future__ import annotations

from typing import Any

from provisioner.integrations.sim.racks.rack import (
    ROOT,
    Answer,
    Rack,
    Shown,
    Tree,
    list_members,
    ref,
)

SYSTEM = "Systems/BlueField_0"


class BlueField4:
    """One card's BMC. `spelled`: how its inventory writes the name of the card."""

    def __init__(self, rack: Rack, name: str, manager: str, spelled: str = "BlueField") -> None:
        self.rack = rack
        self.name = name
        self.manager = manager
        self.spelled = spelled
        self.paused = False
        self.shown = Shown(rack, self._build_tree)

    def settle(self) -> None: ...

    def lose_power(self) -> None: ...

    def handle(self, method: str, path: str, body: Any) -> Answer:
        if method == "GET":
            return self.shown.answer(path)
        self.rack.note(self.name, "written", f"{method} {path}")
        if not path.endswith("ComputerSystem.Reset"):
            return Answer(405)
        self.shown.change()
        if body["ResetType"] != "On":  # "On" is taken, and changes nothing
            self.paused = body["ResetType"] != "ForceRestart"
        return Answer(204)

    def _build_tree(self) -> Tree:
        names = ("Systems", "Chassis", "Managers", "UpdateService")
        root = {"Vendor": "Nvidia", "Product": "BlueField-4", **{n: ref(n) for n in names}}
        tree: Tree = {ROOT: root}
        list_members(tree, "Systems", ["BlueField_0"])
        target = f"{ROOT}/{SYSTEM}/Actions/ComputerSystem.Reset"
        offered = ["On", "ForceRestart", "GracefulShutdown"]
        reset = {"target": target, "ResetType@Redfish.AllowableValues": offered}
        tree[f"{ROOT}/{SYSTEM}"] = {
            "Id": "BlueField_0",
            "Model": "BlueField-4",
            "SerialNumber": f"MT{self.name}",
            "PowerState": "Paused" if self.paused else "On",
            "Status": {"State": "StandbyOffline" if self.paused else "Enabled"},
            "Actions": {"#ComputerSystem.Reset": reset},
        }
        list_members(tree, "Managers", [self.manager])
        served = {"ManagerForServers": [ref(SYSTEM)]}
        tree[f"{ROOT}/Managers/{self.manager}"] = {
            "Id": self.manager,
            "ManagerType": "BMC",
            "Links": served,
            "Oem": {"Nvidia": {}},
        }
        list_members(tree, "Chassis", ["BlueField_0", "BlueField_BMC_0"])
        model = {"Model": "B4240V", "PartNumber": "900-9D3B4-00SV-EA0", "ChassisType": "Card"}
        tree[f"{ROOT}/Chassis/BlueField_0"] = {"Id": "BlueField_0", **model}
        tree[f"{ROOT}/Chassis/BlueField_BMC_0"] = {"Id": "BlueField_BMC_0", "Model": "BlueField-4"}
        tree[f"{ROOT}/UpdateService"] = {
            "FirmwareInventory": ref("UpdateService/FirmwareInventory")
        }
        parts = ("FW_BMC_0", "FW_ERoT_BMC_0", "FW_CPU_0", "FW_NIC_0", "OS_Image_CPU_0")
        listed = [f"{self.spelled}_{part}" for part in parts]
        list_members(tree, "UpdateService/FirmwareInventory", listed)
        for ident in listed:
            version = {"Version": "bf4-26.04-10"} if ident.endswith("FW_BMC_0") else {}
            tree[f"{ROOT}/UpdateService/FirmwareInventory/{ident}"] = {"Id": ident, **version}
        return tree
