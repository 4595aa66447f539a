"""A host's firmware besides its GPU tray, per vendor: id, name, first version, activation.

Ids and versions as NVIDIA/libredfish's recorded machines show them (MIT, commit c094c9e).
"""

from __future__ import annotations

from typing import NamedTuple


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
