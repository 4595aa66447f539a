"""Create, grow, shrink, delete: a new record or named reasons, and asking twice changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from fabrics import host, session, tenant, two_units

from provisioner.model.node import Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.tenant import Phase, Quota, Tenant
from provisioner.model.tenant_network import SecurityGroup
from provisioner.planning.tenancy.allocation import (
    allocate_nodes,
    count_usage,
    find_exceeded_quotas,
)
from provisioner.planning.tenancy.tenants import (
    Request,
    Shrunk,
    change_tenant,
    create,
    delete,
    shrink_tenant,
)

FABRIC = two_units()
LISTED = Tenant(name="house", vrf="HOUSE", l3vni=4001)


def six(**changes: Any) -> Any:
    return session(**{"peer": "2001:db8::1", **changes})


def reasons(found: Any) -> list[Reason]:
    assert isinstance(found, tuple), found
    return [b.reason for b in found]


def test_a_new_tenant_gets_the_lowest_number_whose_vni_nobody_has():
    made = create(Request(name="red", nodes=2), [LISTED, tenant("blue", 2)], [], FABRIC)

    assert isinstance(made, Tenant)
    assert (made.number, made.l3vni, made.pkey, made.vrf) == (1, 4002, 0x101, "RED")
    assert (made.phase, made.nodes_wanted) == (Phase.MAKING, 2)


def test_creating_the_same_tenant_again_is_the_same_tenant():
    asked = Request(name="red", nodes=2, units=((0, 1), (0, 0), (0, 1)))
    made = create(asked, [], [], FABRIC)
    assert isinstance(made, Tenant)

    assert create(asked, [made], [], FABRIC) == made
    other = asked.model_copy(update={"nodes": 3})
    assert reasons(create(other, [made], [], FABRIC)) == [Reason.DUPLICATE]


def test_when_all_numbers_are_taken_there_is_no_further_tenant():
    all_ = [tenant(f"t{n}", n) for n in range(FABRIC.plan.tenants)]

    assert reasons(create(Request(name="red"), all_, [], FABRIC)) == [Reason.QUOTA]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"name": "Red Team"}, [Reason.REFUSED, Reason.REFUSED]),
        ({"name": "red", "vrf": "MAINT"}, [Reason.REFUSED]),
        ({"name": "red", "vrf": "default"}, [Reason.REFUSED]),
        ({"name": "red", "vrf": "X" * 16}, [Reason.REFUSED]),
        ({"name": "red", "vrf": "House"}, [Reason.DUPLICATE]),
        ({"name": "red", "units": ((0, 7),)}, [Reason.NOT_EXPECTED, Reason.NOT_EXPECTED]),
        ({"name": "red", "storage": ("HOUSE",)}, [Reason.ISOLATION]),
        ({"name": "red", "storage": ("RED",)}, [Reason.ISOLATION]),
        ({"name": "red", "storage": ("default",)}, [Reason.ISOLATION]),
        ({"name": "red", "outside": (session(switch="leaf-su9-r0"),)}, [Reason.NOT_EXPECTED]),
        ({"name": "red", "outside": (session(peer="192.0.2.1; reload"),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (session(peer="224.0.0.1"),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (session(accepts=("10.0.0.1/8",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (session(sends=("fd00::/8",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(accepts=("10.0.0.0/8",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(peer="2001:DB8::1"),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(peer="fe80::1"),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(peer="ff02::1"),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(sends=("2001:db8::1/32",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(accepts_parts=True),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(communities=("65535:0",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(communities=("no-export",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(communities=("1:65536",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(communities=("1:2:3:4",)),)}, [Reason.REFUSED]),
        ({"name": "red", "outside": (six(communities=("01:2",)),)}, [Reason.REFUSED]),
        (
            {"name": "red", "outside": (six(),), "security_groups": (SecurityGroup(name="g"),)},
            [Reason.ISOLATION],
        ),
        ({"name": "red", "outside": (session(), session())}, [Reason.DUPLICATE] * 2),
        ({"name": "red", "nodes": 3, "quota": Quota(nodes=2)}, [Reason.QUOTA]),
        ({"name": "red", "nodes": 3, "quota": Quota(gpus=23)}, [Reason.QUOTA]),
        (
            {
                "name": "red",
                "outside": (session(sends=("10.0.0.0/8",)),),
                "quota": Quota(prefixes=0),
            },
            [Reason.QUOTA],
        ),
    ],
    ids=lambda v: str(v)[:50],
)
def test_what_cannot_be_is_refused_by_name(asked, expected):
    assert reasons(create(Request(**asked), [LISTED], [], FABRIC)) == expected


def test_a_session_of_either_family_has_its_communities_and_its_limit():
    asked = six(
        accepts=("2001:db8::/32",),
        sends=("fd00:1::/48",),
        accepts_parts=True,
        communities=("64500:1", "4200000000:1:2"),
        prefixes_max=100,
    )
    made = create(Request(name="red", outside=(session(), asked)), [LISTED], [], FABRIC)

    assert isinstance(made, Tenant)
    limited = FABRIC.model_copy(update={"prefixes_max": 9})
    wide = asked.model_copy(update={"prefixes_max": None})
    assert isinstance(create(Request(name="red", outside=(wide,)), [], [], limited), Tenant)


def test_growing_changes_only_what_was_asked_and_a_new_place_is_made_first():
    red = tenant(phase=Phase.READY, nodes_wanted=1, units=((0, 0),))

    more = change_tenant(Request(name="red", nodes=2), [red], [], FABRIC)
    wider = change_tenant(Request(name="red", units=((0, 0), (0, 1))), [red], [], FABRIC)

    assert more == red.model_copy(update={"nodes_wanted": 2})
    assert isinstance(wider, Tenant)
    assert (wider.phase, wider.units) == (Phase.MAKING, ((0, 0), (0, 1)))
    assert change_tenant(Request(name="red", nodes=1), [red], [], FABRIC) == red


def test_growing_is_no_way_to_shrink_to_rename_or_to_strand_a_node():
    red = tenant(nodes_wanted=2)
    there = [host(1, 0, tenant="red")]

    assert reasons(change_tenant(Request(name="red", nodes=1), [red], [], FABRIC)) == [
        Reason.REFUSED
    ]
    assert reasons(change_tenant(Request(name="red", vrf="ROT"), [red], [], FABRIC)) == [
        Reason.REFUSED
    ]
    away = Request(name="red", units=((0, 0),))
    assert reasons(change_tenant(away, [red], there, FABRIC)) == [Reason.ISOLATION]
    assert reasons(change_tenant(Request(name="house"), [LISTED], [], FABRIC)) == [Reason.REFUSED]
    assert reasons(change_tenant(Request(name="x"), [], [], FABRIC)) == [Reason.NOT_EXPECTED]


def test_a_quota_is_held_against_what_is_held_too():
    red = tenant(nodes_wanted=0, quota=Quota(nodes=1))
    held = [host(0, n, tenant="red") for n in range(2)]

    assert count_usage(red, held).gpus == 16
    assert [b.reason for b in find_exceeded_quotas(red, count_usage(red, held))] == [Reason.QUOTA]


def test_the_last_nodes_by_place_leave_and_are_drained_first():
    red = tenant(nodes_wanted=3, phase=Phase.READY)
    nodes = [
        host(0, n, tenant="red", state=State.RELEASED, placement=Placement.CUSTOMER, vrf="RED")
        for n in range(3)
    ]

    found = shrink_tenant("red", 1, (), [red], nodes, 7.0)

    assert isinstance(found, Shrunk)
    assert found.tenant.nodes_wanted == 1
    assert [(n.id, n.state, n.tenant, n.served) for n in found.nodes] == [
        ("su0-n01", State.DRAINING, "", "red"),
        ("su0-n02", State.DRAINING, "", "red"),
    ]


def test_a_node_whose_release_is_under_way_keeps_its_tenant():
    """Without a tenant its row would entitle none of its ports: the watch would fence it."""
    red = tenant(nodes_wanted=1, phase=Phase.READY)
    coming = host(0, 0, tenant="red", placement=Placement.MIXED, served="red")

    found = shrink_tenant("red", 0, (), [red], [coming], 7.0)

    assert reasons(found) == [Reason.PRECONDITION]
    assert "its release is under way" in str(found[0])


def test_a_person_says_which_nodes_leave():
    red = tenant(nodes_wanted=2, phase=Phase.READY)
    nodes = [host(0, 0, tenant="red"), host(0, 1, tenant="red", state=State.RELEASED)]

    found = shrink_tenant("red", 1, ("su0-n00",), [red], nodes, 7.0)

    assert isinstance(found, Shrunk)
    assert [(n.id, n.state, n.tenant) for n in found.nodes] == [("su0-n00", State.CERTIFIED, "")]


@pytest.mark.parametrize(
    ("to", "leaving", "state", "expected"),
    [
        (3, (), State.RELEASED, [Reason.REFUSED]),
        (-1, (), State.RELEASED, [Reason.REFUSED]),
        (1, ("su9-n00",), State.RELEASED, [Reason.NOT_EXPECTED]),
        (1, ("su0-n00", "su0-n01"), State.RELEASED, [Reason.REFUSED]),
        (1, (), State.QUARANTINED, [Reason.PRECONDITION]),
    ],
)
def test_a_shrinking_that_is_not_clear_is_refused(to, leaving, state, expected):
    red = tenant(nodes_wanted=2)
    nodes = [host(0, n, tenant="red", state=state) for n in range(2)]

    assert reasons(shrink_tenant("red", to, leaving, [red], nodes, 7.0)) == expected


def test_shrinking_to_what_it_has_takes_no_node():
    red = tenant(nodes_wanted=4)
    nodes = [host(0, n, tenant="red") for n in range(2)]

    found = shrink_tenant("red", 2, (), [red], nodes, 7.0)

    assert isinstance(found, Shrunk)
    assert (found.nodes, found.tenant.nodes_wanted) == ((), 2)


@pytest.mark.parametrize(
    "inside",
    [
        host(0, 0, tenant="red"),
        host(0, 0, vrf="RED"),
        host(0, 0, vrf="RED", state=State.DRAINING, served="red"),
    ],
    ids=["allocated", "in its VRF", "leaving"],
)
def test_a_tenant_with_a_node_is_not_deleted(inside):
    assert reasons(delete("red", [tenant()], [inside])) == [Reason.ISOLATION]


def test_deleting_twice_is_deleting_once():
    leaving = delete("red", [tenant(nodes_wanted=1)], [host(0, 0)])

    assert isinstance(leaving, Tenant)
    assert (leaving.phase, leaving.nodes_wanted) == (Phase.LEAVING, 0)
    assert delete("red", [], []) is None


def test_only_a_ready_tenant_gets_nodes_and_only_from_its_units():
    free = [host(0, 0), host(1, 0)]
    away = tenant("away", 1, nodes_wanted=2, units=((0, 1),), phase=Phase.READY)

    assert allocate_nodes(free, [tenant(nodes_wanted=2)], 0.0) == ()
    assert allocate_nodes(free, [away], 0.0) == (("su1-n00", "away"),)
    house = LISTED.model_copy(update={"nodes_wanted": 9})
    assert set(allocate_nodes(free, [away, house], 0.0)) == {
        ("su0-n00", "house"),
        ("su1-n00", "away"),
    }
