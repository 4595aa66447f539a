"""Each row of the gate: what passes, what keeps a node back, and where the limit between them is.

The world is one node on two leaves in RED, as it should be; each sentence changes one thing on
`leaf-0` and names the rows that must fail for it, and no others.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from release_world import MAC, PEER, PORTS, TARGET, World, bond, route, vni

from provisioner.model.recovery import NeighbourState, PeerState, RowVerdict, VniState

Change = Callable[[World], object]

FAILS: dict[str, tuple[Change, list[tuple[str, str]]]] = {
    "the port is elsewhere": (
        lambda w: w.port(vrf="BLUE", applied_vrf="BLUE"),
        [("port_vrf", "it is in BLUE; RED is wanted")],
    ),
    "another VRF is applied": (
        lambda w: w.port(applied_vrf="BLUE"),
        [("one_vrf", "it is in RED, and BLUE is applied")],
    ),
    "its link is connected in a second VRF": (
        lambda w: w.more("STORE", route("172.0.0.0/31", "connected", "RED")),
        [("one_vrf", "172.0.0.0/31 is connected in STORE too")],
    ),
    "an address of its own is connected in a second VRF": (
        lambda w: w.more("BLUE", route("fe80::/64", "connected")),
        [("one_vrf", "fe80::/64 is connected in BLUE too")],
    ),
    "a revision would move it": (
        lambda w: w.port(coming=frozenset({"RED", "MAINT"})),
        [("revision", "revision 41 moves it to MAINT")],
    ),
    "its link is down": (lambda w: w.port(up=False), [("link", "its link is down")]),
    "its packets are short": (lambda w: w.port(mtu=1500), [("mtu", "1500 instead of 9216")]),
    "nobody is at its other end": (
        lambda w: w.port(neighbours=frozenset()),
        [("cable", "its leaf port hears no LLDP neighbour")],
    ),
    "another node is at its other end": (
        lambda w: w.port(neighbours=frozenset({("n1.example", "rail0")})),
        [("cable", "n1.example/rail0 is at its other end; n0 is planned")],
    ),
    "a second node is at its other end": (
        lambda w: w.port(neighbours=frozenset({("n0", "rail0"), ("n1", "rail0")})),
        [("cable", "n0/rail0, n1/rail0 is at its other end; n0 is planned")],
    ),
    "it has lost its address": (
        lambda w: w.port(addresses=frozenset({"fe80::1/64"})),
        [("address", "it does not have 172.0.0.0/31")],
    ),
    "an address came with the move": (
        lambda w: w.port(addresses=frozenset({"172.0.0.0/31", "fe80::1/64", "10.1.1.1/31"})),
        [("address", "10.1.1.1/31 was bound or unbound by the move")],
    ),
    "an address went with the move": (
        lambda w: w.port(addresses=frozenset({"172.0.0.0/31"})),
        [("address", "fe80::1/64 was bound or unbound by the move")],
    ),
    "no address is planned": (
        lambda w: w.asks(ports=(PORTS[0].model_copy(update={"address": ""}), PORTS[1])),
        [("address", "no address is planned for it: a leak of it could not be seen")],
    ),
    "a filter is not bound": (
        lambda w: w.port(acls=frozenset()),
        [("acl_bound", "HOSTS is not bound to it")],
    ),
    "a filter is bound one way less": (
        lambda w: w.port(acls=frozenset({("HOSTS", "inbound")})),
        [("acl_bound", "HOSTS (outbound) was bound or unbound by the move")],
    ),
    "a filter that nobody asked for, on a leaf that was not read before": (
        lambda w: (w.strange(), w.port(acls=w.leaf.ports["swp1"].acls | {("X", "inbound")})),
        [("acl_bound", "X is bound to it without being required")],
    ),
    "a filter of ours is left on it": (
        lambda w: w.port(acls=w.leaf.ports["swp1"].acls | {("provisioner_deny4", "inbound")}),
        [("acl_bound", "provisioner_deny4 (inbound) was bound or unbound by the move")],
    ),
    "its carrier came and went too often": (
        lambda w: w.port(transitions=15),
        [("flaps", "its carrier changed 5 times")],
    ),
    "its carrier was counted anew": (
        lambda w: w.port(transitions=9),
        [("flaps", "its carrier changed -1 times")],
    ),
    "a damaged frame came in": (
        lambda w: w.port(in_errors=8),
        [("link_errors", "1 damaged frames came in")],
    ),
    "its queues changed": (
        lambda w: w.port(qos="lossy"),
        [("qos", "lossy, before lossless")],
    ),
    "its queues are not told any more": (
        lambda w: w.port(qos=""),
        [("qos", "nothing, before lossless")],
    ),
    "its queues are told now and were not before": (
        lambda w: w.had(port_qos=()),
        [("qos", "there is no earlier reading of it")],
    ),
    "its configuration is not saved": (
        lambda w: w.at(unsaved=frozenset({"swp1", "swp9"})),
        [("persisted", "it would start with another configuration of swp1")],
    ),
    "something that is no port is not saved": (
        lambda w: w.at(unsaved=frozenset({"", "swp9"})),
        [("persisted", "it would start with another configuration of other parts")],
    ),
    "it has lost its address, and that is connected in a second VRF": (
        lambda w: (
            w.port(addresses=frozenset()),
            w.more("STORE", route("172.0.0.0/31", "connected", "RED")),
        ),
        [("one_vrf", "172.0.0.0/31 is connected in STORE too"), ("address", "it does not have")],
    ),
    "a filter came with the move": (
        lambda w: w.at(acls=w.leaf.acls | {"NEW": "rules"}),
        [("acl_rules", "NEW has other rules")],
    ),
    "it takes its own routes in": (
        lambda w: w.vrf("RED", imports=frozenset({"STORE", "RED"})),
        [("imports", "RED takes routes of RED")],
    ),
    "a part of the far link is not the far link": (
        lambda w: (w.without("172.32.0.0/31"), w.more("RED", route("172.32.0.0/32"))),
        [("remote_route", "RED has no 172.32.0.0/31 of the node's other leaf")],
    ),
    "a storage VRF takes its target in": (
        lambda w: w.vrf("STORE", vnis={"5004": VniState(frozenset({TARGET}), frozenset())}),
        [("foreign_targets", "STORE takes in 64512:5001")],
    ),
    "a sent target that the VNI does not make by itself": (
        lambda w: (
            w.asks(target=""),
            w.vrf("RED", vnis={"5001": VniState(frozenset({TARGET}), frozenset({"64512:7"}))}),
        ),
        [("targets", "RED sends 64512:7")],
    ),
    "the leaf is not well": (
        lambda w: w.at(issues=("a fan", "a disk")),
        [("health", "a fan; a disk")],
    ),
    "the leaf's queues changed": (lambda w: w.at(qos="lossy"), [("qos", "lossy, before roce")]),
    "adaptive routing changed": (
        lambda w: w.at(adaptive_routing="off"),
        [("adaptive_routing", "off, before on")],
    ),
    "a filter has other rules": (
        lambda w: w.at(acls=w.leaf.acls | {"HOSTS": "others"}),
        [("acl_rules", "HOSTS has other rules")],
    ),
    "a filter's rules are gone": (
        lambda w: w.at(acls={}),
        [("acl_rules", "HOSTS has other rules")],
    ),
    "there is no such VRF": (
        lambda w: w.at(vrfs={k: v for k, v in w.leaf.vrfs.items() if k != "RED"}),
        [("route", "it has no VRF RED")],
    ),
    "the node's link is in no table": (
        lambda w: w.without("172.0.0.0/31"),
        [("route", "RED has no 172.0.0.0/31")],
    ),
    "the node's link is not selected": (
        lambda w: (
            w.without("172.0.0.0/31"),
            w.more("RED", route("172.0.0.0/31", "connected", selected=False)),
        ),
        [
            ("route", "RED has no 172.0.0.0/31"),
            ("offloaded", "172.0.0.0/31 is in the kernel and not in the ASIC"),
        ],
    ),
    "the node's link is not in the ASIC": (
        lambda w: (
            w.without("172.0.0.0/31"),
            w.more("RED", route("172.0.0.0/31", "connected", offloaded=False)),
        ),
        [("offloaded", "172.0.0.0/31 is in the kernel and not in the ASIC")],
    ),
    "the far link has not come": (
        lambda w: w.without("172.32.0.0/31"),
        [("remote_route", "RED has no 172.32.0.0/31 of the node's other leaf")],
    ),
    "a default route is no way to the far link": (
        lambda w: (
            w.asks(defaults=frozenset({"0.0.0.0/0"})),
            w.without("172.32.0.0/31"),
            w.more("RED", route("0.0.0.0/0")),
        ),
        [("remote_route", "RED has no 172.32.0.0/31 of the node's other leaf")],
    ),
    "the far link is there and not selected": (
        lambda w: (
            w.without("172.32.0.0/31"),
            w.more("RED", route("172.32.0.0/31", selected=False)),
        ),
        [("remote_route", "RED has no 172.32.0.0/31 of the node's other leaf")],
    ),
    "a route to it stands in another VRF": (
        lambda w: w.more("BLUE", route("172.0.0.0/31", "")),
        [("remainder", "BLUE has a route to 172.0.0.0/31 (unknown)")],
    ),
    "a route to its far link stands in another VRF": (
        lambda w: w.more("MAINT", route("172.32.0.0/31")),
        [("remainder", "MAINT has a route to 172.32.0.0/31 (bgp)")],
    ),
    "a route to a part of it stands in another VRF": (
        lambda w: w.more("BLUE", route("172.0.0.1/32")),
        [("remainder", "BLUE has a route to 172.0.0.1/32 (bgp)")],
    ),
    "a route to an address that nobody planned stands in another VRF": (
        lambda w: (
            w.port(addresses=w.leaf.ports["swp1"].addresses | {"2001:db8::1/64"}),
            w.had(addresses=(*w.before.addresses, ("swp1", "2001:db8::1/64"))),
            w.more("BLUE", route("2001:db8::/64")),
        ),
        [("remainder", "BLUE has a route to 2001:db8::/64 (bgp)")],
    ),
    "a storage VRF has it by another way than its tenant's": (
        lambda w: w.more("STORE", route("172.0.0.0/31", "bgp", "RED", "BLUE")),
        [("remainder", "STORE has a route to 172.0.0.0/31 (bgp)")],
    ),
    "another VRF took it from the tenant's": (
        lambda w: w.more("BLUE", route("172.0.0.0/31", "bgp", "RED")),
        [("remainder", "BLUE has a route to 172.0.0.0/31 (bgp)")],
    ),
    "a route of the tenant's goes through another VRF": (
        lambda w: w.more("RED", route("10.9.0.0/16", "bgp", "RED", "BLUE")),
        [("foreign_route", "10.9.0.0/16 goes through BLUE")],
    ),
    "a default route that nobody asked for": (
        lambda w: w.more("RED", route("::/0")),
        [("default_route", "::/0 (bgp)")],
    ),
    "a kernel's default route that leads somewhere": (
        lambda w: w.more("RED", route("0.0.0.0/0", "kernel", "RED")),
        [("default_route", "0.0.0.0/0 (kernel)")],
    ),
    "it takes routes of a VRF that it must not": (
        lambda w: w.vrf("RED", imports=frozenset({"STORE", "BLUE"})),
        [("imports", "RED takes routes of BLUE")],
    ),
    "it does not take routes of its storage": (
        lambda w: w.vrf("RED", imports=frozenset()),
        [("imports", "RED does not take routes of STORE")],
    ),
    "another VRF takes its routes": (
        lambda w: w.vrf("BLUE", imports=frozenset({"RED"})),
        [("importers", "BLUE takes routes of RED")],
    ),
    "a session that nobody expects": (
        lambda w: w.vrf("RED", peers={PEER: PeerState("established"), "X": PeerState("idle")}),
        [("peers", "X is not a configured peer")],
    ),
    "a session is down": (
        lambda w: w.vrf("RED", peers={PEER: PeerState("idle")}),
        [("peer_state", f"{PEER} is idle")],
    ),
    "a session has no state": (
        lambda w: w.vrf("RED", peers={PEER: PeerState("")}),
        [("peer_state", f"{PEER} is without a state")],
    ),
    "a session is missing": (
        lambda w: w.vrf("RED", peers={}),
        [("peer_state", f"{PEER} is not there")],
    ),
    "a session is a dynamic session": (
        lambda w: w.vrf("RED", peers={PEER: PeerState("established", dynamic=True)}),
        [("dynamic_peers", f"{PEER} is a dynamic session")],
    ),
    "a dynamic session where more could come": (
        lambda w: (
            w.vrf("RED", peers={PEER: PeerState("established", dynamic=True)}),
            w.at(listens=frozenset({"RED"})),
        ),
        [("dynamic_peers", f"{PEER} is a dynamic session")],
    ),
    "sessions could come by themselves": (
        lambda w: w.at(listens=frozenset({"RED"})),
        [("dynamic_peers", "RED accepts sessions from a whole range")],
    ),
    "its overlay is gone": (
        lambda w: w.vrf("RED", vnis={}),
        [
            ("overlay", "VNIs none instead of 5001"),
            ("targets", "RED no longer takes in 64512:5001"),
        ],
    ),
    "it has a second overlay": (
        lambda w: w.vrf("RED", vnis=vni(5001) | {"5009": vni(5001)["5001"]}),
        [("overlay", "VNIs 5001, 5009 instead of 5001")],
    ),
    "another VRF has its overlay": (
        lambda w: w.vrf("MAINT", vnis={"5001": vni(5003)["5003"]}),
        [("overlay", "MAINT has the same VNI")],
    ),
    "it takes in another target": (
        lambda w: w.vrf(
            "RED", vnis={"5001": VniState(frozenset({TARGET, "64512:9"}), frozenset({TARGET}))}
        ),
        [("targets", "RED takes in 64512:9")],
    ),
    "it sends another target": (
        lambda w: w.vrf(
            "RED", vnis={"5001": VniState(frozenset({TARGET}), frozenset({TARGET, "64512:9"}))}
        ),
        [("targets", "RED sends 64512:9")],
    ),
    "it sends no target": (
        lambda w: w.vrf("RED", vnis={"5001": VniState(frozenset({TARGET}), frozenset())}),
        [("targets", "RED no longer sends 64512:5001")],
    ),
    "another VRF takes its target in": (
        lambda w: w.vrf("BLUE", vnis={"5002": VniState(frozenset({TARGET}), frozenset())}),
        [("foreign_targets", "BLUE takes in 64512:5001")],
    ),
    "it takes in what another VRF sends": (
        lambda w: w.vrf("BLUE", vnis={"5002": VniState(frozenset(), frozenset({TARGET}))}),
        [("foreign_targets", "RED takes in 64512:5001 of BLUE")],
    ),
    "its address answers in another VRF": (
        lambda w: w.at(neighbours=(NeighbourState("swp2", "172.0.0.1", "x"),)),
        [("neighbours", "172.0.0.1 at x on swp2 (BLUE)")],
    ),
    "its MAC answers in no VRF": (
        lambda w: w.at(neighbours=(NeighbourState("br0", "10.0.0.9", MAC), *w.leaf.neighbours)),
        [("neighbours", f"10.0.0.9 at {MAC} on br0 (no VRF)")],
    ),
    "a MAC that was its own before answers elsewhere": (
        lambda w: w.at(neighbours=(NeighbourState("br0", "10.0.0.9", MAC),)),
        [("neighbours", f"10.0.0.9 at {MAC} on br0 (no VRF)")],
    ),
    "an entry cannot be read": (
        lambda w: w.at(neighbours=(NeighbourState("swp2", "what", "x"),)),
        [("neighbours", "an unreadable address on swp2")],
    ),
    "its MAC is bridged": (
        lambda w: w.at(fdb={MAC: "swp5"}),
        [("fdb", f"{MAC} is bridged on swp5")],
    ),
    "it is in a bond that nobody planned": (
        lambda w: w.port(bond=bond("bond1")),
        [("bond", "the list has no bond, and it is of bond1")],
    ),
    "its port is in a bridge": (
        lambda w: w.at(fdb={"94:6d:ae:00:00:0f": "swp1"}),
        [("fdb", "swp1 is in a bridge")],
    ),
    "a session that is not configured, in a VRF of the site's own": (
        lambda w: (w.asks(peers=None), w.at(applied_peers={})),
        [("peers", f"{PEER} is not a configured peer")],
    ),
    "a target that is not configured, in a VRF of the site's own": (
        lambda w: (
            w.asks(target=""),
            w.at(applied_targets={"RED": VniState(frozenset(), frozenset({TARGET}))}),
        ),
        [("targets", "RED takes in 64512:5001")],
    ),
    "a target that the VNI does not make by itself": (
        lambda w: (
            w.asks(target=""),
            w.vrf("RED", vnis={"5001": VniState(frozenset({"64512:7"}), frozenset({TARGET}))}),
        ),
        [("targets", "RED takes in 64512:7")],
    ),
    "a VNI without any target": (
        lambda w: (
            w.asks(target=""),
            w.vrf("RED", vnis={"5001": VniState(frozenset(), frozenset())}),
        ),
        [("targets", "RED takes in no route target")],
    ),
    "two overlays in a VRF of the site's own": (
        lambda w: (
            w.asks(vni=""),
            w.vrf("RED", vnis=vni(5001) | {"5009": vni(5001)["5001"]}),
        ),
        [("overlay", "VNIs 5001, 5009 instead of")],
    ),
}


@pytest.mark.parametrize("sentence", FAILS)
def test_what_keeps_a_node_back(sentence: str) -> None:
    change, expected = FAILS[sentence]
    world = World()
    change(world)

    bad = world.bad()
    assert [check for check, _ in bad] == [check for check, _ in expected]
    assert {r.verdict for r in world.rows().values() if r.bad} == {RowVerdict.FAIL}
    for (_, seen), (_, words) in zip(bad, expected, strict=True):
        assert seen.startswith(words)
