"""Sets of settings and tools of a host, its BIOS and BMCs, which a profile pins by name."""

from __future__ import annotations

from provisioner.components.kind import ComponentKind
from provisioner.model.inventory import Activation

KINDS = (
    ComponentKind(
        name="host.baseline",
        title="host baseline",
        method="playbook_host_baseline",
        activation=Activation.WARM_REBOOT,  # kernel arguments; the reading after it proves the rest
        duration_s=300,
    ),
    ComponentKind(
        name="host.check_tools",
        title="tools of the checks",
        method="playbook_check_tools",
        activation=Activation.NONE,
        duration_s=300,
    ),
    ComponentKind(
        name="host.bios_settings",
        title="BIOS settings",
        method="redfish_bios_settings",
        activation=Activation.WARM_REBOOT,  # the BIOS takes them when it starts
        duration_s=120,
    ),
    ComponentKind(
        name="host.bmc_settings",
        title="BMC settings",
        method="redfish_bmc_settings",
        activation=Activation.NONE,
        duration_s=60,
    ),
    ComponentKind(
        name="card.bmc_settings",
        title="settings of a BlueField's BMC",
        method="redfish_bmc_settings",
        activation=Activation.NONE,
        duration_s=60,
    ),
)
