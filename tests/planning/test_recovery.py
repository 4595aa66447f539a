"""Rows against leaves after writes were lost: every pair, and what each word makes of it."""

from __future__ import annotations

from itertools import product

import pytest

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import DifferenceKind, Settlement
from provisioner.model.tenant import PortPlacement
from provisioner.planning.erasure.erasure import policy_of, require_erasure
from provisioner.planning.lifecycle.decide import Fence, Release, View, decide
from provisioner.planning.watch.high_water import (
    UNKNOWN_TENANT,
    adopted_proof,
    compare,
    settle_by_rule,
    settle_by_word,
)
from provisioner.settings import Settings

NOW = 1_000.0
TENANTS = {"RED": "red", "BLUE": "blue"}
PORTS = tuple(Port(switch="leaf", interface=f"swp{i}", rail=i, nic_slot=f"N{i}") for i in range(2))
WORLDS = {
    "none": ("", "default"),
    "maintenance": ("MAINT", "MAINT"),
    "red": ("RED", "RED"),
    "blue": ("BLUE", "BLUE"),
    "nobody's": ("LOST", "LOST"),
    "half": ("RED", "MAINT"),
    "split": ("RED", "BLUE"),
}
PLACES = [(Placement.NONE, ""), (Placement.MAINTENANCE, "MAINT"), (Placement.MIXED, "")]
ROWS = [
    Node(
        id="n1", kind=NodeKind.HOST, state=state, placement=placement, vrf=vrf, ports=PORTS,
        tenant=tenant, profile="p", certificate="c1",
    )
    for state, (placement, vrf), tenant in product(
        [s for s in State if s not in (State.RELEASED, State.RETIRED)], PLACES, ["", "red"]
    )
] + [
    Node(
        id="n1", kind=NodeKind.HOST, state=state, placement=Placement.CUSTOMER, vrf="RED",
        ports=PORTS, tenant="red", served="red", certificate="c1",
    )
    for state in (State.RELEASED, State.DRAINING)
]  # fmt: skip


def read(world: str) -> tuple[PortPlacement, ...]:
    return tuple(
        PortPlacement(switch=p.switch, interface=p.interface, vrf=vrf)
        for p, vrf in zip(PORTS, WORLDS[world], strict=True)
    )


def in_customer(world: str) -> bool:
    return bool(set(WORLDS[world]) & {"RED", "BLUE", "LOST"})


@pytest.mark.parametrize("world", WORLDS)
def test_nothing_in_a_customers_network_is_settled_without_a_person(world: str) -> None:
    for row in ROWS:
        difference = compare(row, read(world), TENANTS, NOW)
        if in_customer(world):
            agrees = row.state is State.RELEASED and world == "red"
            assert (difference is None) == agrees
            assert difference is None or difference.kind is not DifferenceKind.OUTSIDE
        else:
            assert difference is not None


@pytest.mark.parametrize("world", ["none", "maintenance"])
def test_whatever_is_outside_of_a_customers_network_is_erased_before_anybody_gets_it(
    world: str,
) -> None:
    policy = policy_of(Settings(erase_same_tenant_may_skip=True))
    for row in ROWS:
        difference = compare(row, read(world), TENANTS, NOW)
        assert difference is not None
        if difference.kind is DifferenceKind.OUTSIDE:
            settled = settle_by_rule(row, difference, NOW)
            assert settled.state is row.state
        else:
            adopted = settle_by_word(row, difference, Settlement.ADOPT, NOW)
            assert isinstance(adopted, Node)
            assert adopted.state is State.DRAINING
            settled = adopted
        assert settled.served == UNKNOWN_TENANT
        assert require_erasure(settled, policy)


def test_a_certified_node_is_not_released_on_the_strength_of_an_old_row() -> None:
    row = next(r for r in ROWS if r.state is State.CERTIFIED and r.tenant == "red")
    difference = compare(row, read("maintenance"), TENANTS, NOW)
    assert difference is not None

    settled = settle_by_rule(row, difference, NOW)

    view = View(placement=Placement.MAINTENANCE, vrf="MAINT", tenant_vrf="RED")
    assert not isinstance(decide(settled, view, 5.0), Release)


@pytest.mark.parametrize("world", ["red", "blue"])
def test_an_adopted_node_goes_on_serving_and_nothing_fences_it(world: str) -> None:
    for row in ROWS:
        difference = compare(row, read(world), TENANTS, NOW)
        if difference is None:
            continue
        adopted = settle_by_word(row, difference, Settlement.ADOPT, NOW)
        assert isinstance(adopted, Node)
        vrf = WORLDS[world][0]
        place = (adopted.state, adopted.placement, adopted.vrf, adopted.tenant, adopted.served)
        assert place == (State.RELEASED, Placement.CUSTOMER, vrf, TENANTS[vrf], TENANTS[vrf])
        assert compare(adopted, read(world), TENANTS, NOW) is None
        view = View(placement=Placement.CUSTOMER, vrf=vrf)
        assert not isinstance(decide(adopted, view, 5.0), Fence)
        assert adopted_proof(adopted, read(world), NOW).certificate != adopted.certificate


@pytest.mark.parametrize("world", ["nobody's", "half", "split"])
def test_a_network_of_nobody_and_split_ports_are_not_adopted(world: str) -> None:
    for row in ROWS:
        difference = compare(row, read(world), TENANTS, NOW)
        assert difference is not None
        assert isinstance(settle_by_word(row, difference, Settlement.ADOPT, NOW), str)


def test_keeping_a_row_that_has_it_outside_fences_and_erases_it() -> None:
    policy = policy_of(Settings(erase_same_tenant_may_skip=True))
    for row in (r for r in ROWS if r.placement is not Placement.CUSTOMER):
        difference = compare(row, read("red"), TENANTS, NOW)
        assert difference is not None

        kept = settle_by_word(row, difference, Settlement.KEEP, NOW)

        assert isinstance(kept, Node)
        if row.state is State.DRAINING:
            continue
        assert require_erasure(kept, policy)
        if row.state is not State.DISCOVERED:  # identified first, then taken in
            view = View(placement=Placement.CUSTOMER, vrf="RED")
            assert isinstance(decide(kept, view, 5.0), Fence)


def test_a_silent_leaf_waits_for_a_word() -> None:
    silent = Blocker(reason=Reason.UNREACHABLE, subject="leaf", detail="no answer", unblock="x")

    for row in ROWS:
        difference = compare(row, silent, TENANTS, NOW)
        assert difference is not None
        assert difference.kind is DifferenceKind.UNREAD


def test_a_drain_that_was_under_way_asks_whether_it_still_is() -> None:
    row = next(r for r in ROWS if r.state is State.DRAINING and r.vrf == "RED")
    difference = compare(row, read("red"), TENANTS, NOW)
    assert difference is not None

    assert difference.kind is DifferenceKind.DRAINING
    assert settle_by_word(row, difference, Settlement.KEEP, NOW) == row
