"""Sets of a host's settings and tools that a profile pins by name; read and set in-band."""

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
)
