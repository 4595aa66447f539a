"""Where the simulated BMCs' behaviour comes from: one row for each rule.

A behaviour counts as proof of the client only where it comes from a captured tree, a schema,
another client's code or real server software. Rows with `ASSUMED` prove nothing. The shapes'
properties have their source in `recorded/*.json`. The reference page of the simulated BMCs is made
from both.
"""

from __future__ import annotations

from typing import NamedTuple

ASSUMED = "assumed"
_R750 = "captured tree of a PowerEdge R750"
_DGX = "captured tree of a DGX H100"


class SourcedRule(NamedTuple):
    """One rule of the simulated BMCs. `shapes`: names of shapes, or "all"."""

    behaviour: str
    shapes: str
    source: str


RULES = (
    SourcedRule(
        "BIOS attributes, their values, the locks among them and the ones that a profile writes",
        "dell, hpe, lenovo, supermicro",
        "attribute registries in NVIDIA/libredfish tests/mockups",
    ),
    SourcedRule("no attribute registry is served", "ami_dgx", _DGX),
    SourcedRule(
        "values wait in the settings object for the next start of the host", "all", "DMTF Settings"
    ),
    SourcedRule(
        "uploads with a target are refused, but for the backup BMC; a blank in the file name is "
        "500 InternalError",
        "lenovo",
        "fwupd; NVIDIA/libredfish lenovo.rs",
    ),
    SourcedRule(
        "`HttpPushUriTargetsBusy` reserves the update service",
        "lenovo",
        "captured tree of a ThinkSystem SR670 V2; Lenovo's Redfish pages",
    ),
    SourcedRule(
        "uploads without `Oem` in their parameters are refused", "dell", "NVIDIA/libredfish dell.rs"
    ),
    SourcedRule("keys of the refusals of uploads with other parameters", "dell, lenovo", ASSUMED),
    SourcedRule("the settings object lists nothing that does not wait", "dell", _R750),
    SourcedRule(
        "settings without an apply time make no job, and are never carried out",
        "dell",
        "terraform-provider-redfish 231",
    ),
    SourcedRule(
        "settings are refused while a job for settings is committed",
        "dell",
        "redhat-performance/quads 726; NVIDIA/libredfish dell.rs",
    ),
    SourcedRule("that refusal is 400 ResourceInUse", "dell", ASSUMED),
    SourcedRule(
        "attributes outside of CustomMode are accepted, wait, and are dropped at the start",
        "lenovo",
        "lenovo/python-redfish-lenovo 174",
    ),
    SourcedRule(
        "Secure Boot is switched by `SecureBootEnable`, and runs from the next start",
        "all",
        "DMTF SecureBoot 1.1; NVIDIA/libredfish standard.rs",
    ),
    SourcedRule("the factory's keys run from the next start after ResetKeys", "all", ASSUMED),
    SourcedRule(
        "a drive without actions takes `Image`, `Inserted` and `WriteProtected` by PATCH, and "
        "nothing else",
        "lenovo",
        "captured tree of a ThinkSystem SR670 V2 (EXT1); sushy falls back to PATCH",
    ),
    SourcedRule(
        "no drive is listed before `AMIVirtualMedia.EnableRMedia`",
        "ami_dgx",
        f"{_DGX}, EnableRMediaActionInfo",
    ),
    SourcedRule(
        "`InsertMedia` requires user and password", "ami_dgx", "NVIDIA/libredfish nvidia_viking.rs"
    ),
    SourcedRule(
        "the settings object `SD` of the system takes the boot override and `HttpBootUri` with its "
        "ETag, and refuses a property that it does not list",
        "ami_dgx",
        f"{_DGX}, Systems/DGX/SD; NVIDIA/libredfish nvidia_viking.rs",
    ),
    SourcedRule("the system itself takes the boot override too", "ami_dgx", ASSUMED),
    SourcedRule(
        "the settings object takes the boot override with `HttpBootUri`, which it does not show "
        "while UefiHttp is not among its sources",
        "nvidia_gb200",
        "NVIDIA/bmcweb 7f3a16ae, systems.hpp (handleComputerSystemSettingsPatch, "
        "getUefiPropertySettingsHost); NVIDIA/libredfish pull request 74, nvidia_gbx00.rs",
    ),
    SourcedRule(
        "`UefiHttp` is taken although no list has it",
        "nvidia_gb200",
        "NVIDIA/libredfish nvidia_gbx00.rs",
    ),
    SourcedRule(
        "virtual drives serve the console: no boot source boots their image",
        "nvidia_gb200",
        "captured tree of a GB200 (USB1, USB2; no UsbCd); NICo boots such trays by HTTP only",
    ),
    SourcedRule(
        "`AuxPowerReset` while the chassis is on is 400 ChassisPowerStateOffRequired",
        "nvidia_gb200",
        "NVIDIA/infra-controller issue 909; captured tree of a GB200 (AuxPowerResetActionInfo)",
    ),
    SourcedRule("settings of the BIOS, parts and drives of the tray", "nvidia_gb200", ASSUMED),
    SourcedRule("PATCH without `If-Match` is 428", "ami_dgx", "NVIDIA/libredfish nvidia_viking.rs"),
    SourcedRule(
        "`Cd` does not boot virtual media, `ServerBoot.1.FirstBootDevice = VCD-DVD` does, once "
        "while `BootOnce` is enabled",
        "dell",
        f"openstack/sushy-oem-idrac; dell/iDRAC-Redfish-Scripting 90; {_R750} (DellAttributes)",
    ),
    SourcedRule(
        "`Bios.ChangePassword` with `SetupPassword` waits for a BIOS configuration job and the "
        "boot; `SHA256SetupPassword` is the digest of the password and the salt behind it",
        "dell",
        f"dell/iDRAC-Redfish-Scripting BiosChangePasswordREDFISH; {_R750}, Bios/BiosRegistry",
    ),
    SourcedRule("the BIOS compares the old set-up password at the boot", "dell", ASSUMED),
    SourcedRule(
        "a task has a job of the same id, which stays after a restart of the iDRAC",
        "dell",
        f"dell/iDRAC-Redfish-Scripting DeviceFirmwareMultipartUploadREDFISH; {_R750}, "
        "JobService/Jobs",
    ),
    SourcedRule("a new task is 404 for some seconds", "dell", "openstack/sushy, release notes"),
    SourcedRule("ids of inventory items contain the version", "dell", _R750),
    SourcedRule(
        "`Cd` does not boot virtual media, `UsbCd` does",
        "supermicro",
        "openstack/sushy's constants",
    ),
    SourcedRule(
        "an AC cycle that no resource lists", "supermicro", "NVIDIA/libredfish supermicro.rs"
    ),
    SourcedRule(
        "items `Capsule_*` related to the BIOS; a ConnectX-7's firmware printed as 28.37.10.14",
        "supermicro",
        "NVIDIA/libredfish tests/mockups/supermicro (SYS-821GE-TNHR), FirmwareInventory",
    ),
    SourcedRule("`HGX_0` among the AllowableValues of SimpleUpdate", "supermicro", ASSUMED),
    SourcedRule(
        "chassis and roots of trust of the GPU tray, as a DGX H100 has them",
        "supermicro",
        ASSUMED,
    ),
    SourcedRule(
        "licences: one that suffices is installed",
        "dell, hpe, supermicro",
        f"{_R750} (DellLicenses); captured trees of a DL385 Gen10 Plus v2 (LicenseService) and a "
        "SYS-821GE-TNHR (QueryLicense)",
    ),
    SourcedRule(
        "`HttpBootUri` is in no `Boot`",
        "dell, hpe, lenovo, supermicro",
        "captured trees of R750, DL385, SR670, SYS-821GE",
    ),
    SourcedRule(
        "`UefiHttp` without a URI loads the image that the site's DHCP server names",
        "all",
        "UEFI 2.10, 24.7; dell/iDRAC-Redfish-Scripting 319; NVIDIA/libredfish pull request 74",
    ),
    SourcedRule(
        "settings objects of the BIOS refuse attributes that they do not list, with "
        "`PropertyUnknown`",
        "all",
        "DSP0266, clause 7.7; error bodies DSP0266, clause 8.6",
    ),
    SourcedRule("names and values of BIOS attributes of hosts", "all", ASSUMED),
    SourcedRule("values of sensors, drives and memory modules", "all", ASSUMED),
    SourcedRule(
        "events, streams and subscriptions",
        "nvidia_openbmc, nvidia_gb200",
        "NVIDIA/bmcweb 7f3a16ae, as it was run",
    ),
    SourcedRule(
        "update tasks",
        "nvidia_openbmc, nvidia_gb200",
        "NVIDIA/bmcweb and pldm; open-nvfwupd's transcripts",
    ),
)
