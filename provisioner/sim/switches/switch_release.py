"""The operational documents of a simulated switch that the release decision reads."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from provisioner.sim.switches.nvue_schema import take_over
from provisioner.sim.switches.switch import Switch

Tree = dict[str, Any]
QOS: Tree = {"enable": "on", "mode": "lossless", "pfc": {"switch-priority": {"3": {}}}}
PORT_QOS: Tree = {
    "congestion-control": {"congestion-mode": "ecn"},
    "pfc": {"pfc-priority": "3", "rx-enabled": "yes", "tx-enabled": "yes"},
    "trust": {"trust-mode": "pcp,dscp"},
}
ADAPTIVE: Tree = {"enable": "on"}


def build_document(switch: Switch, parts: tuple[str, ...], now: float) -> Tree | None:
    """The operational document at this path; None for any other path."""
    match parts:
        case ("vrf", vrf, "router", "rib", "ipv6", "route") if vrf in switch.operational["vrf"]:
            return list_routes(switch, vrf, now, version=6)
        case ("vrf", vrf, "router", "bgp", "neighbor") if vrf in switch.operational["vrf"]:
            return None if vrf == "default" else list_sessions(switch, vrf)
        case ("evpn", "vni", vni, "bgp-info"):
            return target_info(switch, vni)
        case ("bridge", "domain"):
            return {"br_default": {}} if switch.planted.macs else {}
        case ("bridge", "domain", _, "mac-table"):
            listed = enumerate(sorted(switch.planted.macs.items()))
            return {str(n): {"mac": mac, "interface": at, "age": 10} for n, (mac, at) in listed}
        case ("qos", "roce"):
            qos = take_over(switch.version, {"qos": {"roce": QOS}})["qos"]["roce"]
            return {**qos, **switch.planted.qos}
        case ("interface", name, "qos", "roce", "status") if name in switch.neighbours:
            return PORT_QOS | switch.planted.port_qos.get(name, {})
        case ("router", "adaptive-routing"):
            tree = take_over(switch.version, {"router": {"adaptive-routing": ADAPTIVE}})
            return {**tree["router"]["adaptive-routing"], **switch.planted.adaptive}
        case _:
            return None


def list_routes(switch: Switch, vrf: str, now: float, version: int = 4) -> Tree:
    """Routes of one VRF by prefix: connected and up, from the overlay, leaked, planted."""
    entries: Tree = {}
    planted = switch.planted
    for name, port_vrf, prefix in iterate_connected(switch, now, version):
        if port_vrf == vrf:
            entries[prefix] = _route("connected", name, vrf, soft=prefix in planted.soft)
        elif switch.leaks.get(prefix) == vrf:
            entries[prefix] = _route("bgp", name, vrf)
    takes = list_imports(switch, vrf)
    for leaf in switch.overlay if takes else ():
        if not leaf.is_up(now):
            continue
        sending = {v for v in leaf.operational["vrf"] if list_exports(leaf, v) & takes}
        for _, port_vrf, prefix in iterate_connected(leaf, now, version):
            if port_vrf in sending:
                entries.setdefault(prefix, _route("bgp", "vxlan48", vrf))
    for port_vrf, prefix, protocol, via in planted.routes:
        if port_vrf == vrf and ipaddress.ip_network(prefix).version == version:
            entries[prefix] = _route(protocol, "planted", via)
    return {p: entry for p, entry in entries.items() if p not in planted.missing}


def iterate_connected(switch: Switch, now: float, version: int) -> Iterator[tuple[str, str, str]]:
    """(interface, VRF, prefix) of every address on a port that is up."""
    for name, entry in switch.operational["interface"].items():
        ip = entry.get("ip", {})
        if not ip.get("address") or not switch.link_up(name, now):
            continue
        for address in ip["address"]:
            if (":" in address) == (version == 6):
                yield name, ip.get("vrf") or "default", parse_network(address)


_networks: dict[str, str] = {}


def parse_network(address: str) -> str:
    """The network of an interface's address; cached, because parsing dominates the run time."""
    known_network = _networks.get(address)
    if known_network is None:
        known_network = _networks[address] = str(ipaddress.ip_interface(address).network)
        if len(_networks) > 100_000:
            _networks.clear()
    return known_network


def _vni(switch: Switch, vrf: str) -> str:
    vnis = switch.operational["vrf"].get(vrf, {}).get("evpn", {}).get("vni", {})
    return next(iter(vnis), "")


def _configured(switch: Switch, vrf: str, way: str, table: str) -> set[str]:
    bgp = switch.operational["vrf"].get(vrf, {}).get("router", {}).get("bgp", {})
    targets = set(bgp.get(way, {}).get(table, {}).get("route-target", {}))
    vni = _vni(switch, vrf)
    return targets or ({f"{bgp.get('autonomous-system', 0)}:{vni}"} if vni else set())


def list_imports(switch: Switch, vrf: str) -> set[str]:
    """Route targets that a VRF imports; none without an overlay."""
    vni = _vni(switch, vrf)
    if not vni:
        return set()
    more = switch.planted.targets.get(vni, set())
    return _configured(switch, vrf, "route-import", "from-evpn") | more


def list_exports(switch: Switch, vrf: str) -> set[str]:
    """Route targets that a VRF exports; none without an overlay."""
    return _configured(switch, vrf, "route-export", "to-evpn") if _vni(switch, vrf) else set()


def target_info(switch: Switch, vni: str) -> Tree | None:
    """`nv show evpn vni VNI bgp-info`."""
    vrf = next((v for v in switch.operational["vrf"] if _vni(switch, v) == vni), None)
    if vrf is None:
        return None
    return {
        "rd": "10.10.10.1:6",
        "type": "L3",
        "in-kernel": "on",
        "import-route-target": {t: {} for t in sorted(list_imports(switch, vrf))},
        "export-route-target": {t: {} for t in sorted(list_exports(switch, vrf))},
    }


def list_sessions(switch: Switch, vrf: str) -> Tree:
    """BGP sessions of one VRF: configured ones are established, planted ones are as planted."""
    bgp = switch.operational["vrf"][vrf].get("router", {}).get("bgp", {})
    entries: Tree = {peer: {"state": "established"} for peer in bgp.get("neighbor", {})}
    return entries | {p: e for (v, p), e in switch.planted.peers.items() if v == vrf}


def neighbour_tables(switch: Switch, now: float) -> Tree:
    """`nv show interface neighbor`: each port's neighbours, and the planted ones."""
    tables: Tree = {}
    for name, _, _ in iterate_connected(switch, now, 4):
        neighbour = switch.neighbours.get(name)
        for address in switch.operational["interface"][name]["ip"]["address"]:
            if neighbour is not None and ":" not in address:
                _entry(tables, name, other_end(address), neighbour.mac)
    for name, address, mac in switch.planted.neighbours:
        _entry(tables, name, address, mac)
    return tables


def other_end(address: str) -> str:
    """The host's address on a /31."""
    ip = ipaddress.ip_interface(address)
    return next((str(h) for h in ip.network.hosts() if h != ip.ip), str(ip.ip))


def _entry(entries: Tree, interface: str, address: str, mac: str) -> None:
    family = "ipv6" if ":" in address else "ipv4"
    tables = entries.setdefault(interface, {"ip": {"neighbor": {}}})["ip"]["neighbor"]
    tables.setdefault(family, {})[address] = {"lladdr": mac, "state": {"reachable": {}}}


def _route(protocol: str, interface: str, vrf: str, *, soft: bool = False) -> Tree:
    flags: Tree = {"selected": {}, "fib-selected": {}, "installed": {}}
    if not soft:
        flags["offloaded"] = {}
    entry = {
        "distance": 0 if protocol == "connected" else 20,
        "flags": flags,
        "metric": 0,
        "uptime": "0:10:00",
        "via": {interface: {"type": "interface", "vrf": vrf, "active": "on", "fib": "on"}},
    }
    return {"protocol": {protocol: {"entry-index": {"1": entry}}}}
