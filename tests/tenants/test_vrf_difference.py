"""A leaf comes to hold exactly what its tenants need; what cannot be seen or is occupied blocks."""

from __future__ import annotations

from typing import Any

import pytest
from fabrics import BASE, apply, seen, session, tenant, two_units
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.tenancy.vrf_difference import LeafChange, find_unproved, plan_leaf_change
from provisioner.planning.tenancy.vrf_obstacles import SeenLeaf
from provisioner.planning.tenancy.vrf_plan import dialect_of, plan_trees

FABRIC = two_units()
LEAF = FABRIC.leaves[0]
BGP = ("router", "bgp")


def change(
    tenants: list[Tenant], leaf: SeenLeaf | Blocker | None = None
) -> LeafChange | tuple[Blocker, ...]:
    staying = [t for t in tenants if t.phase is not Phase.LEAVING]
    wanted = plan_trees(staying, FABRIC)[LEAF.switch]
    managed = [t.vrf for t in tenants]
    leaf = seen() if leaf is None else leaf
    return plan_leaf_change(LEAF, wanted, leaf, managed=managed, focus=managed)


def made(tenants: list[Tenant], leaf: SeenLeaf | None = None) -> SeenLeaf:
    found = change(tenants, leaf)
    assert isinstance(found, LeafChange), found
    return apply(leaf or seen(), found)


def reasons(found: object) -> list[tuple[Reason, str]]:
    assert isinstance(found, tuple), found
    return [(b.reason, b.subject) for b in found]


def test_a_new_tenant_is_a_vrf_with_vni_and_its_own_route_targets():
    found = change([tenant()])

    assert isinstance(found, LeafChange)
    assert found.render_commands() == (
        "nv set vrf RED evpn enable on",
        "nv set vrf RED evpn vni 4001",
        "nv set vrf RED router bgp enable on",
        "nv set vrf RED router bgp autonomous-system 4200000000",
        "nv set vrf RED router bgp router-id 10.240.0.0",
        "nv set vrf RED router bgp route-export to-evpn route-target 65000:4001",
        "nv set vrf RED router bgp route-import from-evpn route-target 65000:4001",
        "nv set vrf RED router bgp address-family ipv4-unicast enable on",
        "nv set vrf RED router bgp address-family ipv4-unicast redistribute connected enable on",
        "nv set vrf RED router bgp address-family ipv4-unicast route-export to-evpn enable on",
    )


def test_a_release_that_says_state_gets_state():
    wanted = plan_trees([tenant()], FABRIC.model_copy(update={"leaves": (newer(),)}))

    assert wanted[LEAF.switch]["vrf"]["RED"]["evpn"]["state"] == "enabled"
    assert [dialect_of(v) for v in ("5.12.1.100", "5.14.0", "5.15.0.1", "6.0", "", "x")] == [
        *("enable", "enable", "state", "state", "enable", "enable")
    ]


def newer() -> Any:
    return LEAF.model_copy(update={"dialect": dialect_of("5.16.1.9")})


TENANTS = st.lists(
    st.builds(
        tenant,
        st.sampled_from(["red", "blue", "green"]),
        st.integers(0, 7),
        units=st.sampled_from([(), ((0, 0),), ((0, 1),)]),
        storage=st.sampled_from([(), ("STORAGE",)]),
        outside=st.sampled_from(
            [(), (session(),), (session(accepts=("10.0.0.0/8",), sends=("172.0.0.0/8",)),)]
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
    assert reached.applied["vrf"].keys() - BASE["vrf"].keys() == {
        t.vrf for t in keep if t.phase is not Phase.LEAVING and LEAF in FABRIC.select_leaves(t)
    }
    gone = [t.model_copy(update={"phase": Phase.LEAVING}) for t in keep]
    assert pruned(made(gone, reached).applied) == BASE


def pruned(tree: Any) -> Any:
    """Without the empty shells that a switch shows or hides as it likes."""
    if not isinstance(tree, dict):
        return tree
    storage = {k: pruned(v) for k, v in tree.items() if k not in ("STORAGE", "router")}
    return storage | ({"STORAGE": {}} if "STORAGE" in tree else {})


def test_a_route_target_too_many_is_taken_away():
    leaf = made([tenant()])
    leaf.applied["vrf"]["RED"]["router"]["bgp"]["route-import"]["from-evpn"]["route-target"][
        "65000:4002"
    ] = {}

    found = change([tenant()], leaf)

    assert isinstance(found, LeafChange)
    assert found.render_commands() == (
        "nv unset vrf RED router bgp route-import from-evpn route-target 65000:4002",
    )


def test_a_stranger_s_session_and_a_leaking_import_are_taken_away():
    leaf = made([tenant()])
    bgp = leaf.applied["vrf"]["RED"]["router"]["bgp"]
    bgp["neighbor"] = {"198.51.100.9": {"remote-as": 65550}}
    bgp["address-family"]["ipv4-unicast"]["route-import"] = {"from-vrf": {"list": {"BLUE": {}}}}

    found = change([tenant()], leaf)

    assert isinstance(found, LeafChange)
    assert found.render_commands() == (
        "nv unset vrf RED router bgp address-family ipv4-unicast route-import from-vrf",
        "nv unset vrf RED router bgp neighbor 198.51.100.9",
    )


def test_storage_is_imported_both_ways_and_only_as_long_as_it_is_allowed():
    leaf = made([tenant(storage=("STORAGE",)), tenant("blue", 1, storage=("STORAGE",))])
    listed = leaf.applied["vrf"]["STORAGE"]["router"]["bgp"]["address-family"]["ipv4-unicast"]
    assert set(listed["route-import"]["from-vrf"]["list"]) == {"RED", "BLUE"}

    found = change([tenant(), tenant("blue", 1, storage=("STORAGE",))], leaf)

    assert isinstance(found, LeafChange)
    end = "address-family ipv4-unicast route-import from-vrf"
    assert found.render_commands() == (
        f"nv unset vrf RED router bgp {end}",
        f"nv unset vrf STORAGE router bgp {end} list RED",
    )


def test_a_session_without_prefixes_carries_nothing():
    leaf = made([tenant(outside=(session(),))])

    maps = leaf.applied["router"]["policy"]["route-map"]
    assert [set(m["rule"]) for m in maps.values()] == [{"65535"}, {"65535"}]
    assert {str(m["rule"]["65535"]["action"]) for m in maps.values()} == {"{'deny': {}}"}


def test_a_prefix_that_is_no_longer_allowed_leaves_the_policy():
    def with_prefixes(*prefixes: str) -> list[Tenant]:
        return [tenant(outside=(session(accepts=prefixes),))]

    leaf = made(with_prefixes("10.0.0.0/8", "10.1.0.0/16"))
    found = change(with_prefixes("10.1.0.0/16"), leaf)

    assert isinstance(found, LeafChange)
    rules = "router policy prefix-list tenant_RED_192-0-2-1_in rule"
    assert found.render_commands() == (
        f"nv unset {rules} 10 match 10.0.0.0/8",
        f"nv unset {rules} 20",
        f"nv set {rules} 10 match 10.1.0.0/16",
    )


LEAVING = [tenant(phase=Phase.LEAVING)]


@pytest.mark.parametrize("where", ["operational", "applied"])
def test_a_vrf_with_a_port_in_it_stays(where):
    leaf = made([tenant()])
    if where == "operational":
        leaf = SeenLeaf(leaf.switch, leaf.applied, leaf.vrfs, {"swp1s0": "RED"})
    else:
        leaf.applied["interface"]["swp1s0"]["ip"] = {"vrf": "RED"}

    found = change(LEAVING, leaf)

    assert reasons(found) == [(Reason.ISOLATION, f"{LEAF.switch}/RED")]
    assert "swp1s0" in found[0].detail


def test_a_vrf_that_is_only_operational_is_waited_for():
    leaf = made([tenant()])
    gone = made(LEAVING, leaf)
    still = SeenLeaf(gone.switch, gone.applied, gone.vrfs | {"RED"}, {})

    found = change(LEAVING, still)

    assert isinstance(found, LeafChange)
    assert found.empty
    assert reasons(find_unproved(found, still)) == [(Reason.ISOLATION, f"{LEAF.switch}/RED")]
    assert find_unproved(found, gone) == ()


@pytest.mark.parametrize(
    ("vnis", "saved", "expected"),
    [
        ({"RED": frozenset({"4001"})}, True, []),
        ({"RED": frozenset({"4001"})}, False, [LEAF.switch]),
        ({"RED": frozenset({"4001", "9"})}, True, [f"{LEAF.switch}/RED"]),
        ({}, True, [f"{LEAF.switch}/RED"]),
    ],
    ids=["proved", "unsaved", "two VNIs", "no VNI"],
)
def test_a_tenant_is_there_when_its_vni_is_operational_and_saved(vnis, saved, expected):
    leaf = made([tenant()])
    found = change([tenant()], leaf)
    assert isinstance(found, LeafChange)

    now = SeenLeaf(leaf.switch, leaf.applied, leaf.vrfs, {}, vnis, saved)

    assert [b.subject for b in find_unproved(found, now)] == expected


def test_a_silent_leaf_blocks():
    silent = Blocker(
        reason=Reason.UNREACHABLE, subject=LEAF.switch, detail="silent", unblock="wait"
    )

    assert change([tenant()], silent) == (silent,)
