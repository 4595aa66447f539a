"""Of a fleet only what changed is looked at again, and nothing that changed is missed."""

from __future__ import annotations

import itertools

from provisioner.control.watch.watched_nodes import WatchedNodes
from provisioner.model.location import Port
from provisioner.model.node import BmcRef, Node, NodeKind, State


def host(name: str, state: State = State.RELEASED, leaf: str = "leaf-1") -> Node:
    port = Port(switch=leaf, interface="swp1", rail=0, nic_slot="N0")
    bmc = BmcRef(name="host", url=f"https://{name}")
    return Node(id=name, kind=NodeKind.HOST, state=state, bmcs=(bmc,), ports=(port,))


def test_released_hosts_with_bmcs_are_watched_and_others_are_not() -> None:
    fleet = WatchedNodes()
    a, b = host("a"), host("b", State.CONVERGING)
    blind = host("c").model_copy(update={"bmcs": ()})
    fleet.take((a, b, blind))

    assert fleet.all == {"a": a, "b": b, "c": blind}
    assert fleet.watched == {"a": a}

    served, left = host("b"), host("a", State.DRAINING)
    fleet.take((left, served, blind))
    assert fleet.watched == {"b": served}

    fleet.take((left,))  # nodes that are gone altogether
    assert (fleet.all, fleet.watched) == ({"a": left}, {})


def test_only_what_the_leaves_are_asked_for_makes_it_cabled_anew() -> None:
    fleet = WatchedNodes()
    a, b = host("a"), host("b")
    fleet.take((a, b))
    numbers = [fleet.cabled]
    for changed in (
        a.model_copy(update={"note": "said by somebody"}),  # no port of it is another one
        host("a", leaf="leaf-2"),
        host("a", State.DRAINING),
        host("a"),
    ):
        fleet.take((changed, b))
        numbers.append(fleet.cabled)
    fleet.take((b,))
    numbers.append(fleet.cabled)

    same = [after == before for before, after in itertools.pairwise(numbers)]
    assert same == [True, False, False, False, False]
