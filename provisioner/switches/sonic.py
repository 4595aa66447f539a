"""How SONiC speaks: commands to run on the switch, and its answers in the words of NVUE's tree.

Rules: names of VRFs begin with "Vrf" on SONiC, so a tenant's VRF RED is VrfRED there; and where a
port is, the kernel says, not CONFIG_DB, which is an intention. Sources: sonic-net, the documents
"Generic Config Update and Rollback", "VRF support", and sonic-utilities' Command-Reference.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

PREFIX = "Vrf"
OWN = ("default", "mgmt")  # VRFs that have the same name everywhere
TABLES_MAX = 1000  # of CONFIG_DB; a leaf has some 60
DESCRIPTION_MAX = 255
LINKS_MAX = 20_000  # of the kernel

CONFIGURATION = "sonic-cfggen -d --print-data"
STARTUP = "cat /etc/sonic/config_db.json"
LINKS = "ip -j -d addr show"
IMAGES = "sonic-installer list"
SAVE = "config save -y"

_IMAGE_LINE = re.compile(r"(Current|Next): *(\S+)")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")

Tree = dict[str, Any]


def sonic_vrf(name: str) -> str:
    """SONiC's name of a VRF."""
    return name if name in OWN or name.startswith(PREFIX) else PREFIX + name


def own_vrf(name: str) -> str:
    """Our name of a VRF of SONiC's."""
    return name.removeprefix(PREFIX) or name


def apply_patch(steps: list[Tree]) -> str:
    """The command that applies a patch whole or not at all."""
    text = shlex.quote(json.dumps(steps))
    return (
        f'f=$(mktemp) && printf %s {text} >"$f" && config apply-patch "$f"; '
        'r=$?; rm -f "$f"; exit $r'
    )


def read_tree(config: Any) -> Tree | None:
    """VRFs and ports of a CONFIG_DB as NVUE would show them; None if it is none."""
    if not isinstance(config, dict) or len(config) > TABLES_MAX:
        return None
    if not all(isinstance(rows, dict) for rows in config.values()):
        return None
    interfaces: Tree = {port: {"ip": {"vrf": "default"}} for port in config.get("PORT", {})}
    for key, row in config.get("INTERFACE", {}).items():
        port, _, address = key.partition("|")
        if port not in interfaces or not isinstance(row, dict):
            continue
        ip = interfaces[port]["ip"]
        if address:
            ip.setdefault("address", {})[address] = {}
        elif row.get("vrf_name"):
            ip["vrf"] = own_vrf(str(row["vrf_name"]))
    for port, entry in interfaces.items():
        row = config["PORT"][port]
        if isinstance(row, dict) and row.get("description"):
            entry["description"] = str(row["description"])
    vrfs: Tree = {"default": {}, **{own_vrf(name): {} for name in config.get("VRF", {})}}
    return {"vrf": vrfs, "interface": interfaces}


def read_operational(links: Any, tree: Tree) -> Tree | None:
    """`tree` with each port's VRF as the kernel has it; a port without a link is left out."""
    if not isinstance(links, list) or len(links) > LINKS_MAX:
        return None
    found: Tree = {}
    vrfs: Tree = {"default": {}}
    for link in links:
        if not isinstance(link, dict) or not isinstance(link.get("ifname"), str):
            return None
        name, info = link["ifname"], link.get("linkinfo")
        if isinstance(info, dict) and info.get("info_kind") == "vrf":
            vrfs[own_vrf(name)] = {}
        if name in tree["interface"]:
            up = link.get("operstate") == "UP"
            master = own_vrf(str(link.get("master") or "default"))
            state: Tree = {"up" if up else "down": {}}
            addresses = _addresses(link.get("addr_info", []))
            ip: Tree = {"vrf": master} | ({"address": addresses} if addresses else {})
            found[name] = {"ip": ip, "link": {"state": state, "mtu": link.get("mtu")}}
    return {"vrf": vrfs, "interface": found}


def _addresses(listed: Any) -> Tree:
    entries = listed if isinstance(listed, list) else []
    return {
        f"{e['local']}/{e['prefixlen']}": {}
        for e in entries
        if isinstance(e, dict) and "local" in e and "prefixlen" in e and e.get("scope") != "link"
    }


def read_platform(config: Any, serial: str) -> Tree | None:
    """What the switch is: its SKU from CONFIG_DB, its serial from the EEPROM."""
    metadata = config.get("DEVICE_METADATA") if isinstance(config, dict) else None
    local = metadata.get("localhost") if isinstance(metadata, dict) else None
    if not isinstance(local, dict) or not _NAME.fullmatch(serial.strip()):
        return None
    return {"product-name": str(local.get("hwsku", ""))[:60], "serial-number": serial.strip()}


def read_images(text: str) -> Tree | None:
    """`sonic-installer list` as the two partitions of an NVUE switch."""
    named = {kind.lower(): name for kind, name in _IMAGE_LINE.findall(text)}
    held = [w for w in text.partition("Available:")[2].split() if w]
    if named.get("current") not in held or named.get("next") not in held:
        return None
    current, following = named["current"], named["next"]
    other = next((h for h in held if h != current), None)
    shown: Tree = {"current": "1", "next": "1" if following == current else "2"}
    shown["partition1"] = {"build-id": current}
    if other is not None:
        shown["partition2"] = {"build-id": following if following != current else other}
    return shown


def drain_of(change: Any) -> bool | None:
    """Whether a change asks BGP's neighbours to go around, or to come back; None: neither."""
    router = change.get("router") if isinstance(change, dict) and len(change) == 1 else None
    bgp = router.get("bgp") if isinstance(router, dict) else None
    asked = bgp.get("graceful-shutdown") if isinstance(bgp, dict) and len(bgp) == 1 else None
    return {"on": True, "off": False}.get(asked) if isinstance(asked, str) else None


def patch(config: Mapping[str, Tree], change: Any) -> list[Tree] | str:
    """The steps that move ports and make VRFs as an NVUE change asks, or why there are none."""
    if not isinstance(change, dict) or set(change) - {"vrf", "interface"}:
        return "only VRFs and the VRFs of ports can be changed here"
    ports, rows = config.get("PORT", {}), config.get("INTERFACE", {})
    wanted = {sonic_vrf(v) for v in change.get("vrf", {})} - set(OWN)
    steps = _missing(config, "VRF", {name: {} for name in sorted(wanted)})
    entries: Tree = {}
    described: list[Tree] = []
    for port, entry in change.get("interface", {}).items():
        ip = entry.get("ip") if isinstance(entry, dict) else None
        if port not in ports or not isinstance(ip, dict) or set(ip) - {"vrf", "address"}:
            return f"interface {port[:20]} does not exist, or more than its VRF is asked for"
        vrf = sonic_vrf(str(ip.get("vrf", "default")))
        if not _NAME.fullmatch(vrf):
            return f"{vrf[:40]!r} is no name of a VRF"
        entries[port] = {} if vrf == "default" else {"vrf_name": vrf}
        described += _describe(port, ports[port], entry.get("description"))
        kept = [k for k in rows if k.startswith(f"{port}|")]
        entries |= {k: {} for k in (*kept, *(f"{port}|{a}" for a in ip.get("address", {})))}
    return steps + _missing(config, "INTERFACE", entries) + described


def _describe(port: str, row: Any, text: Any) -> list[Tree]:
    """Write the field `description` of a row of PORT (sonic-port.yang, 255 characters)."""
    had = row.get("description") if isinstance(row, dict) else None
    if not isinstance(text, str) or not 0 < len(text) <= DESCRIPTION_MAX or text == had:
        return []
    return [{"op": "add", "path": f"/PORT/{_pointer(port)}/description", "value": text}]


def _missing(config: Mapping[str, Tree], table: str, rows: Tree) -> list[Tree]:
    have = config.get(table)
    if not rows:
        return []
    if not have:
        return [{"op": "add", "path": f"/{table}", "value": rows}]
    return [
        {"op": "add", "path": f"/{table}/{_pointer(key)}", "value": row}
        for key, row in rows.items()
        if have.get(key) != row
    ]


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
