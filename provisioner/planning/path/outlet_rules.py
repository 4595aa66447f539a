"""When the outlets of a node may be switched off for an AC cycle.

Outlets are the last way: they are used only where the BMC offers no AC cycle. A wrong outlet cuts
another node off, so a shared or half-declared one is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.model.location import Outlet, OutletState
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker, Reason

_SERVING = (Placement.CUSTOMER, Placement.MIXED)


def check_outlets(node: Node, nodes: Sequence[Node], pdus: Collection[str]) -> Blocker | None:
    """Return why the outlets of a node must not be switched off, from the rows of all nodes."""
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
