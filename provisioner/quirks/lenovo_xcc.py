"""Lenovo XClarity Controller (docs/sources/redfish.md#lenovo)."""

from __future__ import annotations

from provisioner.quirks.meaning import Row, enabled, switch
from provisioner.quirks.quirk import AcCycle, Quirk

_SR670 = "captured registry of a ThinkSystem SR670 V2"
_LENOVO_RS = f"libredfish lenovo.rs; {_SR670}"
_MEANINGS = (
    enabled("iommu", "DevicesandIOPorts_IntelVTforDirectedIOVTd", _SR670),
    enabled("sr_iov", "DevicesandIOPorts_SRIOV", _SR670),
    enabled("acs", "Processors_PCIeACSCTL", _SR670),
    Row(
        meaning="numa_per_socket",
        attribute="Processors_SNC",
        values={"1": ("Disabled",)},
        source=f"{_SR670}: Enabled does not say into how many",
    ),
    Row(
        meaning="power_profile",
        attribute="OperatingModes_ChooseOperatingMode",
        values={
            "performance": ("MaximumPerformance",),
            "balanced": ("Efficiency_FavorPerformance",),
            "custom": ("CustomMode",),
        },
        source=f"{_SR670}: other attributes are dropped unless it is CustomMode "
        "(python-redfish-lenovo 174)",
    ),
    switch("c_states", "Processors_CStates", "Autonomous", "Disabled", _SR670),
    enabled("c1e", "Processors_C1EnhancedMode", _SR670),
    enabled("smt", "Processors_HyperThreading", _SR670),
    switch("aspm", "Power_ASPM", "Auto", "Disabled", _SR670),
    Row(
        meaning="boot_mode",
        attribute="BootModes_SystemBootMode",
        values={"uefi": ("UEFIMode",), "legacy": ("LegacyMode",)},
        source=_LENOVO_RS,
    ),
    enabled("http_boot", "NetworkStackSettings_IPv4HTTPSupport", _LENOVO_RS),
    enabled("pxe_boot", "NetworkStackSettings_IPv4PXESupport", _LENOVO_RS),
    enabled("boot_retry", "BootModes_InfiniteBootRetry", _LENOVO_RS),
)

QUIRK = Quirk(
    name="lenovo_xcc",
    title="Lenovo XCC",
    # source: Lenovo XClarity Controller, "Logging in"
    factory_user="USERID",
    factory_printed="in Lenovo's manual of the XClarity Controller",
    vendor=r"^Lenovo",
    oem="Lenovo",
    apply_time="Immediate",
    bmc_first="Lenovo's manual: update the firmware for XClarity Controller first",
    force="none",
    # source: fwupd ("only the backup BMC device can be updated by specifying the target ID, the
    # others need an empty array", and a blank in the file name answers InternalError); libredfish
    package_files=r".",
    empty_targets=True,
    file_name_blanks=False,
    claim=True,  # source: Lenovo's XCC Redfish pages, UpdateService
    # source: captured tree of a ThinkSystem SR670 V2 (EXT1 has no action); sushy PATCHes then
    media_by_patch=True,
    media_slots=r"^EXT\d",
    ac_cycle=AcCycle(
        resource="Systems",
        action="LenovoComputerSystem.SystemReset",
        body={"ResetType": "ACPowerCycle"},
    ),
    bmc_reset_s=240.0,
    meanings=_MEANINGS,
)
