"""The operational documents of a simulated switch that the judge of a release reads."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from provisioner.sim.switches.switch import Switch

Tree = dict[str, Any]
QOS: Tree = {"enable": "on", "mode": "lossless", "pfc": {"switch-priority": {"3": {}}}}
PORT_QOS: Tree = {
    "congestion-control": {"congestion-mode": "ecn"},
    "pfc": {"pfc-priority": "3", "rx-enabled": "yes", "tx-enabled": "yes"},
    "trust": {"trust-mode": "pcp,dscp"},
}
ADAPTIVE: Tree = {"enable": "on"}


def document(switch: Switch, parts: tuple[str, ...], now: float) -> Tree | None:
    """The operational document at this path; None if it is not one of these."""
    match parts:
        case ("vrf", vrf, "router", "rib", "ipv6", "route") if vrf in switch.operational["vrf"]:
            return routes(switch, vrf, now, version=6)
        case ("vrf", vrf, "router", "bgp", "neighbor") if vrf in switch.operational["vrf"]:
            return None if vrf == "default" else sessions(switch, vrf)
        case ("evpn", "vni", vni, "bgp-info"):
            return target_info(switch, vni)
        case ("bridge", "domain"):
            return {"br_default": {}} if switch.planted.macs else {}
        case ("bridge", "domain", _, "mac-table"):
            listed = enumerate(sorted(switch.planted.macs.items()))
            return {str(n): {"mac": mac, "interface": at, "age": 10} for n, (mac, at) in listed}
        case ("qos", "roce"):
            return QOS | switch.planted.qos
        case ("interface", name, "qos", "roce", "status") if name in switch.neighbours:
            return PORT_QOS | switch.planted.port_qos.get(name, {})
        case ("router", "adaptive-routing"):
            return ADAPTIVE | switch.planted.adaptive
        case _:
            return None


def routes(switch: Switch, vrf: str, now: float, version: int = 4) -> Tree:
    """Routes of one VRF by prefix: connected and up, from the overlay, leaked, planted."""
    found: Tree = {}
    planted = switch.planted
    for name, there, prefix in connected(switch, now, version):
        if there == vrf:
            found[prefix] = _route("connected", name, vrf, soft=prefix in planted.soft)
        elif switch.leaks.get(prefix) == vrf:
            found[prefix] = _route("bgp", name, vrf)
    takes = imported(switch, vrf)
    for other in switch.overlay if takes else ():
        if not other.up(now):
            continue
        sending = {v for v in other.operational["vrf"] if exported(other, v) & takes}
        for _, there, prefix in connected(other, now, version):
            if there in sending:
                found.setdefault(prefix, _route("bgp", "vxlan48", vrf))
    for there, prefix, protocol, via in planted.routes:
        if there == vrf and ipaddress.ip_network(prefix).version == version:
            found[prefix] = _route(protocol, "planted", via)
    return {p: entry for p, entry in found.items() if p not in planted.missing}


def connected(switch: Switch, now: float, version: int) -> Iterator[tuple[str, str, str]]:
    """(interface, VRF, prefix) of every address on a port that is up."""
    for name, entry in switch.operational["interface"].items():
        ip = entry.get("ip", {})
        if not ip.get("address") or not switch.link_up(name, now):
            continue
        for address in ip["address"]:
            if (":" in address) == (version == 6):
                yield name, ip.get("vrf") or "default", network(address)


_networks: dict[str, str] = {}


def network(address: str) -> str:
    """The network of an interface's address; parsing takes longer than anything else here."""
    found = _networks.get(address)
    if found is None:
        found = _networks[address] = str(ipaddress.ip_interface(address).network)
        if len(_networks) > 100_000:
            _networks.clear()
    return found


def _vni(switch: Switch, vrf: str) -> str:
    vnis = switch.operational["vrf"].get(vrf, {}).get("evpn", {}).get("vni", {})
    return next(iter(vnis), "")


def _configured(switch: Switch, vrf: str, way: str, table: str) -> set[str]:
    bgp = switch.operational["vrf"].get(vrf, {}).get("router", {}).get("bgp", {})
    targets = set(bgp.get(way, {}).get(table, {}).get("route-target", {}))
    vni = _vni(switch, vrf)
    return targets or ({f"{bgp.get('autonomous-system', 0)}:{vni}"} if vni else set())


def imported(switch: Switch, vrf: str) -> set[str]:
    """Route targets that a VRF takes in; none without an overlay."""
    vni = _vni(switch, vrf)
    if not vni:
        return set()
    more = switch.planted.targets.get(vni, set())
    return _configured(switch, vrf, "route-import", "from-evpn") | more


def exported(switch: Switch, vrf: str) -> set[str]:
    """Route targets that a VRF sends; none without an overlay."""
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
        "import-route-target": {t: {} for t in sorted(imported(switch, vrf))},
        "export-route-target": {t: {} for t in sorted(exported(switch, vrf))},
    }


def sessions(switch: Switch, vrf: str) -> Tree:
    """BGP sessions of one VRF: those configured are established, planted ones are as planted."""
    bgp = switch.operational["vrf"][vrf].get("router", {}).get("bgp", {})
    found: Tree = {peer: {"state": "established"} for peer in bgp.get("neighbor", {})}
    return found | {p: e for (v, p), e in switch.planted.peers.items() if v == vrf}


def neighbour_tables(switch: Switch, now: float) -> Tree:
    """`nv show interface neighbor`: who was seen at each port, and what was planted."""
    found: Tree = {}
    for name, _, _ in connected(switch, now, 4):
        there = switch.neighbours.get(name)
        for address in switch.operational["interface"][name]["ip"]["address"]:
            if there is not None and ":" not in address:
                _entry(found, name, other_end(address), there.mac)
    for name, address, mac in switch.planted.neighbours:
        _entry(found, name, address, mac)
    return found


def other_end(address: str) -> str:
    """The host's address on a /31."""
    ip = ipaddress.ip_interface(address)
    return next((str(h) for h in ip.network.hosts() if h != ip.ip), str(ip.ip))


def _entry(found: Tree, interface: str, address: str, mac: str) -> None:
    family = "ipv6" if ":" in address else "ipv4"
    tables = found.setdefault(interface, {"ip": {"neighbor": {}}})["ip"]["neighbor"]
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
