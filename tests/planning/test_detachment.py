"""Whether a node in service can be given back, and the row that it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.model.adoption.capability import LADDER, Grant, GrantScope
from provisioner.model.location import Port
from provisioner.model.node import BmcRef, Node, NodeKind, Origin, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.release.adoption import (
    Owners,
    PresentWork,
    describe_detachment,
    describe_refusal,
    detach_node,
    end_detachment,
    find_detach_obstacles,
    list_allowed,
)
from provisioner.planning.tenancy.allocation import list_wishes

NOW = 1_800_000_000.0
LEAF = Node(id="leaf", kind=NodeKind.SWITCH, state=State.RELEASED)
WAITS = Blocker(reason=Reason.TRESPASS, subject="leaf/swp1", detail="it moved", unblock="Look.")


def host(**changes: Any) -> Node:
    fields: dict[str, Any] = {
        "state": State.RELEASED,
        "placement": Placement.CUSTOMER,
        "vrf": "RED",
        "tenant": "red",
        "served": "red",
        "certificate": "c1",
        "ports": (Port(switch="leaf", interface="swp1", rail=0, nic_slot="NIC_1"),),
        "bmcs": (BmcRef(name="host", url="https://10.0.0.1", rotated=True),),
        **changes,
    }
    return Node(id="n1", kind=NodeKind.HOST, **fields)


@pytest.mark.parametrize("origin", [Origin.ADOPTED, Origin.TAKEN_IN])
def test_a_node_in_service_without_work_is_given_back_as_it_stands(origin: Origin) -> None:
    node = host(origin=origin, blockers=())
    assert find_detach_obstacles(node, [node, LEAF], PresentWork()) == ()

    row = detach_node(node, "ada", "back to Ironic", NOW)

    assert (row.state, row.origin, row.certificate) == (State.RETIRED, Origin.DETACHED, "")
    assert (row.tenant, row.vrf, row.placement) == ("red", "RED", Placement.CUSTOMER)
    assert row.note == "detached 2027-01-15 by ada: back to Ironic"
    lines = " ".join(describe_detachment(node))
    assert "nothing is sent" in lines
    assert "Its certificate c1 is revoked." in lines
    assert "The BMCs host keep passwords" in lines


@pytest.mark.parametrize(
    ("changes", "work", "detail"),
    [
        ({"state": State.CERTIFIED}, {}, "it is certified, not in service"),
        ({"state": State.DRAINING}, {}, "it is draining, not in service"),
        ({"placement": Placement.MIXED}, {}, "its ports are mixed"),
        ({"blockers": (WAITS,)}, {}, "it waits: "),
        ({}, {"operation": "credentials"}, "an operation of it is under way: credentials"),
        ({}, {"case": "n1-c0001"}, "repair case n1-c0001 is open"),
        ({}, {"campaign": "c0001"}, "campaign c0001 has it"),
        ({}, {"passwords": ("host",)}, "the password of host is being changed"),
        ({"origin": Origin.DETACHED}, {}, "it is detached already"),
    ],
)
def test_a_node_with_work_under_way_is_refused_with_the_remedy(
    changes: dict[str, Any], work: dict[str, Any], detail: str
) -> None:
    node = host(**changes)
    (obstacle,) = find_detach_obstacles(node, [node, LEAF], PresentWork(**work))
    assert obstacle.detail.startswith(detail)
    assert obstacle.unblock


def test_a_switch_stays_while_hosts_of_ours_are_cabled_to_it() -> None:
    node = host()
    (obstacle,) = find_detach_obstacles(LEAF, [node, LEAF], PresentWork())
    assert "n1" in obstacle.detail
    given_back = detach_node(node, "ada", "away", NOW)
    assert find_detach_obstacles(LEAF, [given_back, LEAF], PresentWork()) == ()


def test_a_host_on_infiniband_is_given_back_like_any_other() -> None:
    port = Port(switch="ufm", interface="1", rail=0, nic_slot="NIC_1", guid="0123456789abcdef")
    node = host(ports=(port,))
    assert find_detach_obstacles(node, [node], PresentWork()) == ()


def test_no_grant_reaches_a_detached_node() -> None:
    row = detach_node(host(), "ada", "away", NOW)
    grants = [
        Grant(scope=scope, name=name, capability=c, granted=True)
        for scope, name in ((GrantScope.SITE, ""), (GrantScope.NODE, "n1"))
        for c in LADDER
    ]
    assert list_allowed(row, grants) == frozenset()
    assert "n1 is detached" in describe_refusal(row, LADDER[0], grants)


def test_a_detached_node_keeps_its_identity_until_it_is_gone() -> None:
    row = detach_node(host(), "ada", "away", NOW)
    copy = host().model_copy(update={"id": "n2"})
    (conflict,) = Owners([row]).find_conflicts(copy)
    assert conflict.reason is Reason.DUPLICATE

    gone = end_detachment(row, "ada", "sold")

    assert Owners([gone]).find_conflicts(copy) == ()
    assert (gone.origin, gone.state, gone.tenant) == (Origin.TAKEN_IN, State.RETIRED, "")
    assert list_allowed(gone, ()) == frozenset(LADDER)


def test_its_tenant_gets_no_other_node_in_its_place() -> None:
    red = Tenant(name="red", vrf="RED", nodes_wanted=1, phase=Phase.READY)
    row = detach_node(host(), "ada", "away", NOW)
    assert list_wishes([row], [red]) == []
    assert [w.count for w in list_wishes([end_detachment(row, "ada", "sold")], [red])] == [1]
