"""Security groups: what a person asks for, what a leaf's port gets, and what a leaf shows of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fabrics import host, read_leaf, tenant, two_units
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, run

from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.integrations.cumulus.port_filter import (
    encode_filter,
    read_bound,
    read_filters,
)
from provisioner.integrations.sim.switches.nvue import find_acl_violation
from provisioner.model.location import Port
from provisioner.model.outcome import Reason
from provisioner.model.tenant import Phase
from provisioner.model.tenant_network import FilterMatch, GroupRule, PortGuard, SecurityGroup
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.place_ports import list_filters, plan_guards, plan_port_filter
from provisioner.planning.tenancy.tenants import Request, change_tenant, create
from provisioner.planning.tenancy.vrf_difference import find_missing_change, plan_leaf_change
from provisioner.planning.tenancy.vrf_plan import plan_networks

FABRIC = two_units()
WEB = SecurityGroup(
    name="web",
    nodes=("su0-n00",),
    rules=(GroupRule(protocol="tcp", ports=(80, 443), source="10.0.0.0/8"),),
)
ROCE = SecurityGroup(
    name="roce",
    rails=(0,),
    rules=(GroupRule(protocol="udp", ports=(4791,), source="0.0.0.0/0"),),
)
ALWAYS = (FilterMatch("permit", "icmp"), FilterMatch("permit", "tcp", established=True))
DENY = FilterMatch("deny")


def test_a_port_has_the_rules_of_all_groups_that_name_it_and_denies_the_rest() -> None:
    red = tenant("red", 1, security_groups=(WEB, ROCE))
    web = tuple(FilterMatch("permit", "tcp", "10.0.0.0/8", "", port) for port in (80, 443))
    roce = (FilterMatch("permit", "udp", "", "", 4791),)

    assert plan_port_filter(red, "su0-n00", 0) == (
        "provisioner_sg_RED_roce_web",
        (*ALWAYS, *roce, *web, DENY),
    )
    assert plan_port_filter(red, "su0-n01", 0) == (
        "provisioner_sg_RED_roce",
        (*ALWAYS, *roce, DENY),
    )
    assert plan_port_filter(red, "su0-n00", 3) == ("provisioner_sg_RED_web", (*ALWAYS, *web, DENY))
    assert plan_port_filter(red, "su0-n01", 3) == ("", ())
    assert set(list_filters(red)) == {
        "provisioner_sg_RED_roce_web",
        "provisioner_sg_RED_roce",
        "provisioner_sg_RED_web",
    }


GOOD = {"protocol": "tcp", "ports": [22], "source": "10.0.0.0/8"}


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"name": "Web"}, "no name of a group"),
        ({"name": "w" * 16}, "no name of a group"),
        ({"name": "a_b"}, "no name of a group"),
        ({"name": "web", "nodes": ["su9-n99"]}, "there is no host su9-n99"),
        ({"name": "web", "rails": [-1]}, "a rail is a number from 0 on"),
        ({"name": "web", "rules": [{**GOOD, "ports": [0]}]}, "0 is no port"),
        ({"name": "web", "rules": [{**GOOD, "ports": [65536]}]}, "65536 is no port"),
        ({"name": "web", "rules": [{**GOOD, "source": "10.0.0.1/8"}]}, "no IPv4 network"),
        ({"name": "web", "rules": [{**GOOD, "source": "::/0"}]}, "no IPv4 network"),
        ({"name": "web", "rules": [{**GOOD, "target": "10.0.0.0/8"}]}, "address with /32"),
        ({"name": "web", "rules": [{**GOOD, "ports": [*range(1, 33)]}] * 9}, "rules, more than"),
    ],
)
def test_a_group_that_no_port_can_have_is_refused_with_its_fault(group, words) -> None:
    asked = Request(name="red", security_groups=(SecurityGroup.model_validate(group),))
    if "more than" in words:  # equal rules count once
        many = [{**GOOD, "ports": [*range(32 * n + 1, 32 * n + 33)]} for n in range(9)]
        whole = SecurityGroup.model_validate({"name": "web", "rules": many})
        asked = asked.model_copy(update={"security_groups": (whole,)})

    refused = create(asked, [], [], FABRIC)

    assert isinstance(refused, tuple)
    assert [words in b.detail for b in refused] == [True]


def test_groups_are_refused_by_name_where_only_partitions_isolate() -> None:
    partitions = FABRIC.model_copy(update={"leaves": (), "partitions": True})
    (refusal,) = create(Request(name="red", security_groups=(ROCE,)), [], [], partitions)

    assert (refusal.reason, "security_groups" in refusal.unblock) == (Reason.NOT_OFFERED, True)


def test_a_change_of_groups_goes_to_the_leaves_again_and_a_repetition_does_not() -> None:
    red = tenant("red", 1)
    asked = Request(name="red", security_groups=(ROCE,))
    changed = change_tenant(asked, [red], [], FABRIC)
    ready = changed.model_copy(update={"phase": Phase.READY})

    assert changed.phase is Phase.MAKING
    assert change_tenant(asked, [ready], [], FABRIC) == ready
    assert change_tenant(Request(name="red", nodes=3), [ready], [], FABRIC).security_groups == (
        ROCE,
    )


def _leaf_change(red, state, nodes):
    networks = plan_networks([red], FABRIC, nodes)
    leaf = FABRIC.leaves[0]
    return plan_leaf_change(leaf, networks[leaf.switch], state, managed=["RED"], focus=["RED"])


def test_a_leaf_s_ports_get_what_their_node_has_and_lose_it_outside_of_the_tenant() -> None:
    leaf = FABRIC.leaves[0].switch
    mine = Port(switch=leaf, interface="swp1s0", rail=0, nic_slot="NIC_0")
    node = host(0, 0, tenant="red", ports=(mine,))
    red = tenant("red", 1, security_groups=(ROCE.model_copy(update={"rails": ()}),))
    assert plan_guards(red, [node], leaf) == {mine.interface: "provisioner_sg_RED_roce"}
    state = read_leaf(
        leaf,
        ports_applied={mine.interface: "RED", "swp9s0": "MAINT", "swp8s0": "RED"},
        bound={
            "swp9s0": frozenset({"provisioner_sg_RED_old"}),
            "swp8s0": frozenset({"provisioner_sg_RED_x"}),
        },
        filters={
            "provisioner_sg_RED_old": (DENY,),
            "site": (DENY,),
            "provisioner_sg_HOUSE_x": (DENY,),
        },
    )
    change = _leaf_change(red, state, [node]).networks

    assert change.bound == {
        mine.interface: PortGuard("RED", "provisioner_sg_RED_roce"),
        "swp9s0": PortGuard("MAINT", ""),  # swp8s0 is nobody's: the watch reports it
    }
    assert set(change.filters) == {"provisioner_sg_RED_roce"}
    assert change.removed_filters == {"provisioner_sg_RED_old"}
    # a port that was moved out meanwhile keeps what its move gave it
    moved = replace(state, ports_applied={**state.ports_applied, mine.interface: "MAINT"})
    assert mine.interface not in find_missing_change(change, moved).bound


MATCHES = st.builds(
    FilterMatch,
    st.sampled_from(["permit", "deny"]),
    st.sampled_from(["tcp", "udp"]),
    st.sampled_from(["", "10.0.0.0/8"]),
    st.sampled_from(["", "172.16.0.2/32"]),
    st.integers(0, 65535),
    st.just(False),
)


@given(st.lists(st.one_of(MATCHES, st.sampled_from([*ALWAYS, DENY])), max_size=12))
def test_a_switch_s_tree_is_read_as_it_was_written_and_is_of_the_published_form(rules) -> None:
    tree = {"provisioner_sg_RED_web": encode_filter(tuple(rules))}

    assert read_filters({**tree, "site": {}}) == {"provisioner_sg_RED_web": tuple(rules)}
    assert find_acl_violation((), {"acl": tree}) == ""


@pytest.mark.parametrize(
    "rule",
    [
        {"action": {"permit": {}}, "match": {"ip": {}, "mac": {}}},
        {"action": {"permit": {}, "log": {}}, "match": {"ip": {}}},
        {"action": {"permit": {}}, "match": {"ip": {"dscp": "af12"}}},
        {"action": {"permit": {}}, "match": {"ip": {"protocol": "tcp", "udp": {}}}},
        {"action": {"permit": {}}, "match": {"ip": {"protocol": "tcp", "tcp": {"flags": {}}}}},
        {},
    ],
)
def test_a_rule_of_another_form_is_never_taken_for_ours(rule) -> None:
    assert read_filters({"provisioner_sg_X": {"type": "ipv4", "rule": {"10": rule}}}) == {
        "provisioner_sg_X": None
    }
    assert read_bound({"acl": {"provisioner_sg_X": {"inbound": {}}, "site": {"outbound": {}}}}) != {
        "provisioner_sg_X"
    }


@pytest.mark.parametrize(
    "body",
    [
        {"acl": {"x": {"type": "ip"}}},
        {"acl": {"x": {"rule": {"0": {}}}}},
        {"acl": {"x": {"rule": {"10": {"action": {"allow": {}}}}}}},
        {"acl": {"x": {"rule": {"10": {"match": {"ip": {"port": 22}}}}}}},
        {"acl": {"x": {"rule": {"10": {"match": {"ip": {"protocol": "sctp"}}}}}}},
        {"acl": {"x": {"rule": {"10": {"match": {"ip": {"tcp": {"state": "new"}}}}}}}},
        {"acl": {"x": {"rule": {"10": {"match": {"ip": {"tcp": {"dest-port": {"0": {}}}}}}}}}},
        {"interface": {"swp1": {"acl": {"x": {"egress": {}}}}}},
    ],
)
def test_the_simulated_switch_refuses_what_nvue_has_not(body) -> None:
    assert find_acl_violation((), body) != ""


def test_a_node_enters_its_tenant_with_its_filter_and_leaves_without_one() -> None:
    """Real code on simulated leaves: one revision a leaf, drift is seen, and nothing is left."""

    async def scenario(world: World) -> None:
        rig = world.rig
        effects = rig.effects
        vrfs = VrfIsolation(
            rig.store, AddressPlan(), effects.reach, effects.clock, effects.settings, rig.tenancy
        )
        groups = (WEB, ROCE)
        made = await world.keeper.create(Request(name="green", nodes=1, security_groups=groups))
        assert made.blockers == ()
        green = await world.row("green")
        assert green is not None
        row = rig.nodes["su0-n00"].model_copy(update={"tenant": "green"})
        mine = await rig.store.nodes.save(row)

        before = world.writes()
        moved = await rig.tenancy.move(mine.ports, "GREEN", look_for_leaks=False, node=mine)
        assert moved.blockers == ()
        # a leaf gets a revision: made, filled, applied; and its configuration is saved
        assert world.writes() - before == 4 * 8
        read = await vrfs.read_filters(green)
        assert [(p.node, p.as_recorded) for p in read.ports] == [("su0-n00", True)] * 8
        assert [len(p.rules) for p in read.ports] == [6] + [5] * 7
        assert (await world.keeper.audit()).steps == ()

        # a foreign hand opens one of them
        leaf = rig.site.switches["leaf-su0-r3"]
        for tree in (leaf.applied, leaf.startup, leaf.operational):
            tree["acl"]["provisioner_sg_GREEN_web"]["rule"]["50"]["action"] = {"permit": {}}
        (drift,) = (await world.keeper.audit()).steps
        assert drift.device == "leaf-su0-r3"
        assert [p.switch for p in (await vrfs.read_filters(green)).ports if not p.as_recorded] == [
            "leaf-su0-r3"
        ]

        changed = await world.keeper.change(Request(name="green", security_groups=()))
        assert changed.blockers == ()
        after = await vrfs.read_filters(await world.row("green"))
        assert {p.filters for p in after.ports} == {()}
        assert not any(n.startswith("provisioner_sg_") for n in leaf.operational.get("acl", {}))

        await world.keeper.change(Request(name="green", security_groups=groups))
        fenced = await rig.tenancy.move(mine.ports, "MAINT", look_for_leaks=False, node=mine)
        assert fenced.blockers == ()
        ports = {p.interface for p in mine.ports if p.switch == "leaf-su0-r3"}
        assert not any(read_bound(leaf.operational["interface"][p]) for p in ports)

    run(scenario)
