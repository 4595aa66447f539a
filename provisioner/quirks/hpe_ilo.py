"""HPE iLO 5 and 6 (docs/sources/redfish.md#hpe)."""

from __future__ import annotations

from provisioner.quirks.meaning import Row, enabled, switch
from provisioner.quirks.quirk import AcCycle, Licence, Quirk, Syslog

# Intel's and AMD's machines name some attributes differently: one of the two is there
_A42 = "captured registry of a ProLiant DL385 Gen10 Plus v2, BIOS A42 v2.60"
_HPE_RS = "libredfish hpe.rs"
_MEANINGS = (
    enabled("iommu", "ProcAmdIoVt", f"{_A42}; {_HPE_RS}"),
    enabled("iommu", "ProcVirtualization", f"{_HPE_RS}: Intel"),
    enabled("sr_iov", "Sriov", f"{_A42}: read-only under most workload profiles"),
    enabled("acs", "AccessControlService", _A42),
    Row(
        meaning="numa_per_socket",
        attribute="NumaMemoryDomainsPerSocket",
        values={
            "1": ("OneMemoryDomainPerSocket",),
            "2": ("TwoMemoryDomainsPerSocket",),
            "4": ("FourMemoryDomainsPerSocket",),
        },
        source=_A42,
    ),
    Row(
        meaning="power_profile",
        attribute="WorkloadProfile",
        values={
            "performance": ("GeneralPeakFrequencyCompute",),
            "balanced": ("GeneralPowerEfficientCompute",),
            "custom": ("Custom",),
        },
        source=f"{_A42}: each profile writes a dozen other attributes",
    ),
    switch("c_states", "MinProcIdlePower", "C6", "NoCStates", _A42),
    enabled("smt", "ProcSMT", _A42),
    switch("x2apic", "ProcX2Apic", "ForceEnabled", "Disabled", _A42),
    Row(
        meaning="aspm",
        attribute=r"PciSlot\d+Aspm",
        values={"on": ("AspmL1Enabled",), "off": ("Disabled",)},
        source=_A42,
    ),
    Row(
        meaning="boot_mode",
        attribute="BootMode",
        values={"uefi": ("Uefi",), "legacy": ("LegacyBios",)},
        source=_A42,
    ),
    switch("http_boot", "HttpSupport", "Auto", "Disabled", _A42),
    enabled("boot_retry", "NetworkBootRetry", _A42),
    enabled("uefi_shell", "EmbeddedUefiShell", _A42),
    switch("tpm", "TpmVisibility", "Visible", "Hidden", _A42),
)

QUIRK = Quirk(
    name="hpe_ilo",
    title="HPE iLO",
    # source: HPE iLO 5 User Guide, "iLO default credentials"
    factory_user="Administrator",
    factory_printed="on the serial label pull tab",
    # source: captured NetworkProtocol of an iLO 5 (HpeiLOManagerNetworkService 2.2.0), and HPE's
    # python-redfish-library, examples, set_syslog
    syslog=Syslog(
        links=("NetworkProtocol",),
        inside=("Oem", "Hpe"),
        switch="RemoteSyslogEnabled",
        on=True,
        off=False,
        servers=("RemoteSyslogServer",),
    ),
    vendor=r"^(HPE|Hewlett)",
    oem="Hpe",
    push="form",
    bmc_first="HPE's documents: iLO is updated first",
    force="none",
    package_files=r".",  # the form has no targets: each package names its own
    bmc_reset_types=("ForceRestart", "GracefulRestart"),
    ac_cycle=AcCycle(  # source: captured tree of a DL385 Gen10 Plus v2; libredfish hpe.rs
        resource="Systems",
        action="HpeComputerSystemExt.SystemReset",
        body={"ResetType": "AuxCycle"},
    ),
    licence=Licence(  # source: captured tree of a DL385 Gen10 Plus v2, Managers/1/LicenseService
        hops=(("Oem", "Hpe", "Links", "LicenseService"),),
        fields=("License", "LicenseTier"),
        sufficient=r"Advanced|\bADV\b",
        needed_for=("media",),
        title="iLO Advanced",
    ),
    bmc_reset_s=120.0,
    meanings=_MEANINGS,
)
