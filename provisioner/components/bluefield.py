"""BlueField-3 cards as their own BMC lists them (docs/sources/hardware.md#bluefield), and in-band
NIC firmware.

The slot of every item of a card is the name of the card's BMC within the node ("DPU_1", "NIC_3").
"""

from __future__ import annotations

from provisioner.components.kind import ComponentKind, Rule
from provisioner.model.inventory import Activation
from provisioner.model.machine.settings import DPU_SETTINGS, SUPERNIC_SETTINGS
from provisioner.model.plan import Disruption

IDENTITY = "bluefield.identity"
_BUNDLED = "with_bundle"

KINDS = (
    ComponentKind(
        name=IDENTITY,
        title="PSID and GUIDs, which the card lists among its versions",
        method="none",
        rules=(Rule(id=r"^DPU_(?P<what>BOARD|NODE|SYS_IMAGE)$", slot="{bmc}:{what}"),),
    ),
    ComponentKind(
        name="bluefield.golden",
        title="BlueField recovery image",
        method="none",
        rules=(Rule(id=r"^golden_image_(?P<what>\w+)$", slot="{bmc}:{what}"),),
    ),
    ComponentKind(
        name="bluefield.bmc",
        title="BlueField BMC",
        grammar="bluefield_bmc",
        activation=Activation.BMC_RESET,
        duration_s=1200,
        rules=(
            Rule(id=r"^([0-9a-f]{8}_)?BMC_Firmware$", dpu=True, slot="{bmc}"),  # BF2 has a prefix
            Rule(id=r"^Bluefield_FW_BMC_0$", slot="{bmc}"),  # the name on BlueField-4
        ),
    ),
    ComponentKind(
        name="bluefield.erot",
        title="BlueField root of trust",
        grammar="erot",
        # an old CEC refuses its own reset with 400 (docs/sources/redfish.md#bf-cec)
        activation=Activation.COLD_BOOT,
        duration_s=240,
        rules=(Rule(id=r"^Bluefield_FW_ERoT", slot="{bmc}"),),
    ),
    ComponentKind(
        name="bluefield.bundle",
        title="BlueField software bundle (BFB)",
        grammar="bfb",
        method="bluefield_bfb",
        activation=Activation.COLD_BOOT,  # the NIC firmware in it runs after a host power cycle
        disruption=Disruption.NIC,
        duration_s=2400,
        target="DPU_OS",
        rules=(Rule(id=r"^DPU_OS$", slot="{bmc}"),),
    ),
    ComponentKind(
        name="bluefield.nic",
        title="BlueField NIC firmware",
        grammar="nic",
        method="playbook_nic_firmware",  # or in a bundle; the BMC reports Updateable: false
        activation=Activation.COLD_BOOT,
        duration_s=300,
        rules=(
            Rule(id=r"^DPU_NIC$", slot="{bmc}"),
            Rule(id=r"^NIC_\d+$", version=r"^32\."),  # GB200: BlueField-3 firmware is 32.x
        ),
    ),
    ComponentKind(
        name="supernic.nic",  # a card in NIC mode: the host reports its version, its BMC does not
        title="BlueField SuperNIC firmware",
        grammar="nic",
        method="playbook_nic_firmware",
        activation=Activation.COLD_BOOT,
        duration_s=300,
    ),
    ComponentKind(
        name="bluefield.uefi",
        title="BlueField UEFI",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=(Rule(id=r"^DPU_UEFI$", slot="{bmc}"),),
    ),
    ComponentKind(
        name="bluefield.atf",
        title="BlueField Arm trusted firmware",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=(Rule(id=r"^DPU_ATF$", slot="{bmc}"),),
    ),
    ComponentKind(
        name="bluefield.bsp",
        title="BlueField board support package",
        grammar="dotted",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=(Rule(id=r"^DPU_BSP$", slot="{bmc}"),),
    ),
    ComponentKind(
        name="bluefield.ofed",
        title="OFED on the BlueField's Arm cores",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=(Rule(id=r"^DPU_OFED$", slot="{bmc}"),),
    ),
    ComponentKind(
        name=DPU_SETTINGS,
        title="mode and host privilege of a BlueField",
        method="redfish_card_settings",
        activation=Activation.COLD_BOOT,  # as NVIDIA's guide asks for a change of mode
        duration_s=60,
    ),
    ComponentKind(
        name=SUPERNIC_SETTINGS,
        title="mode of a BlueField SuperNIC",
        method="redfish_card_settings",
        activation=Activation.COLD_BOOT,
        duration_s=60,
    ),
)
