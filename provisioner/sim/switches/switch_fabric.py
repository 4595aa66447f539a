"""The traffic and the BGP neighbours of a simulated switch: the truth behind its counters.

A switch carries traffic between others until it is drained and they had time to reroute; without
another path they keep using it (a drain requests, it does not force). A reboot loses the traffic
that the switch carries at that moment, and the log records it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from provisioner.sim.switches.nvue_schema import take_over
from provisioner.sim.switches.switch import Switch, Tree
from provisioner.sim.switches.switch_release import build_document, list_routes

# ------------------------------------------------------------------------------
# The documents of a simulated switch that are only operational: routes, images, health.


MODEL = "SN5600"


def build_operational(switch: Switch, parts: tuple[str, ...], now: float) -> Tree | None:
    """The document at this path; None for any other path."""
    match parts:
        case ("system", "image"):
            return list_images(switch)
        case ("system", "image", "files"):
            return {name: {"path": f"/var/images/{name}"} for name in switch.files}
        case ("system", "version"):
            return {
                "base-os": "Debian GNU/Linux 12",
                "build-date": "",
                "image": switch.version,
                "kernel": "6.1.0-cl-1-amd64",
            }
        case ("system", "health"):
            return report_health(switch)
        case ("platform",):
            return {
                "product-name": MODEL,
                "part-number": "920-9N42F-00RI-7C0",
                "serial-number": switch.serial,
                "system-mac": switch.mac,
                "manufacturer": "NVIDIA",
            }
        case ("vrf", vrf, "router", "rib", "ipv4", "route"):
            return list_routes(switch, vrf, now) if vrf in switch.operational["vrf"] else None
        case ("vrf", vrf, "router", "rib", "ipv4"):
            exists = vrf in switch.operational["vrf"]
            return {"route": list_routes(switch, vrf, now)} if exists else None
        case ("interface", name, "lldp"):
            return {"neighbor": list_neighbours(switch, name, now)}
        case ("interface", name, "lldp", "neighbor"):
            return list_neighbours(switch, name, now)
        case _:
            return build_document(switch, parts, now)


def list_images(switch: Switch) -> Tree:
    """Both partitions with their build ids, the running one and the next one to boot."""
    shown: Tree = {"current": str(switch.current), "next": str(switch.next)}
    for number, version in switch.partitions.items():
        if version is not None:
            shown[f"partition{number}"] = {
                "build-id": version,
                "description": f"Cumulus Linux {'.'.join(version.split('.')[:3])}",
                "disk": f"/dev/sda{number + 4}",
                "release": ".".join(version.split(".")[:3]),
            }
    return shown


def report_health(switch: Switch) -> Tree:
    """`OK`, or the issues of the faults in force."""
    issues = {}
    if "psu_failed" in switch.faults:
        issues["PSU1"] = {"issue": "not OK"}
    if "fan_missing" in switch.faults:
        issues["FAN2/1"] = {"issue": "missing"}
    issues |= {part: {"issue": text} for part, text in switch.planted.issues.items()}
    led = "amber" if issues else "green"
    return {"status": "Not OK" if issues else "OK", "status-led": led, "issues": issues}


def list_neighbours(switch: Switch, interface: str, now: float) -> Tree:
    """The LLDP neighbours of an interface, by the neighbour's system name."""
    neighbour = switch.neighbours.get(interface)
    if neighbour is None or not switch.link_up(interface, now):
        return {}
    if interface in switch.planted.silent:
        return {}
    system, port = switch.planted.lldp.get(interface, (neighbour.system, neighbour.port))
    return {
        system: {
            "age": "120",
            "chassis": {"chassis-id": neighbour.mac, "system-name": system},
            "port": {"name": port, "ttl": 120, "type": "ifname"},
        }
    }


# ------------------------------------------------------------------------------
# The effect of a port's access lists on a packet, by the switch's operational state.
#
# Source: Cumulus Linux guide, "Access Control List Configuration" (rules of a list are tried in
# the
# order of their numbers and the first match decides; packets without a match pass) and NVUE
# reference, "ACL" (`match ip source-ip`, `dest-ip`, `protocol`; `action permit`, `deny`).


ICMP = "icmp"


def is_denied(
    switch: Switch, interface: str, way: str, ends: tuple[str, str], protocol: str = ICMP
) -> bool:
    """Whether a list on this port and way ("inbound", "outbound") drops a packet between `ends`."""
    if switch.planted.filters_ignored:
        return False
    tree = switch.operational
    bound = tree["interface"].get(interface, {}).get("acl", {})
    lists = [tree.get("acl", {}).get(name, {}) for name, ways in bound.items() if way in ways]
    return any(_decides(one, ends, protocol) == "deny" for one in lists)


def _decides(acl: dict[str, Any], ends: tuple[str, str], protocol: str) -> str:
    for number in sorted(acl.get("rule", {}), key=int):
        rule = acl["rule"][number]
        match = rule.get("match", {}).get("ip", {})
        prefixes = (match.get("source-ip"), match.get("dest-ip"))
        both = all(_is_in(end, net) for end, net in zip(ends, prefixes, strict=True))
        if both and match.get("protocol", protocol) == protocol:
            return "deny" if "deny" in rule.get("action", {}) else "permit"
    return ""


def _is_in(address: str, network: str | None) -> bool:
    if not network or network == "ANY":
        return True
    prefix = ipaddress.ip_network(network)
    one = ipaddress.ip_address(address)
    return one.version == prefix.version and one in prefix


PORT_BPS = 2_000_000_000  # bytes a second through each port of a carrying switch
KEEPALIVE_BPS = 400  # the remainder: BGP, LLDP
CONVERGE_S = 15.0  # from the neighbours' new routes to the last packet
FABRIC_NAMES = ("leaf", "spine")
ON = ("on", "enabled")


class Fabric:
    """One switch's part in the fabric. `alternative`: whether others have a path around it."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.alternative: Callable[[], bool] = lambda: True
        self.busy = switch.name.startswith("spine")  # a leaf carries its hosts' traffic
        self._since: float | None = None  # when the drain was first in force
        self._at = 0.0
        self._bytes: dict[str, float] = {}

    def is_drained(self) -> bool:
        """Whether the configuration in force asks its neighbours to avoid it."""
        bgp = self.switch.operational.get("router", {}).get("bgp", {})
        return bgp.get("graceful-shutdown") in ON

    def is_carrying(self, now: float) -> bool:
        """Whether it carries more than keepalives."""
        if not self.is_drained():
            self._since = None
        elif self._since is None:
            self._since = now
        rerouted = self._since is not None and now - self._since >= CONVERGE_S
        return self.busy and self.switch.is_up(now) and not (rerouted and self.alternative())

    def lose_traffic(self, now: float) -> None:
        """Go down now: the traffic that it carries is lost, and the log records it."""
        if self.is_carrying(now):
            self.switch.log_event(now, "traffic_lost", self.switch.name, "rebooted while carrying")

    def read_document(self, parts: tuple[str, ...], now: float) -> Tree | None:
        """The document at this path if it is operational only; else None."""
        document = build_operational(self.switch, parts, now)
        return self._document(parts, now) if document is None else document

    def _document(self, parts: tuple[str, ...], now: float) -> Tree | None:
        match parts:
            case ("interface", name, "link", "stats") if name in (*self.switch.neighbours, "eth0"):
                return self._stats(name, now)
            case ("vrf", "default", "router", "bgp", "neighbor"):
                return {n: {"state": s} for n, s in self._sessions(now)}
            case ("evpn", "vni"):
                return dict(self.switch.operational.get("evpn", {}).get("vni", {}))
            case ("platform", "firmware"):
                return {"ASIC": {"actual-firmware": "34.2014.1136"}}
            case ("router", "bgp"):
                configured = self.switch.applied.get("router", {}).get("bgp", {})
                unset: Tree = {"router": {"bgp": {"enable": "on", "graceful-shutdown": "off"}}}
                return {**take_over(self.switch.version, unset)["router"]["bgp"], **configured}
        return None

    def _sessions(self, now: float) -> Iterable[tuple[str, str]]:
        for name, neighbour in self.switch.neighbours.items():
            if neighbour.system.startswith(FABRIC_NAMES):
                up = self.switch.link_up(name, now)
                yield name, "established" if up else "idle"

    def _stats(self, name: str, now: float) -> Tree:
        rate = PORT_BPS if self.is_carrying(now) else KEEPALIVE_BPS
        busy = self.switch.planted.busy
        passed = max(0.0, now - self._at) if self._at else 0.0
        for port in self.switch.neighbours:
            if self.switch.link_up(port, now):
                self._bytes[port] = self._bytes.get(port, 0.0) + passed * (
                    PORT_BPS if port in busy else rate
                )
        # of the management network: what asks the switch, whatever it forwards
        self._bytes["eth0"] = self._bytes.get("eth0", 0.0) + passed * KEEPALIVE_BPS
        self._at = now
        half = int(self._bytes.get(name, 0.0)) // 2
        changes = 2 + self.switch.planted.flaps.get(name, 0)
        errors = self.switch.planted.errors.get(name, 0)
        counted = {"in-bytes": half, "out-bytes": half, "in-errors": errors}
        return {**counted, "carrier-transitions": changes}


class HasFabric(Protocol):
    """A service with a part in the fabric."""

    fabric: Fabric


def join_fabric(services: Mapping[str, HasFabric], now: Callable[[], float]) -> None:
    """Connect the spines: each is a path around the others."""

    def make_alternative(name: str) -> Callable[[], bool]:
        return lambda: any(
            peer.fabric.switch.is_up(now()) and not peer.fabric.is_drained()
            for n, peer in services.items()
            if n.startswith("spine") and n != name
        )

    leaves = [s.fabric.switch for n, s in services.items() if not n.startswith("spine")]
    for leaf in leaves:
        leaf.overlay = tuple(peer for peer in leaves if peer is not leaf)
    for name, service in services.items():
        if name.startswith("spine"):
            service.fabric.alternative = make_alternative(name)
