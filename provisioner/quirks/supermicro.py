"""Supermicro X12 and later (facts: redfish 3.4, hardware 4.5). Its service root names no vendor."""

from __future__ import annotations

from provisioner.quirks.quirk import AcCycle, Quirk

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
    ac_cycle=AcCycle(
        resource="Systems",
        action="OemSystemExtensions.Reset",
        body={"ResetType": "ACCycle"},
        needs_off=False,
    ),
)
