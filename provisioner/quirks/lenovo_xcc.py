"""Lenovo XClarity Controller (facts: redfish 3.4, hardware 4.5)."""

from __future__ import annotations

from provisioner.quirks.quirk import AcCycle, Quirk

QUIRK = Quirk(
    name="lenovo_xcc",
    title="Lenovo XCC",
    vendor=r"^Lenovo",
    oem="Lenovo",
    apply_time="Immediate",
    force="none",
    ac_cycle=AcCycle(
        resource="Systems",
        action="LenovoComputerSystem.SystemReset",
        body={"ResetType": "ACPowerCycle"},
    ),
    bmc_reset_s=240.0,
)
