"""Tenants' networks in NVUE's tree: a change is read back as it was meant."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.integrations.cumulus.tenant_networks import (
    TreeChange,
    encode_change,
    make_switch,
    read_networks,
)
from provisioner.model.tenant_network import (
    NetworkChange,
    OutsideSession,
    RoutePolicy,
    VrfImports,
    VrfNetwork,
)
from provisioner.ports import Malformed

RELEASE = "5.12.1.100"
BASE: dict[str, Any] = {
    "evpn": {"enable": "on"},
    "nve": {"vxlan": {"enable": "on"}},
    "interface": {"swp1s0": {"type": "swp"}, "swp2s0": {"ip": {"vrf": "RED"}}},
    "router": {"bgp": {"autonomous-system": 65001}},
    "vrf": {"default": {}, "STORAGE": {}},
}
TARGETS = frozenset({"65000:4001"})
RED = VrfNetwork(frozenset({4001}), TARGETS, TARGETS, 65001, "10.240.0.0", is_announced=True)


def apply(tree: dict[str, Any], change: TreeChange) -> dict[str, Any]:
    """The configuration after a revision, as the switch would have it."""
    after = copy.deepcopy(tree)
    for path in change.unset:
        inner = after
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
    merge(after, change.tree)
    return after


def merge(tree: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            merge(tree.setdefault(key, {}), value)
        else:
            tree[key] = value


def made(change: NetworkChange, tree: dict[str, Any] | None = None) -> dict[str, Any]:
    before = BASE if tree is None else tree
    return apply(before, encode_change(change, before, RELEASE))


def commands(tree: Any) -> list[str]:
    """The leaves of a tree, as the switch's own commands have them."""
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            lines += [f"{key} {line}" for line in commands(value)]
        else:
            lines.append(key if isinstance(value, dict) else f"{key} {value}")
    return lines


def test_a_new_tenant_is_ten_commands():
    change = encode_change(NetworkChange(vrfs={"RED": RED}), BASE, RELEASE)

    assert change.unset == ()
    assert commands(change.tree["vrf"]["RED"]) == [
        "evpn enable on",
        "evpn vni 4001",
        "router bgp enable on",
        "router bgp autonomous-system 65001",
        "router bgp router-id 10.240.0.0",
        "router bgp route-export to-evpn route-target 65000:4001",
        "router bgp route-import from-evpn route-target 65000:4001",
        "router bgp address-family ipv4-unicast enable on",
        "router bgp address-family ipv4-unicast redistribute connected enable on",
        "router bgp address-family ipv4-unicast route-export to-evpn enable on",
    ]


def test_the_base_configuration_is_read():
    base = read_networks(BASE)

    assert (base.asn, base.has_evpn, base.has_vxlan) == (65001, True, True)
    assert base.ports == {"swp2s0": "RED"}
    assert base.vrfs == {"default": VrfNetwork(), "STORAGE": VrfNetwork()}
    assert not read_networks({"evpn": {"enable": "off"}}).has_evpn


@pytest.mark.parametrize(
    ("release", "keyword"),
    [
        ("5.12.1.100", {"enable": "on"}),
        ("5.14.0", {"enable": "on"}),
        ("5.15.0.1", {"state": "enabled"}),
        ("6.0", {"state": "enabled"}),
        ("", {"enable": "on"}),
        ("x", {"enable": "on"}),
    ],
)
def test_a_release_enables_by_its_own_keyword(release, keyword):
    tree = encode_change(NetworkChange(vrfs={"RED": RED}), BASE, release).tree

    assert make_switch(release) == keyword
    assert keyword.items() <= tree["vrf"]["RED"]["evpn"].items()
    assert read_networks(tree).vrfs["RED"] == RED


PREFIXES = st.lists(
    st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "172.16.0.0/12"]), max_size=3, unique=True
)
PREFIXES_6 = st.lists(st.sampled_from(["2001:db8::/32", "fd00:1::/48"]), max_size=2, unique=True)
MARKS = st.sampled_from([(), ("64500:1",), ("64500:1", "64500:1:2", "65535:0")])
POLICIES = st.builds(
    lambda prefixes, parts, marks, preference: (
        RoutePolicy(tuple(prefixes), parts, marks, preference) if prefixes else RoutePolicy(())
    ),
    PREFIXES | PREFIXES_6,
    st.booleans(),
    MARKS,
    st.sampled_from([None, 0, 50]),
)
SESSIONS = st.builds(
    OutsideSession,
    st.integers(1, 9),
    st.just("in"),
    st.just("out"),
    prefixes_max=st.just(9),
    sends_communities=st.just(True),
)
NAMES = st.sampled_from(["STORAGE", "BACKUP"])
NETWORKS = st.builds(
    lambda vnis, targets, imported, sessions: VrfNetwork(
        with_ipv6=True,
        vnis=vnis,
        import_targets=targets,
        export_targets=targets,
        asn=65001,
        router_id="10.240.0.0",
        is_announced=True,
        imports_vrfs=bool(imported),
        imported_vrfs=imported,
        sessions=sessions,
    ),
    st.frozensets(st.integers(1, 99), max_size=2),
    st.frozensets(st.sampled_from(["1:1", "1:2"])),
    st.frozensets(NAMES),
    st.dictionaries(st.sampled_from(["192.0.2.1", "2001:db8::1", "192.0.2.2"]), SESSIONS),
)
CHANGES = st.builds(
    lambda vrfs, policies: NetworkChange(vrfs=vrfs, policies=policies),
    st.dictionaries(st.sampled_from(["RED", "BLUE"]), NETWORKS),
    st.dictionaries(st.sampled_from(["in", "out"]), POLICIES),
)


@given(CHANGES, CHANGES)
def test_after_any_change_the_switch_has_exactly_the_desired_networks(before, after):
    held = made(before)
    reached = made(after, held)
    state = read_networks(reached)

    assert {v: state.vrfs[v] for v in after.vrfs} == after.vrfs
    assert {n: state.policies[n] for n in after.policies} == after.policies
    assert encode_change(after, reached, RELEASE) == TreeChange()
    gone = NetworkChange(removed_vrfs=frozenset(before.vrfs), removed_policies={*before.policies})
    left = read_networks(made(gone, held))
    assert (left.vrfs, left.policies) == (read_networks(BASE).vrfs, {})


def test_a_vrf_of_the_site_imports_a_tenant_and_keeps_its_own_imports():
    tree = made(NetworkChange(site_imports={"STORAGE": VrfImports(frozenset({"RED", "OWN"}))}))
    reached = made(NetworkChange(site_imports={"STORAGE": VrfImports(removed={"RED"})}), tree)

    storage = read_networks(reached).vrfs["STORAGE"]
    assert (storage.imports_vrfs, storage.imported_vrfs) == (True, {"OWN"})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("route-map", "in", "rule", "65535", "action", "permit"), {}),
        (("route-map", "in", "rule", "20"), {"action": {"permit": {}}}),
        (("prefix-list", "in", "rule", "10", "match", "0.0.0.0/0"), {}),
        (("prefix-list", "in", "rule", "10", "match", "10.0.0.0/8", "max-prefix-len"), 32),
        (("prefix-list", "in", "rule", "x"), {}),
    ],
)
def test_a_policy_that_lets_more_pass_is_closed_again(path, value):
    closed = NetworkChange(policies={"in": RoutePolicy(("10.0.0.0/8",))})
    wider = made(closed)
    inner = wider["router"]["policy"]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value

    assert read_networks(wider).policies["in"] != closed.policies["in"]
    assert read_networks(made(closed, wider)).policies == closed.policies


PEER_6, PEER_4 = "2001:db8::1", "192.0.2.1"
OUT = VrfNetwork(
    frozenset({4001}),
    TARGETS,
    TARGETS,
    65001,
    "10.240.0.0",
    is_announced=True,
    with_ipv6=True,
    sessions={
        peer: OutsideSession(64500, "in", "out", prefixes_max=9, sends_communities=True)
        for peer in (PEER_4, PEER_6)
    },
)


@pytest.mark.parametrize("release", [RELEASE, "5.15.0.1"])
@pytest.mark.parametrize(
    ("peer", "path", "value"),
    [
        (PEER_6, ("ipv4-unicast",), None),  # NVUE has it on where nothing is said
        (PEER_6, ("ipv4-unicast",), "switch"),
        (PEER_4, ("ipv6-unicast",), "switch"),
        (PEER_4, ("l2vpn-evpn",), "switch"),
        (PEER_6, ("ipv6-unicast", "prefix-limits", "inbound", "maximum"), 10),
        (PEER_6, ("ipv6-unicast", "prefix-limits", "inbound", "warning-only"), "on"),
        (PEER_4, ("ipv4-unicast", "community-advertise", "large"), "off"),
        (PEER_4, ("ipv4-unicast", "policy", "inbound", "route-map"), "everything"),
    ],
)
def test_a_session_that_a_foreign_hand_opened_is_seen_and_closed_again(peer, path, value, release):
    change = NetworkChange(vrfs={"RED": OUT})
    tree = apply(BASE, encode_change(change, BASE, release))
    assert read_networks(tree).vrfs["RED"] == OUT
    inner = tree["vrf"]["RED"]["router"]["bgp"]["neighbor"][peer]["address-family"]
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = make_switch(release) if value == "switch" else value

    assert read_networks(tree).vrfs["RED"] != OUT
    mended = apply(tree, encode_change(change, tree, release))
    assert read_networks(mended).vrfs["RED"] == OUT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("community", {"65535:0": {}}),
        ("large-community", {"64500:1:2": {}}),
        ("local-preference", 900),
    ],
)
def test_what_a_foreign_hand_sets_on_routes_is_seen_and_taken_off(key, value):
    closed = NetworkChange(policies={"in": RoutePolicy(("2001:db8::/32",))})
    tree = made(closed)
    tree["router"]["policy"]["route-map"]["in"]["rule"]["10"]["set"] = {key: value}

    assert read_networks(tree).policies["in"] != closed.policies["in"]
    assert read_networks(made(closed, tree)).policies == closed.policies


@pytest.mark.parametrize("vni", ["auto", "0", "16777215", "-1", ""])
def test_a_vni_that_is_no_number_is_not_read(vni):
    with pytest.raises(Malformed):
        read_networks({"vrf": {"RED": {"evpn": {"vni": {vni: {}}}}}})
