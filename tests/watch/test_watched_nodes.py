"""Of a fleet only what changed is looked at again, and nothing that changed is missed."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.control.context import FleetChanges, StateIndex
from provisioner.control.repairs.stand_ins import UnitIndex
from provisioner.control.watch.watched_nodes import STALE_MAX, DueTimes, Turns, WatchedNodes
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
    assert (fleet.watched, fleet.entered, fleet.left) == ({"a": a}, ["a"], [])

    served, left = host("b"), host("a", State.DRAINING)
    fleet.take((left, served, blind))
    assert (fleet.watched, fleet.entered, fleet.left) == ({"b": served}, ["b"], ["a"])

    fleet.take((left,))  # nodes that are gone altogether
    assert (fleet.all, fleet.watched) == ({"a": left}, {})
    assert (fleet.entered, fleet.left) == ([], ["b"])


def test_changes_of_a_fleet_are_its_new_rows_and_the_names_that_went() -> None:
    a, b, c = host("a"), host("b"), host("c")
    newer = host("b", State.DRAINING)
    for before, after, changed, gone in (
        ((), (a, b), "ab", ""),
        ((a, b), (a, b), "", ""),
        ((a, b), (a, newer), "b", ""),
        ((a, b), (a, b, c), "c", ""),
        ((a, b), (a, newer, c), "bc", ""),
        ((a, b, c), (a, c), "", "b"),
        ((a, b, c), (newer,), "b", "ac"),
        ((a, b), (a, c), "c", "b"),  # as many came as went
        ((a, b), (), "", "ab"),
    ):
        changes = FleetChanges()
        changes.take(before)
        found = changes.take(after)
        names = ("".join(n.id for n in found.changed), "".join(sorted(found.gone)))
        assert names == (changed, gone), (before, after)
        assert all(any(n is one for one in after) for n in found.changed)


class Visited:
    """Stands for a node that counts how often something of it is read."""

    visits = 0

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getattr__(self, name: str) -> object:
        Visited.visits += 1
        return getattr(self._node, name)


@pytest.mark.parametrize("hosts", [64, 4096])
def test_a_fleet_of_any_size_is_read_as_far_as_it_changed(hosts: int) -> None:
    fleet: list[Any] = [Visited(host(f"n{number:04d}")) for number in range(hosts)]
    watched, units = WatchedNodes(), UnitIndex()
    in_quarantine = StateIndex(State.QUARANTINED)
    takers = (watched.take, units.take, in_quarantine.take)
    for take in takers:
        take(tuple(fleet))
    fleet[17] = Visited(host("n0017", State.QUARANTINED))
    Visited.visits = 0
    for take in takers:
        take(tuple(fleet))

    assert watched.left == ["n0017"]
    assert in_quarantine.take(tuple(fleet)) == {"n0017"}
    assert 0 < Visited.visits < 40


@pytest.mark.parametrize("hosts", [64, 4096])
def test_looks_that_are_due_cost_no_walk_over_the_others(hosts: int) -> None:
    times = DueTimes()
    for number in range(hosts):
        times.set(f"n{number}", 100.0 + number)
    assert times.list_due(102.0) == ["n0", "n1", "n2"]
    assert times.list_due(103.0) == ["n0", "n1", "n2", "n3"]  # until they get another time

    times.set("n1", 5000.0)
    times.set("n9", 103.5)  # brought forward
    times.forget("n2")
    assert times.list_due(104.0) == ["n0", "n3", "n9", "n4"]
    assert len(times._order) <= hosts - 4 + 1 + 1  # one entry was put off, and one brought forward


def test_times_that_are_set_again_and_again_do_not_pile_up() -> None:
    times = DueTimes()
    for turn in range(10_000):
        times.set("a", 10_000.0 - turn)
    assert len(times._order) <= 2 + STALE_MAX
    assert times.list_due(1.0) == ["a"]


def test_a_look_under_way_brings_no_turn_back_of_a_node_that_left() -> None:
    glances, sweeps = DueTimes(), DueTimes()
    turns = Turns("a", glances, sweeps, 1.0)
    turns.glance_at = turns.sweep_at = 2.0
    assert (glances.list_due(3.0), sweeps.list_due(3.0)) == (["a"], ["a"])

    turns.end()
    turns.glance_at = turns.sweep_at = 2.5
    assert (glances.list_due(3.0), sweeps.list_due(3.0)) == ([], [])


def test_only_what_the_leaves_are_asked_for_recables_a_node() -> None:
    fleet = WatchedNodes()
    a, b = host("a"), host("b")
    moved = host("a", leaf="leaf-2")

    def take(*nodes: Node) -> list[tuple[object, ...]]:
        fleet.take(nodes)
        return [tuple(n and n.ports[0].switch for n in pair) for pair in fleet.recabled]

    assert take(a, b) == [(None, "leaf-1"), (None, "leaf-1")]
    assert take(a.model_copy(update={"note": "said by somebody"}), b) == []
    assert take(moved, b) == [("leaf-1", "leaf-2")]
    assert take(host("a", State.DRAINING), b) == [("leaf-2", None)]
    assert take(a, b) == [(None, "leaf-1")]
    assert take(b) == [("leaf-1", None)]
