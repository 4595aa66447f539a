"""When a request on a node has ended: where the node rests for the first time since. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.access import ChangeRequest, RequestState
from provisioner.model.node import Node, State

ENDS: Mapping[State, RequestState] = {
    State.CERTIFIED: RequestState.DONE,
    State.RELEASED: RequestState.DONE,
    State.RETIRED: RequestState.DONE,
    State.QUARANTINED: RequestState.FAILED,
}


def end_request(asked: ChangeRequest, node: Node) -> ChangeRequest | None:
    """Return a request with its end, None while the node is on its way, or has not left yet."""
    if node.state not in ENDS or node.entered_at < asked.asked_at:
        return None
    state = ENDS[node.state]
    end = {"state": state, "ended_at": node.entered_at, "note": f"it is {node.state}"}
    blockers = node.blockers if state is RequestState.FAILED else ()
    return asked.model_copy(update={**end, "blockers": blockers})
