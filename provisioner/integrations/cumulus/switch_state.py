"""The state of Cumulus Linux for the gate of a release: paths, and readings of answers.

Rule: an answer that cannot be read raises `Unreadable`; it is never taken for an empty one. Paths
follow the commands that NVIDIA documents: `nv show vrf V router rib ipv4 route`, `nv show vrf V
router bgp neighbor`, `nv show evpn vni N bgp-info`, `nv show interface neighbor` (since 5.7; a
view, whose REST form is documented nowhere and must be tried on a real switch), `nv show bridge
domain D mac-table`, `nv show qos roce`, `nv show router adaptive-routing`, `nv show system health`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from provisioner.integrations.cumulus.nvue_calls import PREFIX, ROUTES_MAX
from provisioner.model.recovery import (
    BondState,
    NeighbourState,
    PeerState,
    PortState,
    RouteState,
    VniState,
)
from provisioner.model.switch import DEFAULT_VRF, Heard
from provisioner.ports.wire import UNREADABLE

NOW = "rev=operational"
NEIGHBOURS_PATH = f"{PREFIX}/interface?{NOW}&view=neighbor"
VNIS_PATH = f"{PREFIX}/evpn/vni?{NOW}"
BRIDGES_PATH = f"{PREFIX}/bridge/domain?{NOW}"
QOS_PATH = f"{PREFIX}/qos/roce?{NOW}"
ADAPTIVE_PATH = f"{PREFIX}/router/adaptive-routing?{NOW}"
ACLS_PATH = f"{PREFIX}/acl?{NOW}"
HEALTH_PATH = f"{PREFIX}/system/health?{NOW}"
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
FAMILIES = ("ipv4", "ipv6")
ENTRIES_MAX = 200_000  # of neighbours, MACs; a leaf's tables hold fewer


class Unreadable(ValueError):
    """An answer that says nothing that could be relied upon."""


def rib_path(vrf: str, family: str) -> str:
    """The routes of one VRF and one family."""
    return f"{PREFIX}/vrf/{quote(vrf, safe='')}/router/rib/{family}/route?{NOW}"


def peers_path(vrf: str) -> str:
    """The BGP sessions of one VRF."""
    return f"{PREFIX}/vrf/{quote(vrf, safe='')}/router/bgp/neighbor?{NOW}"


def families_path(vrf: str) -> str:
    """Return the path of the imports of one VRF, by address family."""
    return f"{PREFIX}/vrf/{quote(vrf, safe='')}/router/bgp/address-family?{NOW}"


def vrf_vnis_path(vrf: str) -> str:
    """Which VNIs the routes of one VRF go by."""
    return f"{PREFIX}/vrf/{quote(vrf, safe='')}/evpn?{NOW}"


def targets_path(vni: str) -> str:
    """Route targets of one VNI."""
    return f"{PREFIX}/evpn/vni/{quote(vni, safe='')}/bgp-info?{NOW}"


def macs_path(bridge: str) -> str:
    """The forwarding database of one bridge."""
    return f"{PREFIX}/bridge/domain/{quote(bridge, safe='')}/mac-table?{NOW}"


def lldp_path(interface: str) -> str:
    """Whom a port hears."""
    return f"{PREFIX}/interface/{quote(interface, safe='')}/lldp/neighbor?{NOW}"


def counters_path(interface: str) -> str:
    """Return the path of the counters of a port."""
    return f"{PREFIX}/interface/{quote(interface, safe='')}/link/stats?{NOW}"


def port_qos_path(interface: str) -> str:
    """Return the path of the RoCE state of a port: `nv show interface swp1 qos roce status`."""
    return f"{PREFIX}/interface/{quote(interface, safe='')}/qos/roce/status?{NOW}"


def digest(document: Any) -> str:
    """SHA-256 of the canonical JSON; "" of nothing."""
    if document is None or document == {}:
        return ""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def find_unsaved(applied: Any, startup: Any) -> frozenset[str]:
    """Interfaces that the switch would start with otherwise than is applied; "": anything else."""
    now = find_object(applied, "interface")
    then = find_object(startup, "interface")
    ports = {name for name in {*now} | {*then} if now.get(name) != then.get(name)}
    rest = [
        {k: v for k, v in find_object(tree).items() if k != "interface"}
        for tree in (applied, startup)
    ]
    return frozenset(ports if rest[0] == rest[1] else {*ports, ""})


def find_object(document: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at this path; {} if there is none. Raises `Unreadable` for another form."""
    for key in path:
        if not isinstance(document, Mapping):
            raise Unreadable(f"no object on the way to {'/'.join(path)}")
        document = document.get(key, {})
        if document is None:
            document = {}
    if not isinstance(document, Mapping):
        raise Unreadable(f"{'/'.join(path) or 'the answer'}: no object")
    return document


def read_routes(answer: Any) -> tuple[RouteState, ...]:
    """Routes with their flags: selected, offloaded (`S` and `o` of `nv show`)."""
    table = find_object(answer)
    if len(table) > ROUTES_MAX:
        raise Unreadable("more routes than a leaf can hold")
    return tuple(route for prefix in table for route in _routes(prefix, table[prefix]))


def _routes(prefix: str, entry: Any) -> Iterator[RouteState]:
    try:
        network = str(ipaddress.ip_network(prefix, strict=False))
    except ValueError:
        raise Unreadable(f"{prefix!r:.50} is no prefix") from None
    protocols = find_object(entry, "protocol")
    if not protocols:  # some releases list prefixes without details: then nothing is known of it
        yield RouteState(network, "", selected=False, offloaded=False)
    for protocol, entry_fields in protocols.items():
        for one in find_object(entry_fields, "entry-index").values():
            flags = find_object(one, "flags")
            via = find_object(one, "via")
            named = {
                str(hop["vrf"]) for hop in via.values() if isinstance(hop, dict) and "vrf" in hop
            }
            yield RouteState(
                network,
                str(protocol),
                selected="selected" in flags,
                offloaded="offloaded" in flags,
                via=tuple(sorted(named)),
            )


def read_peers(answer: Any) -> dict[str, PeerState]:
    """Return BGP sessions; a state is in lower case, "" if the switch names none."""
    readings = {}
    for peer, entry in find_object(answer).items():
        fields = find_object(answer, peer)
        state = fields.get("state", "")
        dynamic = fields.get("dynamic") in (True, "on", "yes") or fields.get("type") == "dynamic"
        readings[peer] = PeerState(str(state).lower() if isinstance(entry, dict) else "", dynamic)
    return readings


def read_imports(answer: Any) -> frozenset[str]:
    """VRFs whose routes are taken in, in either family."""
    readings: set[str] = set()
    for family in find_object(answer):
        fields = find_object(answer, family, "route-import", "from-vrf")
        readings |= set(find_object(fields, "list"))
    return frozenset(readings)


def read_targets(answer: Any) -> VniState:
    """Return the route targets of a VNI from `bgp-info`."""
    return VniState(
        imports=frozenset(find_object(answer, "import-route-target")),
        exports=frozenset(find_object(answer, "export-route-target")),
    )


def read_neighbours(answer: Any) -> tuple[NeighbourState, ...]:
    """Every entry of ARP and neighbour discovery."""
    readings = []
    for interface in find_object(answer):
        for family in FAMILIES:
            entries = find_object(answer, interface, "ip", "neighbor", family)
            for address, entry in entries.items():
                mac = entry.get("lladdr", "") if isinstance(entry, dict) else None
                if not isinstance(mac, str):
                    raise Unreadable(f"neighbour {address!r:.50} on {interface[:20]}")
                readings.append(NeighbourState(interface, address, mac.lower()))
    if len(readings) > ENTRIES_MAX:
        raise Unreadable("more neighbours than a leaf can hold")
    return tuple(readings)


def read_macs(answer: Any) -> dict[str, str]:
    """MAC -> interface."""
    readings = {}
    for entry in find_object(answer).values():
        if not isinstance(entry, dict) or not isinstance(entry.get("mac"), str):
            raise Unreadable("an entry of the MAC table without a MAC")
        readings[entry["mac"].lower()] = str(entry.get("interface", ""))
    return readings


def read_lldp(answer: Any) -> frozenset[tuple[str, str]]:
    """(system, port) of everybody who is heard."""
    readings = set()
    for system in find_object(answer):
        port = find_object(answer, system, "port").get("name", "")
        readings.add((system, str(port)))
    return frozenset(readings)


def read_heard(answer: Any) -> frozenset[Heard]:
    """Return everybody who is heard, with the chassis id where it is a MAC."""
    readings = set()
    for system in find_object(answer):
        port = find_object(answer, system, "port").get("name", "")
        chassis = str(find_object(answer, system, "chassis").get("chassis-id", "")).lower()
        mac = chassis if MAC.fullmatch(chassis) else ""
        readings.add(Heard(system, str(port), mac))
    return frozenset(readings)


def read_issues(answer: Any) -> tuple[str, ...]:
    """Return the issues of the switch; () only where it reports OK."""
    health = find_object(answer)
    issues = tuple(
        f"{part}: {entry.get('issue', '') if isinstance(entry, dict) else entry}"[:120]
        for part, entry in sorted(find_object(health, "issues").items())
    )
    if health.get("status") == "OK":
        return issues
    return issues or (f"status {health.get('status')!r:.40}",)


def read_number(value: Any) -> int | None:
    """A count, also where it is written as text ("300 Bytes" is not one)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None


def read_port(
    entry: Any,
    meant: Sequence[Any],
    neighbours: frozenset[tuple[str, str]],
    counters: Any,
    qos: Any = None,
    bond: BondState | None = None,
) -> PortState:
    """One port from its operational entry, its applied one and those on their way (`meant`), LLDP
    and counters.
    """
    ip = find_object(entry, "ip")
    link = find_object(entry, "link")
    acl = find_object(entry, "acl")
    state = link.get("state")
    mtu = link.get("mtu")
    counted = find_object(counters)
    return PortState(
        vrf=vrf_of(entry),
        applied_vrf=vrf_of(meant[0]),
        coming=frozenset(vrf_of(m) for m in meant[1:]),
        up=state == "up" or (isinstance(state, Mapping) and "up" in state),
        mtu=read_number(mtu),
        addresses=frozenset(find_object(ip, "address")),
        acls=frozenset((name, way) for name in acl for way in find_object(acl, name)),
        neighbours=neighbours,
        transitions=read_number(counted.get("carrier-transitions")),
        in_bytes=read_number(counted.get("in-bytes")),
        out_bytes=read_number(counted.get("out-bytes")),
        in_errors=read_number(counted.get("in-errors")),
        qos=digest(qos),
        bond=bond,
    )


def vrf_of(entry: Any) -> str:
    """VRF of an interface; the default one if it names none."""
    vrf = find_object(entry, "ip").get("vrf", "")
    if not isinstance(vrf, str) or UNREADABLE in vrf:
        raise Unreadable("a VRF that is no name")
    return vrf or DEFAULT_VRF


def configured_targets(applied: Any) -> dict[str, VniState]:
    """VRF -> the route targets that its configuration names; only where it names any."""
    readings = {}
    for vrf in find_object(applied, "vrf"):
        bgp = find_object(applied, "vrf", vrf, "router", "bgp")
        state = VniState(
            imports=frozenset(find_object(bgp, "route-import", "from-evpn", "route-target")),
            exports=frozenset(find_object(bgp, "route-export", "to-evpn", "route-target")),
        )
        if state.imports or state.exports:
            readings[vrf] = state
    return readings


def configured_peers(applied: Any) -> dict[str, frozenset[str]]:
    """VRF -> the sessions that its configuration names."""
    vrfs = find_object(applied, "vrf")
    return {v: frozenset(find_object(vrfs, v, "router", "bgp", "neighbor")) for v in vrfs}


def find_listening_vrfs(applied: Any) -> frozenset[str]:
    """VRFs whose BGP accepts sessions from a whole range (`dynamic-neighbor listen-range`)."""
    vrfs = find_object(applied, "vrf")
    path = ("router", "bgp", "dynamic-neighbor", "listen-range")
    return frozenset(v for v in vrfs if find_object(vrfs, v, *path))
