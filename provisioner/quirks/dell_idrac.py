"""Dell iDRAC 9 and 10 (facts: redfish 3.4, hardware 4.5)."""

from __future__ import annotations

from provisioner.quirks.quirk import AcCycle, Quirk

QUIRK = Quirk(
    name="dell_idrac",
    title="Dell iDRAC",
    vendor=r"^Dell",
    product=r"Integrated Dell Remote Access Controller",
    oem="Dell",
    apply_time="Immediate",
    oem_always=True,
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
