"""Network cards other than BlueField, and the NV configuration of any NVIDIA card."""

from __future__ import annotations

from provisioner.components.kind import ComponentKind, Rule
from provisioner.model.inventory import Activation

KINDS = (
    ComponentKind(
        name="nic.cx7",
        title="ConnectX-7 firmware",
        grammar="nic",
        method="playbook_nic_firmware",
        activation=Activation.NIC_RESET,
        duration_s=300,
        rules=(
            Rule(id=r"^CX7_\d+$"),
            Rule(name=r"ConnectX-7|\bMCX75\d"),
            Rule(id=r"^NIC_\d+$", version=r"^28\."),  # ConnectX-7 firmware is 28.x
        ),
    ),
    ComponentKind(
        name="nic.cx8",
        title="ConnectX-8 firmware",
        grammar="nic",
        method="playbook_nic_firmware",
        activation=Activation.NIC_RESET,
        duration_s=300,
        rules=(
            Rule(id=r"^CX8_\d+$"),
            Rule(name=r"ConnectX-8|\bMCX8\d"),
            Rule(id=r"^NIC_\d+$", version=r"^40\."),  # ConnectX-8 firmware is 40.x
        ),
    ),
    ComponentKind(
        name="nic.config",
        title="NV configuration profile",
        method="playbook_nic_config",
        activation=Activation.COLD_BOOT,  # a changed mode runs after a host power cycle
        duration_s=120,
    ),
    ComponentKind(
        name="nic.other",
        title="other network adapter",
        method="none",
        rules=(
            Rule(id=r"__(?P<fqdd>(NIC|InfiniBand|FC)\..+)$", slot="{fqdd}"),
            Rule(id=r"^NIC[_-]?\d+$"),
            Rule(name=r"ConnectX|BlueField|SmartNIC|Mellanox|\bEth(ernet)? Ad|\bNIC\b|OCPv?3"),
            Rule(name=r"Network ?Adapter"),
            Rule(related=r"/NetworkAdapters/"),
        ),
    ),
)
