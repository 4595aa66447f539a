"""Lenovo XClarity Controller (facts: redfish 3.4, hardware 4.5)."""

from __future__ import annotations

from provisioner.quirks.quirk import AcCycle, Quirk

QUIRK = Quirk(
    name="lenovo_xcc",
    title="Lenovo XCC",
    vendor=r"^Lenovo",
    oem="Lenovo",
    apply_time="Immediate",
    bmc_first="Lenovo's manual: update the firmware for XClarity Controller first",
    force="none",
    # source: fwupd ("only the backup BMC device can be updated by specifying the target ID, the
    # others need an empty array", and a blank in the file name answers InternalError); libredfish
    package_files=r".",
    empty_targets=True,
    file_name_blanks=False,
    claim=True,  # source: Lenovo's XCC Redfish pages, UpdateService
    # source: captured tree of a ThinkSystem SR670 V2 (EXT1 has no action); sushy PATCHes then
    media_by_patch=True,
    media_slots=r"^EXT\d",
    ac_cycle=AcCycle(
        resource="Systems",
        action="LenovoComputerSystem.SystemReset",
        body={"ResetType": "ACPowerCycle"},
    ),
    bmc_reset_s=240.0,
)
