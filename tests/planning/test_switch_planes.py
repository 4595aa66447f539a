"""Which plane a switch is of, by its planned name, as limits of campaigns need it."""

from __future__ import annotations

import pytest

from provisioner.control.campaigns.campaign_facts import planes_of, read_fleet
from provisioner.model.campaign import Campaign
from provisioner.model.node import Node, NodeKind
from provisioner.planning.places.address_plan import AddressPlan, Names

TWO = AddressPlan(
    planes=2,
    names=Names(leaf="leaf-p{plane}-su{unit}-r{number}", spine="spine-p{plane}-{number}"),
)


def switch(name: str) -> Node:
    return Node(id=name, kind=NodeKind.SWITCH)


@pytest.mark.parametrize(
    ("name", "planes"),
    [
        ("leaf-p1-su0-r3", (1,)),
        ("spine-p0-2", (0,)),
        ("spine-p2-2", ()),  # there is no third plane
        ("border-1", ()),
    ],
)
def test_a_switchs_name_tells_its_plane(name: str, planes: tuple[int, ...]) -> None:
    assert planes_of(switch(name), TWO) == planes


def test_a_fabric_of_one_plane_has_no_limit_by_planes() -> None:
    assert planes_of(switch("spine-0"), AddressPlan()) == ()
    assert planes_of(switch("spine-0"), None) == ()


def test_a_campaign_sees_the_planes_of_all_switches_also_of_those_it_is_not_about() -> None:
    nodes = [switch("spine-p0-0"), switch("spine-p1-0"), Node(id="n", kind=NodeKind.HOST)]
    campaign = Campaign(id="c0001", release="r", select="all", baseline="r", created_at=0.0)

    facts = read_fleet(nodes, campaign, (), (), 0.0, TWO)

    assert {f.name: f.planes for f in facts} == {"spine-p0-0": (0,), "spine-p1-0": (1,), "n": ()}
