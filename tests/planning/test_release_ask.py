"""What a release is judged by, from what is known of its tenant; and what is kept of a look."""

from __future__ import annotations

from dataclasses import replace

from release_world import PEER, good_leaf

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.recovery import PeerState
from provisioner.model.tenant import Outside, Phase, Tenant
from provisioner.model.tenant_network import GroupRule, SecurityGroup
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.release.port_isolation import (
    FAR_LEAVES_MAX,
    ask_of,
    far_leaves,
    record_of,
)


def port(switch: str, rail: int = 0, guid: str = "") -> Port:
    return Port(
        switch=switch,
        interface="swp1",
        rail=rail,
        nic_slot=f"NIC_{rail}",
        address="" if guid else f"172.{32 * rail}.0.1/31",
        guid=guid,
    )


def node(name: str, *ports: Port, **changes: object) -> Node:
    made = Node(id=name, kind=NodeKind.HOST, state=State.RELEASED, vrf="RED", ports=ports)
    return made.model_copy(update=changes)


GUID = port("ib", 7, "00" * 8)
NODE = node("n0", port("leaf-0"), port("leaf-1", 1), GUID)
SESSION = Outside(
    switch="leaf-0", peer=PEER, remote_as=64999, accepts=("0.0.0.0/0", "::/0", "10.0.0.0/8")
)
RED = Tenant(name="red", vrf="RED", number=0, l3vni=5001, storage=("STORE",), outside=(SESSION,))
OLD = Tenant(name="old", vrf="OLD", storage=("STORE",), outside=(SESSION,), l3vni=7)
BLUE = Tenant(name="blue", vrf="BLUE", number=1, l3vni=5002)


def test_a_tenant_of_ours_is_held_to_what_it_asked_for() -> None:
    ask = ask_of(NODE, "RED", (OLD, BLUE, RED), mtu=9216, acls=("HOSTS",), plan=AddressPlan())

    assert (ask.node, ask.vrf, ask.mtu, ask.acls) == ("n0", "RED", 9216, frozenset({"HOSTS"}))
    assert (ask.ports, ask.guids) == (NODE.ports[:2], (GUID,))
    assert ask.prefixes == {"172.0.0.0/31", "172.32.0.0/31"}
    assert (ask.storage, ask.exact, ask.vni) == (frozenset({"STORE"}), True, "5001")
    assert ask.target == "65000:4001"
    assert ask.peers == {("leaf-0", PEER)}
    assert ask.defaults == {"0.0.0.0/0", "::/0"}
    assert ask.storage_of == (("OLD", "STORE"), ("RED", "STORE"))


def test_ports_have_their_groups_filters_while_the_tenants_network_stands() -> None:
    rule = GroupRule(protocol="tcp", ports=(443,), source="10.0.0.0/8")
    web = SecurityGroup(name="web", rails=(1,), rules=(rule,))
    guards = {}
    for phase in Phase:
        red = RED.model_copy(update={"phase": phase, "security_groups": (web,)})
        guards[phase] = ask_of(NODE, "RED", (red,), mtu=9216).guards

    assert guards.pop(Phase.READY) == {
        ("leaf-0", "swp1"): "",
        ("leaf-1", "swp1"): "provisioner_sg_RED_web",
    }
    assert set(guards.values()) == {None}


def test_only_the_front_end_has_a_packet_size_of_its_own() -> None:
    ask = ask_of(NODE, "RED", (RED,), mtu=9216, front_mtu=1500)
    plain = ask_of(NODE, "RED", (RED,), mtu=9216)

    assert [ask.find_mtu(port("leaf-0", rail)) for rail in (-1, 0, 1)] == [1500, 9216, 9216]
    assert plain.find_mtu(port("leaf-0", -1)) == 9216


def test_a_default_route_is_expected_of_the_family_that_a_session_may_bring() -> None:
    session = SESSION.model_copy(update={"accepts": ("0.0.0.0/0", "10.0.0.0/8")})
    red = RED.model_copy(update={"outside": (session,)})

    assert ask_of(NODE, "RED", (red,), mtu=9216).defaults == {"0.0.0.0/0"}


def test_without_a_plan_the_configured_target_counts() -> None:
    assert ask_of(NODE, "RED", (RED,), mtu=9216).target == ""
    bare = RED.model_copy(update={"l3vni": 0})
    ask = ask_of(NODE, "RED", (bare,), mtu=9216, plan=AddressPlan())
    assert (ask.target, ask.vni, ask.exact) == ("", "", True)


def test_a_vrf_that_the_site_prepared_is_held_to_its_configuration() -> None:
    ask = ask_of(NODE, "OLD", (RED, OLD), mtu=9216, plan=AddressPlan())

    assert (ask.exact, ask.vni, ask.target, ask.peers) == (False, "", "", None)
    assert ask.storage == {"STORE"}


def test_a_vrf_of_nobody_has_no_storage_and_no_sessions_of_its_own() -> None:
    ask = ask_of(NODE, "GREEN", (RED, OLD), mtu=1500, acls=("HOSTS",))

    assert (ask.ports, ask.guids, ask.vrf, ask.mtu) == (NODE.ports[:2], (GUID,), "GREEN", 1500)
    assert ask.acls == {"HOSTS"}
    assert (ask.storage, ask.exact, ask.peers, ask.storage_of) == (frozenset(), False, None, ())


def test_far_leaves_are_those_of_the_same_tenant_where_the_node_is_not() -> None:
    others = (
        NODE,
        node("n1", port("leaf-1"), port("leaf-2"), port("ib-2", 7, "01" * 8)),
        node("n2", port("leaf-3"), state=State.DRAINING),
        node("n3", port("leaf-4"), vrf="BLUE"),
        node("n0b", port("leaf-5")),
    )

    assert set(far_leaves(NODE, "RED", others)) == {"leaf-2", "leaf-5"}


def test_of_many_far_leaves_some_are_looked_at_and_others_for_another_node() -> None:
    others = [node(f"m{n}", port(f"leaf-{n}")) for n in range(10, 40)]
    mine, yours = (far_leaves(node(n), "RED", others) for n in ("n0", "n7"))

    assert len(mine) == len(yours) == FAR_LEAVES_MAX
    assert mine != yours
    assert mine == far_leaves(node("n0"), "RED", reversed(others))


def test_a_look_is_kept_for_the_ports_of_one_node() -> None:
    leaf = good_leaf(0)
    other = replace(leaf.ports["swp1"], vrf="BLUE", transitions=None, in_errors=None, qos="")
    red = replace(leaf.vrfs["RED"], peers={PEER: PeerState("idle")})
    leaf = replace(
        leaf,
        ports={**leaf.ports, "swp2": other, "swp5": other},
        vrfs=leaf.vrfs | {"RED": red},
    )
    record = record_of(leaf, ["swp2", "swp1", "swp9"])

    assert (record.switch, record.at, record.applied) == ("leaf-0", 1000.0, "applied")
    assert record.ports == (("swp1", "RED"), ("swp2", "BLUE"))
    assert record.sessions == (("RED", PEER, "idle"),)
    assert [n[0] for n in record.neighbours] == ["swp1", "swp2"]
    assert ("RED", "64512:5001") in record.targets
    assert (record.qos, record.adaptive_routing) == ("roce", "on")
    assert record.acls == (("HOSTS", "rules"), ("provisioner_deny4", "deny"))
    assert ("swp1", "172.0.0.0/31") in record.addresses
    assert ("swp2", "HOSTS", "outbound") in record.bound
    assert (record.transitions, record.in_errors, record.port_qos) == (
        (("swp1", 10),),
        (("swp1", 7),),
        (("swp1", "lossless"),),
    )


def test_a_look_is_saved_if_nothing_of_these_ports_and_of_the_leaf_is_unsaved() -> None:
    for unsaved, saved in (("swp9", True), ("swp1", False), ("", False)):
        leaf = replace(good_leaf(0), unsaved=frozenset({unsaved}))
        record = record_of(leaf, ["swp1"])
        assert record.saved is saved
        assert [n[0] for n in record.neighbours] == ["swp1"]
