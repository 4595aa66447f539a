"""The HGX baseboard: all items that its one firmware package updates
(docs/sources/hardware.md#hgx).

Supermicro, Dell and others pass on the HGX BMC's own inventory with the same Ids.
"""

from __future__ import annotations

from provisioner.components.kind import ComponentKind, Rule
from provisioner.model.inventory import Activation
from provisioner.model.plan import Disruption

_BUNDLED = "with_bundle"


def _match_part(pattern: str) -> tuple[Rule, ...]:
    """Return the rule for `HGX_FW_<part>_<n>`; the slot is the text after the prefix."""
    return (Rule(id=rf"^HGX_FW_(?P<slot>{pattern})$", slot="{slot}"),)


KINDS = (
    ComponentKind(
        name="hgx.bundle",
        title="HGX baseboard firmware package",
        grammar="hgx_bundle",
        activation=Activation.AC_CYCLE,  # it holds root-of-trust firmware
        duration_s=1800,
        target="HGX_0",
        derived=True,
    ),
    ComponentKind(
        name="hgx.erot",
        title="HGX root of trust",
        grammar="erot",
        method=_BUNDLED,
        activation=Activation.AC_CYCLE,
        rules=(Rule(id=r"^HGX_FW_ERoT_(?P<slot>.+)$", slot="{slot}"),),
    ),
    ComponentKind(
        name="hgx.bmc",
        title="HGX BMC",
        grammar="hgx_bmc",
        method=_BUNDLED,
        activation=Activation.BMC_RESET,
        disruption=Disruption.BMC,
        rules=_match_part(r"BMC_\d+"),
    ),
    ComponentKind(
        name="hgx.gpu",
        title="GPU VBIOS",
        grammar="dotted_hex",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=_match_part(r"GPU_(SXM_)?\d+"),
    ),
    ComponentKind(
        name="hgx.nvswitch",
        title="NVSwitch firmware",
        grammar="dotted_hex",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=_match_part(r"NVSwitch_\d+"),
    ),
    ComponentKind(
        name="hgx.fpga",
        title="HGX FPGA",
        grammar="dotted_hex",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=_match_part(r"FPGA_\d+"),
    ),
    ComponentKind(
        name="hgx.pcieswitch",
        title="HGX PCIe switch",
        grammar="dotted_hex",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=(
            *_match_part(r"PCIeSwitch_\d+"),
            Rule(id=r"^HGX_(?P<slot>PCIeSwitchConfig_\d+)$", slot="{slot}"),
        ),
    ),
    ComponentKind(
        name="hgx.retimer",
        title="HGX PCIe retimer",
        grammar="dotted",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=_match_part(r"PCIeRetimer_\d+"),
    ),
    ComponentKind(
        name="hgx.cpu",
        title="Grace CPU firmware",
        grammar="dotted",
        method=_BUNDLED,
        activation=Activation.AC_CYCLE,
        rules=_match_part(r"CPU_\d+"),
    ),
    ComponentKind(
        name="hgx.inforom",
        title="InfoROM",
        method=_BUNDLED,
        activation=Activation.COLD_BOOT,
        rules=(Rule(id=r"^HGX_InfoROM_(?P<slot>.+)$", slot="{slot}"),),
    ),
    ComponentKind(
        name="hgx.cpld",
        title="HGX CPLD",
        grammar="dotted_hex",
        method=_BUNDLED,
        activation=Activation.AC_CYCLE,
        rules=_match_part(r"CPLD_\d+"),
    ),
    ComponentKind(
        name="hgx.driver",
        title="driver that a GPU or NVSwitch is used by, seen out of band",
        grammar="dotted",
        method="none",
        rules=(Rule(id=r"^HGX_Driver_(?P<slot>.+)$", slot="{slot}", software=True),),
    ),
)
