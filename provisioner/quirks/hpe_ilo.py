"""HPE iLO 5 and 6 (facts: redfish 3.4, hardware 4.5)."""

from __future__ import annotations

from provisioner.quirks.quirk import Quirk

QUIRK = Quirk(
    name="hpe_ilo",
    title="HPE iLO",
    vendor=r"^(HPE|Hewlett)",
    oem="Hpe",
    push="form",
    force="none",
    bmc_reset_types=("ForceRestart", "GracefulRestart"),
    bmc_reset_s=120.0,
)
