"""The rails of a host in the kernel: address, frame size, table and source rule, read and compared.

Reads are `ip -j` (iproute2 5.15 and later print all of it as JSON); what is missing is returned as
lines of `ip -batch`, so that one process sets a rail. A rule of ours is known by its priority.
"""

from __future__ import annotations

import json

from ansible_collections.provisioner.fleet.plugins.module_utils import tools


def read_json(words, may_fail=False):
    """Run `ip -j` with these words and return its entries. Raises `tools.Refused`.

    `may_fail`: [] where it fails, as for a table that is there only with its first route.
    """
    text = tools.read(["ip", "-N", "-j", *words], exits=(0, 1, 2, 255) if may_fail else (0,))
    try:
        entries = json.loads(text.strip() or "[]")
    except ValueError:
        if may_fail:
            return []
        raise tools.Unreadable(f"ip {' '.join(words)} printed no JSON") from None
    if not isinstance(entries, list):
        raise tools.Unreadable(f"ip {' '.join(words)} printed no list")
    return [entry for entry in entries if isinstance(entry, dict) and entry]


def read_interfaces():
    """Read the interfaces with their addresses: MAC address -> entry of `ip -j address`."""
    by_mac = {}
    for entry in read_json(["address", "show"]):
        mac = str(entry.get("permaddr") or entry.get("address", "")).lower()
        is_on_top = "link_index" in entry and "link_netnsid" not in entry
        if mac and not is_on_top:
            by_mac.setdefault(mac, []).append(entry)  # no VLAN or macvlan on top of it
    return by_mac


def find_interface(rail, by_mac):
    """Return the one interface that has the rail's MAC address. Raises `tools.Refused`."""
    entries = by_mac.get(rail["mac"].lower(), [])
    if len(entries) != 1:
        count = len(entries) or "no"
        raise tools.Refused(f"rail {rail['rail']}: {count} interfaces have {rail['mac']}")
    return entries[0]


def find_missing(rail, interface):
    """Return the lines of `ip -batch` that this rail still needs, in their order."""
    name = interface["ifname"]
    family = "-6" if ":" in rail["address"] else "-4"
    lines = []
    if interface.get("mtu") != rail["mtu"]:
        lines.append(f"link set dev {name} mtu {rail['mtu']}")
    if "UP" not in interface.get("flags", []):
        lines.append(f"link set dev {name} up")
    addresses = {f"{a.get('local')}/{a.get('prefixlen')}" for a in interface.get("addr_info", [])}
    if rail["address"] not in addresses:
        lines.append(f"address replace {rail['address']} dev {name}")
    lines += _find_missing_routes(rail, name, family, str(rail["table"]), rail["networks"])
    lines += _find_missing_routes(rail, name, family, "main", rail["own_networks"])
    return lines + _find_missing_rules(rail, family)


def _find_missing_routes(rail, name, family, table, networks):
    if not networks:
        return []
    listed = read_json([family, "route", "show", "table", table], may_fail=True)
    present = {(e.get("dst"), e.get("gateway"), e.get("dev")) for e in listed}
    return [
        f"route replace {network} via {rail['gateway']} dev {name} table {table}"
        for network in networks
        if (network, rail["gateway"], name) not in present
    ]


def _find_missing_rules(rail, family):
    source = rail["address"].partition("/")[0]
    selector = f"from {source} lookup {rail['table']} priority {rail['priority']}"
    lines = []
    is_there = False
    for entry in read_json([family, "rule", "show"]):
        if entry.get("priority") != rail["priority"]:
            continue
        mine = (entry.get("src"), str(entry.get("table"))) == (source, str(rail["table"]))
        if mine and not is_there:
            is_there = True
        else:
            lines.append(f"rule delete priority {rail['priority']} from {entry.get('src', 'all')}")
    return lines if is_there else [*lines, f"rule add {selector}"]
