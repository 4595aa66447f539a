"""What must never be, of every state and every step of the handover model.

Only certified nodes enter a customer's VRF, and only where a row says so; never two customers'
networks, nor one customer's data, reach a node of another; once nothing fails any more, whatever
is revoked or moved by somebody else has left.
"""

from __future__ import annotations

from handover_faults import Label
from handover_state import (
    CERTIFIED,
    CONVERGING,
    FENCE,
    LEAVING,
    MAINTENANCE,
    PROVED,
    RELEASE,
    RELEASED,
    SENT,
    State,
    is_by_hand,
    list_allowed,
    read_port,
    read_ports,
)


def judge_state(state: State) -> str:
    """Return what is wrong with a state, or ""."""
    for number, node in enumerate(state.nodes):
        allowed = list_allowed(node)
        customers = set()
        for leaf, there in enumerate(node.operational):
            for vrf in read_port(state, number, leaf) - allowed:
                if not is_by_hand(node, leaf, vrf):
                    return f"a port is in VRF {vrf}, its row is {node.phase} {node.tenant}"
            if there != MAINTENANCE and not is_by_hand(node, leaf, there):
                customers.add(there)
        if len(customers) > 1:
            return "two customers' networks reach one node"
    return ""


def judge_step(label: Label, before: State, after: State) -> str:
    """Return what is wrong with a step, or ""."""
    name = label[0]
    if name == "apply":
        return judge_revision(label[1], before, after)
    if name not in ("send", "record"):
        return ""
    daemon, number = label[1:3]
    node, turn = after.nodes[number], before.nodes[number].turns[daemon]
    sent = name == "send" and after.nodes[number].turns[daemon].steps[label[3]] == SENT
    entered = node.phase == RELEASED and before.nodes[number].phase != RELEASED
    released = name == "record" and turn.kind == PROVED and entered
    if not released and not (sent and turn.kind == RELEASE):
        return ""
    does = "a handover is recorded" if released else "a port is sent into a customer's VRF"
    if not node.certified:
        return f"{does} without a certificate in force"
    if node.soil not in (0, node.tenant):
        return f"{does} of tenant {node.tenant} with the data of tenant {node.soil}"
    return ""


def judge_revision(leaf: int, before: State, after: State) -> str:
    """Return what is wrong with a revision that takes force: it moves one port, and no other back.

    It has the VRFs of all ports as they were when it was sent. What another daemon has moved since
    is undone by it: the customer's port is out of its network until somebody moves it again. Exact
    for two nodes with one fault: of two, a restored row may name the VRF that a hand chose before.
    """
    pairs = list(zip(before.nodes, after.nodes, strict=True))
    moved = [old for old, new in pairs if old.operational[leaf] != new.operational[leaf]]
    ours = [node for node in moved if not is_by_hand(node, leaf, node.operational[leaf])]
    for node in ours if len(ours) > 1 else ():
        leaves = any(turn.kind == FENCE and turn.steps[leaf] == SENT for turn in node.turns)
        stays = node.phase in (LEAVING, RELEASED) and node.certified and not leaves
        if stays and node.operational[leaf] == node.tenant:
            return "a revision moves a port out of its network that another one had moved there"
    return ""


def judge_end(state: State) -> str:
    """Return what is wrong with a state in which nothing is left to do, or ""."""
    for number, node in enumerate(state.nodes):
        vrfs = read_ports(state, number)
        if node.phase == RELEASED:
            if not node.certified:
                return "a node rests in its customer's VRF, and its certificate is revoked"
            if vrfs != {node.tenant}:
                return f"a released node rests with ports in {sorted(vrfs)}"
        elif node.phase not in (CONVERGING, CERTIFIED) or vrfs != {MAINTENANCE}:
            return f"a node rests as {node.phase} with ports in {sorted(vrfs)}"
    return ""
