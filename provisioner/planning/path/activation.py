"""Resets: which staged versions each one activates, what it interrupts, and how long it takes.

The order follows NVIDIA: taking standby power away (AC cycle) restarts everything in the chassis, a
DC power cycle restarts the host and its PCIe cards but neither BMC nor ERoT, and a warm reboot
restarts neither card nor BMC (facts: health-and-versions 3.1, "DC cycle not enough").
"""

from __future__ import annotations

from provisioner.model.inventory import Activation
from provisioner.model.plan import Disruption

AT_ONCE = frozenset(
    {Activation.NONE, Activation.SERVICE_RESTART}
)  # they need no reset by the daemon

RESETS = tuple(a for a in Activation if a not in AT_ONCE)  # in the order of their weight

_COVERS: dict[Activation, frozenset[Activation]] = {
    Activation.AC_CYCLE: frozenset(
        {
            Activation.AC_CYCLE,
            Activation.COLD_BOOT,
            Activation.WARM_REBOOT,
            Activation.NIC_RESET,
            Activation.BMC_RESET,
        }
    ),
    Activation.COLD_BOOT: frozenset(
        {Activation.COLD_BOOT, Activation.WARM_REBOOT, Activation.NIC_RESET}
    ),
}

_DISRUPTION: dict[Activation, Disruption] = {
    Activation.NONE: Disruption.NONE,
    Activation.SERVICE_RESTART: Disruption.NONE,
    Activation.BMC_RESET: Disruption.BMC,
    Activation.NIC_RESET: Disruption.NIC,
    Activation.WARM_REBOOT: Disruption.HOST,
    Activation.COLD_BOOT: Disruption.HOST,
    Activation.AC_CYCLE: Disruption.HOST,
    Activation.IMAGE_REBOOT: Disruption.SWITCH,
}

# Estimates in seconds, for the order of plans and for people; no wait is bounded by them.
# AC cycle 5-6 min without power plus POST (facts: health-and-versions 3.1); a DC cycle of an HGX
# host is dominated by POST and memory training; a BMC answers again after 2-5 min.
_DURATION_S: dict[Activation, int] = {
    Activation.NONE: 0,
    Activation.SERVICE_RESTART: 0,
    Activation.BMC_RESET: 300,
    Activation.NIC_RESET: 120,
    Activation.WARM_REBOOT: 600,
    Activation.COLD_BOOT: 900,
    Activation.AC_CYCLE: 1200,
    Activation.IMAGE_REBOOT: 600,
}

_OUTAGES = frozenset({Disruption.NIC, Disruption.HOST, Disruption.SWITCH})


def covers_activation(reset: Activation, waiting: Activation) -> bool:
    """Return whether `reset` activates a version that waits for the reset `waiting`."""
    return waiting in _COVERS.get(reset, frozenset({reset}))


def get_disruption(reset: Activation) -> Disruption:
    """Return the service that the reset interrupts while it runs."""
    return _DISRUPTION[reset]


def estimate_duration_s(reset: Activation) -> int:
    """Return the estimated seconds until every affected device answers again."""
    return _DURATION_S[reset]


def is_outage(disruption: Disruption) -> bool:
    """Return whether the disruption stops traffic or the host. A BMC reset alone is no outage."""
    return disruption in _OUTAGES
