"""One bijection between places and numbers, for any plan that does not overflow or overlap."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from provisioner.integrations.places.gazetteer import Gazetteer, NoPlace
from provisioner.model.input_error import InputError
from provisioner.model.location import LEAF, NodePlace, RailEnd, SwitchPlace, TenantPlace, Uplink
from provisioner.planning.places.address_plan import (
    AddressPlan,
    Names,
    Widths,
    find_problems,
    parse,
)
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports

SHIPPED = AddressPlan()
THREE_TIERS = AddressPlan(
    tiers=3, pods=4, units=8, nodes=16, rails=8, planes=2, links=2, rails_per_leaf=2, spines=4,
    superspines=4, nodes_per_rack=8,
    widths=Widths(plane=1, pod=4, node=6, link=1),
    names=Names(
        node="p{pod}-su{unit}-n{node:02}", leaf="leaf-p{pod}-su{unit}-r{number}-pl{plane}",
        spine="spine-p{pod}-{number}-{plane}", superspine="ss-{number}-{plane}",
        card="NIC_{rail}p{plane}l{link}", host_interface="eth{rail}p{plane}l{link}",
        rack="p{pod}-su{unit}-rack{rack}",
    ),
)  # fmt: skip


def test_the_shipped_plan_is_the_published_scheme():
    a = Addressing(SHIPPED)

    assert find_problems(SHIPPED) == ()
    assert a.format_ipv4(RailEnd(0, 0, 0, 0)) == "172.0.0.0/31"
    assert a.format_ipv4(RailEnd(0, 0, 9, 0)) == "172.0.0.18/31"
    assert a.format_ipv4(RailEnd(0, 0, 9, 7)) == "172.224.0.18/31"
    assert a.format_ipv4(RailEnd(0, 5, 9, 7, end=LEAF)) == "172.224.5.19/31"
    assert a.find_rail_end("172.224.0.18") == RailEnd(0, 0, 9, 7)
    assert a.find_rail_end("172.224.0.64") is None  # a scalable unit has 32 nodes
    assert a.find_rail_end("10.0.0.1") is None
    assert a.find_rail_end("nonsense") is None


@st.composite
def plans(draw: st.DrawFn) -> AddressPlan:
    def number(most: int) -> int:
        return draw(st.integers(1, most))

    tiers = draw(st.sampled_from([2, 3]))
    counts = {
        "rail": number(10), "plane": number(3), "pod": number(4) if tiers == 3 else 1,
        "unit": number(5), "node": number(9), "link": number(3),
    }  # fmt: skip
    widths = {n: (c - 1).bit_length() + draw(st.integers(0, 2)) for n, c in counts.items()}
    return AddressPlan(
        tiers=tiers, pods=counts["pod"], units=counts["unit"], nodes=counts["node"],
        rails=counts["rail"], planes=counts["plane"], links=counts["link"],
        nodes_per_rack=number(4), rails_per_leaf=number(4), spines=number(3),
        superspines=number(3) if tiers == 3 else 0, switch_ports=512, first_uplink=300,
        breakout=number(3), widths=Widths(**widths), ipv4="128.0.0.0/1",
        loopbacks="10.0.0.0/8", names=THREE_TIERS.names,
    )  # fmt: skip


@given(plans(), st.data())
def test_every_place_of_any_plan_is_found_again(plan, data):
    assume(not find_problems(plan))
    a = Addressing(plan)
    gazetteer = Gazetteer(a)
    ports = gazetteer.ports

    def below(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    end = RailEnd(
        below(plan.pods), below(plan.units), below(plan.nodes), below(plan.rails),
        below(plan.planes), below(plan.links), below(2),
    )  # fmt: skip
    switch = a.find_switch(below(sum(plan.switches.values())))
    tenant = TenantPlace(below(plan.tenants))

    assert a.find_rail_end(a.format_ipv4(end)) == end
    assert a.find_rail_end(a.format_ipv6(end)) == end
    assert ipaddress.ip_interface(a.format_ipv4(end)).network == (
        ipaddress.ip_interface(a.format_ipv4(end.other)).network
    )
    assert ports.find_end(ports.find_leaf(end), ports.name_leaf_port(end)) == end._replace(end=LEAF)
    assert ports.find_node(ports.name_node(end)) == NodePlace(*end[:3])
    assert switch is not None
    assert a.find_switch_by_asn(a.get_asn(switch)) == switch
    assert a.find_switch_by_loopback(a.get_loopback(switch)) == switch
    assert ports.find_switch(ports.name_switch(switch)) == switch
    assert a.find_tenant(a.get_vni(tenant)) == tenant
    assert a.find_tenant_by_target(a.get_route_target(tenant)) == tenant
    for place in (end, NodePlace(*end[:3]), switch, tenant):
        assert gazetteer.parse_place(gazetteer.format_place(place)) == place
        assert gazetteer.describe_place(place)["location"] == gazetteer.format_place(place)


@pytest.mark.parametrize("plan", [SHIPPED.model_copy(update={"units": 4}), THREE_TIERS])
def test_no_two_ends_of_a_site_share_an_address_or_a_port(plan):
    assert find_problems(plan) == ()
    a = Addressing(plan)
    ports = Ports(a)
    gazetteer = Gazetteer(a)
    ends = [
        end
        for pod in range(plan.pods)
        for unit in range(plan.units)
        for node in range(plan.nodes)
        for end in gazetteer.list_rails(NodePlace(pod, unit, node))
    ]
    switches = [a.find_switch(n) for n in range(sum(plan.switches.values()))]
    cables = [
        ports.find_uplink_ends(Uplink(s, n))
        for s in switches
        for n in range(ports.count_uplinks(s))
    ]

    assert len(
        {a.format_ipv4(e) for e in ends} | {a.format_ipv4(e.other) for e in ends}
    ) == 2 * len(ends)
    plugs = [ports.name_leaf_end(e) for e in ends] + [end for cable in cables for end in cable]
    assert len(set(plugs)) == len(plugs)
    assert len({ports.name_host_end(e) for e in ends}) == len(ends)
    assert a.find_switch(len(switches)) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nodes": 64, "first_uplink": 34}, None),
        ({"nodes": 200, "first_uplink": 64}, "widths.node"),
        ({"nodes": 64, "rails_per_leaf": 2}, "first_uplink"),
        ({"pods": 2}, "pods"),
        ({"tiers": 3, "pods": 2, "names": THREE_TIERS.names, "superspines": 0}, "superspines"),
        ({"tiers": 3, "pods": 2, "superspines": 1}, "names.node"),
        ({"names": Names(leaf="leaf")}, "names.leaf"),
        ({"front_leaves": 2, "names": Names(front="front-{number}")}, "names.front"),
        ({"names": Names(leaf="leaf{unit}{number}")}, "names.leaf"),
        ({"names": Names(leaf="leaf{unit}-{number}-{rail}")}, "names.leaf"),
        ({"names": Names(leaf="{unit.__class__}-{number}")}, "names.leaf"),
        ({"ipv4": "172.16.0.0/12"}, "ipv4"),
        ({"ipv4": "172.0.0.1/8"}, "ipv4"),
        ({"ipv6": "fd00::/120"}, "ipv6"),
        ({"ipv4": "fd01::/64"}, "ipv4"),
        ({"loopbacks": "172.31.0.0/16"}, "loopbacks"),
        ({"loopbacks": "10.240.0.0/30"}, "loopbacks"),
        ({"reserved": ("172.16.0.0/24",)}, "reserved"),
        ({"asn_first": 65000}, "asn_first"),
        ({"asn_first": 4_294_967_290}, "asn_first"),
        ({"vni_first": 2**24 - 10}, "vni_first"),
        ({"units": 200}, "units"),
        ({"spines": 100}, "spines"),
    ],
)
def test_a_plan_that_overflows_or_overlaps_is_refused_by_name(changes, field):
    found = find_problems(SHIPPED.model_copy(update=changes))

    assert (field in {p.field for p in found}) if field else found == ()
    assert all(p.problem and p.remedy for p in found)


def test_a_plan_in_yaml_is_read_and_its_first_problem_has_a_line():
    assert parse("plan.yaml", "site: here\nnodes: 16\n").nodes == 16
    with pytest.raises(InputError, match="do not fit"):
        parse("plan.yaml", "site: here\nunits: 400\nwidths: {unit: 8}\n")
    with pytest.raises(InputError, match="no such field"):
        parse("plan.yaml", "sites: here\n")


@pytest.mark.parametrize(
    "text",
    ["", "pod0", "pod0/su0/n32", "pod0/su0/n09/rail8", "su0/rack0/n09", "pod0/su0/n09/rail7/up",
     "pod1/su0/n09", "spine4", "leaf0", "su0/leaf8", "tenant255", "su0/n1/n2", "x" * 5000,
     "superspine0", "su0/leaf0/up4", "su0/leaf0/host", "su-1/n0", "su0/n٣"],
)  # fmt: skip
def test_what_the_site_does_not_have_is_no_place(text):
    gazetteer = Gazetteer(Addressing(SHIPPED))

    with pytest.raises(NoPlace):
        gazetteer.find_place(text)


@given(st.text(max_size=60))
def test_no_text_makes_it_fail(text):
    gazetteer = Gazetteer(Addressing(SHIPPED))
    try:
        place = gazetteer.find_place(text)
    except NoPlace:
        return
    assert gazetteer.parse_place(gazetteer.format_place(place)) == place


def test_a_plan_that_gets_a_front_end_keeps_its_numbers_and_its_names_are_read_back():
    for plan in (SHIPPED, THREE_TIERS):
        template = (
            "front-p{pod}-su{unit}-l{number}" if plan.pods > 1 else "front-su{unit}-l{number}"
        )
        names = plan.names.model_copy(update={"front": template})
        wider = plan.model_copy(update={"front_leaves": 2, "names": names})
        before, after = Addressing(plan), Addressing(wider)
        many = sum(plan.switches.values())

        assert find_problems(wider) == ()
        assert [after.find_switch(n) for n in range(many)] == [
            before.find_switch(n) for n in range(many)
        ]
        assert before.find_switch(many) is None
        gazetteer = Gazetteer(after)
        front = [after.find_switch(n) for n in range(many, sum(wider.switches.values()))]
        assert len(set(front)) == 2 * plan.pods * plan.units
        for place in front:
            assert place is not None
            assert place.tier == "front"
            assert after.find_switch_by_asn(after.get_asn(place)) == place
            assert gazetteer.ports.find_switch(gazetteer.ports.name_switch(place)) == place
            assert gazetteer.parse_place(gazetteer.format_place(place)) == place
        assert Ports(before).find_switch(gazetteer.ports.name_switch(front[0])) is None


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("172.224.0.18", RailEnd(0, 0, 9, 7)),
        ("172.224.0.19/31", RailEnd(0, 0, 9, 7, end=LEAF)),
        ("10.240.0.9", SwitchPlace("leaf", 0, 1, 1)),
        ("AS4200000009", SwitchPlace("leaf", 0, 1, 1)),
        ("leaf-su1-r1", SwitchPlace("leaf", 0, 1, 1)),
        ("spine-3", SwitchPlace("spine", 0, 0, 3)),
        ("su0-n09", NodePlace(0, 0, 9)),
        ("leaf-su0-r7/swp5s1", RailEnd(0, 0, 9, 7, end=LEAF)),
        ("vni:4003", TenantPlace(2)),
        ("rt:65000:4003", TenantPlace(2)),
        ("65000:4003", TenantPlace(2)),
        ("su0/n09/rail7", RailEnd(0, 0, 9, 7)),
        ("site/pod0/su0/leaf2/up1", Uplink(SwitchPlace("leaf", 0, 0, 2), 1)),
    ],
)
def test_whatever_a_person_has_at_hand_is_found(word, place):
    assert Gazetteer(Addressing(SHIPPED)).find_place(word) == place
