"""Builds a server; its name and seed determine serials, addresses and first versions.

The versions are a published starting point: Spectrum-X 1.2.0 (BFB 2.9.0-90, NIC firmware
32.43.1014) and GPU tray bundle HGX-H100x8_0002_230517.3.0 as listed in NVIDIA's documents.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from provisioner.integrations.sim.hardware.clock import Schedule
from provisioner.integrations.sim.hardware.disks import fit_disks
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import (
    Bluefield,
    Bmc,
    Device,
    Durations,
    Firmware,
    Host,
)

# ------------------------------------------------------------------------------
# A host's firmware besides its GPU tray, per vendor: id, name, first version, activation.
#
# Ids and versions as NVIDIA/libredfish's recorded machines show them (MIT, commit c094c9e).


class Item(NamedTuple):
    """`activation` "" marks an item that is only listed (a golden or backup copy)."""

    id: str
    name: str
    version: str
    activation: str = ""


SUPERMICRO = (
    Item("BMC", "BMC", "11.01.01", "bmc_reset"),
    Item("Backup_BMC", "BMC Backup", "Not Present"),
    Item("Golden_BMC", "BMC Golden", "01.00.26"),
    Item("Staging_BMC", "BMC Staging", "11.01.01"),
    Item("BIOS", "BIOS", "BIOS Date: 08/04/2023 Ver 1.4", "warm_reboot"),
    Item("Backup_BIOS", "BIOS Backup", "Not Present"),
    Item("Golden_BIOS", "BIOS Golden", "BIOS Date: 05/04/2023 Ver 1.3"),
    Item("Staging_BIOS", "BIOS Staging", "BIOS Date: 08/04/2023 Ver 1.4"),
    Item("BIOS_ME", "BIOS ME", "6.0.5.46", "warm_reboot"),
    Item("CPLD_Motherboard", "CPLD Motherboard", "F5.11.CB", "ac_cycle"),
    Item("CPLD_Backplane_1", "CPLD1 Backplane 1", "03", "ac_cycle"),
    *(Item(f"PowerSupply{n}", f"Power supply {n}", "1.3") for n in range(1, 7)),
    # parts of the BIOS and of a seamless update, related to the BIOS as the BIOS's own item is
    Item("Capsule_BIOS", "Capsule BIOS", "1.0"),
    Item("Capsule_MCU", "Capsule MCU", "1.0b"),
    Item("Capsule_ME", "Capsule ME", "6.80.224.2"),
    Item("NIC9", "NIC9 System Slot10 AOC-STGS-i2T", "3.50 0x800016DC"),
)
# network cards of the recorded SYS-821GE-TNHR: the third number of their firmware is printed as two
SUPERMICRO_CONNECTX = tuple(
    Item(f"NIC{n}", f"NIC{n} System Slot{n} MCX75310AAS-NEAT", "28.37.10.14") for n in range(1, 9)
)
AMI_DGX = (
    Item("HostBMC_0", "HostBMC_0", "23.11.21", "bmc_reset"),
    Item("HostBIOS_0", "HostBIOS_0", "01.01.03", "cold_boot"),
    Item("EROT_BIOS_0", "EROT_BIOS_0", "00.04.0026.0000_n00", "ac_cycle"),
    Item("EROT_BMC_0", "EROT_BMC_0", "00.04.0026.0000_n00", "ac_cycle"),
    Item("CPLDMB_0", "CPLDMB_0", "0.2.1.8", "ac_cycle"),
    Item("CPLDMID_0", "CPLDMID_0", "0.2.1.1", "ac_cycle"),
    Item("PCIeSwitch_0", "PCIeSwitch_0", "0.0.7", "cold_boot"),
    Item("PCIeSwitch_1", "PCIeSwitch_1", "0.0.7", "cold_boot"),
    Item("PCIeRetimer_0", "PCIeRetimer_0", "2.07.19", "cold_boot"),
    Item("PCIeRetimer_1", "PCIeRetimer_1", "2.07.19", "cold_boot"),
    *(Item(f"PSU_{n}", f"PSU_{n}", "0204.0201.0202", "none") for n in range(6)),
)
DELL = (
    Item(
        "Installed-25227-6.00.30.00__iDRAC.Embedded.1-1",
        "Integrated Dell Remote Access Controller",
        "6.00.30.00",
        "bmc_reset",
    ),
    Item(
        "Previous-25227-4.40.29.00__iDRAC.Embedded.1-1",
        "Integrated Dell Remote Access Controller",
        "4.40.29.00",
    ),
    Item("Installed-159-1.8.2__BIOS.Setup.1-1", "BIOS", "1.8.2", "warm_reboot"),
    Item("Current-159-1.8.2__BIOS.Setup.1-1", "BIOS", "1.8.2"),
    Item("Previous-159-1.2.4__BIOS.Setup.1-1", "BIOS", "1.2.4"),
    Item("Installed-27763-1.0.5__CPLD.Embedded.1", "System CPLD", "1.0.5", "ac_cycle"),
    Item("Installed-108076-00.2A.2B__PSU.Slot.1", "Power Supply.Slot.1", "00.2A.2B"),
    Item("Installed-108076-00.2A.2B__PSU.Slot.2", "Power Supply.Slot.2", "00.2A.2B"),
)
HPE = (
    Item("1", "iLO 5", "2.72 Sep 04 2022", "bmc_reset"),
    Item("2", "System ROM", "A42 v2.60 (08/11/2022)", "warm_reboot"),
    Item("4", "System Programmable Logic Device", "0x30", "ac_cycle"),
    Item("5", "Power Management Controller Firmware", "1.0.8", "ac_cycle"),
    Item("6", "Power Supply Firmware", "2.00", "none"),
    Item("8", "Redundant System ROM", "A42 v2.60 (08/11/2022)"),
    Item("9", "Intelligent Provisioning", "3.81.2", "none"),
)
LENOVO = (
    Item("BMC-Primary", "Firmware:BMC", "42S-2.83", "bmc_reset"),
    Item("BMC-Primary-Pending", "Firmware:BMC", "-*"),
    Item("BMC-Backup", "Firmware:BMC", "42S-2.83"),
    Item("UEFI", "Firmware:UEFI", "22J-1.51", "warm_reboot"),
    Item("UEFI-Pending", "Firmware:UEFI", ""),
    Item("LXPM", "Firmware:LXPM", "18E-3.21", "none"),
    *(Item(f"PSU{n}", f"POWER-PSU{n}", "7.52", "none") for n in range(1, 5)),
)
# of the tray's own BMC; the modules behind it are not simulated
GB200 = (
    Item("FW_BMC_0", "Software Inventory", "GB200Nvl-24.12-8", "bmc_reset"),
    Item("FW_ERoT_BMC_0", "Software Inventory", "01.03.0262.0000_n04", "ac_cycle"),
    *(
        Item(f"FW_CPLD_{n}", "Software Inventory", "0x00 0x0b 0x03 0x04", "ac_cycle")
        for n in range(4)
    ),
    Item("UEFI", "Software Inventory", "buildbrain-gcid-38635631"),
)
HOST_ITEMS: dict[str, tuple[Item, ...]] = {
    "supermicro": SUPERMICRO,
    "ami_dgx": AMI_DGX,
    "dell": DELL,
    "hpe": HPE,
    "lenovo": LENOVO,
    "nvidia_gb200": GB200,
}

NAMES = {
    item.id: item.name for items in (*HOST_ITEMS.values(), SUPERMICRO_CONNECTX) for item in items
} | {
    "BMC_Firmware": "Software Inventory",
    "DPU_NIC": "NIC image",
    "DPU_OS": "OS image",
}
MIRRORS = {  # shows the version that is staged in the other
    "Staging_BMC": "BMC",
    "Staging_BIOS": "BIOS",
    "BMC-Primary-Pending": "BMC-Primary",
    "UEFI-Pending": "UEFI",
}


# ------------------------------------------------------------------------------
# Firmware images of the simulated site: small JSON texts under any file name.
#
# A simulated BMC accepts only these, as a real one accepts only images that its vendor signed.


@dataclass(frozen=True)
class Image:
    """`contents` maps FirmwareInventory ids, or patterns of them, to versions."""

    target: str  # "hgx.bundle", "bluefield.bundle", "host.bmc": for people
    contents: Mapping[str, str]

    def version_for(self, item_id: str) -> str | None:
        """The version of an item in this image, or None."""
        return next((v for k, v in self.contents.items() if fnmatchcase(item_id, k)), None)


def make_image(target: str, contents: Mapping[str, str]) -> bytes:
    """The bytes of an image."""
    image = {"simulated": True, "target": target, "contents": dict(contents)}
    return json.dumps(image, sort_keys=True).encode()


def parse_image(data: bytes) -> Image | None:
    """Parse these bytes; None if they are no image."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("simulated") is not True:
        return None
    target = value.get("target")
    contents = value.get("contents")
    if not isinstance(target, str) or not isinstance(contents, dict) or not contents:
        return None
    if not all(isinstance(v, str) and v for v in contents.values()):
        return None
    return Image(target, contents)


def is_lower(version: str, than: str) -> bool:
    """Whether a package's comparison stamp is lower; fields are read as hexadecimal if possible.

    Hexadecimal also orders decimal fields of equal length correctly, which suffices here.
    """

    def fields(text: str) -> list[tuple[int, str]]:
        return [
            (len(f.lstrip("0")), f.lstrip("0").lower()) for f in re.findall(r"[0-9A-Fa-f]+", text)
        ]

    return fields(version) < fields(than)


SUPERNICS = 8
DPUS = 2
FACTORY = {  # vendor -> factory username and how its password is made (a label on the chassis)
    "supermicro": ("ADMIN", ""),
    "ami_dgx": ("admin", "admin"),
    "dell": ("root", "calvin"),
    "hpe": ("Administrator", ""),
    "lenovo": ("USERID", "PASSW0RD"),
    "nvidia_openbmc": ("root", "0penBmc"),
    "nvidia_gb200": ("root", "0penBmc"),
}

HGX_TRAY = {  # NVIDIA fwpkg_unpack README: contents of HGX-H100x8_0002_230517.3.0
    "bmc": "HGX-22.10-1-rc36",
    "erot": "00.02.0134.0000_n00",
    "fpga": "2.11",
    "gpu": "96.00.68.00.01",
    "nvswitch": "96.10.38.00.01",
    "retimer": "1.31.8",
    "pcieswitch": "1.7.5F",
}
BLUEFIELD = {
    "BMC_Firmware": "BF-24.10-10",
    "Bluefield_FW_ERoT": "00.02.0195.0000_n02",
    "DPU_OS": "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod",
    "DPU_NIC": "32.43.1014",
    "DPU_UEFI": "4.9.0-46-g7e3911bd4d",
    "DPU_ATF": "v2.2(release):4.9.0-25-g0ce57e322",
    "DPU_BSP": "4.9.0.13378",
    "DPU_OFED": "MLNX_OFED_LINUX-24.10-0.6.8",
}
SYSTEM = "IMAGE=ubuntu-22.04-hgx-1\n"  # the stamp of the system that the vendor installs
PACKAGES = {
    "host.driver": "535.129.03",
    "host.fabric_manager": "535.129.03",
    "host.doca": "2.9.0-0.4.7",
    "host.spcx_cc": "2.9.0072-1",
}


def build_machine(
    name: str,
    schedule: Schedule,
    seed: int = 0,
    vendor: str = "supermicro",
    durations: Durations | None = None,
    macs: set[str] | None = None,
) -> Machine:
    """An 8-GPU HGX H100 host with 8 SuperNICs and 2 DPUs, on, booted, with factory credentials.

    `macs`: the site's addresses so far; this machine's are added.
    """
    macs = set() if macs is None else macs
    rng = random.Random(f"{seed}/{name}")
    host = Host(serial=_serial(rng, "A", 14), uuid=_uuid(rng), boot_id=_uuid(rng))
    host.packages = dict(PACKAGES)
    host.loaded = dict(PACKAGES)
    host.system = SYSTEM
    machine = Machine(name, host, schedule, durations or Durations(), f"{seed}/{name}/chance")
    user, password = FACTORY[vendor]
    machine.bmcs["host"] = Bmc(
        "host", vendor, host.serial, _mac(rng, macs), user, password or _serial(rng, "", 10)
    )
    _fit_parts(machine, rng)
    for item in HOST_ITEMS[vendor]:
        machine.firmware["host", item.id] = Firmware(
            item.id, "host", item.version, item.activation or "none", bool(item.activation)
        )
    board = Device("baseboard", "HGX_Chassis_0", "", "166" + _digits(rng, 10), "935-24287-0000-000")
    if vendor in ("supermicro", "ami_dgx"):  # only these two have published HGX trees
        machine.devices[board.slot] = board
        _fit_tray(machine)
    for index in range(SUPERNICS + DPUS):
        _fit_bluefield(machine, index, rng, macs)
    return machine


def list_connectx(machine: Machine) -> None:
    """Have a Supermicro BMC list the eight ConnectX-7 of the recorded host, in its own spelling.

    They are listed only: the simulated cards are BlueFields, which the recorded host has none of.
    """
    for item in SUPERMICRO_CONNECTX:
        machine.firmware["host", item.id] = Firmware(
            item.id, "host", item.version, "none", updateable=False
        )


def _serial(rng: random.Random, prefix: str, length: int) -> str:
    return prefix + "".join(
        rng.choice("0123456789ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(length - len(prefix))
    )


def _digits(rng: random.Random, length: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(length))


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _mac(rng: random.Random, macs: set[str]) -> str:
    """An unused one: with 24 random bits, two of some thousand would be equal."""
    while (mac := "7c:c2:55:" + ":".join(f"{rng.randrange(256):02x}" for _ in range(3))) in macs:
        pass
    macs.add(mac)
    return mac


def _fit_parts(machine: Machine, rng: random.Random) -> None:
    def fit(device: Device) -> None:
        machine.devices[device.slot] = device

    for n in range(1, 9):
        gpu = Device("gpu", f"GPU_SXM_{n}", "H100 80GB HBM3", "165" + _digits(rng, 10))
        gpu.part = "2330-885-A1"
        gpu.pci = f"0000:{0x18 + 0x11 * (n - 1):02x}:00.0"
        gpu.traits["uuid"] = "GPU-" + _uuid(rng)
        fit(gpu)
    for n in range(4):
        fit(
            Device(
                "nvswitch",
                f"NVSwitch_{n}",
                "NVSwitch",
                "132" + _digits(rng, 10),
                "5612-002",
                f"0000:{5 + n:02x}:00.0",
            )
        )
    for n in range(2):
        fit(Device("cpu", f"CPU{n + 1}", "Intel(R) Xeon(R) Platinum 8480+", _serial(rng, "", 16)))
    for n in range(32):
        slot = f"P{n // 16 + 1}-DIMM{chr(65 + n % 16 // 2)}{n % 2 + 1}"
        dimm = "SIMULATED-DIMM"
        fit(Device("memory", slot, dimm, _serial(rng, "", 8), dimm))
    for n in range(4):
        disk = Device("storage", f"NVMe_{n}", "Simulated NVMe", _serial(rng, "S64H", 14))
        disk.part = "SIMULATED-NVME"
        disk.pci = f"0000:{0xC0 + n:02x}:00.0"
        disk.link_gen = disk.link_gen_max = disk.link_width = disk.link_width_max = 4
        fit(disk)
    for n in range(6):
        psu = "SIMULATED-PSU"
        fit(Device("psu", f"PSU{n + 1}", psu, _serial(rng, "P3K6", 15), psu))
    machine.disks = fit_disks(machine.devices)


def _fit_tray(machine: Machine) -> None:
    """Add everything that the HGX bundle updates, behind the host's BMC."""

    def fit(
        item_id: str,
        version: str,
        activation: str,
        device: str = "",
        erot: str = "",
        manager: str = "",
    ) -> None:
        machine.firmware["host", item_id] = Firmware(
            item_id, "host", version, activation, device=device, erot=erot, manager=manager
        )
        if erot:
            machine.copies["host", erot] = "Completed"

    tray = HGX_TRAY
    fit("HGX_FW_BMC_0", tray["bmc"], "bmc_reset", erot="HGX_ERoT_BMC_0", manager="HGX_BMC_0")
    fit("HGX_FW_FPGA_0", tray["fpga"], "cold_boot", erot="HGX_ERoT_FPGA_0")
    fit("HGX_FW_PCIeSwitch_0", tray["pcieswitch"], "cold_boot", erot="HGX_ERoT_PCIeSwitch_0")
    fit("HGX_FW_ERoT_BMC_0", tray["erot"], "ac_cycle")
    fit("HGX_FW_ERoT_FPGA_0", tray["erot"], "ac_cycle")
    fit("HGX_FW_ERoT_PCIeSwitch_0", tray["erot"], "ac_cycle")
    for n in range(1, 9):
        gpu = f"GPU_SXM_{n}"
        fit(f"HGX_FW_{gpu}", tray["gpu"], "cold_boot", gpu, f"HGX_ERoT_{gpu}")
        fit(f"HGX_FW_ERoT_{gpu}", tray["erot"], "ac_cycle", gpu)
        fit(f"HGX_InfoROM_{gpu}", "G520.0200.00.05", "cold_boot", gpu)
        fit(f"HGX_FW_PCIeRetimer_{n - 1}", tray["retimer"], "cold_boot")
    for n in range(4):
        switch = f"NVSwitch_{n}"
        fit(f"HGX_FW_{switch}", tray["nvswitch"], "cold_boot", switch, f"HGX_ERoT_{switch}")
        fit(f"HGX_FW_ERoT_{switch}", tray["erot"], "ac_cycle", switch)
        fit(f"HGX_InfoROM_{switch}", "5612.0002.00.01", "cold_boot", switch)
    for (_, item_id), item in machine.firmware.items():
        if item_id.startswith("HGX_InfoROM"):
            item.updateable = machine.bmcs["host"].vendor == "ami_dgx"  # as captured


def _fit_bluefield(machine: Machine, index: int, rng: random.Random, macs: set[str]) -> None:
    is_dpu = index >= SUPERNICS
    slot = f"DPU_{index - SUPERNICS}" if is_dpu else f"NIC_{index}"
    user, password = FACTORY["nvidia_openbmc"]
    serial = "MT24" + _digits(rng, 4) + "X" + _serial(rng, "", 5)
    base_mac = _mac(rng, macs)
    machine.bmcs[slot] = Bmc(slot, "nvidia_openbmc", serial, _mac(rng, macs), user, password)
    machine.devices[slot] = Device(
        "dpu" if is_dpu else "nic",
        slot,
        "BlueField-3 DPU" if is_dpu else "BlueField-3 SuperNIC",
        serial,
        "900-9D3B6-00CV-AA0" if is_dpu else "900-9D3B4-00EN-E_Ax",
        f"0000:{0x1A + 0x11 * index if not is_dpu else 0xE0 + 8 * (index - SUPERNICS):02x}:00.0",
        base_mac,
        traits={"psid": "MT_0000000884" if is_dpu else "MT_0000001010", "uuid": _uuid(rng)},
    )
    card = Bluefield(slot, "DpuMode" if is_dpu else "NicMode")
    card.boot_state = "OsIsRunning" if is_dpu else "UEFI"
    offload = "0" if is_dpu else "1"  # INTERNAL_CPU_OFFLOAD_ENGINE: 1 is NIC mode
    card.nv_config = {"LINK_TYPE_P1": "2", "INTERNAL_CPU_OFFLOAD_ENGINE": offload}
    card.nv_config_next = dict(card.nv_config)
    machine.bluefields[slot] = card
    machine.copies[slot, "Bluefield_ERoT"] = "Completed"

    def fit(item_id: str, version: str, activation: str, *, updateable: bool = False) -> Firmware:
        item = Firmware(item_id, slot, version, activation, updateable)
        machine.firmware[slot, item_id] = item
        return item

    for item_id, version in BLUEFIELD.items():
        # the Arm side restarts by itself at the end of an installation; the NIC does not
        activation = {"DPU_NIC": "cold_boot", "BMC_Firmware": "bmc_reset"}.get(item_id, "none")
        fit(item_id, version, activation)
    machine.firmware[slot, "BMC_Firmware"].erot = "Bluefield_ERoT"
    machine.firmware[slot, "Bluefield_FW_ERoT"].activation = "cold_boot"
    for item_id in ("BMC_Firmware", "Bluefield_FW_ERoT", "DPU_OS"):
        machine.firmware[slot, item_id].updateable = True
    for item_id in ("golden_image_arm", "golden_image_nic", "golden_image_config"):
        fit(item_id, "version not available", "none", updateable=True)
    fit("DPU_BOARD", str(machine.devices[slot].traits["psid"]), "none")
    for item_id, guid in _list_guids(base_mac).items():
        fit(item_id, guid, "none")
    if not is_dpu:  # measured: in NIC mode these two have an empty version
        machine.firmware[slot, "DPU_NIC"].hidden = True
        machine.firmware[slot, "DPU_OS"].hidden = True


def _list_guids(base_mac: str) -> dict[str, str]:
    guid = base_mac.replace(":", "")
    return {
        "DPU_NODE": ":".join((guid[:4], guid[4:6] + "ff", "fe" + guid[6:8], guid[8:])),
        "DPU_SYS_IMAGE": ":".join((guid[:4], guid[4:6] + "03", "00" + guid[6:8], guid[8:])),
    }


def remove_card(machine: Machine, slot: str) -> None:
    """Take a card out of a machine that was just built."""
    for held in (machine.bmcs, machine.devices, machine.bluefields):
        held.pop(slot, None)
    for copy in [c for c in machine.copies if c[0] == slot]:
        del machine.copies[copy]
    for place in [p for p in machine.firmware if p[0] == slot]:
        del machine.firmware[place]


def fit_listed_card(machine: Machine, slot: str, serial: str, base_mac: str, pci: str) -> None:
    """Give a card of a machine that was just built the serial and addresses of a list.

    What the list leaves open stays as it was built. Raises KeyError for a slot that no machine has.
    """
    card = machine.devices[slot]
    card.serial = serial or card.serial
    card.mac = base_mac.lower() or card.mac
    card.pci = pci.lower() or card.pci
    machine.bmcs[slot].serial = card.serial
    for item_id, guid in _list_guids(card.mac).items():
        machine.firmware[slot, item_id].running = guid
