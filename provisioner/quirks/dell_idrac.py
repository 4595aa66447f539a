"""Dell iDRAC 9 and 10 (docs/sources/redfish.md#dell)."""

from __future__ import annotations

from provisioner.quirks.meaning import Row, enabled, switch
from provisioner.quirks.quirk import (
    AcCycle,
    BootAttributes,
    Licence,
    Lockdown,
    Quirk,
    SetupPassword,
    Syslog,
)

# source: openstack/sushy-oem-idrac; dell/iDRAC-Redfish-Scripting issues 90 and 324 and its
# SetNextOneTimeBootVirtualMediaDeviceOemREDFISH: "Cd" of the standard override is a physical drive
_IMPORT = (
    '<SystemConfiguration><Component FQDD="iDRAC.Embedded.1">'
    '<Attribute Name="ServerBoot.1#BootOnce">Enabled</Attribute>'
    '<Attribute Name="ServerBoot.1#FirstBootDevice">vCD-DVD</Attribute>'
    "</Component></SystemConfiguration>"
)

# source: captured tree of a PowerEdge R750 (BIOS 1.8.2), Bios/BiosRegistry; a machine with AMD's
# processors names its NUMA domains otherwise, and is not in hand
_R750 = "captured registry of a PowerEdge R750, BIOS 1.8.2"
_LIBREDFISH = f"libredfish dell.rs; {_R750}"
_MEANINGS = (
    enabled("iommu", "ProcVirtualization", f"{_R750}: VT-d goes with it"),
    enabled("sr_iov", "SriovGlobalEnable", _LIBREDFISH),
    Row(
        meaning="numa_per_socket",
        attribute="SubNumaCluster",
        values={"1": ("Disabled",), "2": ("2-Way",)},
        source=_R750,
    ),
    Row(
        meaning="power_profile",
        attribute="SysProfile",
        values={
            "performance": ("PerfOptimized",),
            "os": ("PerfPerWattOptimizedOs",),
            "balanced": ("PerfPerWattOptimizedDapc",),
            "custom": ("Custom",),
        },
        source=_R750,
    ),
    enabled("c_states", "ProcCStates", f"{_R750}: read-only unless SysProfile is Custom"),
    enabled("c1e", "ProcC1E", f"{_R750}: read-only unless SysProfile is Custom"),
    enabled("smt", "LogicalProc", _R750),
    enabled("x2apic", "ProcX2Apic", _R750),
    enabled("above_4g", "MmioAbove4Gb", _R750),
    Row(
        meaning="mmio_base",
        attribute="MemoryMappedIOH",
        values={"56T": ("56TB",), "12T": ("12TB",), "512G": ("512GB",)},
        source=_R750,
    ),
    enabled("aspm", "PcieAspmL1", f"{_R750}: read-only unless SysProfile is Custom"),
    Row(
        meaning="boot_mode",
        attribute="BootMode",
        values={"uefi": ("Uefi",), "legacy": ("Bios",)},
        source=_R750,
    ),
    enabled("http_boot", "HttpDev1EnDis", _LIBREDFISH),
    enabled("pxe_boot", "PxeDev1EnDis", _LIBREDFISH),
    enabled("boot_retry", "BootSeqRetry", _LIBREDFISH),
    switch("tpm", "TpmSecurity", "On", "Off", _LIBREDFISH),
    enabled("inband_bmc", "InBandManageabilityInterface", _LIBREDFISH),
)

QUIRK = Quirk(
    name="dell_idrac",
    title="Dell iDRAC",
    # source: Dell, KB 000133536 and 000177787
    factory_user="root",
    factory_printed="on the pull-out information tag at the front, "
    "or calvin where it was ordered so",
    vendor=r"^Dell",
    product=r"Integrated Dell Remote Access Controller",
    oem="Dell",
    # source: libredfish dell.rs: OnReset where the client resets the host itself, which "Immediate"
    # would do on its own; the iDRAC restarts itself and nothing else after its own update
    apply_time="OnReset",
    apply_time_by_kind={"host.bmc": "Immediate"},
    oem_always=True,
    package_files=r"\.(exe|bin|d7|d9|pm)$",  # Dell Update Packages
    empty_targets=True,
    boot_attributes=BootAttributes(
        virtual_cd={"ServerBoot.1.BootOnce": "Enabled", "ServerBoot.1.FirstBootDevice": "VCD-DVD"},
        normal={"ServerBoot.1.FirstBootDevice": "Normal"},
        action="ImportSystemConfiguration",
        body={"ShareParameters": {"Target": ["IDRAC"]}, "ImportBuffer": _IMPORT},
    ),
    licence=Licence(  # source: captured tree of a PowerEdge R750, DellLicenses
        hops=(("Links", "Oem", "Dell", "DellLicenseCollection"),),
        fields=("LicenseDescription",),
        sufficient=r"Enterprise|Datacenter",
        needed_for=("media",),
        title="iDRAC Enterprise or Datacenter",
    ),
    # source: iDRAC9 User's Guide, "System Configuration Lockdown mode": firmware updates, settings,
    # remote file shares and the boot order are blocked, power operations are not; libredfish
    lockdown=Lockdown(
        links=("Links", "Oem", "Dell", "DellAttributes"),
        attribute=r"^Lockdown\.\d+\.SystemLockdown$",
        locked="Enabled",
        unlocked="Disabled",
        hinders=("push", "media", "boot", "settings"),
        title="System Lockdown Mode",
    ),
    # source: captured tree of a PowerEdge R750: 682 rules beside 455 attributes, and no Registries
    bios_registry="BiosRegistry",
    # source: libredfish dell.rs; terraform-provider-redfish 231: without it nothing is ever applied
    settings_apply_time="OnReset",
    bmc_attributes=("Links", "Oem", "Dell", "DellAttributes"),
    # source: captured tree of a PowerEdge R750, DellAttributes of its iDRAC (UDP, port 514)
    syslog=Syslog(
        links=("Links", "Oem", "Dell", "DellAttributes"),
        inside=("Attributes",),
        switch="SysLog.1.SysLogEnable",
        on="Enabled",
        off="Disabled",
        servers=("SysLog.1.Server1", "SysLog.1.Server2", "SysLog.1.Server3"),
    ),
    # source: dell/iDRAC-Redfish-Scripting, BiosChangePasswordREDFISH (name, job, boot); registry
    # and Links.Oem.Dell.Jobs of the R750; iDRAC9 User's Guide, "Generating hash password": SHA-256
    # of password and salt, the salt as hex
    setup_password=SetupPassword(
        name="SetupPassword",
        sha256="SHA256SetupPassword",
        salt="SHA256SetupPasswordSalt",
        jobs=("Links", "Oem", "Dell", "Jobs"),
    ),
    bmc_first="Dell's documents: the iDRAC is updated first",
    force="none",
    ac_cycle=AcCycle(  # a "virtual AC cycle": CPLD and FPGA run their new versions after it
        resource="Chassis",
        action="DellOemChassis.ExtendedReset",
        body={"ResetType": "PowerCycle"},
        needs_off=False,
    ),
    bmc_reset_s=300.0,
    session_limit=8,
    meanings=_MEANINGS,
)
