"""The plan of the front-end's bonds: every number of it once, in the form that the list takes."""

from __future__ import annotations

import json
from itertools import product

import pytest
from test_expected_text import GOOD

from provisioner.integrations.places.front_bonds import describe, parse, plan_node
from provisioner.integrations.places.gazetteer import Gazetteer
from provisioner.model.input_error import InputError
from provisioner.model.location import NodePlace, find_host_end
from provisioner.planning.intake.expected_text import parse as parse_list
from provisioner.planning.places.address_plan import AddressPlan, Names
from provisioner.planning.places.addressing import Addressing

PLAN = AddressPlan(units=3, nodes=4, front_leaves=2)
MAC = "44:38:39:ff:00:aa"
TEXT = f"""
ipv4: 10.9.0.0/24
cards: [NIC_8, NIC_9]
segment_mac: "{MAC}"
vni_first: 20001
"""


def test_each_node_of_a_site_has_a_bond_of_its_own_on_the_leaves_of_its_unit() -> None:
    bonds, gazetteer = parse("b", TEXT, PLAN), Gazetteer(Addressing(PLAN))
    planned = {
        (unit, node): plan_node(bonds, gazetteer, PLAN, NodePlace(0, unit, node))
        for unit, node in product(range(3), range(4))
    }

    for (unit, _), ports in planned.items():
        assert [p.switch for p in ports] == [f"front-su{unit}-l0", f"front-su{unit}-l1"]
        one, other = (p.model_copy(update={"switch": "", "nic_slot": ""}) for p in ports)
        assert one == other
        assert find_host_end(one.address) is not None
    ports = [ports[0] for ports in planned.values()]
    for unique in (
        {p.address for p in ports},
        {p.bond.segment for p in ports if p.bond},
        {p.bond.vni for p in ports if p.bond},
        {(p.switch, p.interface) for p in ports},
        {(p.switch, p.plug) for p in ports},
    ):
        assert len(unique) == len(ports)
    last = planned[2, 3][1]
    assert last.bond is not None
    assert (last.interface, last.bond.name, last.bond.members) == ("vlan104", "bond4", ("swp2s1",))
    assert (last.address, last.bond.segment) == ("10.9.0.23/31", f"03:{MAC}:00:00:0c")
    assert (last.bond.vni, last.bond.mtu, last.bond.mlag) == (20012, 9216, 0)


@pytest.mark.parametrize("text", [TEXT, "ipv4: 10.9.0.0/24\ncards: [NIC_8, NIC_9]\n"])
def test_the_list_takes_the_planned_ports(text: str) -> None:
    names = Names(front="front-l{number}")
    plan = AddressPlan(units=1, nodes=4, front_leaves=2, names=names)
    gazetteer = Gazetteer(Addressing(plan))
    planned = plan_node(parse("b", text, plan), gazetteer, plan, NodePlace(0, 0, 2))
    leaf = GOOD[GOOD.index("  - name: leaf") : GOOD.index("tenants:")]
    old = "- {rail: 0, switch: leaf, interface: swp1s0, nic_slot: NIC_0, address: 172.0.0.1/31}"
    listed = GOOD.replace(old, "\n      ".join(f"- {json.dumps(p)}" for p in describe(planned)))
    for number in (0, 1):
        more = leaf.replace("leaf", f"front-l{number}").replace("10.0.1.10", f"10.0.1.2{number}")
        listed = listed.replace("tenants:", f"{more}tenants:")

    assert parse_list("list.yaml", listed).nodes[0].ports == tuple(planned)


BAD = {
    "no network": ("10.9.0.0/24", "nothing", "ipv4", "nothing"),
    "too few addresses": ("10.9.0.0/24", "10.9.0.0/28", "ipv4", "12 nodes"),
    "a network of rails": ("10.9.0.0/24", "172.1.0.0/16", "ipv4", "overlaps"),
    "too few cards": ("NIC_8, NIC_9", "NIC_8", "cards", "at least 2"),
    "more cards than leaves": ("NIC_9", "NIC_9, NIC_10", "cards", "3 legs"),
    "VNIs of tenants": ("20001", "4200", "vni_first", "tenants"),
    "VNIs beyond the last": ("20001", "16777210", "vni_first", "beyond"),
    "a segment without VNI": ("vni_first: 20001", "mtu: 9000", "vni_first", "needs"),
    "VLANs beyond the last": ("vni_first", "vlan_first: 4092\nvni_first", "vlan_first", "VLAN"),
    "an MTU that leaves refuse": ("vni_first", "mtu: 9600\nvni_first", "mtu", "9216"),
    "a field that is none": ("vni_first", "vni: 1\nvni_first", "vni", "no such field"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_plan_of_bonds_that_cannot_be_is_refused(sentence: str) -> None:
    old, new, field, words = BAD[sentence]
    assert TEXT.count(old) == 1

    with pytest.raises(InputError) as caught:
        parse("bonds.yaml", TEXT.replace(old, new), PLAN)

    assert field in caught.value.where
    assert words in caught.value.problem
