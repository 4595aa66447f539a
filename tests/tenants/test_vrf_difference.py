"""A leaf comes to hold exactly what its tenants need; what cannot be seen or is occupied blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fabrics import BASE, LIMITS, apply, host, read_leaf, session, switch, tenant, two_units
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.location import Port
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Phase, Tenant
from provisioner.model.tenant_network import NetworkChange, NetworkState, RoutePolicy
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_difference import LeafChange, find_unproved, plan_leaf_change
from provisioner.planning.tenancy.vrf_plan import (
    describe_change,
    plan_fabric,
    plan_networks,
    plan_shutdown,
)

FABRIC = two_units()
LEAF = FABRIC.leaves[0]


def change(
    tenants: list[Tenant], leaf: NetworkState | Blocker | None = None
) -> LeafChange | tuple[Blocker, ...]:
    staying = [t for t in tenants if t.phase is not Phase.LEAVING]
    desired = plan_networks(staying, FABRIC)[LEAF.switch]
    managed = [t.vrf for t in tenants]
    leaf = read_leaf() if leaf is None else leaf
    return plan_leaf_change(LEAF, desired, leaf, managed=managed, focus=managed)


def made(tenants: list[Tenant], leaf: NetworkState | None = None) -> NetworkState:
    planned = change(tenants, leaf)
    assert isinstance(planned, LeafChange), planned
    return apply(leaf or read_leaf(), planned)


def lines(tenants: list[Tenant], leaf: NetworkState) -> tuple[str, ...]:
    planned = change(tenants, leaf)
    assert isinstance(planned, LeafChange), planned
    return describe_change(planned.networks, leaf)


def reasons(outcome: object) -> list[tuple[Reason, str]]:
    assert isinstance(outcome, tuple), outcome
    return [(b.reason, b.subject) for b in outcome]


def test_a_new_tenant_is_a_vrf_with_vni_and_its_own_route_targets():
    assert lines([tenant()], read_leaf()) == (
        "VRF RED: add L3VNI 4001",
        "VRF RED: add imported route target 65000:4001",
        "VRF RED: add exported route target 65000:4001",
        "VRF RED: set AS number 4200000000",
        "VRF RED: set router id 10.240.0.0",
        "VRF RED: announce connected routes by BGP and EVPN",
    )


TENANTS = st.lists(
    st.builds(
        tenant,
        st.sampled_from(["red", "blue", "green"]),
        st.integers(0, 7),
        units=st.sampled_from([(), ((0, 0),), ((0, 1),)]),
        storage=st.sampled_from([(), ("STORAGE",)]),
        outside=st.sampled_from(
            [
                (),
                (session(),),
                (session(accepts=("10.0.0.0/8",), sends=("172.0.0.0/8",), prefixes_max=9),),
                (session(peer="2001:db8::1", sends=("fd00::/8",), communities=("64500:1",)),),
            ]
        ),
    ),
    max_size=3,
    unique_by=(lambda t: t.name, lambda t: t.number),
)


@given(TENANTS, TENANTS)
def test_whatever_was_there_of_tenants_what_is_wanted_is_there_afterwards_and_nothing_else(
    before, after
):
    held = made(before)
    staying = {t.name: t for t in after}
    # a tenant keeps its number for life
    keep = [
        staying[t.name].model_copy(update={"number": t.number, "l3vni": t.l3vni})
        if t.name in staying
        else t.model_copy(update={"phase": Phase.LEAVING})
        for t in before
    ]
    taken = {t.number for t in keep}
    keep += [
        t for n, t in staying.items() if n not in {k.name for k in keep} and t.number not in taken
    ]
    reached = made(keep, held)

    again = change(keep, reached)
    assert isinstance(again, LeafChange)
    assert again.empty
    assert reached.vrfs.keys() - BASE.keys() == {
        t.vrf for t in keep if t.phase is not Phase.LEAVING and LEAF in FABRIC.select_leaves(t)
    }
    gone = [t.model_copy(update={"phase": Phase.LEAVING}) for t in keep]
    left = made(gone, reached)
    assert left.policies == {}
    # the switch of the import may stay on: with an empty list it imports nothing
    assert {v: replace(n, imports_vrfs=False) for v, n in left.vrfs.items()} == BASE


OUTSIDE = (
    session(accepts=("10.0.0.0/8",), sends=("172.0.0.0/8",), communities=("64500:1",)),
    session(peer="2001:db8::1", accepts=("2001:db8::/32",), sends=("fd00::/8",)),
)
IN_4, OUT_4 = "tenant_RED_192-0-2-1_in", "tenant_RED_192-0-2-1_out"
IN_6, OUT_6 = "tenant_RED_2001-db8--1_in", "tenant_RED_2001-db8--1_out"


def shutdown_of(tenants: list[Tenant], leaf: NetworkState) -> NetworkChange:
    planned = change(tenants, leaf)
    assert isinstance(planned, LeafChange), planned
    return plan_shutdown(planned.networks, leaf)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ([tenant(outside=OUTSIDE)], set()),
        ([tenant(outside=OUTSIDE[:1])], {IN_6, OUT_6}),
        ([tenant(outside=OUTSIDE[1:])], {IN_4, OUT_4}),
        ([tenant(phase=Phase.LEAVING, outside=OUTSIDE)], {IN_4, OUT_4, IN_6, OUT_6}),
        (
            [tenant(outside=(OUTSIDE[0].model_copy(update={"remote_as": 1}), OUTSIDE[1]))],
            {IN_4, OUT_4},
        ),
        # other prefixes, communities and limits are told by a refresh, and end nothing
        (
            [tenant(outside=(session(communities=("1:1",), prefixes_max=9), OUTSIDE[1]))],
            set(),
        ),
    ],
)
def test_the_router_at_a_session_that_ends_is_asked_to_go_around_it(after, told):
    leaf = made([tenant(outside=OUTSIDE)])
    shutdown = shutdown_of(after, leaf)

    assert set(shutdown.policies) == told
    for name, policy in shutdown.policies.items():
        if name.endswith("_out"):
            assert set(policy.communities) == {*leaf.policies[name].communities, "65535:0"}
        else:
            assert policy.local_preference == 0
    drained = apply(leaf, LeafChange("leaf-su0-r0", shutdown))
    assert shutdown_of(after, drained).policies == shutdown.policies  # asked again: the same
    # a change that was left half way takes it back
    assert made([tenant(outside=OUTSIDE)], drained).policies == leaf.policies


def test_limits_and_families_that_nobody_asked_for_are_left():
    leaf = made([tenant(outside=(session(),))])
    held = leaf.vrfs["RED"].sessions["192.0.2.1"]
    limited = {"192.0.2.1": replace(held, prefixes_max=5, sends_communities=True)}

    assert lines([tenant(outside=(session(),))], with_red(leaf, sessions=limited)) == ()
    assert lines([tenant(outside=(session(),))], with_red(leaf, with_ipv6=True)) == ()
    assert lines([tenant(outside=(session(prefixes_max=6),))], with_red(leaf, sessions=limited))


def test_a_leaf_of_the_front_end_gets_the_tenants_network_as_a_rails_leaf_does():
    plan = AddressPlan(units=2, rails=2, spines=1, tenants=8, front_leaves=2)
    names = ["leaf-su0-r0", "front-su0-l1", "front-su1-l0"]
    limits = dict.fromkeys(names, LIMITS)
    port = Port(switch="front-su0-l1", interface="swp1", rail=-1, nic_slot="DPU_0")
    nodes = [*map(switch, names), host(0, 0, ports=(port,))]
    fabric = plan_fabric(plan, nodes, limits)
    planned = plan_networks([tenant(units=((0, 0),))], fabric)

    assert fabric.unknown == ()
    # without a front-end in the plan, its leaves are no leaves of ours
    bare = plan.model_copy(update={"front_leaves": 0})
    assert plan_fabric(bare, nodes, limits).unknown == ("front-su0-l1",)
    assert {n: sorted(p.vrfs) for n, p in planned.items()} == {
        "leaf-su0-r0": ["RED"],
        "front-su0-l1": ["RED"],
        "front-su1-l0": [],
    }
    rail, front = (planned[n].vrfs["RED"] for n in names[:2])
    assert (rail.vnis, rail.import_targets) == (front.vnis, front.import_targets)
    assert rail.asn != front.asn


def test_a_route_target_too_many_is_taken_away():
    leaf = made([tenant()])
    targets = leaf.vrfs["RED"].import_targets | {"65000:4002"}
    leaf = with_red(leaf, import_targets=targets)

    assert lines([tenant()], leaf) == ("VRF RED: remove imported route target 65000:4002",)
    assert made([tenant()], leaf).vrfs["RED"].import_targets == {"65000:4001"}


def with_red(leaf: NetworkState, **changes: object) -> NetworkState:
    return replace(leaf, vrfs={**leaf.vrfs, "RED": replace(leaf.vrfs["RED"], **changes)})


def test_a_stranger_s_session_and_a_leaking_import_are_taken_away():
    stranger = made([tenant(outside=(session(),))]).vrfs["RED"].sessions["192.0.2.1"]
    leaf = with_red(
        made([tenant()]),
        sessions={"198.51.100.9": stranger},
        imports_vrfs=True,
        imported_vrfs=frozenset({"BLUE"}),
    )

    assert lines([tenant()], leaf) == (
        "VRF RED: remove import of VRF BLUE",
        "VRF RED: cease to import from other VRFs",
        "VRF RED: remove session 198.51.100.9",
    )
    assert made([tenant()], leaf) == made([tenant()])


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("remote_as", 64501, "to AS 64500"),
        ("policy_in", "", "policies tenant_RED_192-0-2-1_in"),
        ("is_on", False, "session 192.0.2.1"),
    ],
)
def test_a_session_of_another_form_is_set_again(field, value, line):
    leaf = made([tenant(outside=(session(),))])
    other = replace(leaf.vrfs["RED"].sessions["192.0.2.1"], **{field: value})
    leaf = with_red(leaf, sessions={"192.0.2.1": other})

    assert [line in each for each in lines([tenant(outside=(session(),))], leaf)] == [True]


def test_storage_is_imported_both_ways_and_only_as_long_as_it_is_allowed():
    leaf = made([tenant(storage=("STORAGE",)), tenant("blue", 1, storage=("STORAGE",))])
    assert leaf.vrfs["STORAGE"].imported_vrfs == {"RED", "BLUE"}

    assert lines([tenant(), tenant("blue", 1, storage=("STORAGE",))], leaf) == (
        "VRF RED: remove import of VRF STORAGE",
        "VRF RED: cease to import from other VRFs",
        "VRF STORAGE: remove import of VRF RED",
    )


def test_an_import_of_the_site_s_own_vrfs_stays():
    own = replace(BASE["STORAGE"], imports_vrfs=True, imported_vrfs=frozenset({"BACKUP"}))
    leaf = read_leaf(vrfs={**BASE, "STORAGE": own})

    left = made(LEAVING, made([tenant(storage=("STORAGE",))], leaf))

    assert left.vrfs["STORAGE"].imported_vrfs == {"BACKUP"}


def test_a_session_without_prefixes_carries_nothing():
    leaf = made([tenant(outside=(session(),))])

    assert set(leaf.policies.values()) == {RoutePolicy(())}
    assert len(leaf.policies) == 2


def test_a_prefix_that_is_no_longer_allowed_leaves_the_policy():
    def with_prefixes(*prefixes: str) -> list[Tenant]:
        return [tenant(outside=(session(accepts=prefixes),))]

    leaf = made(with_prefixes("10.0.0.0/8", "10.1.0.0/16"))

    assert lines(with_prefixes("10.1.0.0/16"), leaf) == (
        "policy tenant_RED_192-0-2-1_in: permit 10.1.0.0/16",
    )


@pytest.mark.parametrize("policy", [None, RoutePolicy(("0.0.0.0/0",))])
def test_a_policy_of_another_form_is_made_anew_or_removed(policy):
    leaf = made([tenant(outside=(session(),))])
    name = "tenant_RED_192-0-2-1_in"
    leaf = replace(leaf, policies={**leaf.policies, name: policy, "own": None})

    assert lines([tenant(outside=(session(),))], leaf) == (f"policy {name}: permit no route",)
    assert f"remove policy {name}" in lines([tenant()], leaf)
    assert "own" in made([tenant()], leaf).policies


LEAVING = [tenant(phase=Phase.LEAVING)]


@pytest.mark.parametrize("where", ["operational", "applied"])
def test_a_vrf_with_a_port_in_it_stays(where):
    leaf = made([tenant()])
    if where == "operational":
        leaf = replace(leaf, ports={"swp1s0": "RED"})
    else:
        leaf = replace(leaf, ports_applied={"swp1s0": "RED"})

    outcome = change(LEAVING, leaf)

    assert reasons(outcome) == [(Reason.ISOLATION, f"{LEAF.switch}/RED")]
    assert "swp1s0" in outcome[0].detail


def test_a_vrf_that_is_only_operational_is_waited_for():
    leaf = made([tenant()])
    gone = made(LEAVING, leaf)
    still = replace(gone, vrfs_in_force=gone.vrfs_in_force | {"RED"})

    planned = change(LEAVING, still)

    assert isinstance(planned, LeafChange)
    assert planned.empty
    assert reasons(find_unproved(planned, still)) == [(Reason.ISOLATION, f"{LEAF.switch}/RED")]
    assert find_unproved(planned, gone) == ()


@pytest.mark.parametrize(
    ("vnis", "saved", "expected"),
    [
        ({"RED": frozenset({4001})}, True, []),
        ({"RED": frozenset({4001})}, False, [LEAF.switch]),
        ({"RED": frozenset({4001, 9})}, True, [f"{LEAF.switch}/RED"]),
        ({}, True, [f"{LEAF.switch}/RED"]),
    ],
    ids=["proved", "unsaved", "two VNIs", "no VNI"],
)
def test_a_tenant_is_there_when_its_vni_is_operational_and_saved(vnis, saved, expected):
    leaf = made([tenant()])
    planned = change([tenant()], leaf)
    assert isinstance(planned, LeafChange)

    now = replace(leaf, vnis_in_force=vnis, saved=saved)

    assert [b.subject for b in find_unproved(planned, now)] == expected


def test_a_silent_leaf_blocks():
    silent = Blocker(
        reason=Reason.UNREACHABLE, subject=LEAF.switch, detail="silent", unblock="wait"
    )

    assert change([tenant()], silent) == (silent,)
