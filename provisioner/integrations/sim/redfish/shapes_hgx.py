"""The HGX baseboard behind a host's BMC, aggregated as in a DGX H100's tree (libredfish's capture).

The captured SYS-821GE-TNHR lists the tray's firmware but not these chassis; the simulated one
lists them too, because without them a background copy would be invisible.
"""

from __future__ import annotations

from functools import partial

from provisioner.integrations.sim.redfish.redfish_logs import mount_journal
from provisioner.integrations.sim.redfish.redfish_media import mount_nvlinks
from provisioner.integrations.sim.redfish.redfish_power import make_link, reset_action
from provisioner.integrations.sim.redfish.redfish_tree import ROOT, Answer, Json, make_error
from provisioner.integrations.sim.redfish.shapes_host import OK, HostTree
from provisioner.integrations.sim.redfish.tasks import format_time

BOARD = "HGX_Baseboard_0"
HMC = "HGX_BMC_0"


class HgxTree:
    """Adds the baseboard's system, manager and chassis to a host's tree."""

    def __init__(self, host: HostTree) -> None:
        self.host = host
        self.tree = host.tree
        self.machine = host.machine
        self.gpus = [d for d in self.machine.devices.values() if d.kind == "gpu"]
        self.switches = [d for d in self.machine.devices.values() if d.kind == "nvswitch"]

    def mount(self) -> None:
        """Put everything into the tree."""
        self._system()
        self._manager()
        self._chassis()
        self._drivers()
        mount_nvlinks(self.tree, self.gpus, self.switches, BOARD)

    def _running(self, item: str) -> str:
        return self.machine.firmware["host", item].running

    def _system(self) -> None:
        path = f"{ROOT}/Systems/{BOARD}"
        self.host.more_systems.append(path)
        self.tree.add_live(
            path,
            lambda: {
                "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem",
                "Id": BOARD,
                "Name": BOARD,
                "Manufacturer": "NVIDIA",
                "SystemType": "Physical",
                "PowerState": self._power(),
                "Status": {**OK, "HealthRollup": self._health()},
                "Processors": {"@odata.id": f"{path}/Processors"},
                "Links": {
                    "Chassis": [make_link("Chassis", HMC)],
                    "ManagedBy": [make_link("Managers", HMC)],
                },
            },
        )
        self.tree.add_collection(
            f"{path}/Processors",
            "ProcessorCollection",
            lambda: ["FPGA_0", *(g.slot for g in self.gpus if g.present)],
            partial=False,
        )
        self.tree.add_live(
            f"{path}/Processors/FPGA_0",
            lambda: {
                "@odata.type": "#Processor.v1_13_0.Processor",
                "Id": "FPGA_0",
                "Name": "Processor",
                "ProcessorType": "FPGA",
                "Manufacturer": "NVIDIA",
                "Status": OK,
                "FirmwareVersion": self._running("HGX_FW_FPGA_0"),
            },
        )
        for gpu in self.gpus:
            self.tree.add_live(f"{path}/Processors/{gpu.slot}", partial(self._gpu, gpu.slot))

    def _gpu(self, slot: str) -> Json | None:
        gpu = self.machine.devices[slot]
        if not gpu.present:
            return None
        return {
            "@odata.type": "#Processor.v1_13_0.Processor",
            "Id": slot,
            "Name": "Processor",
            "ProcessorType": "GPU",
            "Manufacturer": "NVIDIA",
            "Model": gpu.model,
            "PartNumber": gpu.part,
            "SerialNumber": gpu.serial,
            "UUID": str(gpu.traits["uuid"]).removeprefix("GPU-"),
            "FirmwareVersion": self._running(f"HGX_FW_{slot}"),
            "Location": {
                "PartLocation": {
                    "LocationType": "Embedded",
                    "ServiceLabel": f"SXM{slot.rpartition('_')[2]}",
                }
            },
            "MemorySummary": {"ECCModeEnabled": True},
            "Status": {**OK, "Health": gpu.health},
            "SystemInterface": {
                "InterfaceType": "PCIe",
                "PCIe": {
                    "PCIeType": f"Gen{gpu.link_gen}",
                    "MaxPCIeType": f"Gen{gpu.link_gen_max}",
                    "LanesInUse": gpu.link_width,
                    "MaxLanes": gpu.link_width_max,
                },
            },
            "Ports": make_link("Systems", BOARD, "Processors", slot, "Ports"),
            "Links": {"Chassis": make_link("Chassis", f"HGX_{slot}")},
        }

    def _power(self) -> str:
        return "Off" if self.machine.host.power == "Off" else "On"

    def _health(self) -> str:
        whole = all(d.present and d.health == "OK" for d in [*self.gpus, *self.switches])
        return "OK" if whole else "Critical"

    def _manager(self) -> None:
        path = f"{ROOT}/Managers/{HMC}"
        self.host.more_managers.append(path)
        actions = reset_action(self.tree, path, "Manager.Reset", ("GracefulRestart",), info=False)
        self.tree.add_action(
            f"{path}/Actions/Manager.Reset",
            lambda request: self.host.power.manager_reset(request, HMC),
        )
        logs = mount_journal(self.tree, path, len(self.gpus))
        self.tree.add_live(
            path,
            lambda: {
                "@odata.type": "#Manager.v1_14_0.Manager",
                "Id": HMC,
                "Name": "OpenBmc Manager",
                "ManagerType": "BMC",
                "Model": "OpenBmc",
                "Status": OK,
                "PowerState": "On",
                "FirmwareVersion": self._running("HGX_FW_BMC_0"),
                "DateTime": format_time(self.host.service.clock.now()),
                "DateTimeLocalOffset": "+00:00",
                "LogServices": logs,
                "Links": {
                    "ManagerForServers": [make_link("Systems", BOARD)],
                    "ManagerForChassis": [make_link("Chassis", HMC)],
                },
                "Actions": actions,
            },
        )

    # --- chassis

    def _chassis(self) -> None:
        slots = [d.slot for d in [*self.gpus, *self.switches]]
        erots = sorted(c for bmc, c in self.machine.copies if bmc == "host")
        names = [
            "HGX_Chassis_0",
            HMC,
            "HGX_FPGA_0",
            "HGX_PCIeSwitch_0",
            *(f"HGX_{s}" for s in slots),
            *erots,
        ]
        present = self.machine.device_present

        def show(name: str) -> Json | None:
            if not present(name.removeprefix("HGX_ERoT_").removeprefix("HGX_")):
                return None
            return self._erot(name) if name in erots else self._zone(name)

        self.host.more_chassis.extend(f"{ROOT}/Chassis/{n}" for n in names)
        for name in names:
            self.tree.add_live(f"{ROOT}/Chassis/{name}", partial(show, name), partial=False)

    def _zone(self, name: str) -> Json:
        parts = self.machine.devices
        device = parts.get(name) or parts.get(name.removeprefix("HGX_"))
        shown: Json = {
            "@odata.type": "#Chassis.v1_17_0.Chassis",
            "Id": name,
            "Name": name,
            "ChassisType": "Zone" if name == "HGX_Chassis_0" else "Module",
            "Manufacturer": "NVIDIA",
            "Status": OK,
            "Links": {
                "ComputerSystems": [make_link("Systems", BOARD)],
                "ManagedBy": [make_link("Managers", HMC)],
            },
        }
        if name != "HGX_Chassis_0":  # as in a recorded DGX H100
            shown["Links"]["ContainedBy"] = make_link("Chassis", "HGX_Chassis_0")
        if device:
            shown |= {
                "SerialNumber": device.serial,
                "Model": device.model,
                "PartNumber": device.part,
                "Status": {**OK, "Health": device.health},
            }
        return shown

    def _erot(self, name: str) -> Json:
        protected = name.removeprefix("HGX_ERoT_")
        where = make_link("Systems", BOARD, "Processors", protected)
        if not protected.startswith(("GPU", "FPGA")):
            where = make_link("Chassis", f"HGX_{protected}")
        return {
            "@odata.type": "#Chassis.v1_17_0.Chassis",
            "Id": name,
            "Name": name,
            "ChassisType": "Component",
            "Manufacturer": "NVIDIA",
            "Status": OK,
            "Links": {
                "ContainedBy": make_link("Chassis", "HGX_Chassis_0"),
                "Oem": {
                    "Nvidia": {
                        "@odata.type": "#NvidiaChassis.v1_0_0.NvidiaChassis",
                        "ComponentsProtected": [where],
                    }
                },
            },
            "Oem": {
                "Nvidia": {
                    "@odata.type": "#NvidiaChassis.v1_0_0.NvidiaChassis",
                    "AutomaticBackgroundCopyEnabled": True,
                    "BackgroundCopyStatus": self.machine.copies["host", name],
                    "InbandUpdatePolicyEnabled": True,
                }
            },
        }

    def _drivers(self) -> None:
        """The in-band driver, which the baseboard knows while the host's system runs."""
        path = f"{ROOT}/UpdateService/SoftwareInventory"
        slots = [d.slot for d in [*self.gpus, *self.switches]]
        present = self.machine.device_present

        def read(slot: str) -> Json | None:
            if not present(slot):
                return None
            return {
                "@odata.type": "#SoftwareInventory.v1_4_0.SoftwareInventory",
                "Id": f"HGX_Driver_{slot}",
                "Name": "Software Inventory",
                "Updateable": False,
                "Status": OK,
                "Version": self.machine.host.loaded.get("host.driver", "")
                if self.machine.host.boot_id
                else "",
            }

        self.tree.add_collection(
            path,
            "SoftwareInventoryCollection",
            lambda: [f"HGX_Driver_{s}" for s in slots if present(s)],
            partial=False,
        )
        for slot in slots:
            self.tree.add_live(f"{path}/HGX_Driver_{slot}", partial(read, slot), partial=False)


def silent_while_off(host: HostTree) -> None:
    """DGX: while the host is off, the whole tray answers 503 (sic: HMCCommuicationFailed)."""
    refusal = make_error(503, "ServiceTemporarilyUnavailable", "30")
    old = b"Base.1.18.ServiceTemporarilyUnavailable"
    new = b"Ami.1.0.HMCCommuicationFailed"
    refusal = refusal._replace(body=refusal.body.replace(old, new))

    def refuse_while_off() -> Answer | None:
        return refusal if host.machine.host.power == "Off" else None

    for path, resource in host.tree.resources.items():
        if "/HGX_" in path:
            resource.refuses = refuse_while_off
