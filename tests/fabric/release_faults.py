"""Faults of a leaf, its overlay and its packets, each with the row of the gate that names it.

Every fault is planted in the simulated switch, and is met where a real one would show: through the
REST interface or by packets. None is planted in a judge's input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from host_faults import OF_HOSTS
from release_rig import LEAF, OTHER_LEAF, ROUTER, SERVER, Bench, imports, trees

from provisioner.integrations.sim.switches.switch import Switch

Plant = Callable[[Bench], None]


def _route(vrf: str, prefix: str, protocol: str = "bgp", via: str = "", leaf: str = LEAF) -> Plant:
    def plant(bench: Bench) -> None:
        bench.switches[leaf].planted.routes.append((vrf, prefix, protocol, via or vrf))

    return plant


def _planted(name: str, key: Any, value: Any = None, leaf: str = LEAF) -> Plant:
    """An entry of one of the switch's faults; `key` "port", "prefix" or "mac": the node's own."""

    def own(bench: Bench, word: Any) -> Any:
        return getattr(bench, word) if word in ("port", "prefix", "mac") else word

    def plant(bench: Bench) -> None:
        kept = getattr(bench.switches[leaf].planted, name)
        if isinstance(kept, set):
            kept.add(own(bench, key))
        else:
            kept[own(bench, key)] = own(bench, value) if isinstance(value, str) else value

    return plant


def starts_otherwise(leaf: Switch, port: str) -> None:
    """What is saved of a port is not what is applied; what both share is not touched."""
    ports = {**leaf.startup["interface"], port: {"type": "swp"}}
    leaf.startup = {**leaf.startup, "interface": ports}


def _after(change: Callable[[Bench, Switch], None]) -> Plant:
    """Somebody changes the leaf behind our back, once the ports are moved."""

    def plant(bench: Bench) -> None:
        bench.when_moved(lambda: change(bench, bench.leaf))

    return plant


def _later(change: Callable[[Bench, Switch], None]) -> Plant:
    """... once the gate was passed for the first time."""

    def plant(bench: Bench) -> None:
        bench.when_probed(lambda: change(bench, bench.leaf))

    return plant


def _in_trees(change: Callable[[dict[str, Any]], Any]) -> Plant:
    """It was configured so all along."""

    def plant(bench: Bench) -> None:
        for tree in trees(bench.leaf):
            change(tree)

    return plant


def _port_into(*names: str) -> Callable[[Bench, Switch], None]:
    def change(bench: Bench, leaf: Switch) -> None:
        for name in names:
            getattr(leaf, name)["interface"][bench.port]["ip"]["vrf"] = "BLUE"

    return change


def _stale(on: str, address: str, mac: str) -> Plant:
    """An entry on the port of another node, by our address or by our MAC."""

    def plant(bench: Bench) -> None:
        port = next(p.interface for p in bench.rig.nodes[on].ports if p.switch == LEAF)
        theirs = bench.mac if mac == "ours" else mac
        bench.leaf.planted.neighbours.append((port, address, theirs))

    return plant


def _sixth(bench: Bench) -> None:
    """The port has an IPv6 address, and another VRF has its network."""
    for tree in trees(bench.leaf):
        tree["interface"][bench.port]["ip"]["address"]["2001:db8::1/127"] = {}
    _route("BLUE", "2001:db8::/127")(bench)


def _revision(bench: Bench, leaf: Switch) -> None:
    """Somebody else's revision, sent and not yet applied."""
    leaf.faults.add("apply_hangs")
    revision = leaf.new_revision()
    revision.changes.append((("interface", bench.port), {"ip": {"vrf": "BLUE"}}))
    leaf.apply(revision, bench.rig.clock.now())


def _acl(bench: Bench, leaf: Switch) -> None:
    for tree in trees(leaf):
        tree["acl"]["HOSTS"] = {"type": "ipv4", "rule": {"10": {"action": {"deny": {}}}}}


def _unbind(bench: Bench, leaf: Switch) -> None:
    for tree in trees(leaf):
        tree["interface"][bench.port]["acl"].clear()


def _bind(bench: Bench, leaf: Switch) -> None:
    for tree in trees(leaf):
        tree["interface"][bench.port]["acl"]["LOG"] = {"inbound": {}}


def _address(bench: Bench, leaf: Switch) -> None:
    for tree in trees(leaf):
        tree["interface"][bench.port]["ip"]["address"]["10.9.9.1/31"] = {}


def _bgp(tree: dict[str, Any], vrf: str) -> dict[str, Any]:
    found: dict[str, Any] = tree["vrf"][vrf]["router"]["bgp"]
    return found


def _listen(tree: dict[str, Any]) -> None:
    _bgp(tree, "RED")["dynamic-neighbor"] = {"listen-range": {"10.0.0.0/8": {}}}


def _no_storage(tree: dict[str, Any]) -> None:
    _bgp(tree, "RED")["address-family"]["ipv4-unicast"]["route-import"]["from-vrf"]["list"].clear()


def _second_vni(tree: dict[str, Any]) -> None:
    tree["vrf"]["RED"]["evpn"]["vni"] = {"5009": {}}


def _takes_ours(tree: dict[str, Any]) -> None:
    target = _bgp(tree, "BLUE")["route-import"]["from-evpn"]["route-target"]
    target["64512:5001"] = {}


_MOVED = {
    "the port forwards in another tenant's VRF": (_later(_port_into("operational")), "port_vrf"),
    "the port is about to follow another configuration": (_later(_port_into("applied")), "one_vrf"),
    "the port's link is connected in two VRFs": (
        _route("BLUE", "172.96.0.0/31", "connected"),
        "one_vrf",
    ),
    "a revision of somebody else moves the port soon": (_later(_revision), "revision"),
    "a reboot would bring another configuration": (
        _after(lambda _b, leaf: leaf.applied["system"].update(hostname="other")),
        "persisted",
    ),
    "a reboot would bring the port's old place back": (
        _later(lambda b, leaf: starts_otherwise(leaf, b.port)),
        "persisted",
    ),
    "the port is down": (_planted("links", "port", {"down": True}), "link"),
    "the port's MTU is too small": (_planted("links", "port", {"mtu": 1500}), "mtu"),
    "the cable of another node is in the port": (
        _planted("lldp", "port", ("su0-n07", "rail3")),
        "cable",
    ),
    "the port has got another address": (_after(_address), "address"),
    "the link flaps": (
        _after(lambda b, leaf: leaf.planted.flaps.update({b.port: 9})),
        "flaps",
    ),
    "the filter that must be on the port is not": (_after(_unbind), "acl_bound"),
    "a filter that nobody asked for is on the port": (_after(_bind), "acl_bound"),
    "the rules of a filter were changed": (_after(_acl), "acl_rules"),
    "lossless queues were changed": (
        _after(lambda _b, leaf: leaf.planted.qos.update(mode="lossy")),
        "qos",
    ),
    "a port's queues are lossy": (
        _after(lambda b, leaf: leaf.planted.port_qos.update({b.port: {"pfc": {}}})),
        "qos",
    ),
    "frames come in damaged": (
        _after(lambda b, leaf: leaf.planted.errors.update({b.port: 3})),
        "link_errors",
    ),
    "adaptive routing was switched off": (
        _after(lambda _b, leaf: leaf.planted.adaptive.update(enable="off")),
        "adaptive_routing",
    ),
    "the leaf has lost a power supply": (_planted("issues", "PSU1", "not OK"), "health"),
}

_ROUTES = {
    "the tenant's VRF lacks the node's route": (_planted("missing", "prefix"), "route"),
    "the node's route is not in the ASIC": (_planted("soft", "prefix"), "offloaded"),
    "the node's other leaf has not learnt the route": (
        _planted("missing", "prefix", leaf=OTHER_LEAF),
        "remote_route",
    ),
    "another tenant's VRF has a route to the node": (
        lambda b: b.leaf.leaks.update({b.prefix: "BLUE"}),
        "remainder",
    ),
    "the maintenance VRF still has a route to the node": (
        lambda b: b.leaf.leaks.update({b.prefix: "MAINT"}),
        "remainder",
    ),
    "another VRF has a route to one end of the link": (
        _route("BLUE", "172.96.0.0/32", "static"),
        "remainder",
    ),
    "the default VRF has a route to the node": (_route("default", "172.96.0.0/31"), "remainder"),
    "a leak is on another of the node's leaves": (
        _route("BLUE", "172.96.0.0/31", leaf=OTHER_LEAF),
        "remainder",
    ),
    "an IPv6 route leaks": (_sixth, "remainder"),
    "a default route leaks in": (_route("RED", "0.0.0.0/0", via="BLUE"), "default_route"),
    "an IPv6 default route leaks in": (_route("RED", "::/0", via="RED"), "default_route"),
    "a route of the tenant's goes through another VRF": (
        _route("RED", "10.77.0.0/16", "static", via="BLUE"),
        "foreign_route",
    ),
    "the tenant's VRF imports another tenant's": (
        _in_trees(lambda t: imports(t, "RED", "BLUE")),
        "imports",
    ),
    "the tenant's VRF imports storage beyond its allow-list": (
        _in_trees(lambda t: imports(t, "RED", "mgmt")),
        "imports",
    ),
    "the tenant's VRF does not import its storage": (_in_trees(_no_storage), "imports"),
    "another tenant's VRF imports this one": (
        _in_trees(lambda t: imports(t, "BLUE", "RED")),
        "importers",
    ),
    "there is a session with a peer that nobody knows": (
        _planted("peers", ("RED", "10.66.0.1"), {"state": "established"}),
        "peers",
    ),
    "a session of the tenant's is not established": (
        _planted("peers", ("RED", ROUTER), {"state": "active"}),
        "peer_state",
    ),
    "a session of the tenant's is not configured": (
        _in_trees(lambda t: _bgp(t, "RED")["neighbor"].clear()),
        "peer_state",
    ),
    "a peer is a dynamic session": (
        _planted("peers", ("RED", ROUTER), {"state": "established", "type": "dynamic"}),
        "dynamic_peers",
    ),
    "the VRF accepts sessions from a whole range": (_in_trees(_listen), "dynamic_peers"),
    "the VRF goes by another VNI": (_in_trees(_second_vni), "overlay"),
    "the VRF takes in the route target of another tenant": (
        _planted("targets", "5001", {"64512:5002"}),
        "targets",
    ),
    "the route target of maintenance was not withdrawn": (
        _planted("targets", "5001", {"64512:5003"}),
        "targets",
    ),
    "another tenant's VRF takes in the route target of this one": (
        _in_trees(_takes_ours),
        "foreign_targets",
    ),
    "a neighbour entry of the node is left on another tenant's port": (
        _stale("su0-n02", "172.96.0.0", "aa:bb:cc:00:00:01"),
        "neighbours",
    ),
    "the node's MAC is a neighbour on a maintenance port": (
        _stale("su0-n03", "fe80::1", "ours"),
        "neighbours",
    ),
    "the node's MAC is in a bridge": (_planted("macs", "mac", "swp30s0"), "fdb"),
    "the node's port is in a bridge": (_planted("macs", "aa:bb:cc:00:00:02", "port"), "fdb"),
}

_PACKETS = {
    "nothing gets through the port": (_planted("drops", "port"), "reaches"),
    "storage does not answer": (lambda b: b.leaf.servers.update({SERVER: "lost"}), "reaches"),
    "the node reaches maintenance": (_planted("paths", ("RED", "MAINT")), "shut_out"),
    "the node reaches another tenant": (_planted("paths", ("RED", "BLUE")), "shut_out"),
    "the node reaches the management network": (_planted("paths", ("RED", "oob")), "shut_out"),
    "maintenance reaches the node": (_planted("paths", ("MAINT", "RED")), "shut_in"),
}


FAULTS = OF_HOSTS | _MOVED | _ROUTES | _PACKETS
