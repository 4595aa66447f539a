"""The tree of a BlueField-3's own BMC (libredfish's capture `nvidia_dpu`, BF-24.10-10)."""

from __future__ import annotations

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.redfish_answers import Answer, Json, done, error
from provisioner.sim.redfish.redfish_power import link, reset_action
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_tree import ROOT, Request, chosen, writable
from provisioner.sim.redfish.shapes_host import OK, mount_network
from provisioner.sim.redfish.tasks import stamp

SYSTEM = f"{ROOT}/Systems/Bluefield"
MANAGER = f"{ROOT}/Managers/Bluefield_BMC"
CARD = f"{ROOT}/Chassis/Card1"
EROT = f"{ROOT}/Chassis/Bluefield_ERoT"
OEM = f"{SYSTEM}/Oem/Nvidia"


class BluefieldTree:
    """Fills the tree of one card's BMC."""

    def __init__(self, service: RedfishService) -> None:
        self.service, self.shape, self.tree = service, service.shape, service.tree
        self.machine: Machine = service.machine
        self.slot = service.bmc.name
        self.card = self.machine.bluefields[self.slot]
        self.device = self.machine.devices[self.slot]

    def mount(self) -> None:
        """Put everything into the tree."""
        tree = self.tree
        tree.collection(f"{ROOT}/Systems", "ComputerSystemCollection", lambda: ["Bluefield"])
        tree.collection(f"{ROOT}/Managers", "ManagerCollection", lambda: ["Bluefield_BMC"])
        tree.collection(f"{ROOT}/Chassis", "ChassisCollection",
                        lambda: ["Bluefield_BMC", "Bluefield_ERoT", "Card1"],
                        partial=False)  # fmt: skip
        self._system()
        self._oem()
        self._manager()
        self._chassis()

    def _running(self, item: str) -> str:
        return self.machine.firmware[self.slot, item].running

    def _system(self) -> None:
        actions = reset_action(
            self.tree, SYSTEM, "ComputerSystem.Reset", self.shape.resets, info=True
        )
        self.tree.action(f"{SYSTEM}/Actions/ComputerSystem.Reset", self._arm_reset)
        self.tree.live(SYSTEM, lambda: {
            "@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem", "Id": "Bluefield",
            "Name": "Bluefield", "SystemType": "Physical", "Status": OK,
            "Manufacturer": "https://www.mellanox.com",
            "Model": "BlueField-3 SmartNIC Main Card", "SerialNumber": self.device.serial,
            "UUID": "" if self.card.mode == "NicMode" else str(self.device.traits["uuid"]),
            "PowerState": "On",
            "BootProgress": {"LastState": "OEM", "LastStateTime": "1970-01-21T01:08:26+00:00",
                             "OemLastState": self.card.boot_state},
            "Boot": {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None",
                     "BootSourceOverrideMode": "UEFI"},
            "Bios": {"@odata.id": f"{SYSTEM}/Bios"},
            "Oem": {"Nvidia": {"@odata.id": OEM}},
            "Links": {"Chassis": [link("Chassis", "Card1")],
                      "ManagedBy": [link("Managers", "Bluefield_BMC")]},
            "Actions": actions,
        })  # fmt: skip
        self.tree.live(f"{SYSTEM}/Bios", lambda: {
            "@odata.type": "#Bios.v1_2_0.Bios", "Id": "BIOS", "Name": "BIOS Configuration",
            "Attributes": {"HostPrivilegeLevel": "Restricted", "InternalCPUModel": "Embedded",
                           "NicMode": self.card.mode},
            "@Redfish.Settings": {"@odata.type": "#Settings.v1_3_5.Settings", "SettingsObject":
                                  {"@odata.id": f"{SYSTEM}/Bios/Settings"}},
        })  # fmt: skip
        self.tree.live(f"{SYSTEM}/Bios/Settings", lambda: {
            "@odata.type": "#Bios.v1_2_0.Bios", "Id": "Settings", "Name": "BIOS Settings",
            "Attributes": {"NicMode": self.card.next_mode or self.card.mode},
        })  # fmt: skip

    def _arm_reset(self, request: Request) -> Answer:
        wanted = chosen(request, "ComputerSystem.Reset", "ResetType", self.shape.resets)
        if isinstance(wanted, Answer):
            return wanted
        self.machine.note(request.now, "arm_reset", self.slot, wanted)
        return done()

    def _oem(self) -> None:
        def set_mode(request: Request) -> Answer:
            wanted = chosen(request, "Mode.Set", "Mode", ("NicMode", "DpuMode"))
            if isinstance(wanted, Answer):
                return wanted
            self.card.next_mode = wanted if wanted != self.card.mode else ""
            return done()

        def set_rshim(request: Request) -> Answer:
            wanted = chosen(request, "HostRshim.Set", "HostRshim", ("Disabled", "Enabled"))
            if isinstance(wanted, Answer):
                return wanted
            self.card.host_rshim = wanted
            return done()

        def parameter(name: str, *values: str) -> Json:
            told = {"Name": name, "DataType": "String", "Required": True,
                    "AllowableValues": list(values)}  # fmt: skip
            return {"Parameters": [told], "target": f"{OEM}/Actions/{name}.Set"}

        mac = self.device.mac.replace(":", "")
        self.tree.live(OEM, lambda: {
            "@odata.type": "#NvidiaComputerSystem.v1_0_0.NvidiaComputerSystem",
            "BaseMAC": mac, "BaseGUID": f"{mac[:6]}0300{mac[6:]}", "Mode": self.card.mode,
            "HostRshim": self.card.host_rshim, "Description": self.device.model,
            "Actions": {"#Mode.Set": parameter("Mode", "NicMode", "DpuMode"),
                        "#HostRshim.Set": parameter("HostRshim", "Disabled", "Enabled")},
        })  # fmt: skip
        self.tree.action(f"{OEM}/Actions/Mode.Set", set_mode)
        self.tree.action(f"{OEM}/Actions/HostRshim.Set", set_rshim)

        def patch_rshim(body: Json, _: Request) -> Answer | None:
            fault = writable("BmcRShim")(body)
            asked = body.get("BmcRShim")
            if fault is None and isinstance(asked, dict):
                self.card.rshim = asked.get("BmcRShimEnabled") is True
            return fault

        self.tree.live(f"{MANAGER}/Oem/Nvidia",
                       lambda: {"BmcRShim": {"BmcRShimEnabled": self.card.rshim}},
                       patch=patch_rshim)  # fmt: skip

    def _manager(self) -> None:
        actions = reset_action(
            self.tree, MANAGER, "Manager.Reset", self.shape.manager_resets, info=True
        )
        clock, bmc = self.service.clock, self.service.bmc

        def reset(request: Request) -> Answer:
            wanted = chosen(request, "Manager.Reset", "ResetType", self.shape.manager_resets)
            if isinstance(wanted, Answer):
                return wanted
            self.machine.schedule.at(
                request.now + 1.0, lambda at: self.machine.bmc_reset(self.slot, at)
            )
            return done()

        self.tree.action(f"{MANAGER}/Actions/Manager.Reset", reset)
        self.tree.live(MANAGER, lambda: {
            "@odata.type": "#Manager.v1_14_0.Manager", "Id": "Bluefield_BMC",
            "Name": "OpenBmc Manager", "ManagerType": "BMC", "Model": "OpenBmc", "Status": OK,
            "PowerState": "On", "FirmwareVersion": self._running("BMC_Firmware"),
            "DateTime": stamp(clock.now()), "DateTimeLocalOffset": "+00:00",
            "LastResetTime": stamp(bmc.reset_at), "UUID": str(self.device.traits["uuid"]),
            "EthernetInterfaces": {"@odata.id": f"{MANAGER}/EthernetInterfaces"},
            "NetworkProtocol": {"@odata.id": f"{MANAGER}/NetworkProtocol"},
            "Links": {"ManagerForServers": [link("Systems", "Bluefield")],
                      "ManagerForChassis": [link("Chassis", "Bluefield_BMC")]},
            "Oem": {"Nvidia": {"@odata.id": f"{MANAGER}/Oem/Nvidia"}}, "Actions": actions,
        })  # fmt: skip
        mount_network(self.service, MANAGER)

    # --- chassis

    def _chassis(self) -> None:
        links = {"ComputerSystems": [link("Systems", "Bluefield")],
                 "ManagedBy": [link("Managers", "Bluefield_BMC")]}  # fmt: skip
        actions = reset_action(self.tree, EROT, "Chassis.Reset", self.shape.chassis_resets,
                               info=True)  # fmt: skip
        self.tree.action(f"{EROT}/Actions/Chassis.Reset", self._erot_reset)
        self.tree.live(EROT, lambda: {
            "@odata.type": "#Chassis.v1_22_0.Chassis", "Id": "Bluefield_ERoT",
            "Name": "Bluefield_ERoT", "ChassisType": "Component", "Manufacturer": "NVIDIA",
            "Status": OK, "Actions": actions,
            "Links": {**links, "ContainedBy": link("Chassis", "Card1"),
                      "Oem": {"Nvidia": {
                          "@odata.type": "#NvidiaChassis.v1_3_0.NvidiaChassis",
                          "ComponentsProtected": [link("Managers", "Bluefield_BMC")]}}},
            "Oem": {"Nvidia": {
                "@odata.type": "#NvidiaChassis.v1_3_0.NvidiaChassis",
                "AutomaticBackgroundCopyEnabled": True,
                "BackgroundCopyStatus": self.machine.copies[self.slot, "Bluefield_ERoT"],
                "InbandUpdatePolicyEnabled": True}},
        }, partial=False)  # fmt: skip
        self.tree.live(f"{ROOT}/Chassis/Bluefield_BMC", lambda: {
            "@odata.type": "#Chassis.v1_22_0.Chassis", "Id": "Bluefield_BMC",
            "Name": "Bluefield_BMC", "ChassisType": "Module", "Status": OK, "Links": links,
        }, partial=False)  # fmt: skip
        adapters = f"{CARD}/NetworkAdapters"
        self.tree.live(CARD, lambda: {
            "@odata.type": "#Chassis.v1_22_0.Chassis", "Id": "Card1", "Name": "Card1",
            "ChassisType": "Card", "Manufacturer": "https://www.mellanox.com",
            "Model": "BlueField-3 SmartNIC Main Card", "PartNumber": self.device.part,
            "SerialNumber": self.device.serial, "PowerState": "On", "Links": links,
            "Status": {**OK, "Health": self.device.health},
            "NetworkAdapters": {"@odata.id": adapters},
        }, partial=False)  # fmt: skip
        self._adapter(adapters)

    def _adapter(self, path: str) -> None:
        self.tree.collection(path, "NetworkAdapterCollection", lambda: ["NvidiaNetworkAdapter"])
        adapter = f"{path}/NvidiaNetworkAdapter"
        functions = f"{adapter}/NetworkDeviceFunctions"
        self.tree.fixed(adapter, {
            "@odata.type": "#NetworkAdapter.v1_9_0.NetworkAdapter", "Id": "NvidiaNetworkAdapter",
            "Name": "NvidiaNetworkAdapter", "Manufacturer": "Nvidia",
            "NetworkDeviceFunctions": {"@odata.id": functions},
        })  # fmt: skip
        self.tree.collection(functions, "NetworkDeviceFunctionCollection", lambda: ["eth0f0"])
        self.tree.fixed(f"{functions}/eth0f0", {
            "@odata.type": "#NetworkDeviceFunction.v1_9_0.NetworkDeviceFunction", "Id": "eth0f0",
            "Name": "NetworkDeviceFunction", "NetDevFuncType": "Ethernet",
            "Ethernet": {"MACAddress": self.device.mac, "MTUSize": 9216},
        })  # fmt: skip

    def _erot_reset(self, request: Request) -> Answer:
        wanted = chosen(request, "Chassis.Reset", "ResetType", self.shape.chassis_resets)
        if isinstance(wanted, Answer):
            return wanted
        item = self.machine.firmware[self.slot, "Bluefield_FW_ERoT"]
        if item.running < "00.02.0180":  # older ones need a host power cycle
            return error(400, "ActionNotSupported", "Chassis.Reset")
        if item.staged is not None:
            self.machine.activate(frozenset({item.activation}), request.now, self.slot, only=item)
        self.machine.schedule.at(
            request.now + 1.0, lambda at: self.machine.bmc_reset(self.slot, at)
        )
        return done()
