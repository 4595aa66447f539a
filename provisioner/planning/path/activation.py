"""Resets: which staged versions each one activates, what it interrupts, and how long it takes.

The order follows NVIDIA: taking standby power away (AC cycle) restarts everything in the chassis, a
DC power cycle restarts the host and its PCIe cards but neither BMC nor ERoT, and a warm reboot
restarts neither card nor BMC (docs/sources/hardware.md#dc-not-enough).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.model.inventory import Activation
from provisioner.model.location import Outlet, OutletState
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption

# ------------------------------------------------------------------------------
# When the outlets of a node may be switched off for an AC cycle.
#
# Outlets are the last way: they are used only where the BMC offers no AC cycle. A wrong outlet cuts
# another node off, so a shared or half-declared one is refused before anything is sent.


_SERVING = (Placement.CUSTOMER, Placement.MIXED)


def check_outlets(
    node: Node, nodes: Sequence[Node], pdus: Collection[str], users: Mapping[str, str]
) -> Blocker | None:
    """Return why the outlets of a node must not be switched off, from the rows of all nodes.

    `users` says what is lost with an outlet beside nodes: of a rack's power shelves.
    """
    now = next((n for n in nodes if n.id == node.id), node)
    if now.state is State.RELEASED or now.placement in _SERVING:
        return Blocker(
            reason=Reason.NOT_CONFIRMED,
            subject=node.id,
            detail=f"it serves the tenant {now.tenant or now.served or 'of its ports'}",
            unblock="Reclaim the node first; its outlets are switched once it is fenced.",
        )
    missing = sorted({o.pdu for o in now.outlets} - set(pdus))
    if missing:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=node.id,
            detail=f"its outlets name {', '.join(missing)}, and `pdus` of the settings does not",
            unblock="Add the PDU to `pdus`, or correct `outlets` of the hardware list.",
        )
    for outlet in map(str, now.outlets):
        if outlet in users:
            return Blocker(
                reason=Reason.NOT_OFFERED,
                subject=node.id,
                detail=f"the outlet {outlet} feeds {users[outlet]}"[:400],
                unblock="Correct `outlets` of the hardware list, or those of the racks' plan.",
            )
    return _find_shared(now, nodes)


def _find_shared(node: Node, nodes: Sequence[Node]) -> Blocker | None:
    own = set(node.outlets)
    for other in nodes:
        shared = sorted(map(str, own.intersection(other.outlets)))
        if other.id != node.id and shared:
            return Blocker(
                reason=Reason.NOT_OFFERED,
                subject=node.id,
                detail=f"the outlet {shared[0]} feeds {other.id} too",
                unblock=f"Give {node.id} outlets of its own, or have a person cycle both nodes.",
            )
    return None


def check_outlets_on(node: str, states: Mapping[Outlet, OutletState]) -> Blocker | None:
    """Return the blocker unless every outlet of a node is on before the first is switched."""
    wrong = [f"{o} is {state}" for o, state in states.items() if state is not OutletState.ON]
    if not wrong:
        return None
    return Blocker(
        reason=Reason.POWER,
        subject=node,
        detail=f"before anything was switched, {', '.join(wrong)}",
        unblock="Ask the person who switched it off whether anybody works there, then switch it "
        "on and retry the node; or correct `outlets` of the hardware list.",
    )


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
# AC cycle 5-6 min without power plus POST (docs/sources/hardware.md#dc-not-enough); a DC cycle of
# an HGX host is dominated by POST and memory training; a BMC answers again after 2-5 min.
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
