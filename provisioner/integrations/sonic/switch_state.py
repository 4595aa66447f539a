"""The state of a SONiC switch: commands, and readings of their outputs.

None stands for an output that cannot be read; it is never an empty answer. Sources:
sonic-utilities, doc/Command-Reference.md (system-health, TSA, TSB and TSC) and scripts/fdbshow
(`show mac`); sonic-swss-common, the
tables of COUNTERS_DB; FRR's and iproute2's own JSON; lldpd's `lldpctl -f json`.
"""

from __future__ import annotations

import ast
import ipaddress
import re
import shlex
from typing import Any

from provisioner.integrations.sonic.config_db import own_vrf, sonic_vrf
from provisioner.model.location import is_ip_address
from provisioner.model.recovery import NeighbourState, PeerState, RouteState, VniState
from provisioner.model.switch import DEFAULT_VRF, Heard

ENTRIES_MAX = 200_000
PORTS_MAX = 1024
TEXT_MAX = 1_000_000  # characters of a table of a database

HEALTH = "show system-health summary"
NEIGHBOURS = "ip -j neigh show"
MACS = "show mac"
VNIS = "vtysh -c 'show evpn vni json'"
LLDP = "docker exec lldp lldpctl -f json"
MODE = "TSC no-stats"
SERIAL = "decode-syseeprom -s"
PORT_IDS = "sonic-db-cli COUNTERS_DB HGETALL COUNTERS_PORT_NAME_MAP"
REBOOT = "systemd-run --on-active=2 --timer-property=AccuracySec=1s reboot"

_COUNTED = (
    "SAI_PORT_STAT_IF_IN_OCTETS",
    "SAI_PORT_STAT_IF_OUT_OCTETS",
    "SAI_PORT_STAT_IF_IN_ERRORS",
)
_MODE = re.compile(r"^System Mode: (Normal|Maintenance)\s*$", re.MULTILINE)
_OID = re.compile(r"oid:0x[0-9a-f]{1,16}")
_ADDRESS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_ROW = re.compile(
    r"^ *\d+ +\S+ +((?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}) +(\S+)(?: +\S+)* *$", re.MULTILINE
)
_MACS_END = re.compile(r"^Total number of entries (\d{1,6})\s*$", re.MULTILINE)
_STATUS = re.compile(r"^\s+Status: *(\S.*?)\s*$", re.MULTILINE)


def build_isolation_command(*, on: bool) -> str:
    """Traffic shift away, or back: BGP's neighbours go around this switch."""
    return "TSA" if on else "TSB"


def set_default(image: str) -> str:
    """The image that boots from now on."""
    return f"sonic-installer set-default {shlex.quote(image)}"


def build_routes_query(vrf: str, family: str) -> str:
    """FRR's routes of one VRF: it knows which are offloaded."""
    name = sonic_vrf(vrf)
    of = "" if name == DEFAULT_VRF else f" vrf {name}"
    words = f"show {'ip' if family == 'ipv4' else 'ipv6'} route{of} json"
    return f"vtysh -c {shlex.quote(words)}"


def build_peers_query(vrf: str) -> str:
    """BGP sessions of one VRF, in all families."""
    return f"vtysh -c {shlex.quote(f'show bgp vrf {sonic_vrf(vrf)} summary json')}"


def build_leaks_query(vrf: str, family: str) -> str:
    """What a VRF imports from others."""
    words = f"show bgp vrf {sonic_vrf(vrf)} {family} unicast route-leak json"
    return f"vtysh -c {shlex.quote(words)}"


def build_targets_query(vni: str) -> str:
    """Route targets of one VNI."""
    return f"vtysh -c {shlex.quote(f'show bgp l2vpn evpn vni {vni} json')}"


def build_counters_query(oid: str) -> str:
    """All counters of one port."""
    return f"sonic-db-cli COUNTERS_DB HGETALL COUNTERS:{oid}"


def read_drained(text: str) -> bool | None:
    """`TSC`: whether traffic is shifted away. Not consistent, or no neighbour: unreadable."""
    modes = set(_MODE.findall(text))
    return None if len(modes) != 1 else modes == {"Maintenance"}


def read_health(text: str) -> tuple[str, ...] | None:
    """Return the lines of services and hardware that are not OK; () if all are."""
    states = _STATUS.findall(text)
    if len(states) < 2:
        return None
    if all(status == "OK" for status in states):
        return ()
    wrong = tuple(line.strip()[:80] for line in text.splitlines() if "Not " in line)[:5]
    return wrong or ("not OK",)


def read_neighbours(answer: Any) -> tuple[NeighbourState, ...] | None:
    """Return ARP and neighbour discovery. An entry without a MAC is no neighbour."""
    if not isinstance(answer, list) or len(answer) > ENTRIES_MAX:
        return None
    entries = []
    for entry in answer:
        try:
            address = ipaddress.ip_address(entry["dst"])
            interface = str(entry["dev"])
            mac = entry.get("lladdr")
        except (TypeError, KeyError, ValueError, AttributeError):
            return None
        if isinstance(mac, str):
            entries.append(NeighbourState(interface, str(address), mac.lower()))
    return tuple(entries)


def read_macs(text: str) -> dict[str, str] | None:
    """Return MAC -> port of the forwarding database; None if its total is not its rows' number.

    A row behind a tunnel has addresses in the place of its port, on lines of their own.
    """
    if len(text) > TEXT_MAX:
        return None
    totals = _MACS_END.findall(text)
    rows = _ROW.findall(text)
    if not totals or len(rows) != sum(int(t) for t in totals):
        return None
    return {mac.lower(): port for mac, port in rows if not is_ip_address(port)}


def read_routes(answer: Any) -> tuple[RouteState, ...] | None:
    """Return FRR's routes with protocol and flags."""
    if not isinstance(answer, dict) or len(answer) > ENTRIES_MAX:
        return None
    routes = []
    for prefix, entries in answer.items():
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            return None
        try:
            network = str(ipaddress.ip_network(prefix, strict=False))
        except ValueError:
            return None
        for entry in entries:
            hops = entry.get("nexthops")
            listed = hops if isinstance(hops, list) else []
            routes.append(
                RouteState(
                    network,
                    str(entry.get("protocol")),
                    selected=entry.get("selected") is True,
                    offloaded=entry.get("offloaded") is True,
                    via=tuple(
                        sorted(
                            {
                                own_vrf(hop["vrf"])
                                for hop in listed
                                if isinstance(hop, dict) and isinstance(hop.get("vrf"), str)
                            }
                        )
                    ),
                )
            )
    return tuple(routes)


def read_peers(answer: Any) -> dict[str, PeerState] | None:
    """Return sessions by neighbour; in several families, the worst state counts."""
    if not isinstance(answer, dict):
        return None
    peers: dict[str, PeerState] = {}
    for family in answer.values():
        listed = family.get("peers") if isinstance(family, dict) else None
        if not isinstance(listed, dict) or len(listed) > PORTS_MAX:
            return None
        for peer, entry in listed.items():
            state = entry.get("state") if isinstance(entry, dict) else None
            if not isinstance(state, str):
                return None
            before = peers.get(peer, PeerState("established"))
            worst = state.lower() if before.state == "established" else before.state
            peers[peer] = PeerState(worst, entry.get("dynamicPeer") is True)
    return peers


def read_leaks(answer: Any) -> frozenset[str] | None:
    """Return the VRFs whose routes are taken in, of one family."""
    listed = answer.get("importFromVrfs", []) if isinstance(answer, dict) else None
    if not isinstance(listed, list) or not all(isinstance(v, str) for v in listed):
        return None
    return frozenset(own_vrf(v) for v in listed)


def read_vnis(answer: Any) -> dict[str, str] | None:
    """Return VNI -> the fabric's name of its VRF; "" for one that bridges."""
    if not isinstance(answer, dict) or len(answer) > PORTS_MAX:
        return None
    if not all(isinstance(entry, dict) for entry in answer.values()):
        return None
    l3 = {v: e.get("tenantVrf") if e.get("type") == "L3" else "" for v, e in answer.items()}
    return {v: own_vrf(str(name or "")) for v, name in l3.items()}


def read_targets(answer: Any) -> VniState | None:
    """Return the route targets of a VNI."""
    sets = []
    for name in ("importRts", "exportRts"):
        listed = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(listed, list) or not all(isinstance(t, str) for t in listed):
            return None
        sets.append(frozenset(listed))
    return VniState(imports=sets[0], exports=sets[1])


def read_lldp(answer: Any, port: str) -> frozenset[tuple[str, str]] | None:
    """Return (system, port) of each device that one port hears."""
    lldp = answer.get("lldp") if isinstance(answer, dict) else None
    listed = lldp.get("interface", []) if isinstance(lldp, dict) else None
    if listed is None:
        return None
    neighbours = set()
    for entry in listed if isinstance(listed, list) else [listed]:
        heard = entry.get(port) if isinstance(entry, dict) else None
        if not isinstance(heard, dict):
            continue
        chassis = heard.get("chassis")
        remote = heard.get("port")
        system = next(iter(chassis), None) if isinstance(chassis, dict) else None
        ident = remote.get("id") if isinstance(remote, dict) else None
        name = ident.get("value") if isinstance(ident, dict) else None
        if isinstance(system, str) and isinstance(name, str):
            neighbours.add((system, name))
    return frozenset(neighbours)


def read_heard(answer: Any) -> dict[str, frozenset[Heard]] | None:
    """Return who is heard at each port, with the chassis id where it is a MAC."""
    lldp = answer.get("lldp") if isinstance(answer, dict) else None
    listed = lldp.get("interface", []) if isinstance(lldp, dict) else None
    if listed is None:
        return None
    entries = listed if isinstance(listed, list) else [listed]
    ports = dict.fromkeys(p for e in entries[:PORTS_MAX] if isinstance(e, dict) for p in e)
    heard: dict[str, frozenset[Heard]] = {}
    for port in list(ports)[:PORTS_MAX]:
        chassis = [e[port].get("chassis") for e in entries if _is_heard(e, port)]
        macs = {s: _read_mac(v) for c in chassis if isinstance(c, dict) for s, v in c.items()}
        named = read_lldp(answer, port) or frozenset()
        heard[port] = frozenset(Heard(s, name, macs.get(s, "")) for s, name in named)
    return heard


def _is_heard(entry: Any, port: str) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get(port), dict)


def _read_mac(chassis: Any) -> str:
    ident = chassis.get("id") if isinstance(chassis, dict) else None
    value = ident.get("value") if isinstance(ident, dict) else None
    text = value.lower() if isinstance(value, str) else ""
    return text if _ADDRESS.fullmatch(text) else ""


def read_hash(text: str) -> dict[str, str] | None:
    """Return a hash as sonic-db-cli prints it: a dictionary in Python's spelling."""
    if len(text) > TEXT_MAX:
        return None
    try:
        parsed = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    good = isinstance(parsed, dict) and all(isinstance(w, str) for p in parsed.items() for w in p)
    return parsed if good else None


def read_port_id(text: str, port: str) -> str | None:
    """Return the counters' name of a port."""
    oid = (read_hash(text) or {}).get(port, "")
    return oid if _OID.fullmatch(oid) else None


def read_counters(text: str) -> tuple[int, int, int] | None:
    """Return bytes in, bytes out and damaged frames received of one port."""
    values = [(read_hash(text) or {}).get(name, "") for name in _COUNTED]
    if not all(v.isascii() and v.isdigit() and len(v) <= 20 for v in values):
        return None
    return (int(values[0]), int(values[1]), int(values[2]))
