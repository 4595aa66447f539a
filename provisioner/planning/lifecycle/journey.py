"""The journey as one table: the states, the placements required to enter each, and the ways out.

No other module decides which state may follow which. The state diagram in docs/lifecycle.md is
drawn from this table, and a test keeps the two equal.
"""

from __future__ import annotations

from provisioner.model.base import Record
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


def draw_diagram() -> str:
    """Return the journey as the Mermaid state diagram of docs/lifecycle.md."""
    lines = ["stateDiagram-v2", "    [*] --> discovered"]
    for state, stage in JOURNEY.items():
        lines += [f"    {state} --> {target}" for target in stage.leaves_to]
    return "\n".join([*lines, "    retired --> [*]"]) + "\n"
