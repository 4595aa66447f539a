"""The host around the baseboard: motherboard, power, storage, and tools that live in flash.

Rules are for DGX, GB200 and MGX trays, Dell FQDDs, HPE names, Lenovo and Supermicro Ids
(docs/sources/hardware.md#host-names). Grammars are "opaque" where vendors' forms differ.
"""

from __future__ import annotations

from provisioner.components.kind import ComponentKind, Rule
from provisioner.model.inventory import Activation


def _match_dell(fqdd: str) -> Rule:
    """Return a rule for Dell's "Installed-<component>-<version>__<FQDD>": the FQDD identifies."""
    return Rule(id=rf"^(Installed|Current)-.*__(?P<fqdd>{fqdd}.*)$", slot="{fqdd}")


KINDS = (
    ComponentKind(
        name="host.erot",
        title="host root of trust",
        grammar="erot",
        activation=Activation.AC_CYCLE,
        duration_s=300,
        rules=(
            Rule(id=r"^EROT_(?P<slot>(BMC|BIOS)_\d+)$", slot="{slot}"),
            Rule(id=r"^(MGX_)?FW_ERoT_(?P<slot>.+)$", slot="{slot}"),
        ),
    ),
    ComponentKind(
        name="host.bmc",
        title="host BMC",
        grammar="host_bmc",
        activation=Activation.BMC_RESET,
        duration_s=900,
        rules=(
            Rule(id=r"^Host(?P<slot>BMC_\d+)$", slot="{slot}"),
            Rule(id=r"^(MGX_)?FW_(?P<slot>BMC_\d+)$", slot="{slot}"),
            _match_dell(r"iDRAC\."),
            Rule(id=r"^BMC(-Primary|_\d+|Firmware|_Firmware|\d*)?$", dpu=False),
            Rule(name=r"^iLO \d"),
            Rule(related=r"/Managers/[^/ ]+$", name=r"\bBMC\b|Management Controller"),
        ),
    ),
    ComponentKind(
        name="host.me",
        title="management engine, microcode and other firmware inside the BIOS",
        method="none",
        rules=(
            # Supermicro lists "Capsule_BIOS 1.0" beside "BIOS ... Ver 1.4": not a second BIOS
            Rule(id=r"^(Capsule_\w+|BIOS_ME|ME)$"),
            Rule(name=r"Server Platform Services|Innovation Engine"),
            Rule(name=r"Intelligent Platform Abstraction"),
        ),
    ),
    ComponentKind(
        name="host.bios",
        title="host BIOS",
        activation=Activation.COLD_BOOT,
        duration_s=900,
        rules=(
            Rule(id=r"^Host(?P<slot>BIOS_\d+)$", slot="{slot}"),
            Rule(id=r"^MGX_FW_(?P<slot>CPU_\d+)$", slot="{slot}"),
            _match_dell(r"BIOS\."),
            Rule(id=r"^(BIOS|UEFI|Bios|BIOS_\d+|BIOSFirmware)$"),
            Rule(name=r"^(System ROM|BIOS|System BIOS|UEFI)\b"),
            Rule(name=r"\bBIOS\b", related=r"/Bios$|/Systems/[^/ ]+$"),
        ),
    ),
    ComponentKind(
        name="host.cpld",
        title="host CPLD",
        activation=Activation.AC_CYCLE,
        rules=(
            Rule(id=r"^(MGX_)?(FW_)?(?P<slot>CPLD(MB|MID)?_\d+)$", slot="{slot}"),
            _match_dell(r"CPLD\."),
            Rule(id=r"CPLD"),
            Rule(name=r"Programmable Logic Device|\bCPLD\b"),
        ),
    ),
    ComponentKind(
        name="host.fpga",
        title="host FPGA",
        activation=Activation.AC_CYCLE,
        rules=(Rule(id=r"^(MGX_)?FW_(?P<slot>FPGA_\d+)$", slot="{slot}"), _match_dell(r"FPGA\.")),
    ),
    ComponentKind(
        name="host.nvswitch",
        title="NVLink switch of a switch tray",
        activation=Activation.AC_CYCLE,
        rules=(Rule(id=r"^MGX_FW_(?P<slot>NVSwitch_\d+)$", slot="{slot}"),),
    ),
    ComponentKind(
        name="host.psu",
        title="power supply",
        duration_s=900,
        rules=(
            _match_dell(r"PSU\."),
            Rule(id=r"^(PSU|PowerSupply)[_-]?\d+$"),
            Rule(name=r"^Power ?Supply\b|^POWER-PSU"),
        ),
    ),
    ComponentKind(
        name="host.pcieswitch",
        title="host PCIe switch",
        activation=Activation.AC_CYCLE,
        rules=(Rule(id=r"^PCIeSwitch_\d+$"), Rule(name=r"PCIe? Switch|Switched 4x")),
    ),
    ComponentKind(
        name="host.retimer",
        title="host PCIe retimer",
        grammar="dotted",
        activation=Activation.AC_CYCLE,
        rules=(Rule(id=r"^PCIeRetimer_\d+$"),),
    ),
    ComponentKind(
        name="host.gpu",
        title="GPU listed by the host BMC",
        grammar="dotted_hex",
        method="none",
        rules=(
            Rule(id=r"^GPU[_-]?\d+$"),
            _match_dell(r"Video\.Slot"),
            Rule(related=r"/Processors/GPU[^/ ]*$"),
            Rule(software_id=r"^DEVICE-10DE"),  # Lenovo: PCI vendor 10DE is NVIDIA
        ),
    ),
    ComponentKind(
        name="host.raid",
        title="storage controller, backplane or boot device",
        rules=(
            _match_dell(r"(RAID|NonRAID|AHCI|BOSS|Enclosure)\."),
            Rule(name=r"Smart ?Array|\bMR\d+i|RAID|Backplane|\bUBM\d|HBA"),
            Rule(name=r"Smart Storage Energy Pack"),
            Rule(id=r"^NVMeController\d+$"),
            Rule(related=r"/(Simple)?Storage/[^/ ]+( |$)"),
        ),
    ),
    ComponentKind(
        name="host.nvme",
        title="drive",
        rules=(
            _match_dell(r"Disk\."),
            Rule(id=r"^(NVMe|Disk|SSD|HDD|Drive)"),
            Rule(name=r"NVMe (Drive|SSD)|\bS(ATA|AS) (SSD|HDD)|^Firmware:DISK"),
            Rule(related=r"/Drives/"),
        ),
    ),
    ComponentKind(
        name="host.tpm",
        title="trusted platform module",
        method="none",
        rules=(_match_dell(r"TPM\."), Rule(id=r"^TPM"), Rule(name=r"^TPM\b")),
    ),
    ComponentKind(
        name="host.tools",
        title="provisioning tools and driver packs in the BMC's flash",
        method="none",
        rules=(
            _match_dell(r"(DriverPack|Diagnostics|USC|ServiceModule|OSCollector)\."),
            Rule(id=r"^LXPM"),
            Rule(name=r"^Intelligent Provisioning"),
        ),
    ),
    ComponentKind(
        name="host.power",
        title="power and video microcontrollers",
        method="none",
        rules=(Rule(name=r"^Power Management Controller|Embedded Video Controller"),),
    ),
)
