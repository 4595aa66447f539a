"""States of the handover model: nodes, ports, leaves and daemons as small tuples.

VRFs and tenants are numbers: 0 is maintenance, 1 and more are customers. A node's row is what the
database says; `soil` and `hand` are ghosts that no daemon reads: the tenant whose data is on the
disks, and the VRFs that somebody else put a port into.
"""

from __future__ import annotations

from typing import NamedTuple

MAINTENANCE = 0
NOBODY = -1  # no daemon holds the node's operation

# Phases of a row: converging (fenced), certified, leaving (a release under way), released, draining
CONVERGING, CERTIFIED, LEAVING, RELEASED, DRAINING = "VCLRD"
# Kinds of a turn: none, fence, release, fence proved, release proved, erased
IDLE, FENCE, RELEASE, FENCED, PROVED, ERASED = "-frFRe"
# Steps of a turn at one leaf
TODO, SENT, DONE = 0, 1, 2
# A daemon is up, or its lease has ended and its process goes on
UP, ZOMBIE = "uz"


class Turn(NamedTuple):
    """What one daemon does with one node, in memory; `fresh`: the row is the one that it read."""

    kind: str = IDLE
    steps: tuple[int, ...] = ()
    fresh: bool = True


class Node(NamedTuple):
    """One node: its row, its certificate, its drivers, and its ports in the trees of each leaf."""

    phase: str
    tenant: int
    owed: int  # tenant of whom the row owes an erasure; 0: none; `UNKNOWN`: of anybody
    certified: bool  # a certificate is in force, or a person's word stands for it
    holder: int  # the daemon whose epoch is the newest
    turns: tuple[Turn, ...]  # of each daemon
    soil: int
    operational: tuple[int, ...]  # VRF of its port at each leaf
    startup: tuple[int, ...]
    hand: tuple[int, ...]  # bit n of a port: somebody else put it into VRF n


class State(NamedTuple):
    """Everything. `coming`: at each leaf the revisions on their way, each with all ports' VRFs."""

    nodes: tuple[Node, ...]
    coming: tuple[tuple[tuple[int, ...], ...], ...]
    daemons: tuple[str, ...]
    unsettled: tuple[bool, ...]  # nodes that a restore left to be settled; any: only looking
    faults: int  # how many are left


class Size(NamedTuple):
    """How many there are of each."""

    nodes: int
    leaves: int
    tenants: int
    daemons: int
    faults: int

    @property
    def unknown(self) -> int:
        """The number that stands for anybody's data."""
        return self.tenants + 1


NO_TURN = Turn()


def make_first_state(size: Size) -> State:
    """Return the state in which every node is fenced, erased and not certified yet."""
    fenced = (MAINTENANCE,) * size.leaves
    idle = (NO_TURN,) * size.daemons
    node = Node(CONVERGING, 0, 0, False, NOBODY, idle, 0, fenced, fenced, fenced)
    return State(
        (node,) * size.nodes,
        ((),) * size.leaves,
        (UP,) * size.daemons,
        (False,) * size.nodes,
        size.faults,
    )


def list_allowed(node: Node) -> frozenset[int]:
    """Return the VRFs in which the row allows the node's ports, maintenance included."""
    if node.phase in (LEAVING, RELEASED, DRAINING):
        return frozenset((MAINTENANCE, node.tenant))
    return frozenset((MAINTENANCE,))


def read_port(state: State, number: int, leaf: int) -> frozenset[int]:
    """Return each VRF that a port is in, or will be in without a further action."""
    node = state.nodes[number]
    on_the_way = (revision[number] for revision in state.coming[leaf])
    return frozenset((node.operational[leaf], node.startup[leaf], *on_the_way))


def read_ports(state: State, number: int) -> frozenset[int]:
    """Return the same of all ports of a node."""
    leaves = range(len(state.coming))
    return frozenset().union(*(read_port(state, number, leaf) for leaf in leaves))


def add_hand(vrf: int) -> int:
    """Return the bit of a VRF that somebody else put a port into."""
    return 1 << vrf if vrf else 0


def is_by_hand(node: Node, leaf: int, vrf: int) -> bool:
    """Return whether somebody else put the port into this VRF."""
    return bool(node.hand[leaf] >> vrf & 1)


def keep_hands(mask: int, vrfs: frozenset[int]) -> int:
    """Return the bits of those VRFs that the port is still in."""
    return sum(add_hand(vrf) for vrf in vrfs if mask >> vrf & 1)
