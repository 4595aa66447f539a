"""A leaf that is not as it must be is not touched, and the reason is named."""

from __future__ import annotations

from typing import Any

import pytest
from fabrics import BASE, seen, session, tenant, two_units
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.tenancy.vrf_difference import (
    LeafChange,
    find_missing_tree,
    plan_leaf_change,
)
from provisioner.planning.tenancy.vrf_obstacles import SeenLeaf
from provisioner.planning.tenancy.vrf_plan import name_problem, plan_trees

FABRIC = two_units()
LEAF = FABRIC.leaves[0]
LEAVING = [tenant(phase=Phase.LEAVING)]


def change(tenants: list[Tenant], leaf: SeenLeaf) -> LeafChange | tuple[Blocker, ...]:
    wanted = plan_trees([t for t in tenants if t.phase is not Phase.LEAVING], FABRIC)
    return plan_leaf_change(LEAF, wanted[LEAF.switch], leaf, managed=[t.vrf for t in tenants])


def reasons(found: object) -> list[tuple[Reason, str]]:
    assert isinstance(found, tuple), found
    return [(b.reason, b.subject) for b in found]


def broken(**changes: Any) -> SeenLeaf:
    return seen(applied={**BASE, **changes})


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (broken(evpn={}), (Reason.PRECONDITION, LEAF.switch)),
        (broken(nve={"vxlan": {"enable": "off"}}), (Reason.PRECONDITION, LEAF.switch)),
        (
            broken(router={"bgp": {"autonomous-system": 65123}}),
            (Reason.PRECONDITION, LEAF.switch),
        ),
        (
            broken(vrf={**BASE["vrf"], "OTHER": {"evpn": {"vni": {"4001": {}}}}}),
            (Reason.ISOLATION, f"{LEAF.switch}/OTHER"),
        ),
        (
            broken(
                vrf={
                    "OTHER": {
                        "router": {
                            "bgp": {
                                "route-import": {"from-evpn": {"route-target": {"65000:4001": {}}}}
                            }
                        }
                    }
                }
            ),
            (Reason.ISOLATION, f"{LEAF.switch}/OTHER"),
        ),
        (
            broken(vrf={**BASE["vrf"], "RED": {"evpn": {"vni": {"9": {}}}}}),
            (Reason.ISOLATION, f"{LEAF.switch}/RED"),
        ),
        (
            seen(ports={LEAF.uplinks[0]: "RED"}),
            (Reason.ISOLATION, f"{LEAF.switch}/{LEAF.uplinks[0]}"),
        ),
        (
            broken(vrf={f"V{n}": {} for n in range(255)}),
            (Reason.QUOTA, LEAF.switch),
        ),
    ],
    ids=[
        "no-evpn",
        "no-vxlan",
        "other-as",
        "vni-taken",
        "target-imported",
        "other-vni",
        "uplink",
        "full",
    ],
)
def test_a_leaf_that_is_not_as_it_must_be_is_not_touched(leaf, expected):
    assert reasons(change([tenant()], leaf)) == [expected]


def test_254_vrfs_leave_room_for_one():
    leaf = broken(vrf={"default": {}, **{f"V{n}": {} for n in range(254)}})

    assert isinstance(change([tenant()], leaf), LeafChange)


def test_a_storage_vrf_must_be_there():
    leaf = broken(vrf={"default": {}})

    assert reasons(change([tenant(storage=("STORAGE",))], leaf)) == [
        (Reason.PRECONDITION, f"{LEAF.switch}/STORAGE")
    ]


@pytest.mark.parametrize(
    ("vrf", "system", "good"),
    [
        ("A23456789012345", "cumulus", True),
        ("A234567890123456", "cumulus", False),
        ("mgmt", "cumulus", False),
        ("maint", "cumulus", False),
        ("RED_1", "cumulus", False),
        ("1RED", "cumulus", False),
        ("RED", "sonic", True),
        ("A23456789012", "sonic", True),
        ("A234567890123", "sonic", False),
        ("VrfRed", "sonic", True),
    ],
)
def test_a_vrf_has_a_name_that_its_switch_takes(vrf, system, good):
    assert (name_problem(vrf, system) is None) is good


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["vrf", "RED", "evpn", "ip", "router", "policy"]), inner)
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["vrf", "interface", "router", "evpn", "nve"]), JSON))
def test_whatever_a_leaf_says_it_is_a_change_or_a_blocker(applied):
    leaf = SeenLeaf(LEAF.switch, applied, frozenset(), {})

    assert change([tenant(outside=(session(),)), *LEAVING], leaf) is not None


@given(JSON, JSON)
def test_what_is_missing_of_a_tree_in_itself_is_nothing(tree, other):
    if isinstance(tree, dict):
        assert find_missing_tree(tree, tree) == {}
        assert find_missing_tree(tree, other) is not None
