"""Where ports are, where they must be, and what is a leak."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.location import Port
from provisioner.model.node import Placement
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import PortPlacement
from provisioner.planning.release.port_isolation import (
    find_misplaced_ports,
    find_route_leaks,
    make_leak_blocker,
    placement_of,
    prefixes_of,
)

PORTS = tuple(
    Port(
        switch=f"leaf{r}",
        interface="swp1s0",
        rail=r,
        nic_slot=f"NIC_{r}",
        address=f"172.{32 * r}.0.1/31",
    )
    for r in range(3)
)


def at(*vrfs: str) -> tuple[PortPlacement, ...]:
    return tuple(
        PortPlacement(switch=p.switch, interface=p.interface, vrf=v)
        for p, v in zip(PORTS, vrfs, strict=False)
    )


@pytest.mark.parametrize(
    ("placements", "expected"),
    [
        (at("MAINT", "MAINT", "MAINT"), (Placement.MAINTENANCE, "MAINT")),
        (at("RED", "RED", "RED"), (Placement.CUSTOMER, "RED")),
        (at("default", "", "default"), (Placement.NONE, "")),
        (at("RED", "RED", "MAINT"), (Placement.MIXED, "")),
        (at("RED", "RED", "BLUE"), (Placement.MIXED, "")),
        (at("RED", "RED", ""), (Placement.MIXED, "")),
        (at("mgmt", "mgmt", "mgmt"), (Placement.MIXED, "")),
        (at("RED", "RED"), (Placement.MIXED, "")),
        ((*at("RED", "RED", "RED"), *at("BLUE")), (Placement.MIXED, "")),
        (
            (*at("RED", "RED", "RED"), PortPlacement(switch="x", interface="y", vrf="RED")),
            (Placement.MIXED, ""),
        ),
        ((), (Placement.MIXED, "")),
    ],
)
def test_a_placement_is_proved_of_every_port_or_mixed(
    placements: tuple[PortPlacement, ...], expected: tuple[Placement, str]
) -> None:
    assert placement_of(PORTS, placements) == expected


@given(st.lists(st.sampled_from(["RED", "BLUE", "MAINT", "", "default"]), max_size=3))
def test_nothing_is_misplaced_exactly_if_all_ports_are_in_the_vrf(vrfs: list[str]) -> None:
    assert (find_misplaced_ports(PORTS, at(*vrfs), "RED") == ()) == (vrfs == ["RED"] * 3)


@pytest.mark.parametrize(("vrf", "name"), [("", "no VRF"), ("BLUE", "BLUE")])
def test_a_misplaced_port_is_reported_with_its_vrf(vrf: str, name: str) -> None:
    (misplaced,) = find_misplaced_ports(PORTS, at("RED", vrf, "RED"), "RED")

    assert f"it is in {name}; RED is wanted" in str(misplaced)


def test_a_port_of_somebody_else_is_not_proof() -> None:
    other = PortPlacement(switch="leaf9", interface="swp9", vrf="RED")

    found = find_misplaced_ports(PORTS, (*at("RED", "RED", "RED"), other), "RED")

    assert [(b.reason, b.subject) for b in found] == [(Reason.ISOLATION, "leaf9/swp9")]


def test_a_node_without_ports_is_never_proved() -> None:
    assert find_misplaced_ports((), (), "RED")


@pytest.mark.parametrize(
    ("route", "leaking"),
    [
        ("172.0.0.0/31", True),
        ("172.0.0.1/32", True),
        ("172.32.0.0/31", True),
        ("172.0.0.2/31", False),
        ("172.0.0.0/26", False),
        ("0.0.0.0/0", False),
        ("2001:db8::/64", False),
    ],
)
def test_a_route_to_a_link_or_a_part_of_it_is_a_leak(route: str, *, leaking: bool) -> None:
    prefixes = prefixes_of(PORTS)
    assert not isinstance(prefixes, Blocker)

    assert (
        bool(find_route_leaks(prefixes, {"RED": ["172.0.0.0/31"], "BLUE": [route]}, "RED"))
        is leaking
    )


def test_a_leak_is_told_with_its_leaf_and_where_the_route_stands() -> None:
    prefixes = prefixes_of(PORTS)
    assert not isinstance(prefixes, Blocker)
    leaks = find_route_leaks(prefixes, {"BLUE": ["172.0.0.0/31"], "MAINT": ["172.64.0.1/32"]}, "X")

    blocker = make_leak_blocker("leaf0", leaks)

    assert (blocker.reason, blocker.subject) == (Reason.ISOLATION, "leaf0")
    assert blocker.detail.endswith(": BLUE: 172.0.0.0/31, MAINT: 172.64.0.1/32")


_V4 = st.builds(
    lambda bits, length: ipaddress.ip_network((0x0A000000 | bits << 24, length), strict=False),
    st.integers(0, 3),
    st.integers(0, 32),
)
_V6 = st.builds(
    lambda bits, length: ipaddress.ip_network((0xFD << 120 | bits << 112, length), strict=False),
    st.integers(0, 3),
    st.integers(0, 128),
)


@given(own=st.lists(_V4 | _V6, max_size=3), routes=st.lists(_V4 | _V6, max_size=6))
def test_each_part_of_a_nodes_link_is_a_leak_and_nothing_else(
    own: list[ipaddress.IPv4Network | ipaddress.IPv6Network],
    routes: list[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> None:
    def is_part(route: Any, of: Any) -> bool:
        return route.version == of.version and bool(route.subnet_of(of))

    expected = tuple(f"BLUE: {r}" for r in routes if any(is_part(r, one) for one in own))

    assert find_route_leaks(map(str, own), {"BLUE": list(map(str, routes))}, "RED") == expected


def test_a_port_without_an_address_cannot_be_looked_for() -> None:
    found = prefixes_of((PORTS[0].model_copy(update={"address": ""}),))

    assert isinstance(found, Blocker)
