"""BIOS attributes of the simulated hosts, a few of each vendor, with their registries' words.

Names, types, values, locks and the attributes that a profile writes are read from the registries
of captured trees: PowerEdge R750, ProLiant DL385 Gen10 Plus v2, ThinkSystem SR670 V2,
SYS-821GE-TNHR; of a DGX H100 only the shown values are in hand, and it serves no registry here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Value = str | int | bool
_ENABLED = ("Enabled", "Disabled")
_ENABLE = ("Enable", "Disable")


@dataclass(frozen=True)
class Attribute:
    """One attribute; `values`: of an enumeration. `locked`: read-only unless another has a value.

    `numbered`: the registry names the values by numbers, and what is shown are their labels.
    """

    name: str
    default: Value
    values: tuple[str, ...] = ()
    bounds: tuple[int, int] = (0, 0)
    locked: tuple[str, str] | None = None
    numbered: bool = False


@dataclass(frozen=True)
class BiosTable:
    """The attributes of one vendor. `settings`: name of the object of pending values."""

    settings: str
    attributes: tuple[Attribute, ...]
    registry: str = ""  # its name; "": Bios names none
    registry_path: str = ""  # below Bios; "": listed under Registries; "-": not served
    apply_times: tuple[str, ...] = ()
    shows_only_pending: bool = False  # the object lists nothing that does not wait
    makes_jobs: bool = False
    refuses_locked: bool = True  # False: accepted, shown as pending, and dropped at the boot
    writes: dict[tuple[str, Value], dict[str, Value]] = field(default_factory=dict)


_CUSTOM = ("SysProfile", "Custom")
_MODE = ("OperatingModes_ChooseOperatingMode", "CustomMode")
_HPC = "HighPerformanceCompute(HPC)"
TABLES: dict[str, BiosTable] = {
    "dell": BiosTable(
        settings="Settings",
        registry="BiosAttributeRegistry.v1_0_3",
        registry_path="BiosRegistry",
        apply_times=("OnReset", "AtMaintenanceWindowStart", "InMaintenanceWindowOnReset"),
        shows_only_pending=True,
        makes_jobs=True,
        attributes=(
            Attribute("BootMode", "Uefi", ("Bios", "Uefi")),
            Attribute("ProcVirtualization", "Disabled", _ENABLED),
            Attribute("SriovGlobalEnable", "Disabled", _ENABLED),
            Attribute("LogicalProc", "Enabled", _ENABLED),
            Attribute("ProcX2Apic", "Disabled", _ENABLED),
            Attribute("SubNumaCluster", "Disabled", ("2-Way", "Disabled")),
            Attribute(
                "SysProfile",
                "PerfPerWattOptimizedDapc",
                ("PerfPerWattOptimizedDapc", "PerfPerWattOptimizedOs", "PerfOptimized", "Custom"),
            ),
            Attribute("ProcCStates", "Enabled", (*_ENABLED, "Autonomous"), locked=_CUSTOM),
            Attribute("ProcC1E", "Enabled", _ENABLED, locked=_CUSTOM),
            Attribute("AcPwrRcvryUserDelay", 120, bounds=(120, 600)),
        ),
        writes={
            ("SysProfile", "PerfOptimized"): {"ProcCStates": "Disabled", "ProcC1E": "Disabled"},
            ("SysProfile", "PerfPerWattOptimizedDapc"): {
                "ProcCStates": "Enabled",
                "ProcC1E": "Enabled",
            },
        },
    ),
    "hpe": BiosTable(
        settings="settings",
        registry="BiosAttributeRegistryA42.v1_2_60",
        attributes=(
            Attribute("BootMode", "Uefi", ("Uefi", "LegacyBios")),
            Attribute("ProcAmdIoVt", "Disabled", _ENABLED),
            Attribute("Sriov", "Disabled", _ENABLED),
            Attribute("ProcSMT", "Enabled", _ENABLED),
            Attribute("AccessControlService", "Enabled", _ENABLED),
            Attribute("WorkloadProfile", "Custom", ("GeneralPeakFrequencyCompute", _HPC, "Custom")),
            Attribute("NetworkBootRetryCount", 20, bounds=(0, 20)),
        ),
        writes={
            ("WorkloadProfile", _HPC): {"ProcAmdIoVt": "Disabled", "Sriov": "Disabled"},
        },
    ),
    "lenovo": BiosTable(
        settings="Pending",
        registry="BiosAttributeRegistry.1.0.0",
        apply_times=("OnReset",),
        refuses_locked=False,  # source: python-redfish-lenovo 174
        attributes=(
            Attribute("BootModes_SystemBootMode", "UEFIMode", ("UEFIMode", "LegacyMode")),
            Attribute("DevicesandIOPorts_IntelVTforDirectedIOVTd", "Disabled", _ENABLED),
            Attribute("DevicesandIOPorts_SRIOV", "Disabled", _ENABLED),
            Attribute("Processors_HyperThreading", "Enabled", _ENABLED),
            Attribute("Processors_PCIeACSCTL", "Enabled", _ENABLED),
            Attribute(
                "OperatingModes_ChooseOperatingMode",
                "Efficiency_FavorPerformance",
                ("Efficiency_FavorPerformance", "CustomMode", "MaximumPerformance"),
            ),
            Attribute(
                "Processors_CStates",
                "Autonomous",
                ("Legacy", "Autonomous", "Disabled"),
                locked=_MODE,
            ),
        ),
    ),
    "supermicro": BiosTable(
        settings="SD",
        registry="BiosAttributeRegistry.v1_0_0",
        attributes=(
            Attribute("IntelVTforDirectedI_O_VT_d__1E32", "Disable", _ENABLE, numbered=True),
            Attribute("SR_IOVSupport_0047", "Disabled", _ENABLED, numbered=True),
            Attribute("Hyper_Threading_ALL__F27F", "Enable", _ENABLE, numbered=True),
            Attribute("RelaxedOrdering_1DD1", "No", ("No", "Yes"), numbered=True),
            Attribute("PCIeACSCTL_1E3C", "Disable", _ENABLE, numbered=True),
        ),
    ),
    "ami_dgx": BiosTable(
        settings="SD",
        registry="BiosAttributeRegistry113.1.1.3",
        registry_path="-",
        attributes=(
            Attribute("VTdSupport", "Disable", _ENABLE),
            Attribute("SRIOVEnable", "Disable", _ENABLE),
            Attribute("SriovSupport", "Disabled", _ENABLED),
            Attribute("Ipv4Http", "Enabled", _ENABLED),
            Attribute("Ipv4Pxe", "Enabled", _ENABLED),
            Attribute("KcsInterfaceDisable", "Allow All", ("Allow All", "Deny All")),
        ),
    ),
}
