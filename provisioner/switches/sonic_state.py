"""How a SONiC switch tells its state: commands, and their answers in the words of NVUE's tree.

None is what cannot be read; it is never an empty answer. Sources: sonic-utilities,
doc/Command-Reference.md (system-health, TSA, TSB and TSC); sonic-swss-common, the tables of
COUNTERS_DB; FRR's and iproute2's own JSON; lldpd's `lldpctl -f json`. VRFs: with `Vrf` before.
"""

from __future__ import annotations

import ast
import ipaddress
import re
import shlex
from collections.abc import Mapping
from typing import Any

from provisioner.switches.sonic import own_vrf, sonic_vrf

ENTRIES_MAX = 200_000
PORTS_MAX = 1024
TEXT_MAX = 1_000_000  # characters of a table of a database

HEALTH = "show system-health summary"
NEIGHBOURS = "ip -j neigh show"
VNIS = "vtysh -c 'show evpn vni json'"
LLDP = "docker exec lldp lldpctl -f json"
MODE = "TSC no-stats"
SERIAL = "decode-syseeprom -s"
PORT_IDS = "sonic-db-cli COUNTERS_DB HGETALL COUNTERS_PORT_NAME_MAP"
REBOOT = "systemd-run --on-active=2 --timer-property=AccuracySec=1s reboot"

_COUNTED = {
    "in-bytes": "SAI_PORT_STAT_IF_IN_OCTETS",
    "out-bytes": "SAI_PORT_STAT_IF_OUT_OCTETS",
    "in-errors": "SAI_PORT_STAT_IF_IN_ERRORS",
}
_MODE = re.compile(r"^System Mode: (Normal|Maintenance)\s*$", re.MULTILINE)
_OID = re.compile(r"oid:0x[0-9a-f]{1,16}")
_STATUS = re.compile(r"^\s+Status: *(\S.*?)\s*$", re.MULTILINE)

Tree = dict[str, Any]


def isolate(*, on: bool) -> str:
    """Traffic shift away, or back: BGP's neighbours go around this switch."""
    return "TSA" if on else "TSB"


def set_default(image: str) -> str:
    """The image that boots from now on."""
    return f"sonic-installer set-default {shlex.quote(image)}"


def routes(vrf: str, family: str) -> str:
    """FRR's routes of one VRF: it knows which are offloaded."""
    name = sonic_vrf(vrf)
    of = "" if name == "default" else f" vrf {name}"
    words = f"show {'ip' if family == 'ipv4' else 'ipv6'} route{of} json"
    return f"vtysh -c {shlex.quote(words)}"


def peers(vrf: str) -> str:
    """BGP sessions of one VRF, in all families."""
    return f"vtysh -c {shlex.quote(f'show bgp vrf {sonic_vrf(vrf)} summary json')}"


def leaks(vrf: str, family: str) -> str:
    """What a VRF imports from others."""
    words = f"show bgp vrf {sonic_vrf(vrf)} {family} unicast route-leak json"
    return f"vtysh -c {shlex.quote(words)}"


def targets(vni: str) -> str:
    """Route targets of one VNI."""
    return f"vtysh -c {shlex.quote(f'show bgp l2vpn evpn vni {vni} json')}"


def counters(oid: str) -> str:
    """All counters of one port."""
    return f"sonic-db-cli COUNTERS_DB HGETALL COUNTERS:{oid}"


def read_drained(text: str) -> Tree | None:
    """`TSC`: whether traffic is shifted away. Not consistent, or no neighbour: unreadable."""
    modes = _MODE.findall(text)
    if len(set(modes)) != 1:
        return None
    return {"graceful-shutdown": "on" if modes[0] == "Maintenance" else "off"}


def read_health(text: str) -> Tree | None:
    """Services and hardware: OK, or which line is not."""
    found = _STATUS.findall(text)
    if len(found) < 2:
        return None
    if all(status == "OK" for status in found):
        return {"status": "OK", "issues": {}}
    wrong = [line.strip()[:80] for line in text.splitlines() if "Not " in line][:5]
    return {"status": "Not OK", "issues": {line: {"issue": "not OK"} for line in wrong}}


def read_neighbours(answer: Any) -> Tree | None:
    """ARP and neighbour discovery, by interface. What failed to answer is no neighbour."""
    if not isinstance(answer, list) or len(answer) > ENTRIES_MAX:
        return None
    found: Tree = {}
    for entry in answer:
        try:
            address = ipaddress.ip_address(entry["dst"])
            interface, mac = str(entry["dev"]), entry.get("lladdr")
        except (TypeError, KeyError, ValueError, AttributeError):
            return None
        if not isinstance(mac, str):
            continue
        ip = found.setdefault(interface, {"ip": {"neighbor": {}}})["ip"]["neighbor"]
        ip.setdefault(f"ipv{address.version}", {})[str(address)] = {"lladdr": mac}
    return found


def read_routes(answer: Any) -> Tree | None:
    """FRR's routes with protocol and flags."""
    if not isinstance(answer, dict) or len(answer) > ENTRIES_MAX:
        return None
    found: Tree = {}
    for prefix, entries in answer.items():
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            return None
        told: Tree = {}
        for number, entry in enumerate(entries, 1):
            flags: Tree = {
                f: {} for f in ("selected", "installed", "offloaded") if entry.get(f) is True
            }
            via = {
                str(hop.get("interfaceName") or hop.get("ip") or at): {"vrf": own_vrf(hop["vrf"])}
                for at, hop in enumerate(_listed(entry.get("nexthops")))
                if isinstance(hop, dict) and isinstance(hop.get("vrf"), str)
            }
            kind = told.setdefault(str(entry.get("protocol")), {"entry-index": {}})
            kind["entry-index"][str(number)] = {"flags": flags, "via": via}
        found[prefix] = {"protocol": told}
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def read_peers(answer: Any) -> Tree | None:
    """Sessions by neighbour; in several families, the worst state counts."""
    if not isinstance(answer, dict):
        return None
    found: Tree = {}
    for family in answer.values():
        listed = family.get("peers") if isinstance(family, dict) else None
        if not isinstance(listed, dict) or len(listed) > PORTS_MAX:
            return None
        for peer, entry in listed.items():
            state = entry.get("state") if isinstance(entry, dict) else None
            if not isinstance(state, str):
                return None
            seen = found.get(peer, {"state": "established"})
            worst = state.lower() if seen["state"] == "established" else seen["state"]
            found[peer] = {"state": worst, "dynamic": entry.get("dynamicPeer") is True}
    return found


def read_leaks(answers: Mapping[str, Any]) -> Tree | None:
    """By family: which VRFs' routes are taken in."""
    found: Tree = {}
    for family, answer in answers.items():
        listed = answer.get("importFromVrfs", []) if isinstance(answer, dict) else None
        if not isinstance(listed, list) or not all(isinstance(v, str) for v in listed):
            return None
        named: Tree = {own_vrf(v): {} for v in listed}
        found[f"{family}-unicast"] = {"route-import": {"from-vrf": {"list": named}}}
    return found


def read_vnis(answer: Any) -> dict[str, str] | None:
    """VNI -> our name of its VRF; "" for one that bridges."""
    if not isinstance(answer, dict) or len(answer) > PORTS_MAX:
        return None
    if not all(isinstance(entry, dict) for entry in answer.values()):
        return None
    l3 = {v: e.get("tenantVrf") if e.get("type") == "L3" else "" for v, e in answer.items()}
    return {v: own_vrf(str(name or "")) for v, name in l3.items()}


def read_targets(answer: Any) -> Tree | None:
    """Route targets of a VNI, as `bgp-info` of Cumulus has them."""
    found: Tree = {}
    for ours, theirs in (("import", "importRts"), ("export", "exportRts")):
        listed = answer.get(theirs) if isinstance(answer, dict) else None
        if not isinstance(listed, list) or not all(isinstance(t, str) for t in listed):
            return None
        found[f"{ours}-route-target"] = {target: {} for target in listed}
    return found


def read_lldp(answer: Any, port: str) -> Tree | None:
    """Who is heard at one port: system and its port."""
    lldp = answer.get("lldp") if isinstance(answer, dict) else None
    listed = lldp.get("interface", []) if isinstance(lldp, dict) else None
    if listed is None:
        return None
    entries = listed if isinstance(listed, list) else [listed]
    found: Tree = {}
    for entry in entries:
        told = entry.get(port) if isinstance(entry, dict) else None
        if not isinstance(told, dict):
            continue
        chassis = told.get("chassis")
        system = next(iter(chassis), None) if isinstance(chassis, dict) else None
        known = told.get("port")
        ident = known.get("id") if isinstance(known, dict) else None
        name = ident.get("value") if isinstance(ident, dict) else None
        if isinstance(system, str) and isinstance(name, str):
            found[system] = {"port": {"name": name}}
    return found


def read_hash(text: str) -> dict[str, str] | None:
    """A hash as sonic-db-cli prints it: a dictionary in Python's spelling."""
    if len(text) > TEXT_MAX:
        return None
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    good = isinstance(found, dict) and all(isinstance(w, str) for p in found.items() for w in p)
    return found if good else None


def read_port_id(text: str, port: str) -> str | None:
    """The counters' name of a port."""
    oid = (read_hash(text) or {}).get(port, "")
    return oid if _OID.fullmatch(oid) else None


def read_counters(text: str) -> Tree | None:
    """Bytes in and out of one port, and what came in broken."""
    found = read_hash(text) or {}
    values = {ours: found.get(theirs, "") for ours, theirs in _COUNTED.items()}
    if not all(v.isascii() and v.isdigit() and len(v) <= 20 for v in values.values()):
        return None
    return {name: int(value) for name, value in values.items()}
