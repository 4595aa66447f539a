"""The only function that changes a node's state.

It checks the journey's table, so that no caller can enter a state that the table forbids. The store
compares each node that it writes with its row, and appends the event of a changed state in the same
transaction (`describe_transition`): no state changes without a row of the journal.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.events.node_events import StateChanged
from provisioner.model.node import Node, Placement, State
from provisioner.planning.lifecycle.journey import may_enter


def enter_state(
    node: Node,
    state: State,
    why: str,
    now: float,
    changes: Mapping[str, object],
    *,
    after_restore: bool = False,
) -> Node:
    """Return the node after it entered `state`, with `why` as its note.

    `changes` are other fields of the node; a placement among them is the one that is checked.
    `after_restore`: an operator decides on a row that is outdated after a restore, in any
    placement. A move that the table forbids is a fault of the caller (`AssertionError`).
    """
    placement = changes.get("placement", node.placement)
    assert isinstance(placement, Placement)
    allowed = may_enter(node, state, placement, after_restore=after_restore)
    assert allowed, (node.id, node.state, state, placement)
    entered = {"state": state, "entered_at": now, "note": why}
    return node.model_copy(update={**changes, **entered})


def describe_transition(before: Node, after: Node) -> StateChanged | None:
    """Return the event of a change of state; None if the state is the same."""
    if before.state is after.state:
        return None
    return StateChanged(
        about=after.id,
        from_state=before.state,
        to_state=after.state,
        why=after.note,
        blockers=after.blockers,
        tenant=before.tenant,
    )
