"""Which certified node goes to which tenant, as sentences."""

from __future__ import annotations

import pytest

from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Tenant
from provisioner.planning.tenancy.allocation import allocate_nodes


def host(index: int, state: State = State.CERTIFIED, tenant: str = "") -> Node:
    place = Location(rack="r01", index=index)
    return Node(id=f"n{index}", kind=NodeKind.HOST, state=state, tenant=tenant, location=place)


def tenant(name: str, wanted: int, *picked: str) -> Tenant:
    return Tenant(name=name, vrf=name.upper(), nodes_wanted=wanted, picked=picked)


SWITCH = Node(id="leaf", kind=NodeKind.SWITCH, state=State.CERTIFIED)
RED, BLUE = tenant("red", 2), tenant("blue", 2)

# sentence: (nodes, tenants, pairs)
CASES: dict[str, tuple[list[Node], list[Tenant], list[tuple[str, str]]]] = {
    "nobody wants, nobody gets": ([host(0)], [], []),
    "a tenant that wants none gets none": ([host(0)], [tenant("red", 0)], []),
    "there is nothing to give": ([], [RED], []),
    "only a certified node is given": (
        [host(i, s) for i, s in enumerate(State) if s is not State.CERTIFIED],
        [tenant("red", 20)],
        [],
    ),
    "a switch is given to nobody": ([SWITCH], [RED], []),
    "a node that is somebody's stays so": ([host(0, tenant="blue")], [RED, BLUE], []),
    "nobody gets more than it wants": (
        [host(0), host(1), host(2)],
        [RED],
        [("n0", "red"), ("n1", "red")],
    ),
    "what a tenant holds counts, wherever it is on its journey": (
        [host(0, State.RELEASED, "red"), host(1, State.DRAINING, "red"), host(2)],
        [RED],
        [],
    ),
    "nodes are given by place, not by the order of the list": (
        [host(2), host(1)],
        [RED],
        [("n1", "red"), ("n2", "red")],
    ),
    "whoever lacks the larger share comes first": (
        [host(0, State.RELEASED, "red"), host(1)],
        [RED, BLUE],
        [("n1", "blue")],
    ),
    "a small wish is not starved by a large one": (
        [host(i) for i in range(4)],
        [tenant("big", 100), tenant("tiny", 1)],
        [("n0", "big"), ("n1", "big"), ("n2", "big"), ("n3", "tiny")],
    ),
    "a picked node goes to its tenant before all others": (
        [host(i) for i in range(3)],
        [RED, tenant("blue", 1, "n1")],
        [("n1", "blue")],
    ),
    "a picked node that is not certified yet keeps its place, and no other one fills it": (
        [host(0), host(1, State.CONVERGING)],
        [tenant("blue", 1, "n1")],
        [],
    ),
    "a node that is picked for one tenant is given to no other": (
        [host(0)],
        [tenant("red", 1), tenant("blue", 0, "n0")],
        [],
    ),
    "a picked node that is retired is replaced by another one": (
        [host(0), host(1, State.RETIRED)],
        [tenant("blue", 1, "n1")],
        [("n0", "blue")],
    ),
    "equal wishes are placed together": (
        [host(i) for i in range(4)],
        [RED, BLUE],
        [("n0", "blue"), ("n1", "blue"), ("n2", "red"), ("n3", "red")],
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_allocation(sentence: str) -> None:
    nodes, tenants, pairs = CASES[sentence]

    assert allocate_nodes(nodes, tenants, 0.0) == tuple(pairs)
    assert allocate_nodes(list(reversed(nodes)), list(reversed(tenants)), 0.0) == tuple(pairs)
