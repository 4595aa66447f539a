"""What somebody does to a fabric of FRRouting behind the API's back, and takes away again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from frr_site import FrrSite
from frr_switch import FrrSwitch

RED_TARGET = "65000:4001"  # of the first tenant


@dataclass(frozen=True)
class Plant:
    """`check`: the row of the gate that names it."""

    name: str
    check: str
    planted: Callable[[FrrSite], AbstractContextManager[None]]


@contextlib.contextmanager
def _target(site: FrrSite) -> Iterator[None]:
    """Both leaves' BLUE takes in what RED sends."""
    lines = ["address-family l2vpn evpn", "{}route-target import " + RED_TARGET]
    with _in_bgp(site, "BLUE", lines):
        yield


@contextlib.contextmanager
def _import(site: FrrSite) -> Iterator[None]:
    with _in_bgp(site, "BLUE", ["address-family ipv4 unicast", "{}import vrf RED"]):
        yield


@contextlib.contextmanager
def _peer(site: FrrSite) -> Iterator[None]:
    with _in_bgp(site, "RED", ["{}neighbor 192.0.2.77 remote-as 64999"]):
        yield


@contextlib.contextmanager
def _in_bgp(site: FrrSite, vrf: str, lines: list[str]) -> Iterator[None]:
    tops = [(leaf, f"router bgp {_asn(site, rail)} vrf {vrf}") for rail, leaf in _leaves(site)]
    for leaf, top in tops:
        leaf.configure("bgpd", [top, *(line.format("") for line in lines)])
    try:
        yield
    finally:
        for leaf, top in tops:
            leaf.configure("bgpd", [top, *(line.format("no ") for line in lines)])


@contextlib.contextmanager
def _static(site: FrrSite) -> Iterator[None]:
    """A cable between two VRFs of a leaf, and a static route over it to the node."""
    link = site.addressing.format_ipv4(site.end(0, 0)).replace("/31", "/32")
    with _joined(site, "BLUE", link, "172.0.0.4/32"):
        yield


@contextlib.contextmanager
def _summary(site: FrrSite) -> Iterator[None]:
    """The same towards maintenance, with routes so short that no table gives it away."""
    with _joined(site, "MAINT", "172.0.0.0/24", "172.0.0.0/24"):
        yield


@contextlib.contextmanager
def _joined(site: FrrSite, vrf: str, back: str, forth: str) -> Iterator[None]:
    leaf = site.leaf(0)
    leaf.ip("link add leak0 mtu 9166 type veth peer name leak0 netns RED", vrf=vrf)
    leaf.ip("address add 10.254.0.0/31 dev leak0", "link set leak0 up", vrf=vrf)
    leaf.ip("address add 10.254.0.1/31 dev leak0", "link set leak0 up", vrf="RED")
    lines = [f"vrf {vrf}", f"ip route {back} 10.254.0.1", "exit-vrf"]
    lines += ["vrf RED", f"ip route {forth} 10.254.0.0", "exit-vrf"]
    leaf.configure("staticd", lines)
    try:
        yield
    finally:
        leaf.configure("staticd", [line.replace("ip route", "no ip route") for line in lines])
        leaf.ip("link delete leak0", vrf=vrf)


@contextlib.contextmanager
def _mtu(site: FrrSite) -> Iterator[None]:
    with _on_port(site, "mtu 1500", "mtu 9216"):
        yield


@contextlib.contextmanager
def _on_port(site: FrrSite, bad: str, good: str) -> Iterator[None]:
    leaf, port = site.leaf(1), site.ports.name_leaf_port(site.end(0, 1).other)
    leaf.ip(f"link set {port} {bad}", vrf=leaf.interfaces()[port][0])
    try:
        yield
    finally:
        leaf.ip(f"link set {port} {good}", vrf=leaf.interfaces()[port][0])


@contextlib.contextmanager
def _neighbour(site: FrrSite) -> Iterator[None]:
    """The node's address stays in the maintenance VRF's table of neighbours, on another port."""
    leaf, port = site.leaf(0), site.ports.name_leaf_port(site.end(3, 0).other)
    where = f"{site.address(0)} dev {port}"
    leaf.ip(f"neighbour replace {where} lladdr 02:00:00:00:00:01 nud permanent", vrf="MAINT")
    try:
        yield
    finally:
        leaf.ip(f"neighbour delete {where}", vrf="MAINT")


def _leaves(site: FrrSite) -> list[tuple[int, FrrSwitch]]:
    return [(rail, site.leaf(rail)) for rail in range(len(site.leaves))]


def _asn(site: FrrSite, rail: int) -> int:
    return int(site.nvue[site.leaves[rail]].applied["router"]["bgp"]["autonomous-system"])


PLANTS = (
    Plant("another tenant takes in its route target", "foreign_targets", _target),
    Plant("another tenant imports its VRF", "importers", _import),
    Plant("a static route leads to it from another tenant", "remainder", _static),
    Plant("summaries lead to maintenance and back", "shut_out", _summary),
    Plant("a session that nobody asked for", "peers", _peer),
    Plant("a neighbour's entry that stayed behind", "neighbours", _neighbour),
    Plant("a port that takes small packets only", "mtu", _mtu),
)
