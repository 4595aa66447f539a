"""Dell iDRAC 9 and 10 (facts: redfish 3.4, hardware 4.5)."""

from __future__ import annotations

from provisioner.quirks.quirk import AcCycle, BootAttributes, Licence, Lockdown, Quirk

# source: openstack/sushy-oem-idrac; dell/iDRAC-Redfish-Scripting issues 90 and 324 and its
# SetNextOneTimeBootVirtualMediaDeviceOemREDFISH: "Cd" of the standard override is a physical drive
_IMPORT = (
    '<SystemConfiguration><Component FQDD="iDRAC.Embedded.1">'
    '<Attribute Name="ServerBoot.1#BootOnce">Enabled</Attribute>'
    '<Attribute Name="ServerBoot.1#FirstBootDevice">vCD-DVD</Attribute>'
    "</Component></SystemConfiguration>"
)

QUIRK = Quirk(
    name="dell_idrac",
    title="Dell iDRAC",
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
        virtual_cd={
            "ServerBoot.1.BootOnce": "Enabled",
            "ServerBoot.1.FirstBootDevice": "VCD-DVD",
        },
        normal={"ServerBoot.1.FirstBootDevice": "Normal"},
        action="ImportSystemConfiguration",
        body={"ShareParameters": {"Target": ["IDRAC"]}, "ImportBuffer": _IMPORT},
    ),
    licence=Licence(  # source: captured tree of a PowerEdge R750, DellLicenses; writes.md 3
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
        hinders=("push", "media", "boot"),
        title="System Lockdown Mode",
    ),
    # source: captured tree of a PowerEdge R750: 682 rules beside 455 attributes, and no Registries
    bios_registry="BiosRegistry",
    bmc_attributes=("Links", "Oem", "Dell", "DellAttributes"),
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
)
