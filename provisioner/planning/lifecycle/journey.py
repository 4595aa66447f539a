"""The journey as one table: the states, the placements required to enter each, and the ways out.

No other module decides which state may follow which. The state diagram in docs/lifecycle.md is
drawn from this table, and a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.base import Record
from provisioner.model.events.node_events import StateChanged
from provisioner.model.node import Node, NodeKind, Placement, State

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class Stage(Record):
    """One row of the journey. To enter, a host must have one of `placements`, by read-back."""

    work: str
    placements: tuple[Placement, ...]
    leaves_to: tuple[State, ...]
    limit_s: float  # a longer stay in the state raises an alert with the blocker's name


_OUTSIDE = (Placement.NONE, Placement.MAINTENANCE)
_FENCED = (Placement.MAINTENANCE,)

JOURNEY: dict[State, Stage] = {
    State.DISCOVERED: Stage(
        work="identify: vendor, credentials, inventory, pairing with its DPUs, location",
        placements=_OUTSIDE,
        leaves_to=(State.INTAKE, State.QUARANTINED),
        limit_s=2 * HOUR_S,
    ),
    State.INTAKE: Stage(
        work="fence into the maintenance tenant; compare cabling, parts and location with the plan",
        placements=_OUTSIDE,
        leaves_to=(State.CONVERGING, State.QUARANTINED),
        limit_s=2 * HOUR_S,
    ),
    State.CONVERGING: Stage(
        work="bring every component to its pin",
        placements=_FENCED,
        leaves_to=(State.VALIDATING, State.QUARANTINED),
        limit_s=12 * HOUR_S,  # two chains of a tray, a BFB and an AC cycle, with retries
    ),
    State.VALIDATING: Stage(
        work="health checks by gate: identity, errors, single node, fabric",
        placements=_FENCED,
        leaves_to=(State.CERTIFIED, State.CONVERGING, State.QUARANTINED),
        limit_s=6 * HOUR_S,  # DCGM level 4 alone may take 2.25 hours
    ),
    State.CERTIFIED: Stage(
        work="wait for a tenant; on allocation: release, with proof",
        placements=_FENCED,
        leaves_to=(State.RELEASED, State.CONVERGING, State.QUARANTINED),
        limit_s=30 * DAY_S,
    ),
    State.RELEASED: Stage(
        work="watch: drift, health, certificate age",
        placements=(Placement.CUSTOMER,),
        leaves_to=(State.DRAINING,),
        limit_s=3650 * DAY_S,
    ),
    State.DRAINING: Stage(
        work="tenant notice, deferral, drain, then fence and sanitize",
        placements=(Placement.CUSTOMER, Placement.MIXED, Placement.MAINTENANCE),
        leaves_to=(State.CONVERGING, State.QUARANTINED, State.REPAIRING),
        limit_s=14 * DAY_S,
    ),
    State.QUARANTINED: Stage(
        work="wait, with a named blocker and what would unblock it",
        placements=_OUTSIDE,
        leaves_to=(State.CONVERGING, State.REPAIRING, State.RETIRED),
        limit_s=7 * DAY_S,
    ),
    State.REPAIRING: Stage(
        work="case open: evidence, diagnosis, remedies, parts, return record",
        placements=_OUTSIDE,
        # converging: after a remedy that touched no part; discovered: after people changed parts
        leaves_to=(State.CONVERGING, State.DISCOVERED, State.RETIRED),
        limit_s=30 * DAY_S,
    ),
    State.RETIRED: Stage(
        work="erased, ports closed, credentials removed",
        placements=_OUTSIDE,  # ports of the maintenance tenant pass no traffic
        leaves_to=(),
        limit_s=3650 * DAY_S,
    ),
}


# states that an operator may choose for a row that is outdated after a restore
AFTER_RESTORE = frozenset({State.RELEASED, State.DRAINING})


def may_enter(
    node: Node, state: State, placement: Placement, *, after_restore: bool = False
) -> bool:
    """Return whether the table allows this move. A switch has no port in a VRF of its own.

    `after_restore`: an operator may decide on any row except a retired node's, in any placement.
    """
    if after_restore and state in AFTER_RESTORE:
        return node.state is not State.RETIRED
    if state not in JOURNEY[node.state].leaves_to:
        return False
    return node.kind is NodeKind.SWITCH or placement in JOURNEY[state].placements


# ------------------------------------------------------------------------------
# The only function that changes a node's state.
#
# It checks the journey's table, so that no caller can enter a state that the table forbids. The
# store compares each node that it writes with its row, and appends the event of a changed state in
# the same transaction (`describe_transition`): no state changes without a row of the journal.


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
        release=after.release,
    )
