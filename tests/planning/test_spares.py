"""Which hosts stay free as spares, and which one takes the place of a faulty host."""

from __future__ import annotations

import random
from typing import Any

import pytest

from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.tenancy import spares
from provisioner.planning.tenancy.spares import SpareReserve

WHY = Blocker(reason=Reason.CHECK_FAILED, subject="n", detail="", unblock="")


def host(index: int, unit: int = 0, **changes: object) -> Node:
    ports = tuple(
        Port(
            switch=f"leaf-su{unit}-r{rail}", interface=f"swp{index}", rail=rail, nic_slot=f"N{rail}"
        )
        for rail in range(2)
    )
    node = Node(
        id=f"n{unit}-{index}",
        kind=NodeKind.HOST,
        state=State.CERTIFIED,
        placement=Placement.MAINTENANCE,
        profile="hgx",
        release="r1",
        location=Location(pod=0, scalable_unit=unit, rack="r01", index=index),
        ports=ports,
    )
    return node.model_copy(update=changes)


def case(**changes: object) -> Case:
    made = Case(id="n0-0-c0001", node="n0-0", origin=Origin.EVENT, reason="", opened_at=1.0,
                service=Service.CUT_OFF, tenant="blue")  # fmt: skip
    return made.model_copy(update=changes)


FAULTY = host(0, state=State.RELEASED, placement=Placement.CUSTOMER, tenant="blue")


def test_each_unit_keeps_its_last_certified_hosts_free() -> None:
    fleet = [host(i, unit) for unit in range(2) for i in range(4)]
    fleet[3] = host(3, 0, tenant="red")
    fleet[7] = host(3, 1, state=State.CONVERGING)
    assert spares.list_reserved(fleet, 0) == set()
    assert spares.list_reserved(fleet, 1) == {"n0-2", "n1-2"}
    assert spares.list_reserved(fleet, 2, picked={"n0-2"}) == {"n0-0", "n0-1", "n1-1", "n1-2"}


def test_a_reserve_that_is_kept_names_the_spares_of_a_new_look_at_all() -> None:
    rng = random.Random("reserve")
    fleet = {n.id: n for n in (host(i, unit) for unit in range(4) for i in range(5))}
    reserve = SpareReserve(2)
    for node in fleet.values():
        reserve.put(node)
    for _ in range(200):
        name = rng.choice([f"n{unit}-{i}" for unit in range(4) for i in range(5)])
        if rng.random() < 0.2:
            fleet.pop(name, None)
            reserve.drop(name)
        else:
            state = rng.choice([State.CERTIFIED, State.CERTIFIED, State.RELEASED])
            unit, index = rng.choice([int(name[1]), 3]), int(name[3])  # it may be moved
            changes = {"tenant": rng.choice(["", "", "red"]), "state": state, "id": name}
            fleet[name] = host(index, unit).model_copy(update=changes)
            reserve.put(fleet[name])
        barred = frozenset(rng.sample(sorted(fleet), min(2, len(fleet))))
        assert reserve.list_names(barred) == spares.list_reserved(fleet.values(), 2, barred)


class Visited:
    """Stands for a node that counts how often something of it is read."""

    visits = 0

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getattr__(self, name: str) -> object:
        Visited.visits += 1
        return getattr(self._node, name)


@pytest.mark.parametrize("units", [4, 256])
def test_a_reserve_of_any_size_reads_the_units_alone_that_changed(units: int) -> None:
    reserve = SpareReserve(1)
    for unit in range(units):
        for i in range(3):
            node: Any = Visited(host(i, unit))
            reserve.put(node)
    assert len(reserve.list_names(frozenset())) == units

    Visited.visits = 0
    reserve.put(host(1, 2, tenant="red"))
    names = reserve.list_names(frozenset({"n3-2"}))
    assert {"n2-2", "n3-1"} <= names
    assert len(names) == units
    assert 0 < Visited.visits < 100  # the hosts of two units


@pytest.mark.parametrize(
    "unsuitable",
    [
        pytest.param(host(1, unit=1), id="on other leaves"),
        pytest.param(host(1, tenant="red"), id="of another tenant"),
        pytest.param(host(1, profile="other"), id="of another profile"),
        pytest.param(host(1, release="r2"), id="of another release"),
        pytest.param(host(1, state=State.VALIDATING), id="not certified"),
        pytest.param(host(1, blockers=(WHY,)), id="blocked"),
        pytest.param(host(1, placement=Placement.MIXED), id="being moved"),
        pytest.param(host(1, ports=host(1).ports[:1]), id="without a rail"),
    ],
)
def test_only_a_free_host_of_the_same_kind_and_rails_stands_in(unsuitable: Node) -> None:
    assert spares.choose_spare(FAULTY, [FAULTY, unsuitable], ()) is None
    chosen = spares.choose_spare(FAULTY, [FAULTY, unsuitable, host(2), host(3)], {"n0-3"})
    assert chosen is not None
    assert chosen.id == "n0-2"


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, True),
        ({"service": Service.DRAIN}, True),
        ({"service": Service.KEEP}, False),
        ({"origin": Origin.MAINTENANCE}, False),
        ({"tenant": ""}, False),
        ({"stage": Stage.RETURNING}, False),
        ({"stage": Stage.MEASURING, "stand_in": "n0-2"}, True),  # it comes to its end
        ({"stage": Stage.CLOSED, "stand_in": "n0-2"}, False),
        ({"stage": Stage.HARDWARE}, True),
        ({"stood_in_at": 2.0}, False),
    ],
)
def test_a_stand_in_is_for_a_tenant_that_loses_its_node(
    changes: dict[str, object], needed: bool
) -> None:
    assert spares.needs_stand_in(case(**changes), FAULTY) is needed


def test_a_place_is_given_up_only_once_the_spare_serves() -> None:
    fenced = FAULTY.model_copy(update={"state": State.REPAIRING})
    served = case(stand_in="n0-2", stood_in_at=2.0)
    assert not spares.may_leave(case(stand_in="n0-2"), fenced)
    assert not spares.may_leave(served, FAULTY)  # its notice has not run out
    assert spares.may_leave(served, fenced)


def test_a_spare_that_was_refused_is_taken_back_unless_ports_have_moved() -> None:
    chosen = case(stand_in="n0-2")
    failed = host(2, tenant="blue", state=State.QUARANTINED)
    assert not spares.has_failed(chosen, host(2))
    assert not spares.has_failed(chosen, host(2, tenant="blue"))
    assert spares.has_failed(chosen, failed)
    assert spares.has_failed(chosen, host(2, tenant="red"))
    assert spares.has_failed(chosen, None)
    assert spares.may_withdraw(chosen, failed)
    assert not spares.may_withdraw(chosen, failed.model_copy(update={"placement": Placement.MIXED}))
    assert not spares.may_withdraw(chosen, FAULTY)
