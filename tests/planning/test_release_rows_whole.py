"""What passes the gate, and its rows as a whole: what was not read is not good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from release_world import ASK, CONFIGURED, MAC, PORTS, World, bond, good_leaf, route

from provisioner.model.location import Bond
from provisioner.model.recovery import GateCheck, NeighbourState, RowVerdict
from provisioner.planning.release import release_gate, release_gate_routes

Change = Callable[[World], object]
PASSES: dict[str, Change] = {
    "everything is as it should be": lambda w: None,
    "a MAC is bridged that is another node's": lambda w: w.at(fdb={"94:6d:ae:00:00:09": "swp8"}),
    "its carrier came and went as a move explains": lambda w: w.port(transitions=14),
    "the carrier is not counted": lambda w: w.port(transitions=None),
    "damaged frames are not counted": lambda w: w.port(in_errors=None),
    "a port's queues were never told": lambda w: (w.port(qos=""), w.had(port_qos=())),
    "a fence's filter was bound before": lambda w: w.had(
        bound=(*w.before.bound, ("swp1", "provisioner_deny4", "inbound"))
    ),
    "another port's filters and addresses were others": lambda w: w.had(
        bound=(*w.before.bound, ("swp2", "OTHER", "inbound")),
        addresses=(*w.before.addresses, ("swp2", "10.9.9.9/31")),
    ),
    "a fence's rules came with a reclaim": lambda w: w.at(
        acls=w.leaf.acls | {"provisioner_deny6": "deny"}
    ),
    "a summary of the unit stands in another VRF": lambda w: w.more("BLUE", route("172.0.0.0/30")),
    "another node's link stands in another VRF": lambda w: w.more("BLUE", route("172.0.0.2/31")),
    "a link of the other family stands elsewhere": lambda w: w.more("BLUE", route("2001:db8::/64")),
    "a default route that a session may bring": lambda w: (
        w.asks(defaults=frozenset({"0.0.0.0/0"})),
        w.more("RED", route("0.0.0.0/0")),
    ),
    "an unreachable default of a table": lambda w: w.more("RED", route("::/0", "table")),
    "the far link is covered by a summary": lambda w: (
        w.without("172.32.0.0/31"),
        w.more("RED", route("172.32.0.0/16")),
    ),
    "a VRF without an overlay needs no far links": lambda w: (
        w.asks(**CONFIGURED),
        w.vrf("RED", vnis={}),
        w.without("172.32.0.0/31"),
    ),
    "the site's own VRF is held to its configuration": lambda w: (
        w.asks(**CONFIGURED),
        w.at(
            applied_targets={"RED": w.leaf.vrfs["RED"].vnis["5001"]},
        ),
        w.vrf("RED", imports=frozenset()),
    ),
    "route targets are those that the VNI makes by itself": lambda w: (w.asks(**CONFIGURED),),
    "a neighbour of the tenant's on another port": lambda w: w.at(
        vrf_of={"swp3": "RED"}, neighbours=(NeighbourState("swp3", "172.0.0.1", MAC),)
    ),
    "a strange neighbour elsewhere": lambda w: w.at(
        neighbours=(NeighbourState("swp3", "10.0.0.1", "94:6d:ae:00:00:0f"),)
    ),
    "the leaf was not read before": lambda w: w.strange(),
    "a second route to its link is not the one that is used": lambda w: w.more(
        "RED", route("172.0.0.0/31", selected=False, offloaded=False)
    ),
    "sessions that are configured and not asked about": lambda w: w.at(applied_peers={}),
    "sessions of other leaves": lambda w: w.asks(peers=w.ask.peers | {("leaf-9", "192.0.2.9")}),
    "a MAC that was another port's before is bridged": lambda w: (
        w.had(neighbours=(*w.before.neighbours, ("swp5", "10.0.0.5", "94:6d:ae:00:00:05"))),
        w.at(fdb={"94:6d:ae:00:00:05": "swp5"}),
    ),
    "entries without a MAC": lambda w: w.at(
        neighbours=(NeighbourState("swp1", "172.0.0.1", ""), NeighbourState("swp2", "10.0.0.1", ""))
    ),
    "its own port's VRF is not listed": lambda w: w.at(vrf_of={"swp2": "BLUE"}),
    "nothing is told of queues, on a leaf that was not read before": lambda w: (
        w.strange(),
        w.port(qos=""),
    ),
    "a host's name has a domain": lambda w: w.asks(node="n0.example"),
}


@pytest.mark.parametrize("sentence", PASSES)
def test_what_does_not_keep_a_node_back(sentence: str) -> None:
    world = World()
    PASSES[sentence](world)

    assert world.bad() == []


@pytest.mark.parametrize(("where", "good"), [("bond1", True), ("bond2", False), ("bond3", False)])
def test_a_nodes_mac_is_bridged_on_its_own_bond_of_that_leaf_alone(where: str, good: bool) -> None:
    world = World()
    bonds = [Bond(name=f"bond{n}", members=("swp1",)) for n in (1, 2)]
    ports = [p.model_copy(update={"bond": b}) for p, b in zip(PORTS, bonds, strict=True)]
    world.asks(ports=tuple(ports))
    world.port(bond=bond("bond1"))
    world.at(fdb={MAC: where})
    far = replace(world.other.ports["swp1"], bond=bond("bond2"))
    world.other = replace(world.other, ports={"swp1": far})

    assert world.bad() == ([] if good else [("fdb", f"{MAC} is bridged on {where}")])


def test_a_leaf_may_have_either_end_of_a_link() -> None:
    world = World()
    odd = {"172.0.0.1/31", "fe80::1/64"}
    world.asks(ports=(PORTS[0].model_copy(update={"address": "172.0.0.1/31"}), PORTS[1]))
    world.port(addresses=frozenset(odd))
    world.had(addresses=tuple(("swp1", address) for address in sorted(odd)))

    assert world.bad() == []


def test_a_host_of_another_domain_is_another_host() -> None:
    world = World()
    world.asks(node="n0.other.example")  # both leaves hear n0.example

    assert {check for (check, _), row in world.rows().items() if row.bad} == {"cable"}


def test_every_row_of_a_port_and_a_leaf_is_there_and_passes() -> None:
    rows = World().rows()

    assert {str(r.verdict) for r in rows.values()} == {"pass"}
    of_port = {check for check, where in rows if where == "leaf-0/swp1"}
    of_leaf = {check for check, where in rows if where == "leaf-0"}
    assert of_port == {
        "port_vrf", "one_vrf", "revision", "link", "mtu", "cable", "address", "acl_bound",
        "flaps", "link_errors", "qos",
    }  # fmt: skip
    assert of_leaf == {
        "persisted", "health", "qos", "adaptive_routing", "acl_rules", "route", "offloaded",
        "remote_route", "remainder", "foreign_route", "default_route", "imports", "importers",
        "peers", "peer_state", "dynamic_peers", "overlay", "targets", "foreign_targets",
        "neighbours", "fdb",
    }  # fmt: skip


def test_what_was_not_counted_or_is_not_there_is_said_and_is_no_fault() -> None:
    world = World()
    world.strange()
    world.asks(**CONFIGURED)
    world.vrf("RED", vnis={})
    rows = {k: r.verdict for k, r in world.rows().items() if k[1].startswith("leaf-0")}

    nothing = {k[0] for k, verdict in rows.items() if verdict is RowVerdict.NONE}
    assert nothing == {
        "flaps", "link_errors", "qos", "adaptive_routing", "remote_route", "overlay", "targets",
        "foreign_targets",
    }  # fmt: skip
    assert rows["qos", "leaf-0/swp1"] is RowVerdict.PASS  # it tells, and nothing is known of before


def test_what_was_not_read_keeps_a_node_back() -> None:
    leaf = good_leaf(0)
    blind = replace(leaf, ports={})

    rows = release_gate.judge(ASK, {}, {"leaf-0": blind})

    unread = [(str(r.check), r.subject) for r in rows if r.verdict is RowVerdict.UNKNOWN]
    assert unread == [
        ("port_vrf", "leaf-0/swp1"),
        ("port_vrf", "leaf-1/swp1"),
        ("health", "leaf-1"),
    ]
    assert [r.seen for r in rows if r.verdict is RowVerdict.UNKNOWN] == ["it was not read"] * 3
    assert any(r.subject == "leaf-0" for r in rows)  # what was read is judged all the same


def test_a_node_without_ports_is_kept_back_unless_its_partitions_are_judged() -> None:
    (row,) = release_gate.judge(replace(ASK, ports=()), {}, {})

    assert (row.check, row.subject, row.bad) == (GateCheck.PORT_VRF, "n0", True)
    assert release_gate.judge(replace(ASK, ports=(), guids=PORTS), {}, {}) == ()


def test_bad_rows_become_blockers_and_a_cable_is_told_from_a_leak() -> None:
    world = World()
    world.port(up=False, neighbours=frozenset())
    rows = tuple(world.rows().values())
    found = release_gate.list_gate_blockers(rows)

    assert [(str(b.reason), b.subject, b.detail) for b in found] == [
        ("isolation", "leaf-0/swp1", "link: its link is down"),
        ("cabling", "leaf-0/swp1", "cable: its leaf port hears no LLDP neighbour"),
    ]
    assert len(release_gate.list_gate_blockers(rows, most=1)) == 1
    silent = release_gate.make_unread_row(GateCheck.CABLES, "n0")
    assert str(release_gate.list_gate_blockers([silent])[0].reason) == "cabling"


def far_rows(world: World) -> dict[str, Any]:
    return {str(r.check): r for r in release_gate_routes.judge_far_leaf(world.ask, world.leaf)}


def test_a_leaf_elsewhere_is_judged_by_what_came_to_it() -> None:
    world = World()
    world.asks(ports=PORTS[1:])
    assert {k for k, r in far_rows(world).items() if r.verdict is RowVerdict.PASS} == {
        "remote_route", "remainder", "overlay", "targets", "foreign_targets",
    }  # fmt: skip

    world.without("172.32.0.0/31")
    assert far_rows(world)["remote_route"].bad
    world.more("BLUE", route("172.32.0.0/31"))
    assert far_rows(world)["remainder"].bad
    world.at(vrfs={})
    assert {k: r.seen for k, r in far_rows(world).items()} == {"remote_route": "it has no VRF RED"}


def test_a_leaf_that_is_silent_hides_nothing_of_the_others() -> None:
    rows = release_gate.judge(ASK, {}, {"leaf-1": good_leaf(1)})

    assert [r.subject for r in rows if r.verdict is RowVerdict.UNKNOWN] == ["leaf-0/swp1", "leaf-0"]
    assert len([r for r in rows if r.subject == "leaf-1"]) == 21


def test_a_port_of_another_leaf_with_the_same_name_is_another_port() -> None:
    world = World()
    world.asks(ports=(PORTS[0], PORTS[1].model_copy(update={"interface": "swp2"})))
    world.at(unsaved=frozenset({"swp2"}), fdb={"94:6d:ae:00:00:02": "swp2"})
    rows = release_gate.judge(world.ask, {}, {"leaf-0": world.leaf})

    assert [r for r in rows if r.bad and r.subject.startswith("leaf-0")] == []


def test_a_row_says_what_was_seen_also_where_it_passes_or_has_nothing_to_judge() -> None:
    world = World()
    rows = world.rows()
    assert rows["port_vrf", "leaf-0/swp1"].seen == "RED"
    assert rows["imports", "leaf-0"].seen == "STORE"

    world.strange()
    world.asks(**CONFIGURED)
    world.vrf("RED", vnis={})
    assert [k for k, r in world.rows().items() if r.verdict is RowVerdict.NONE and not r.seen] == []
    world.port(qos="")
    assert world.rows()["qos", "leaf-0/swp1"].verdict is RowVerdict.NONE
    assert world.rows()["qos", "leaf-0/swp1"].seen == "the leaf does not report it"


def test_a_leak_of_either_family_is_seen_where_a_port_has_addresses_of_both() -> None:
    world = World()
    world.port(addresses=world.leaf.ports["swp1"].addresses | {"2001:db8::1/64"})
    world.strange()
    world.more("BLUE", route("172.0.0.0/31"))

    assert world.bad() == [("remainder", "BLUE has a route to 172.0.0.0/31 (bgp)")]


def test_a_port_of_another_leaf_brings_no_address_here() -> None:
    world = World()
    world.asks(ports=(PORTS[0], PORTS[1].model_copy(update={"interface": "swp2"})))
    stranger = replace(world.leaf.ports["swp1"], addresses=frozenset({"10.5.5.1/31"}))
    world.at(ports=world.leaf.ports | {"swp2": stranger})
    world.more("BLUE", route("10.5.5.0/31"))

    assert not world.rows()["remainder", "leaf-0"].bad


def test_a_node_without_an_address_has_no_route_that_could_leak() -> None:
    world = World()
    world.asks(ports=tuple(p.model_copy(update={"address": ""}) for p in PORTS))
    world.port(addresses=frozenset())

    rows = world.rows()

    assert rows["address", "leaf-0/swp1"].bad
    assert not rows["remainder", "leaf-0"].bad


def test_a_port_with_the_name_of_its_own_at_another_leaf_is_another_port() -> None:
    world = World()
    world.asks(ports=(PORTS[0], PORTS[1].model_copy(update={"interface": "swp2"})))
    others = {"94:6d:ae:00:00:02": "swp7", "94:6d:ae:00:00:0f": "swp2"}  # the first is swp2's here
    world.at(
        neighbours=(*world.leaf.neighbours, NeighbourState("swp2", "10.0.0.9", MAC)), fdb=others
    )
    rows = release_gate_routes.judge(world.ask, world.leaf, world.before)
    seen = {str(r.check): r.seen for r in rows if r.bad}

    assert seen == {"neighbours": f"10.0.0.9 at {MAC} on swp2 (BLUE)"}
