"""Supermicro X12 and later (facts: redfish 3.4, hardware 4.5). Its service root names no vendor."""

from __future__ import annotations

from provisioner.quirks.quirk import AcCycle, Licence, Quirk

_BIOS = {"PreserveME": True, "PreserveNVRAM": True, "PreserveSMBIOS": True, "BackupBIOS": False}
_BMC = {"PreserveCfg": True, "PreserveSdr": True, "PreserveSsl": True, "BackupBMC": False}

QUIRK = Quirk(
    name="supermicro",
    title="Supermicro",
    vendor=r"^(Supermicro|Super Micro)",
    oem="Supermicro",
    apply_time="Immediate",  # otherwise an upload is only verified until StartUpdate is posted
    oem_by_kind={
        "host.bios": {"Supermicro": {"BIOS": _BIOS}},
        "host.bmc": {"Supermicro": {"BMC": _BMC}},
    },
    targets={"host.bios": "@bios", "host.bmc": "@manager"},
    force="none",
    media_inserted=False,
    media_targets=("UsbCd", "Cd"),  # source: sushy's constants: virtual media boots as UsbCd only
    ac_cycle=AcCycle(
        resource="Systems",
        action="OemSystemExtensions.Reset",
        body={"ResetType": "ACCycle"},
        needs_off=False,
        # source: libredfish supermicro.rs posts to this path; captured trees do not list it
        unlisted="Actions/Oem/OemSystemExtensions.Reset",
    ),
    licence=Licence(  # source: captured tree of a SYS-821GE-TNHR; fwupd's FWUpdate-unlicensed
        hops=(("Oem", "Supermicro", "LicenseManager"), ("QueryLicense",)),
        fields=("Licenses",),
        sufficient=r"SFT-DCMS|SFT-OOB|SFT-SUM",
        needed_for=("push",),
        title="SFT-DCMS-SINGLE or SFT-OOB-LIC",
    ),
)
