"""What a switch of FRRouting does, in the shapes of NVUE's operational state.

Rule: everything here is asked of zebra, bgpd or the kernel at the moment of the request. Where a
real switch has an ASIC, this one has the kernel: "installed" stands for "offloaded". The cables
between VRFs (`frr_rendering`) are left out: on a switch they are no interfaces.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

from frr_netlink import Link
from frr_rendering import DEFAULT, PLUMBING, cables, joint_address
from frr_switch import FrrSwitch

Tree = dict[str, Any]
_PLUMBING = ipaddress.ip_network(PLUMBING)


class Reader:
    """Operational state of one switch."""

    def __init__(self, switch: FrrSwitch) -> None:
        self._switch = switch

    def read(self, parts: tuple[str, ...], view: str = "") -> Any:
        """What is at this path now; None: there is nothing."""
        match parts:
            case ("interface",):
                return self._heard() if view == "neighbor" else self._interfaces()
            case ("interface", name) if name.startswith(("swp", "eth")):
                return self._interfaces().get(name)
            case ("interface", name, *rest):
                return self._below(name, tuple(rest))
            case ("vrf",):
                return {vrf: {} for vrf in (DEFAULT, *self._switch.vrfs())}
            case ("vrf", vrf, *rest) if vrf in (DEFAULT, *self._switch.vrfs()):
                return self._vrf(vrf, tuple(rest))
            case ("evpn", "vni"):
                return self._vnis()
            case ("evpn", "vni", vni, "bgp-info"):
                return self._targets(vni)
            case ("acl",):
                return self._switch.filters()[0]
            case ("bridge", "domain"):
                return {}  # hosts stand on routed ports only
            case ("router", "bgp"):
                asked = self._switch.show("bgpd", "show running-config")
                shut = "\nbgp graceful-shutdown" in asked
                return {"enable": "on", "graceful-shutdown": "on" if shut else "off"}
            case ("platform", "firmware"):
                return {"ASIC": {"actual-firmware": "none"}}
            case ("system",):
                return {"hostname": self._switch.name}
            case ("system", "health"):
                dead = [d for d in ("zebra", "bgpd", "staticd") if not self._switch.running(d)]
                issues = {name: {"issue": "not running"} for name in dead}
                return {"status": "Not OK" if dead else "OK", "issues": issues}
        return None

    def _interfaces(self) -> Tree:
        _, bound = self._switch.filters()
        return {
            name: _interface(*entry) | ({"acl": bound[name]} if name in bound else {})
            for name, entry in self._switch.interfaces().items()
            if name.startswith(("swp", "eth"))
        }

    def _below(self, name: str, rest: tuple[str, ...]) -> Any:
        if rest == ("lldp", "neighbor"):
            other = self._switch.cabled.get(name)
            return {other[0]: {"port": {"name": other[1]}}} if other else {}
        entry = self._switch.interfaces().get(name)
        if entry is None:
            return None
        if rest == ("link", "stats"):
            return _counters(entry[1])
        found: Any = _interface(*entry)
        for part in rest:
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def _vrf(self, vrf: str, rest: tuple[str, ...]) -> Any:
        match rest:
            case ():
                return {}
            case ("evpn",):
                return {"vni": {n: e for n, e in self._vnis().items() if e["tenant-vrf"] == vrf}}
            case ("router", "rib", ("ipv4" | "ipv6") as family, "route"):
                return self._routes(vrf, family)
            case ("router", "bgp", "neighbor"):
                return self._neighbours(vrf)
            case ("router", "bgp", "address-family"):
                return {"ipv4-unicast": {"route-import": self._imports(vrf)}}
        return None

    def _routes(self, vrf: str, family: str) -> Tree:
        word = "ip" if family == "ipv4" else "ipv6"
        listed = self._json("zebra", f"show {word} route vrf {vrf} json")
        others = {
            joint_address(number, 1 - pair.index(vrf)): pair[1 - pair.index(vrf)]
            for number, pair in enumerate(cables(self._switch.rendered.joints))
            if vrf in pair
        }
        return {p: _route(vrf, e, others) for p, e in listed.items() if not _plumbing(p)}

    def _neighbours(self, vrf: str) -> Tree:
        summary = self._json("bgpd", f"show bgp vrf {vrf} summary json")
        peers = {
            name: peer
            for family in summary.values()
            if isinstance(family, dict)
            for name, peer in family.get("peers", {}).items()
        }
        return {
            name: {
                "state": str(peer["state"]).lower(),
                "remote-as": peer["remoteAs"],
                "type": "dynamic" if peer.get("dynamicPeer") else "numbered",
            }
            for name, peer in peers.items()
            if not _plumbing(name)
        }

    def _imports(self, vrf: str) -> Tree:
        """Of whom bgpd imports: by its own command, and over the cables that stand for it."""
        told = self._json("bgpd", f"show bgp vrf {vrf} ipv4 unicast route-leak json")
        listed = told.get("importFromVrfs")  # "none" where there is none
        taken = {str(name) for name in listed} if isinstance(listed, list) else set()
        for number, pair in enumerate(cables(self._switch.rendered.joints)):
            if vrf in pair:
                config = self._switch.show("bgpd", "show running-config")
                peer = joint_address(number, 1 - pair.index(vrf))
                if f"neighbor {peer} route-map CONNECTED in" in config:
                    taken.add(pair[1 - pair.index(vrf)])
        return {"from-vrf": {"list": {name: {} for name in sorted(taken)}}}

    def _targets(self, vni: str) -> Tree | None:
        told = self._json("bgpd", f"show bgp l2vpn evpn vni {vni} json")
        if not told:
            return None
        return {
            "rd": told.get("rd", ""),
            "import-route-target": {target: {} for target in told.get("importRts", ())},
            "export-route-target": {target: {} for target in told.get("exportRts", ())},
        }

    def _heard(self) -> Tree:
        """ARP and neighbour discovery of every VRF, by interface."""
        found: Tree = {}
        for name, (_, link) in self._switch.interfaces(neighbours=True).items():
            for address, mac in link.neighbours.items() if name.startswith(("swp", "eth")) else ():
                family = "ipv6" if ":" in address else "ipv4"
                told = found.setdefault(name, {"ip": {"neighbor": {}}})["ip"]["neighbor"]
                told.setdefault(family, {})[address] = {"lladdr": mac}
        return found

    def _vnis(self) -> Tree:
        listed = self._json("zebra", "show evpn vni json")
        return {
            str(vni): {"type": entry["type"], "tenant-vrf": entry.get("tenantVrf", "")}
            for vni, entry in listed.items()
        }

    def _json(self, daemon: str, command: str) -> Tree:
        found = json.loads(self._switch.show(daemon, command) or "{}")
        return found if isinstance(found, dict) else {}


def _counters(link: Link) -> Tree:
    return {
        "in-bytes": link.bytes[0],
        "out-bytes": link.bytes[1],
        "in-pkts": link.packets[0],
        "out-pkts": link.packets[1],
        "in-errors": link.errors[0],
        "out-errors": link.errors[1],
        "carrier-transitions": link.carrier_changes,
    }


def _interface(vrf: str, link: Link) -> Tree:
    return {
        "type": "swp" if link.name.startswith("swp") else "eth",
        "ip": {"vrf": vrf, "address": {address: {} for address in sorted(link.addresses)}},
        "link": {"state": {"up" if link.up else "down": {}}, "mtu": link.mtu},
    }


def _route(vrf: str, entries: list[Mapping[str, Any]], others: Mapping[str, str]) -> Tree:
    """All routes to one prefix. The next hop's VRF is told where it is another one.

    `others`: ends of cables that stand for an import, with the VRF that they lead to.
    """
    protocols: Tree = {}
    for entry in entries:
        flags = {name: {} for name in ("selected", "installed") if entry.get(name)}
        if entry.get("installed"):
            flags["offloaded"] = {}
        via = {}
        for hop in entry.get("nexthops", ()):
            key = hop.get("ip") or hop.get("interfaceName", "")
            other = others.get(key) or hop.get("vrf", vrf)
            via[key] = {"type": "ip-address" if "ip" in hop else "interface"}
            if other != vrf:
                via[key]["vrf"] = other
        told = protocols.setdefault(entry["protocol"], {"entry-index": {}})["entry-index"]
        told[str(len(told) + 1)] = {
            "distance": entry.get("distance", 0),
            "flags": flags,
            "via": via,
        }
    return {"protocol": protocols}


def _plumbing(text: str) -> bool:
    try:
        found = ipaddress.ip_interface(text).ip
    except ValueError:
        return False
    return found in _PLUMBING
