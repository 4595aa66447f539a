"""A leaf that is not as it must be is not touched, and the reason is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fabrics import BASE, LIMITS, read_leaf, tenant, two_units

from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Phase, Tenant
from provisioner.model.tenant_network import NetworkLimits, NetworkState, VrfNetwork
from provisioner.planning.tenancy.vrf_difference import LeafChange, plan_leaf_change
from provisioner.planning.tenancy.vrf_plan import find_name_problem, plan_networks

FABRIC = two_units()
LEAF = FABRIC.leaves[0]
OURS = frozenset({"65000:4001"})
FULL = {f"V{n}": VrfNetwork() for n in range(255)}


def change(
    tenants: list[Tenant], leaf: NetworkState, limits: NetworkLimits = LIMITS
) -> LeafChange | tuple[Blocker, ...]:
    desired = plan_networks([t for t in tenants if t.phase is not Phase.LEAVING], FABRIC)
    plan = LEAF.model_copy(update={"limits": limits})
    return plan_leaf_change(plan, desired[LEAF.switch], leaf, managed=[t.vrf for t in tenants])


def reasons(outcome: object) -> list[tuple[Reason, str]]:
    assert isinstance(outcome, tuple), outcome
    return [(b.reason, b.subject) for b in outcome]


def with_vrf(name: str, network: VrfNetwork) -> NetworkState:
    return read_leaf(vrfs={**BASE, name: network})


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (read_leaf(has_evpn=False), (Reason.PRECONDITION, LEAF.switch)),
        (read_leaf(has_vxlan=False), (Reason.PRECONDITION, LEAF.switch)),
        (read_leaf(asn=65123), (Reason.PRECONDITION, LEAF.switch)),
        (
            with_vrf("OTHER", VrfNetwork(vnis=frozenset({4001}))),
            (Reason.ISOLATION, f"{LEAF.switch}/OTHER"),
        ),
        (
            with_vrf("OTHER", VrfNetwork(import_targets=OURS)),
            (Reason.ISOLATION, f"{LEAF.switch}/OTHER"),
        ),
        (
            with_vrf("OTHER", VrfNetwork(export_targets=OURS)),
            (Reason.ISOLATION, f"{LEAF.switch}/OTHER"),
        ),
        (
            with_vrf("RED", VrfNetwork(vnis=frozenset({9}))),
            (Reason.ISOLATION, f"{LEAF.switch}/RED"),
        ),
        (
            read_leaf(ports={LEAF.uplinks[0]: "RED"}),
            (Reason.ISOLATION, f"{LEAF.switch}/{LEAF.uplinks[0]}"),
        ),
        (read_leaf(vrfs=FULL), (Reason.QUOTA, LEAF.switch)),
    ],
    ids=[
        "no-evpn",
        "no-vxlan",
        "other-as",
        "vni-taken",
        "target-imported",
        "target-exported",
        "other-vni",
        "uplink",
        "full",
    ],
)
def test_a_leaf_that_is_not_as_it_must_be_is_not_touched(leaf, expected):
    assert reasons(change([tenant()], leaf)) == [expected]


def test_a_system_that_writes_no_networks_gets_none_and_loses_none():
    limits = NetworkLimits()

    assert reasons(change([tenant()], read_leaf(), limits)) == [(Reason.NOT_OFFERED, LEAF.switch)]
    leaving = change([tenant(phase=Phase.LEAVING)], read_leaf(), limits)
    assert isinstance(leaving, LeafChange)
    assert leaving.empty


def test_a_system_without_a_published_limit_of_vrfs_has_none():
    limits = replace(LIMITS, vrfs_max=None)

    assert isinstance(change([tenant()], read_leaf(vrfs=FULL), limits), LeafChange)


def test_254_vrfs_leave_room_for_one():
    leaf = read_leaf(vrfs={"default": VrfNetwork(), **dict(list(FULL.items())[:254])})

    assert isinstance(change([tenant()], leaf), LeafChange)


def test_a_storage_vrf_must_be_there():
    leaf = read_leaf(vrfs={"default": VrfNetwork()})

    assert reasons(change([tenant(storage=("STORAGE",))], leaf)) == [
        (Reason.PRECONDITION, f"{LEAF.switch}/STORAGE")
    ]


@pytest.mark.parametrize(
    ("vrf", "name_max", "good"),
    [
        ("A23456789012345", 15, True),
        ("A234567890123456", 15, False),
        ("mgmt", 15, False),
        ("maint", 15, False),
        ("RED_1", 15, False),
        ("1RED", 15, False),
        ("RED", 12, True),
        ("A23456789012", 12, True),
        ("A234567890123", 12, False),
        ("VrfRed", 12, True),
    ],
)
def test_a_vrf_has_a_name_that_its_switch_takes(vrf, name_max, good):
    assert (find_name_problem(vrf, name_max) is None) is good
