"""HPE iLO 5 and 6 (facts: redfish 3.4, hardware 4.5)."""

from __future__ import annotations

from provisioner.quirks.quirk import AcCycle, Licence, Quirk

QUIRK = Quirk(
    name="hpe_ilo",
    title="HPE iLO",
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
)
