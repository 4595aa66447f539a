"""The tree of a BlueField-3's own BMC (libredfish's capture `nvidia_dpu`, BF-24.10-10)."""

from __future__ import annotations

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.redfish.redfish_network import (
    change_time,
    mount_network,
    show_console,
    show_time,
)
from provisioner.integrations.sim.redfish.redfish_power import (
    make_link,
    mount_defaults,
    reset_action,
)
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Request,
    answer_done,
    get_allowed_value,
    make_error,
    make_patch_check,
)
from provisioner.integrations.sim.redfish.shapes_host import OK
from provisioner.integrations.sim.redfish.tasks import format_time

SYSTEM = f"{ROOT}/Systems/Bluefield"
MANAGER = f"{ROOT}/Managers/Bluefield_BMC"
CARD = f"{ROOT}/Chassis/Card1"
EROT = f"{ROOT}/Chassis/Bluefield_ERoT"
OEM = f"{SYSTEM}/Oem/Nvidia"


class BluefieldTree:
    """Builds the tree of one card's BMC."""

    def __init__(self, service: RedfishService) -> None:
        self.service = service
        self.shape = service.shape
        self.tree = service.tree
        self.machine: Machine = service.machine
        self.slot = service.bmc.name
        self.card = self.machine.bluefields[self.slot]
        self.device = self.machine.devices[self.slot]

    def mount(self) -> None:
        """Put everything into the tree."""
        tree = self.tree
        tree.add_collection(f"{ROOT}/Systems", "ComputerSystemCollection", lambda: ["Bluefield"])
        tree.add_collection(f"{ROOT}/Managers", "ManagerCollection", lambda: ["Bluefield_BMC"])
        tree.add_collection(
            f"{ROOT}/Chassis",
            "ChassisCollection",
            lambda: ["Bluefield_BMC", "Bluefield_ERoT", "Card1"],
            partial=False,
        )
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
        self.tree.add_action(f"{SYSTEM}/Actions/ComputerSystem.Reset", self._arm_reset)
        self.tree.add_live(
            SYSTEM,
            lambda: {
                "@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem",
                "Id": "Bluefield",
                "Name": "Bluefield",
                "SystemType": "Physical",
                "Status": OK,
                "Manufacturer": "https://www.mellanox.com",
                "Model": "BlueField-3 SmartNIC Main Card",
                "SerialNumber": self.device.serial,
                "UUID": "" if self.card.mode == "NicMode" else str(self.device.traits["uuid"]),
                "PowerState": "On",
                "BootProgress": {
                    "LastState": "OEM",
                    "LastStateTime": "1970-01-21T01:08:26+00:00",
                    "OemLastState": self.card.boot_state,
                },
                "Boot": {
                    "BootSourceOverrideEnabled": "Disabled",
                    "BootSourceOverrideTarget": "None",
                    "BootSourceOverrideMode": "UEFI",
                },
                "Bios": {"@odata.id": f"{SYSTEM}/Bios"},
                "Oem": {"Nvidia": {"@odata.id": OEM}},
                "Links": {
                    "Chassis": [make_link("Chassis", "Card1")],
                    "ManagedBy": [make_link("Managers", "Bluefield_BMC")],
                },
                "Actions": actions,
            },
        )
        self._bios()

    def _bios(self) -> None:
        self.tree.add_live(
            f"{SYSTEM}/Bios",
            lambda: {
                "@odata.type": "#Bios.v1_2_0.Bios",
                "Id": "BIOS",
                "Name": "BIOS Configuration",
                "Attributes": {
                    "EmmcWipe": False,
                    "HostPrivilegeLevel": self.card.privilege,
                    "InternalCPUModel": "Embedded",
                    "NicMode": self.card.mode,
                    "NvmeWipe": False,
                },
                "@Redfish.Settings": {
                    "@odata.type": "#Settings.v1_3_5.Settings",
                    "SettingsObject": {"@odata.id": f"{SYSTEM}/Bios/Settings"},
                },
            },
        )
        self.tree.add_live(
            f"{SYSTEM}/Bios/Settings",
            lambda: {
                "@odata.type": "#Bios.v1_2_0.Bios",
                "Id": "Settings",
                "Name": "BIOS Settings",
                "Attributes": {
                    "EmmcWipe": "EmmcWipe" in self.card.next_wipes,
                    "HostPrivilegeLevel": self.card.next_privilege or self.card.privilege,
                    "NicMode": self.card.next_mode or self.card.mode,
                    "NvmeWipe": "NvmeWipe" in self.card.next_wipes,
                },
            },
            patch=self._patch_bios,
        )

    def _patch_bios(self, body: Json, _: Request) -> Answer | None:
        """Take attributes for the next start; the tree of a BlueField-3 names no registry."""
        changes = body.get("Attributes")
        wipes = dict.fromkeys(self.card.storage, (False, True))
        allowed = {"HostPrivilegeLevel": ("Restricted", "Privileged"), **wipes}
        for name, value in (changes if isinstance(changes, dict) else {}).items():
            if value not in allowed.get(name, ()):
                return make_error(400, "PropertyValueNotInList", str(value), name)
            if name in wipes:
                (self.card.next_wipes.add if value else self.card.next_wipes.discard)(name)
            else:
                self.card.next_privilege = value if value != self.card.privilege else ""
        return None

    def _arm_reset(self, request: Request) -> Answer:
        reset_type = get_allowed_value(
            request, "ComputerSystem.Reset", "ResetType", self.shape.resets
        )
        if isinstance(reset_type, Answer):
            return reset_type
        self.machine.log_event(request.now, "arm_reset", self.slot, reset_type)
        return answer_done()

    def _oem(self) -> None:
        def set_mode(request: Request) -> Answer:
            value = get_allowed_value(request, "Mode.Set", "Mode", ("NicMode", "DpuMode"))
            if isinstance(value, Answer):
                return value
            self.card.next_mode = value if value != self.card.mode else ""
            return answer_done()

        def set_rshim(request: Request) -> Answer:
            state = get_allowed_value(
                request, "HostRshim.Set", "HostRshim", ("Disabled", "Enabled")
            )
            if isinstance(state, Answer):
                return state
            self.card.host_rshim = state
            return answer_done()

        def build_parameter(name: str, *values: str) -> Json:
            parameter_info = {
                "Name": name,
                "DataType": "String",
                "Required": True,
                "AllowableValues": list(values),
            }
            return {"Parameters": [parameter_info], "target": f"{OEM}/Actions/{name}.Set"}

        mac = self.device.mac.replace(":", "")
        self.tree.add_live(
            OEM,
            lambda: {
                "@odata.type": "#NvidiaComputerSystem.v1_0_0.NvidiaComputerSystem",
                "BaseMAC": mac,
                "BaseGUID": f"{mac[:6]}0300{mac[6:]}",
                "Mode": self.card.mode,
                "HostRshim": self.card.host_rshim,
                "Description": self.device.model,
                "Actions": {
                    "#Mode.Set": build_parameter("Mode", "NicMode", "DpuMode"),
                    "#HostRshim.Set": build_parameter("HostRshim", "Disabled", "Enabled"),
                },
            },
        )
        self.tree.add_action(f"{OEM}/Actions/Mode.Set", set_mode)
        self.tree.add_action(f"{OEM}/Actions/HostRshim.Set", set_rshim)

        def patch_rshim(body: Json, _: Request) -> Answer | None:
            fault = make_patch_check("BmcRShim")(body)
            rshim = body.get("BmcRShim")
            if fault is None and isinstance(rshim, dict):
                self.card.rshim = rshim.get("BmcRShimEnabled") is True
            return fault

        self.tree.add_live(
            f"{MANAGER}/Oem/Nvidia",
            lambda: {"BmcRShim": {"BmcRShimEnabled": self.card.rshim}},
            patch=patch_rshim,
        )

    def _manager(self) -> None:
        actions = reset_action(
            self.tree, MANAGER, "Manager.Reset", self.shape.manager_resets, info=True
        )
        actions |= mount_defaults(self.service, MANAGER)
        bmc = self.service.bmc

        def reset(request: Request) -> Answer:
            reset_type = get_allowed_value(
                request, "Manager.Reset", "ResetType", self.shape.manager_resets
            )
            if isinstance(reset_type, Answer):
                return reset_type
            self.machine.schedule.plan_act(
                request.now + 1.0, lambda at: self.machine.bmc_reset(self.slot, at)
            )
            return answer_done()

        self.tree.add_action(f"{MANAGER}/Actions/Manager.Reset", reset)
        self.tree.add_live(
            MANAGER,
            lambda: {
                "@odata.type": "#Manager.v1_14_0.Manager",
                "Id": "Bluefield_BMC",
                "Name": "OpenBmc Manager",
                "ManagerType": "BMC",
                "Model": "OpenBmc",
                "Status": OK,
                "PowerState": "On",
                "FirmwareVersion": self._running("BMC_Firmware"),
                **show_time(self.service),
                **show_console(self.service),
                "LastResetTime": format_time(bmc.reset_at),
                "UUID": str(self.device.traits["uuid"]),
                "EthernetInterfaces": {"@odata.id": f"{MANAGER}/EthernetInterfaces"},
                "NetworkProtocol": {"@odata.id": f"{MANAGER}/NetworkProtocol"},
                "Links": {
                    "ManagerForServers": [make_link("Systems", "Bluefield")],
                    "ManagerForChassis": [make_link("Chassis", "Bluefield_BMC")],
                },
                "Oem": {"Nvidia": {"@odata.id": f"{MANAGER}/Oem/Nvidia"}},
                "Actions": actions,
            },
            patch=change_time(self.service),
        )
        mount_network(self.service, MANAGER)

    # --- chassis

    def _chassis(self) -> None:
        links = {
            "ComputerSystems": [make_link("Systems", "Bluefield")],
            "ManagedBy": [make_link("Managers", "Bluefield_BMC")],
        }
        self._root_of_trust(links)
        self.tree.add_live(
            f"{ROOT}/Chassis/Bluefield_BMC",
            lambda: {
                "@odata.type": "#Chassis.v1_22_0.Chassis",
                "Id": "Bluefield_BMC",
                "Name": "Bluefield_BMC",
                "ChassisType": "Component",  # as in a recorded BlueField-3, as is its place
                "Status": OK,
                "Links": {**links, "ContainedBy": make_link("Chassis", "Card1")},
            },
            partial=False,
        )
        adapters = f"{CARD}/NetworkAdapters"
        self.tree.add_live(
            CARD,
            lambda: {
                "@odata.type": "#Chassis.v1_22_0.Chassis",
                "Id": "Card1",
                "Name": "Card1",
                "ChassisType": "Card",
                "Manufacturer": "https://www.mellanox.com",
                "Model": "BlueField-3 SmartNIC Main Card",
                "PartNumber": self.device.part,
                "SerialNumber": self.device.serial,
                "PowerState": "On",
                "Links": links,
                "Status": {**OK, "Health": self.device.health},
                "NetworkAdapters": {"@odata.id": adapters},
            },
            partial=False,
        )
        self._adapter(adapters)

    def _root_of_trust(self, links: Json) -> None:
        actions = reset_action(
            self.tree, EROT, "Chassis.Reset", self.shape.chassis_resets, info=True
        )
        self.tree.add_action(f"{EROT}/Actions/Chassis.Reset", self._erot_reset)
        self.tree.add_live(
            EROT,
            lambda: {
                "@odata.type": "#Chassis.v1_22_0.Chassis",
                "Id": "Bluefield_ERoT",
                "Name": "Bluefield_ERoT",
                "ChassisType": "Component",
                "Manufacturer": "NVIDIA",
                "Status": OK,
                "Actions": actions,
                "Links": {
                    **links,
                    "ContainedBy": make_link("Chassis", "Card1"),
                    "Oem": {
                        "Nvidia": {
                            "@odata.type": "#NvidiaChassis.v1_3_0.NvidiaChassis",
                            "ComponentsProtected": [make_link("Managers", "Bluefield_BMC")],
                        }
                    },
                },
                "Oem": {
                    "Nvidia": {
                        "@odata.type": "#NvidiaChassis.v1_3_0.NvidiaChassis",
                        "AutomaticBackgroundCopyEnabled": True,
                        "BackgroundCopyStatus": self.machine.copies[self.slot, "Bluefield_ERoT"],
                        "InbandUpdatePolicyEnabled": True,
                    }
                },
            },
            partial=False,
        )

    def _adapter(self, path: str) -> None:
        self.tree.add_collection(path, "NetworkAdapterCollection", lambda: ["NvidiaNetworkAdapter"])
        adapter = f"{path}/NvidiaNetworkAdapter"
        functions = f"{adapter}/NetworkDeviceFunctions"
        self.tree.add_fixed(
            adapter,
            {
                "@odata.type": "#NetworkAdapter.v1_9_0.NetworkAdapter",
                "Id": "NvidiaNetworkAdapter",
                "Name": "NvidiaNetworkAdapter",
                "Manufacturer": "Nvidia",
                "NetworkDeviceFunctions": {"@odata.id": functions},
            },
        )
        self.tree.add_collection(functions, "NetworkDeviceFunctionCollection", lambda: ["eth0f0"])
        self.tree.add_fixed(
            f"{functions}/eth0f0",
            {
                "@odata.type": "#NetworkDeviceFunction.v1_9_0.NetworkDeviceFunction",
                "Id": "eth0f0",
                "Name": "NetworkDeviceFunction",
                "NetDevFuncType": "Ethernet",
                "Ethernet": {"MACAddress": self.device.mac, "MTUSize": 9216},
            },
        )

    def _erot_reset(self, request: Request) -> Answer:
        reset_type = get_allowed_value(
            request, "Chassis.Reset", "ResetType", self.shape.chassis_resets
        )
        if isinstance(reset_type, Answer):
            return reset_type
        item = self.machine.firmware[self.slot, "Bluefield_FW_ERoT"]
        if item.running < "00.02.0180":  # older versions need a host power cycle
            return make_error(400, "ActionNotSupported", "Chassis.Reset")
        if item.staged is not None:
            self.machine.activate(frozenset({item.activation}), request.now, self.slot, only=item)
        self.machine.schedule.plan_act(
            request.now + 1.0, lambda at: self.machine.bmc_reset(self.slot, at)
        )
        return answer_done()
