"""The tree of a host's BMC: system, chassis, manager, and the parts behind them."""

from __future__ import annotations

from functools import partial

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Device
from provisioner.integrations.sim.redfish import redfish_logs
from provisioner.integrations.sim.redfish import redfish_logs as redfish_leaks
from provisioner.integrations.sim.redfish import redfish_logs as redfish_sensors
from provisioner.integrations.sim.redfish.redfish_media import mount_first_boot, mount_media
from provisioner.integrations.sim.redfish.redfish_network import (
    change_time,
    mount_network,
    mount_smc_syslog,
    show_console,
    show_system_console,
    show_time,
)
from provisioner.integrations.sim.redfish.redfish_power import (
    Power,
    make_link,
    mount_defaults,
    mount_jobs,
    mount_system_settings,
    reset_action,
)
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import ROOT, Json
from provisioner.integrations.sim.redfish.shapes_bios import mount_bios, mount_secure_boot
from provisioner.integrations.sim.redfish.tasks import format_time

OK = {"State": "Enabled", "Health": "OK"}
LAST_STATES = {
    "off": "None",
    "post": "SystemHardwareInitializationComplete",
    "booting": "OSBootStarted",
    "up": "OSRunning",
}


class HostTree:
    """Builds the tree of the host's BMC."""

    def __init__(self, service: RedfishService) -> None:
        self.service = service
        self.shape = service.shape
        self.tree = service.tree
        self.machine: Machine = service.machine
        self.power = Power(self.machine, self.shape, service.bmc.name)
        self.system = f"{ROOT}/Systems/{self.shape.system}"
        self.manager = f"{ROOT}/Managers/{self.shape.manager}"
        self.chassis = f"{ROOT}/Chassis/{self.shape.chassis}"
        self.more_systems: list[str] = []
        self.more_managers: list[str] = []
        self.more_chassis: list[str] = []

    def mount(self) -> None:
        """Put everything into the tree."""
        tree = self.tree
        tree.add_collection(
            f"{ROOT}/Systems", "ComputerSystemCollection", lambda: [self.system, *self.more_systems]
        )
        tree.add_collection(
            f"{ROOT}/Managers", "ManagerCollection", lambda: [self.manager, *self.more_managers]
        )
        tree.add_collection(
            f"{ROOT}/Chassis",
            "ChassisCollection",
            lambda: [self.chassis, *self.more_chassis],
            partial=False,
        )
        self._system()
        self._manager()
        self._chassis()

    # --- system

    def _firmware(self, which: int) -> str:
        pattern = self.shape.manager_items[which]
        prefix = pattern.rstrip("*")
        item = next((f for f in self.machine.list_items("host") if f.id.startswith(prefix)), None)
        return item.running if item else ""

    def _system(self) -> None:
        self._dump_service()
        machine = self.machine
        shape = self.shape
        path = self.system
        actions: Json = reset_action(
            self.tree, path, "ComputerSystem.Reset", shape.resets, info=shape.reset_info
        )
        self.tree.add_action(f"{path}/Actions/ComputerSystem.Reset", self.power.system_reset)
        name, target, kind = shape.ac_cycle
        if name and "/Systems/" in target:
            action = {"target": target, "ResetType@Redfish.AllowableValues": [kind]}
            actions["Oem"] = {name: action}
        if name:
            self.tree.add_action(target, self.power.ac_cycle)
        parts = {
            name: make_link("Systems", shape.system, name)
            for name in (
                "Bios",
                "Processors",
                "Memory",
                "Storage",
                "EthernetInterfaces",
                "SecureBoot",
            )
        }

        if shape.system_settings:
            parts |= mount_system_settings(self.tree, self.power, path, shape.system_settings)

        def read() -> Json:
            host = machine.host
            shown: Json = {
                "@odata.type": "#ComputerSystem.v1_14_0.ComputerSystem",
                "Id": shape.system,
                "Name": "System",
                "SystemType": "Physical",
                "Manufacturer": shape.manufacturer,
                "Model": shape.model,
                "SerialNumber": host.serial,
                "UUID": host.uuid,
                "PowerState": host.power,
                "BiosVersion": self._firmware(1),
                "IndicatorLED": host.indicator,
                "Status": OK,
                "Boot": self.power.get_boot(),
                "BootProgress": {"LastState": LAST_STATES[host.phase]},
                "ProcessorSummary": {
                    "Count": 2,
                    "Model": "Intel(R) Xeon(R) processor",
                    "Status": OK,
                },
                "MemorySummary": {"TotalSystemMemoryGiB": 2048, "Status": OK},
                "Links": {
                    "Chassis": [make_link("Chassis", shape.chassis)],
                    "ManagedBy": [make_link("Managers", shape.manager)],
                },
                "Actions": actions,
                **show_system_console(self.service),
                **parts,
            }
            return shown

        self.tree.add_live(path, read, patch=self.power.patch_system)
        mount_bios(self.tree, path, shape, self.machine.host.bios)
        self._members("Processors", "Processor", "ProcessorCollection", "cpu")
        self._members("Memory", "Memory", "MemoryCollection", "memory")
        self._storage()
        self._interfaces()
        mount_secure_boot(self.tree, path, self.machine.host.bios)

    def _dump_service(self) -> None:
        if self.shape.name == "supermicro":
            self.tree.add_fixed(
                f"{ROOT}/Oem/Supermicro/DumpService",
                {
                    "@odata.type": "#DumpService.v1_0_2.DumpService",
                    "Id": "DumpService",
                    "Name": "Dump Service",
                },
            )

    def _members(self, below: str, schema: str, collection: str, kind: str) -> None:
        path = f"{self.system}/{below}"
        slots = [d.slot for d in self.machine.devices.values() if d.kind == kind]
        self.tree.add_collection(
            path,
            collection,
            lambda: [s for s in slots if self.machine.devices[s].present],
            partial=False,
        )
        for slot in slots:
            device = self.machine.devices[slot]
            self.tree.add_live(f"{path}/{slot}", partial(_part, device, schema))

    def _interfaces(self) -> None:
        """The cards' ports, as the BIOS reports them to the BMC (iDRAC and DGX list them so)."""
        path = f"{self.system}/EthernetInterfaces"
        cards = [d for d in self.machine.devices.values() if d.kind in ("nic", "dpu") and d.mac]
        self.tree.add_collection(path, "EthernetInterfaceCollection", lambda: _present(cards))
        for card in cards:
            self.tree.add_live(f"{path}/{card.slot}", partial(_part, card, "EthernetInterface"))

    def _storage(self) -> None:
        path = f"{self.system}/Storage"
        slots = [d.slot for d in self.machine.devices.values() if d.kind == "storage"]
        self.tree.add_collection(path, "StorageCollection", lambda: ["NVMeSSD"])
        self.tree.add_live(
            f"{path}/NVMeSSD",
            lambda: {
                "@odata.type": "#Storage.v1_10_0.Storage",
                "Id": "NVMeSSD",
                "Name": "NVMe Storage",
                "Status": OK,
                "Drives": [
                    {"@odata.id": f"{path}/NVMeSSD/Drives/{s}"}
                    for s in slots
                    if self.machine.devices[s].present
                ],
                "Drives@odata.count": len(slots),
                "Controllers": {"@odata.id": f"{path}/NVMeSSD/Controllers"},
                "Volumes": {"@odata.id": f"{path}/NVMeSSD/Volumes"},
            },
        )
        self._controllers(f"{path}/NVMeSSD")
        for slot in slots:
            device = self.machine.devices[slot]
            self.tree.add_live(f"{path}/NVMeSSD/Drives/{slot}", partial(_part, device, "Drive"))

    def _controllers(self, path: str) -> None:
        """NVMe drives have no RAID controller: each is its own, and there are no volumes."""
        self.tree.add_collection(
            f"{path}/Controllers", "StorageControllerCollection", lambda: ["1"]
        )
        self.tree.add_fixed(
            f"{path}/Controllers/1",
            {
                "@odata.type": "#StorageController.v1_6_0.StorageController",
                "Id": "1",
                "Name": "NVMe Storage Controller",
                "Status": OK,
                "SupportedRAIDTypes": [],
            },
        )
        self.tree.add_collection(f"{path}/Volumes", "VolumeCollection", list)

    # --- manager and chassis

    def _manager(self) -> None:
        shape = self.shape
        path = self.manager
        bmc = self.service.bmc
        actions = reset_action(
            self.tree, path, "Manager.Reset", shape.manager_resets, info=shape.reset_info
        )
        self.tree.add_action(f"{path}/Actions/Manager.Reset", self.power.manager_reset)
        actions |= mount_defaults(self.service, path)
        if shape.media_enable:
            target = f"{path}/Actions/Oem/{shape.media_enable}"
            actions["Oem"] = {f"#{shape.media_enable}": {"target": target}}
        links = mount_first_boot(self.tree, self.machine, path) if shape.first_boot else {}
        if links:
            links["Oem"]["Dell"] |= self._mount_jobs(path)
        logs = redfish_logs.mount_logs(self.service, path)
        own = mount_smc_syslog(self.service, path)
        self.tree.add_live(
            path,
            lambda: {
                "@odata.type": "#Manager.v1_11_0.Manager",
                "Id": shape.manager,
                "Name": "Manager",
                "ManagerType": "BMC",
                "Model": shape.manager_model,
                "UUID": self.machine.host.uuid,
                "FirmwareVersion": self._firmware(0),
                **show_time(self.service),
                **show_console(self.service),
                "LastResetTime": format_time(bmc.reset_at),
                "PowerState": "On",
                "Status": OK,
                "EthernetInterfaces": {"@odata.id": f"{path}/EthernetInterfaces"},
                "NetworkProtocol": {"@odata.id": f"{path}/NetworkProtocol"},
                "VirtualMedia": {"@odata.id": f"{path}/VirtualMedia"},
                "LogServices": logs,
                **own,
                "Links": {
                    "ManagerForServers": [make_link("Systems", shape.system)],
                    "ManagerForChassis": [make_link("Chassis", shape.chassis)],
                    **links,
                },
                "Actions": actions,
            },
            patch=change_time(self.service),
        )
        mount_network(self.service, path)
        mount_media(self.tree, self.machine, shape, bmc.name, path)

    def _mount_jobs(self, path: str) -> Json:
        now = self.service.clock.now
        settings = f"{self.system}/Bios/Settings"
        bios = self.machine.host.bios
        return mount_jobs(self.tree, path, settings, bios, self.service.tasks, now)

    def _chassis(self) -> None:
        shape = self.shape
        path = self.chassis
        machine = self.machine
        actions: Json = {}
        if shape.chassis_resets:
            actions |= reset_action(
                self.tree, path, "Chassis.Reset", shape.chassis_resets, info=shape.reset_info
            )
            self.tree.add_action(f"{path}/Actions/Chassis.Reset", self.power.system_reset)
        name, target, kind = shape.ac_cycle
        if name and "/Chassis/" in target:
            action = {"target": target, "ResetType@Redfish.AllowableValues": [kind]}
            actions["Oem"] = {name: action}
        sensors = redfish_sensors.mount_sensors(self.tree, machine, path)
        redfish_leaks.mount_leaks(self.tree, machine, path)
        self.tree.add_live(
            path,
            lambda: {
                "@odata.type": "#Chassis.v1_14_0.Chassis",
                "Id": shape.chassis,
                "Name": "Computer System Chassis",
                "ChassisType": "RackMount",
                "Manufacturer": shape.manufacturer,
                "Model": shape.model,
                "SerialNumber": machine.host.serial,
                "PowerState": machine.host.power,
                "Status": OK,
                "PCIeDevices": {"@odata.id": f"{path}/PCIeDevices"},
                "NetworkAdapters": {"@odata.id": f"{path}/NetworkAdapters"},
                "Sensors": sensors,
                **redfish_leaks.link_thermal(machine, path),
                "Links": {
                    "ComputerSystems": [make_link("Systems", shape.system)],
                    "ManagedBy": [make_link("Managers", shape.manager)],
                },
                "Actions": actions,
            },
            partial=False,
        )
        self._cards(path)

    def _cards(self, path: str) -> None:
        cards = [d for d in self.machine.devices.values() if d.kind in ("nic", "dpu", "gpu")]
        nics = [d for d in cards if d.kind != "gpu"]
        for name, parts in (("PCIeDevice", cards), ("NetworkAdapter", nics)):
            self.tree.add_collection(
                f"{path}/{name}s", f"{name}Collection", partial(_present, parts), partial=False
            )
        for device in cards:
            self.tree.add_live(
                f"{path}/PCIeDevices/{device.slot}", partial(_part, device, "PCIeDevice")
            )
        for device in nics:
            self.tree.add_live(
                f"{path}/NetworkAdapters/{device.slot}", partial(_part, device, "NetworkAdapter")
            )


VERSIONS = {
    "Processor": "v1_13_0",
    "Memory": "v1_11_0",
    "Drive": "v1_12_0",
    "PCIeDevice": "v1_5_0",
    "NetworkAdapter": "v1_9_0",
    "EthernetInterface": "v1_6_0",
}


def _present(devices: list[Device]) -> list[str]:
    return [d.slot for d in devices if d.present]


def _part(device: Device, schema: str) -> Json | None:
    """A part's resource; None while it is absent."""
    if not device.present:
        return None
    shown: Json = {
        "@odata.type": f"#{schema}.{VERSIONS[schema]}.{schema}",
        "Id": device.slot,
        "Name": device.slot,
        "Status": {"State": "Enabled", "Health": device.health},
    }
    if schema != "EthernetInterface":  # a port has no serial number (DMTF's schema)
        shown |= {"Model": device.model, "SerialNumber": device.serial, "PartNumber": device.part}
    if schema == "Processor":
        shown |= {"ProcessorType": "CPU", "Manufacturer": "Intel(R) Corporation", "TotalCores": 56}
        shown |= {"TotalThreads": 112, "ProcessorArchitecture": "x86", "InstructionSet": "x86-64"}
    elif schema == "Memory":
        shown |= {"CapacityMiB": 65536, "MemoryDeviceType": "DDR5", "Manufacturer": "Samsung"}
    elif schema == "Drive":
        shown |= {"CapacityBytes": 3840755982336, "MediaType": "SSD", "Protocol": "NVMe"}
    elif schema == "EthernetInterface":
        shown |= {"MACAddress": device.mac, "PermanentMACAddress": device.mac}
        shown |= {"InterfaceEnabled": True}
    elif schema == "PCIeDevice":
        shown["PCIeInterface"] = {
            "PCIeType": f"Gen{device.link_gen}",
            "MaxPCIeType": f"Gen{device.link_gen_max}",
            "LanesInUse": device.link_width,
            "MaxLanes": device.link_width_max,
        }
    else:
        shown["Manufacturer"] = "Nvidia"
        shown["Controllers"] = [{"Location": {"PartLocation": {"ServiceLabel": device.slot}}}]
    return shown
