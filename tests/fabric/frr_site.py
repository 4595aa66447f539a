"""A small site of real FRRouting: two leaves, two spines, four nodes, storage, an outside, OOB.

Names, ports, addresses and AS numbers are those of the product's address plan: node n's rail r ends
on leaf r. MAINT and STORAGE are as a site prepares them; tenants' VRFs are the product's work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from frr_boxes import Box, Router, cable
from frr_nvue import Nvue
from frr_rendering import TIMERS
from frr_switch import FrrSwitch

from provisioner.model.location import NodePlace, RailEnd, SwitchPlace, Uplink
from provisioner.model.tenant import Outside
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports

PLAN = AddressPlan(units=1, rails=2, nodes=4, spines=2, tenants=8)
NODES = 4
MTU = 9000  # of a host's rail
STORAGE_HOST, STORAGE_PORT = "10.99.0.10", "swp30s0"
# the network where agents are looked up: a port of each node at leaf 0, and the daemon beside them
DAEMON, DAEMON_PORT, DAEMON_GATEWAY = "10.98.0.10", "swp27s0", "10.98.0.1"
IN_BAND, IN_BAND_PORTS = "10.98.0.0/16", ("swp28s0", "swp28s1", "swp29s0", "swp29s1")
BMC, OOB_PORT = "10.0.0.1", "eth0"  # of everybody
LEAF_OOB = ("10.0.0.2", "10.0.0.3")
UNLISTED = "203.0.113.1"  # announced by the routers outside, and in nobody's list
WITH_OUTSIDE = "RED"  # the tenant's VRF that the routers outside are cabled to
EDGE_PORTS = {"edge-a": "swp31s0", "edge-b": "swp31s1"}
EDGE_ASN = {"edge-a": 64500, "edge-b": 64501}
EDGE_HOST = {"edge-a": "198.51.100.1", "edge-b": "198.51.100.129"}
MAINT_VNI, STORAGE_VNI = 3999, 3998
ON = {"enable": "on"}


def edge_address(edge: str, rail: int, end: int) -> str:
    """One end of the cable between a leaf (0) and a router outside (1)."""
    return f"192.0.2.{4 * list(EDGE_PORTS).index(edge) + 2 * rail + end}"


class FrrSite:
    """Everything in namespaces; `nvue` are the APIs by the leaves' names."""

    def __init__(self, folder: Path) -> None:
        self.addressing = Addressing(PLAN)
        self.ports = Ports(self.addressing)
        self.boxes: dict[str, Box] = {}
        self.nvue: dict[str, Nvue] = {}
        self._folder = folder

    def open(self) -> FrrSite:
        for place in (*self._places("leaf"), *self._places("spine")):
            name = self.ports.name_switch(place)
            self._add(FrrSwitch(name, self._folder / name))
        for edge in EDGE_PORTS:
            self._add(Router(edge, self._folder / edge))
        for name in (*self.nodes, "storage", "oob", "daemon"):
            self._add(Box(name, self._folder / name))
        self._cables()
        for name in self.nodes:
            self._host(name)
        self._others()
        for place in self._places("leaf"):
            leaf = self.leaf(place.number)
            self.nvue[leaf.name] = Nvue(leaf, self._startup(place))
        for place in self._places("spine"):
            spine = self.boxes[self.ports.name_switch(place)]
            assert isinstance(spine, FrrSwitch)
            self.nvue[spine.name] = Nvue(spine, self._underlay(place, sorted(spine.cabled)))
        with ThreadPoolExecutor() as at_once:  # most of it is waiting for zebra
            list(at_once.map(Nvue.start, self.nvue.values()))
        return self

    def close(self) -> None:
        for api in self.nvue.values():
            api.stop()
        for box in reversed(self.boxes.values()):
            box.stop()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.ports.name_node(NodePlace(0, 0, n)) for n in range(NODES))

    @property
    def leaves(self) -> tuple[str, ...]:
        return tuple(self.ports.name_switch(place) for place in self._places("leaf"))

    def end(self, node: int, rail: int) -> RailEnd:
        """The host's end of a rail's cable."""
        return RailEnd(0, 0, node, rail)

    def address(self, node: int, rail: int = 0) -> str:
        """The address of a node's rail, without length."""
        return self.addressing.format_ipv4(self.end(node, rail)).partition("/")[0]

    def in_band(self, node: int, end: int = 0) -> str:
        """The address of a node on the agents' network (0), or of the leaf's port there (1)."""
        return f"10.98.1.{2 * node + end}"

    def leaf(self, rail: int) -> FrrSwitch:
        found = self.boxes[self.leaves[rail]]
        assert isinstance(found, FrrSwitch)
        return found

    def leaf_apis(self) -> list[Nvue]:
        return [self.nvue[name] for name in self.leaves]

    def outside(self) -> tuple[Outside, ...]:
        """Sessions of a tenant with both routers outside on both leaves."""
        return tuple(
            Outside(
                switch=leaf,
                peer=edge_address(edge, rail, 1),
                remote_as=EDGE_ASN[edge],
                accepts=tuple(f"{host}/32" for host in EDGE_HOST.values()),
                sends=("172.0.0.0/8", "198.51.100.0/24"),
            )
            for edge in EDGE_PORTS
            for rail, leaf in enumerate(self.leaves)
        )

    # --- building

    def _add(self, box: Box) -> None:
        self.boxes[box.name] = box

    def _places(self, tier: str) -> list[SwitchPlace]:
        count = PLAN.leaves if tier == "leaf" else PLAN.spines
        return [SwitchPlace(tier, 0, 0, n) for n in range(count)]

    def _cables(self) -> None:
        for place in self._places("leaf"):
            leaf, rail = self.boxes[self.ports.name_switch(place)], place.number
            for number in range(self.ports.count_uplinks(place)):
                (_, port), (spine, other) = self.ports.find_uplink_ends(Uplink(place, number))
                cable(leaf, port, self.boxes[spine], other)
            for n, node in enumerate(self.nodes):
                end = self.end(n, rail)
                port, other = (
                    self.ports.name_leaf_port(end.other),
                    self.ports.name_host_interface(end),
                )
                cable(leaf, port, self.boxes[node], other)
                self.boxes[node].ip(f"link set {other} mtu {MTU}")
            for edge, port in EDGE_PORTS.items():
                cable(leaf, port, self.boxes[edge], f"eth{rail}")
            cable(leaf, OOB_PORT, self.boxes["oob"], f"eth{rail}")
        cable(self.leaf(1), STORAGE_PORT, self.boxes["storage"], "eth0")
        cable(self.leaf(0), DAEMON_PORT, self.boxes["daemon"], "eth0")
        for n, node in enumerate(self.nodes):
            cable(self.leaf(0), IN_BAND_PORTS[n], self.boxes[node], "inband")

    def _host(self, name: str) -> None:
        """Each rail answers through itself: a table of its own for its address."""
        n, box = self.nodes.index(name), self.boxes[name]
        for rail in range(PLAN.rails):
            end = self.end(n, rail)
            port = self.ports.name_host_interface(end)
            gateway = self.addressing.format_ipv4(end.other).partition("/")[0]
            box.ip(
                f"address add {self.addressing.format_ipv4(end)} dev {port}",
                f"route add default via {gateway} dev {port} table {100 + rail}",
                f"rule add from {self.address(n, rail)} lookup {100 + rail}",
                f"route add default via {gateway} dev {port} metric {10 + rail}",
            )
        box.ip(
            f"address add {self.in_band(n)}/31 dev inband",
            f"route add default via {self.in_band(n, 1)} dev inband table 200",
            f"rule add from {self.in_band(n)} lookup 200",
        )

    def _others(self) -> None:
        self.boxes["storage"].ip(
            f"address add {STORAGE_HOST}/24 dev eth0", "route add default via 10.99.0.1"
        )
        self.boxes["daemon"].ip(
            f"address add {DAEMON}/24 dev eth0", f"route add default via {DAEMON_GATEWAY}"
        )
        self.boxes["oob"].ip(
            "link add br0 type bridge",
            *(f"link set eth{n} master br0" for n in range(PLAN.leaves)),
            f"address add {BMC}/24 dev br0",
            "link set br0 up",
        )
        for edge, host in EDGE_HOST.items():
            box = self.boxes[edge]
            assert isinstance(box, Router)
            box.ip(f"address add {host}/32 dev lo", f"address add {UNLISTED}/32 dev lo")
            lines = [f"router bgp {EDGE_ASN[edge]}", f"bgp router-id {host}", TIMERS]
            for rail in range(PLAN.leaves):
                box.ip(f"address add {edge_address(edge, rail, 1)}/31 dev eth{rail}")
                asn = self.addressing.get_asn(SwitchPlace("leaf", 0, 0, rail))
                peer = edge_address(edge, rail, 0)
                lines += [f"neighbor {peer} remote-as {asn}", f"neighbor {peer} timers connect 1"]
            lines += ["bgp bestpath as-path multipath-relax", "address-family ipv4 unicast"]
            lines += [f"network {host}/32", f"network {UNLISTED}/32", "exit-address-family"]
            box.configure("bgpd", lines)

    def _startup(self, place: SwitchPlace) -> dict[str, Any]:
        """A leaf as its site prepared it: underlay, overlay, MAINT, STORAGE, and idle ports."""
        rail = place.number
        uplinks = [
            self.ports.find_uplink_ends(Uplink(place, n))[0][1]
            for n in range(self.ports.count_uplinks(place))
        ]
        tree = self._underlay(place, uplinks)
        tree["vrf"]["default"]["router"]["bgp"]["neighbor"] |= self._overlay(place)
        bgp = tree["router"]["bgp"]
        asn, router = bgp["autonomous-system"], bgp["router-id"]
        interfaces = tree["interface"]
        interfaces[OOB_PORT] = {"type": "eth", "ip": _in("mgmt", f"{LEAF_OOB[rail]}/24")}
        for n in range(NODES):
            interfaces[self.ports.name_leaf_port(self.end(n, rail).other)] = {"type": "swp"}
        for edge, port in EDGE_PORTS.items():
            address = f"{edge_address(edge, rail, 0)}/31"
            interfaces[port] = {"type": "swp", "ip": _in(WITH_OUTSIDE, address)}
        if rail == 0:
            interfaces[DAEMON_PORT] = {"type": "swp", "ip": _in("MAINT", f"{DAEMON_GATEWAY}/24")}
            for n, port in enumerate(IN_BAND_PORTS):
                ip = _in("MAINT", f"{self.in_band(n, 1)}/31")
                interfaces[port] = {"type": "swp", "ip": ip}
        if rail == 1:
            interfaces[STORAGE_PORT] = {"type": "swp", "ip": _in("STORAGE", "10.99.0.1/24")}
        tree["vrf"] |= {
            "mgmt": {},
            WITH_OUTSIDE: {},  # the routers outside are cabled to ports of this VRF
            "MAINT": _prepared(MAINT_VNI, asn, router),
            "STORAGE": _prepared(STORAGE_VNI, asn, router),
        }
        return tree

    def _overlay(self, place: SwitchPlace) -> dict[str, Any]:
        """EVPN straight from leaf to leaf: over spines, FRRouting 8.4.4 forgets a VTEP's router
        MAC as soon as a route's best path comes by another spine, and packets are lost."""
        peers = {}
        for other in (p for p in self._places("leaf") if p != place):
            peers[self.addressing.get_loopback(other).partition("/")[0]] = {
                "type": "numbered",
                "remote-as": self.addressing.get_asn(other),
                "update-source": self.addressing.get_loopback(place).partition("/")[0],
                "multihop-ttl": 3,
                "address-family": {"l2vpn-evpn": ON},
            }
        return peers

    def _underlay(self, place: SwitchPlace, neighbours: list[str]) -> dict[str, Any]:
        """What every switch has: its loopback, BGP with its neighbours, EVPN over it."""
        asn, loopback = self.addressing.get_asn(place), self.addressing.get_loopback(place)
        router = loopback.partition("/")[0]
        known: dict[str, Any] = {"type": "unnumbered", "remote-as": "external"}
        known["address-family"] = {"ipv4-unicast": ON}
        return {
            "system": {"hostname": self.ports.name_switch(place)},
            "evpn": ON,
            "nve": {"vxlan": {**ON, "source": {"address": router}}},
            "router": {"bgp": {**ON, "autonomous-system": asn, "router-id": router}},
            "interface": {
                "lo": {"ip": {"address": {loopback: {}}}},
                **{port: {"type": "swp"} for port in neighbours},
            },
            "vrf": {"default": {"router": {"bgp": {"neighbor": dict.fromkeys(neighbours, known)}}}},
        }


def _in(vrf: str, address: str) -> dict[str, Any]:
    return {"vrf": vrf, "address": {address: {}}}


def _prepared(vni: int, asn: int, router: str) -> dict[str, Any]:
    target = {f"65000:{vni}": {}}
    unicast = {**ON, "redistribute": {"connected": ON}, "route-export": {"to-evpn": ON}}
    bgp = {
        **ON,
        "autonomous-system": asn,
        "router-id": router,
        "route-export": {"to-evpn": {"route-target": target}},
        "route-import": {"from-evpn": {"route-target": target}},
        "address-family": {"ipv4-unicast": unicast},
    }
    return {"evpn": {**ON, "vni": {str(vni): {}}}, "router": {"bgp": bgp}}


@contextlib.contextmanager
def frr_site(folder: Path) -> Iterator[FrrSite]:
    """The site; all of it ends, whatever happens."""
    site = FrrSite(folder)
    try:
        yield site.open()
    finally:
        site.close()
