"""Small changes of states of the handover model, each of one node, leaf or daemon."""

from __future__ import annotations

from typing import Any

from handover_state import (
    DONE,
    DRAINING,
    FENCE,
    IDLE,
    NO_TURN,
    NOBODY,
    RELEASE,
    Node,
    State,
    Turn,
    add_hand,
    is_by_hand,
    list_allowed,
    read_port,
)


def set_at(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def with_node(state: State, number: int, node: Node) -> State:
    return state._replace(nodes=set_at(state.nodes, number, node))


def with_daemon(state: State, daemon: int, status: str) -> State:
    return state._replace(daemons=set_at(state.daemons, daemon, status))


def with_turn(state: State, number: int, daemon: int, turn: Turn) -> State:
    node = state.nodes[number]
    return with_node(state, number, node._replace(turns=set_at(node.turns, daemon, turn)))


def may_record(node: Node, daemon: int) -> bool:
    """Whether a turn without a lease is one that can still be written down."""
    turn = node.turns[daemon]
    if turn.kind in (FENCE, RELEASE) and any(step != DONE for step in turn.steps):
        return False
    return turn.kind != IDLE and node.holder == daemon


def take_node(node: Node, daemon: int, turn: Turn) -> Node:
    """The epoch is raised; without a turn to go on with, the hold is given up at once."""
    holder = daemon if turn.kind != IDLE else NOBODY
    return node._replace(holder=holder, turns=set_at(node.turns, daemon, turn))


def end_turn(node: Node, daemon: int) -> Node:
    holder = NOBODY if node.holder == daemon else node.holder
    return node._replace(holder=holder, turns=set_at(node.turns, daemon, NO_TURN))


def write_row(node: Node, writer: int, **changes: Any) -> Node:
    """A row's new generation: the turns of all others go on with an old one."""
    turns = tuple(
        turn if daemon == writer or turn.kind == IDLE else turn._replace(fresh=False)
        for daemon, turn in enumerate(node.turns)
    )
    return node._replace(turns=turns, **changes)


def drain_node(node: Node) -> Node:
    return write_row(node, NOBODY, phase=DRAINING)


def enter_vrf(node: Node, leaf: int, vrf: int) -> Node:
    """A port forwards in this VRF from now on; in a customer's, its data is on the disks."""
    if node.operational[leaf] == vrf:
        return node
    by_right = vrf and not is_by_hand(node, leaf, vrf)
    soil = node.soil or (vrf if by_right else 0)
    return node._replace(operational=set_at(node.operational, leaf, vrf), soil=soil)


def meet_hands(node: Node) -> Node:
    """A reading of the ports meets those that somebody else moved: what it met has to be erased."""
    for leaf, vrf in enumerate(node.operational):
        if vrf not in list_allowed(node) and is_by_hand(node, leaf, vrf):
            return node._replace(soil=vrf)
    return node


def list_lost(state: State, number: int, node: Node) -> tuple[int, ...]:
    """Return where each port is that the restored row does not know of."""
    allowed = list_allowed(node)
    return tuple(
        sum(add_hand(vrf) for vrf in read_port(state, number, leaf) - allowed)
        for leaf in range(len(state.coming))
    )
