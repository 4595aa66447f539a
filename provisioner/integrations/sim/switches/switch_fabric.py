"""The traffic and the BGP neighbours of a simulated switch: the truth behind its counters.

A switch carries traffic between others until it is drained and they had time to reroute; without
another path they keep using it (a drain requests, it does not force). A reboot loses the traffic
that the switch carries at that moment, and the log records it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from zlib import crc32

from provisioner.integrations.sim.switches.nvue_schema import take_over
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.integrations.sim.switches.switch import Tree as SwitchTree

# ------------------------------------------------------------------------------
# The operational documents of a simulated switch that the release decision reads.


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
        case ("evpn", "multihoming", "esi"):
            return list_segments(switch, now)
        case ("mlag",):
            return switch.planted.mlag or None
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


def list_segments(switch: Switch, now: float) -> Tree:
    """`nv show evpn multihoming esi -o json`, as NVIDIA's reference prints it."""
    listed: Tree = {}
    for bond in sorted(set(switch.bonded) & set(switch.operational["interface"])):
        identifier = find_segment(switch, bond)
        if not identifier:
            continue
        up = "on" if switch.link_up(bond, now) else "off"
        peers = [
            f"10.10.10.{number}"
            for number, leaf in enumerate(switch.overlay, 2)
            if leaf.is_up(now) and any(find_segment(leaf, b) == identifier for b in leaf.bonded)
        ]
        row = {
            "df-preference": 50000,
            "flags": {"bridge-port": "on", "local": "on", "oper-up": up, "ready-for-bgp": up},
            "local-interface": bond,
            "remote-vtep": {peer: {"df-algorithm": "preference"} for peer in peers},
            "vni-count": 1,
        }
        listed[identifier] = row | switch.planted.segments.get(bond, {})
    return listed


def find_segment(switch: Switch, bond: str) -> str:
    """The identifier of a bond's Ethernet segment: type 3, its MAC and its local number."""
    entry = switch.operational["interface"].get(bond, {}).get("evpn", {})
    segment = entry.get("multihoming", {}).get("segment", {})
    if "mac-address" not in segment:
        return ""
    local = f"{segment['local-id']:06x}"
    return ":".join(("03", segment["mac-address"].lower(), local[:2], local[2:4], local[4:]))


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
        neighbour = switch.neighbours.get(switch.bonded.get(name, (name,))[0])
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


# ------------------------------------------------------------------------------
# The documents of a simulated switch that are only operational: routes, images, health.


MODEL = "SN5600"


def build_operational(switch: Switch, parts: tuple[str, ...], now: float) -> SwitchTree | None:
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


def list_images(switch: Switch) -> SwitchTree:
    """Both partitions with their build ids, the running one and the next one to boot."""
    shown: SwitchTree = {"current": str(switch.current), "next": str(switch.next)}
    for number, version in switch.partitions.items():
        if version is not None:
            shown[f"partition{number}"] = {
                "build-id": version,
                "description": f"Cumulus Linux {'.'.join(version.split('.')[:3])}",
                "disk": f"/dev/sda{number + 4}",
                "release": ".".join(version.split(".")[:3]),
            }
    return shown


def report_health(switch: Switch) -> SwitchTree:
    """`OK`, or the issues of the faults in force."""
    issues = {}
    if "psu_failed" in switch.faults:
        issues["PSU1"] = {"issue": "not OK"}
    if "fan_missing" in switch.faults:
        issues["FAN2/1"] = {"issue": "missing"}
    issues |= {part: {"issue": text} for part, text in switch.planted.issues.items()}
    led = "amber" if issues else "green"
    return {"status": "Not OK" if issues else "OK", "status-led": led, "issues": issues}


def list_neighbours(switch: Switch, interface: str, now: float) -> SwitchTree:
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
# Source: Cumulus Linux guide, "Access Control List Configuration" (rules of a list are tried in the
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

    def read_document(self, parts: tuple[str, ...], now: float) -> SwitchTree | None:
        """The document at this path if it is operational only; else None."""
        document = build_operational(self.switch, parts, now)
        return self._document(parts, now) if document is None else document

    def _document(self, parts: tuple[str, ...], now: float) -> SwitchTree | None:
        match parts:
            case ("interface", name, "link", "stats") if name in (*self.switch.neighbours, "eth0"):
                return self._stats(name, now)
            case ("interface", name, "link", "phy", "health") if name in self.switch.neighbours:
                return {"raw-ber-lane0": "3E-8", "snr-media-lane0": "25.05 dB"}
            case ("interface", name, "counters", "qos") if name in self.switch.neighbours:
                return self._queues(name, now)
            case ("interface", name, "qos", "pfc-watchdog") if name in self.switch.neighbours:
                bad = name in self.switch.planted.stuck
                status = {str(n): {"status": "OK", "deadlock-count": 0} for n in range(8)}
                status["3"] = {"status": "DEADLOCK" if bad else "OK", "deadlock-count": int(bad)}
                return {"state": "enabled", "status": status}
            case ("platform", "transceiver", name) if name in self.switch.neighbours:
                return _module(self.switch.name, name) | self.switch.planted.optics.get(name, {})
            case ("vrf", "default", "router", "bgp", "neighbor"):
                return {n: {"state": s} for n, s in self._sessions(now)}
            case ("evpn", "vni"):
                return dict(self.switch.operational.get("evpn", {}).get("vni", {}))
            case ("platform", "firmware"):
                return {"ASIC": {"actual-firmware": "34.2014.1136"}}
            case ("router", "bgp"):
                configured = self.switch.applied.get("router", {}).get("bgp", {})
                unset: SwitchTree = {
                    "router": {"bgp": {"enable": "on", "graceful-shutdown": "off"}}
                }
                return {**take_over(self.switch.version, unset)["router"]["bgp"], **configured}
        return None

    def _sessions(self, now: float) -> Iterable[tuple[str, str]]:
        for name, neighbour in self.switch.neighbours.items():
            if neighbour.system.startswith(FABRIC_NAMES):
                up = self.switch.link_up(name, now)
                yield name, "established" if up else "idle"

    def _queues(self, name: str, now: float) -> SwitchTree:
        """NVUE's "counters qos" of one port: PFC frames of priority 3, marks, discards."""
        rate = self.switch.planted.pausing.get(name, 0.01)
        received = int(rate * max(0.0, now - 1_700_000_000.0))
        pfc = {str(n): {"rx-pause-frames": 0, "tx-pause-frames": 0} for n in range(8)}
        pfc["3"] = {"rx-pause-frames": received, "tx-pause-frames": 12}
        egress = {str(n): {"ecn-marked-frames": 0, "wred-discards": 0} for n in range(8)}
        return {"pfc-stats": pfc, "egress-queue-stats": egress}

    def _stats(self, name: str, now: float) -> SwitchTree:
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


def _module(switch: str, name: str) -> SwitchTree:
    """A 400G-DR4 module as NVUE shows it (NVUE Command Reference, "platform transceiver")."""
    limits = {
        "high-alarm-threshold": "7.00 dBm",
        "low-alarm-threshold": "-9.01 dBm",
        "high-warning-threshold": "4.00 dBm",
        "low-warning-threshold": "-6.00 dBm",
    }
    lane = {
        "rx-power": {"power": "1.2023 mW / 0.80 dBm", **limits},
        "tx-power": {"power": "1.1481 mW / 0.60 dBm", **limits},
        "tx-bias-current": {"current": "62.000 mA"},
    }
    return {
        "cable-type": "Optical module",
        "status": "plugged_enabled",
        "identifier": "QSFP112",
        "vendor-name": "NVIDIA",
        "vendor-pn": "MMS4X00-NS400",
        "vendor-sn": f"MT{_number(switch + name):08d}",
        "vendor-date-code": "240315__",
        "temperature": {
            "temperature": "41.00 C",
            "high-alarm-threshold": "80.00 C",
            "low-alarm-threshold": "-10.00 C",
        },
        "channel": {f"channel-{n}": lane for n in range(1, 5)},
    }


def _number(name: str) -> int:
    """A number of a name, the same in every process."""
    return crc32(name.encode()) % 100_000_000


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
