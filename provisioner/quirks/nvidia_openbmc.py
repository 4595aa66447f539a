"""NVIDIA's OpenBMC: BlueField, GB200 and GB300 trays, switch BMCs
(docs/sources/redfish.md#openbmc-update).
"""

from __future__ import annotations

from provisioner.quirks.meaning import Row, enabled
from provisioner.quirks.quirk import AcCycle, Quirk

_GB200 = "captured registry of a GB200 tray"
_CARD = "captured tree of a BlueField-3; libredfish nvidia_dpu.rs"
_MEANINGS = (
    Row(
        meaning="host_privilege",
        attribute=r"Host ?Privilege ?Level",  # with blanks before BMC 24.10
        values={"restricted": ("Restricted",), "unrestricted": ("Privileged",)},
        source=_CARD,
    ),
    Row(
        meaning="card_mode",  # of a BlueField-2; a BlueField-3 has an action for it
        attribute=r"NicMode",
        values={"dpu": ("DpuMode",), "nic": ("NicMode",)},
        source=_CARD,
    ),
    Row(
        meaning="acs",
        attribute=r"Socket\d+Pcie\d+AdvertiseACS",
        values={"on": (True,), "off": (False,)},
        source=_GB200,
    ),
    Row(
        meaning="aspm",
        attribute=r"Socket\d+Pcie\d+EnableASPML1",
        values={"on": (True,), "off": (False,)},
        source=_GB200,
    ),
    enabled("uefi_shell", "EmbeddedUefiShell", f"libredfish nvidia_gbx00.rs; {_GB200}"),
    enabled("tpm", "TPM", f"libredfish nvidia_gbx00.rs; {_GB200}"),
)

QUIRK = Quirk(
    name="nvidia_openbmc",
    title="NVIDIA OpenBMC",
    # source: NVIDIA BlueField BMC v24.10, "Connecting to BMC Interfaces"
    factory_user="root",
    factory_printed="in NVIDIA's manual of the BlueField BMC",
    vendor=r"^NVIDIA$",
    # source of "GB BMC": NVIDIA/infra-controller#539
    product=r"^(Nvidia-BMCMezz|GB\d* ?NVL|GB BMC|P3809)",
    oem="Nvidia",
    is_openbmc=True,
    targets={"hgx.bundle": "Chassis/HGX_Chassis_0"},
    # source: open-nvfwupd, flow of a GB300: the BMC is written and rebooted, then all the others
    bmc_first="NVIDIA's update flow of GB300 trays: the BMC is written and rebooted first",
    # its virtual drives serve the console only (docs/sources/redfish.md#virtual-media)
    http_boot=True,
    password_if_match="none",  # noqa: S106 (no ETag is sent; docs/sources/redfish.md#no-etag)
    pull_without_scheme=True,  # the service takes the text up to the first slash as the server
    pull_targets_relative=True,  # the service searches for a part of the text
    ac_cycle=AcCycle(
        resource="Chassis",
        action="NvidiaChassis.AuxPowerReset",
        body={"ResetType": "AuxPowerCycle"},
    ),
    bmc_reset_s=100.0,
    lockout_failures=4,
    meanings=_MEANINGS,
)
