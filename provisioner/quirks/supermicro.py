"""Supermicro X12 and later, whose service root names no vendor
(docs/sources/redfish.md#supermicro).
"""

from __future__ import annotations

from provisioner.quirks.meaning import SUFFIX, Row, enabled, switch
from provisioner.quirks.quirk import AcCycle, Licence, Quirk, Syslog

_BIOS = {"PreserveME": True, "PreserveNVRAM": True, "PreserveSMBIOS": True, "BackupBIOS": False}
_BMC = {"PreserveCfg": True, "PreserveSdr": True, "PreserveSsl": True, "BackupBMC": False}

_BASES = ("56T", "40T", "32T", "24T", "16T", "4T", "2T", "1T", "512G")
_821GE = "captured registry of a SYS-821GE-TNHR"
_SMC_RS = f"libredfish supermicro.rs; {_821GE}"
_MEANINGS = (
    enabled("iommu", rf"IntelVTforDirectedI[_/]O[_(]VT[_-]d[_)]?{SUFFIX}", _SMC_RS),
    enabled("sr_iov", rf"SR[_-]IOVSupport{SUFFIX}", _SMC_RS),
    enabled("acs", rf"PCIeACSCTL{SUFFIX}", _821GE),
    switch("relaxed_ordering", rf"RelaxedOrdering{SUFFIX}", "Yes", "No", _821GE),
    Row(
        meaning="numa_per_socket",
        attribute=rf"SNC{SUFFIX}",
        values={
            "1": ("Disable",),
            "2": ("Enable SNC2 (2-clusters)",),
            "4": ("Enable SNC4 (4-clusters)",),
        },
        source=_821GE,
    ),
    switch("c_states", rf"CPUC6Report{SUFFIX}", "Enable", "Disable", _821GE),
    enabled("c1e", rf"EnhancedHaltState_C1E_{SUFFIX}", _821GE),
    enabled("smt", rf"Hyper_Threading_ALL_{SUFFIX}", _821GE),
    enabled("x2apic", rf"ExtendedAPIC{SUFFIX}", _821GE),
    enabled("above_4g", rf"Above4GDecoding{SUFFIX}", _821GE),
    Row(
        meaning="mmio_base",
        attribute=rf"MMIOHighBase{SUFFIX}",
        values={size: (size,) for size in _BASES},
        source=_821GE,
    ),
    switch("aspm", rf"PCIeASPMSupport_Global_{SUFFIX}", "Auto", "Disable", _821GE),
    enabled("http_boot", rf"IPv4HTTPSupport{SUFFIX}", _SMC_RS),
    enabled("pxe_boot", rf"IPv4PXESupport{SUFFIX}", _SMC_RS),
)

QUIRK = Quirk(
    name="supermicro",
    title="Supermicro",
    # source: Supermicro, "BMC Unique Password" (supermicro.com/en/support/BMC_Unique_Password)
    factory_user="ADMIN",
    factory_printed="on the label of the board, and on the service tag at the chassis",
    # source: stmcginnis/gofish, oem/smc/syslog.go, with its recorded bodies: Syslog 1.0.1 has one
    # server as text, 1.0.2 (X13 1.10, X14 1.08 and later) a list of them
    syslog=Syslog(
        links=("Oem", "Supermicro", "Syslog"),
        switch="EnableSyslog",
        on=True,
        off=False,
        servers=("SyslogServer",),
        listed="ServerIP",
    ),
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
    meanings=_MEANINGS,
)
