"""Choose the nodes that leave a tenant which shrinks. Pure.

The smallest remainders are emptied first: whole units, then whole racks of the unit in which the
tenant has the fewest nodes. What stays is in as few places as possible, and what is given back is
as whole as possible. A tenant that is spread loses nodes where it has the most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from provisioner.model.node import Node, Placement, State
from provisioner.planning.tenancy.allocation import find_area
from provisioner.planning.tenancy.placement import RACK


def choose_departures(
    nodes: Sequence[Node], count: int, *, is_spread: bool = False
) -> tuple[Node, ...]:
    """Return `count` of a tenant's nodes, or all if it has fewer.

    Nodes that are not in its network yet go first: nothing has to be drained or erased. Those that
    cannot leave now, for instance because their release is under way, are the last resort. nodes:
    in the order of their places; of several that are equal, the last leave.
    """
    unused = [n for n in nodes if n.state is State.CERTIFIED and not is_being_released(n)]
    released = [n for n in nodes if n.state is State.RELEASED]
    others = [n for n in nodes if n not in unused and n not in released]
    choose = _choose_apart if is_spread else _choose_remainders
    chosen: list[Node] = []
    for group in (unused, released, others):
        chosen += choose(group, min(count - len(chosen), len(group)), 0)
    return tuple(chosen)


def is_being_released(node: Node) -> bool:
    """Return whether the node's ports are on their way into its tenant's network."""
    return node.state is State.CERTIFIED and node.placement is Placement.MIXED


def _choose_remainders(nodes: Sequence[Node], count: int, level: int) -> list[Node]:
    if count == 0 or level == RACK:
        return list(nodes[len(nodes) - count :])
    chosen: list[Node] = []
    for part in sorted(_divide(nodes, level), key=len):
        leaving = min(count - len(chosen), len(part))
        chosen += _choose_remainders(part, leaving, level + 1)
    return chosen


def _choose_apart(nodes: Sequence[Node], count: int, level: int) -> list[Node]:
    chosen: list[Node] = []
    for _ in range(count):
        part = [n for n in nodes if n not in chosen]
        for depth in range(level, RACK):
            part = max(_divide(part, depth), key=len)
        chosen.append(part[-1])
    return chosen


def _divide(nodes: Sequence[Node], level: int) -> list[list[Node]]:
    """Return the nodes by area of the next level, the last area first."""
    parts: dict[object, list[Node]] = defaultdict(list)
    for node in nodes:
        parts[find_area(node)[: level + 1]].append(node)
    return list(parts.values())[::-1]
