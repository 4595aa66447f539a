"""Bonds of hosts' ports as NVUE has them: members, segment or MLAG, and who is in their VLAN; and
the part of a revision that makes one.

Sources, in CumulusNetworks/docs (read 2026-11-30): the guide's "EVPN Multihoming",
"Multi-Chassis Link Aggregation" and "Bonding - Link Aggregation" (the mode is LACP where none is
set); the NVUE reference of `nv show evpn multihoming esi` (JSON), `nv show mlag`, `nv show
interface <interface-id> bond mlag`, and the commands of `nv set interface <interface-id>`. NVUE
reports LACP's partner for an MLAG only, so that who is at the other end of a member is read by
LLDP.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from provisioner.integrations.cumulus.nvue_calls import PREFIX
from provisioner.integrations.cumulus.switch_state import NOW, find_object, read_number
from provisioner.integrations.cumulus.tenant_networks import (
    find_missing_tree,
    make_switch,
    merge_tree,
)
from provisioner.model.location import Bond
from provisioner.model.recovery import BondState
from provisioner.model.switch import BondsRead

SEGMENTS_PATH = f"{PREFIX}/evpn/multihoming/esi?{NOW}"
MLAG_PATH = f"{PREFIX}/mlag?{NOW}"
# without one of these, a segment's packets do not come to this leaf
FLAGS = ("local", "oper-up", "ready-for-bgp", "bridge-port")
PEER_LINK = "peerlink"  # which NVUE itself puts into all VLANs of an MLAG
BRIDGE = "br_default"  # the only bridge that NVUE makes by itself
# "NVUE does not accept a bond name starting with an interface type ID"
_TAKEN = ("sw", "eth", "vlan", "lo", "ib", "fnm", "vrrp")
_LOCAL = "03:"  # a segment made of a MAC and a local number; any other is written as it is
_YES = ("true", "on", "yes", "enabled")


def find_bonds(interfaces: Collection[str], applied: Any) -> dict[str, str]:
    """Return interface -> its bond: itself, or the one in the VLAN that it routes for.

    Of several bonds in a VLAN the first is named; the others are in its state's `others`.
    """
    ports = find_object(applied, "interface")
    found = {}
    for name in interfaces:
        vlan = _read_vlan(ports, name)
        if find_object(ports, name).get("type") == "bond":
            found[name] = name
        elif vlan and (bonds := [b for b in _list_bridged(ports, vlan) if _is_bond(ports, b)]):
            found[name] = bonds[0]
    return found


def read_members(bond: str, now: Any) -> tuple[str, ...]:
    """Return the members of a bond in force."""
    return tuple(sorted(find_object(now, bond, "bond", "member")))


def read_bond(
    interface: str, bond: str, applied: Any, now: Any, segments: Any, mlag: Any
) -> BondState:
    """Return a bond from the applied tree, the interfaces in force, and the two tables."""
    ports = find_object(applied, "interface")
    entry = find_object(now, bond)
    members = read_members(bond, now)
    number = read_number(find_object(entry, "bond", "mlag").get("id")) or 0
    segment = ""
    leaves = 1
    faults: tuple[str, ...] = ()
    for identifier, row in find_object(segments).items():
        if find_object(row).get("local-interface") == bond:
            segment = identifier.lower()
            leaves = 1 + len(find_object(row, "remote-vtep"))
            flags = find_object(row, "flags")
            faults += tuple(f"its segment is not {f}" for f in FLAGS if not _is_on(flags.get(f)))
    if number:
        paired = find_object(entry, "bond", "mlag").get("status") == "dual"
        leaves = 2 if paired else 1
        if not _is_on(find_object(mlag).get("peer-alive")):
            faults += ("the peer of its MLAG is down",)
    vlan = _read_vlan(ports, interface)
    others = {*_list_bridged(ports, vlan)} - {bond} if vlan else set()
    return BondState(
        name=bond,
        members=frozenset(members),
        down=frozenset(m for m in members if not _is_up(find_object(now, m))),
        lacp=_read_mode(entry, find_object(ports, bond)) == "lacp",
        segment=segment,
        mlag=number,
        leaves=leaves,
        others=frozenset(others - ({PEER_LINK} if number else set())),
        faults=faults,
    )


# --- bonds that are made


def encode_bonds(bonds: Mapping[str, Bond], version: str) -> dict[str, Any]:
    """Return the tree that makes bonds, by the interface that routes for each."""
    tree: dict[str, Any] = {}
    for interface, bond in bonds.items():
        merge_tree(tree, _encode(interface, bond, make_switch(version)))
    return tree


def compare_bonds(bonds: Mapping[str, Bond], applied: Any, version: str) -> BondsRead:
    """Return whether the applied tree lacks a part of these bonds, and what stands against it.

    Nothing is taken from anybody: a port, a VLAN or a name that serves something else is named.
    """
    lacking = bool(find_missing_tree(encode_bonds(bonds, version), applied))
    astray = tuple(why for i, bond in bonds.items() for why in _find_astray(i, bond, applied))
    found = (why for i, bond in bonds.items() for why in _find_obstacles(i, bond, applied))
    return BondsRead(lacking, (*astray, *found), astray)


def _encode(interface: str, bond: Bond, switch_on: Mapping[str, str]) -> dict[str, Any]:
    lag: dict[str, Any] = {"mode": "lacp", "member": {member: {} for member in bond.members}}
    entry: dict[str, Any] = {"type": "bond", "bond": lag}
    if bond.mlag:
        lag["mlag"] = {**switch_on, "id": bond.mlag}
    if bond.segment:
        parts: dict[str, Any] = {"identifier": bond.segment}
        if bond.segment.startswith(_LOCAL):
            local = bond.segment[21:].replace(":", "")
            parts = {"local-id": int(local, 16), "mac-address": bond.segment[3:20]}
        entry["evpn"] = {"multihoming": {"segment": {**switch_on, **parts}}}
    ports = {bond.name: entry}
    tree: dict[str, Any] = {"interface": ports}
    if vlan := _number_vlan(interface, bond):
        entry["bridge"] = {"domain": {BRIDGE: {"access": vlan}}}
        ports[interface] = {"type": "svi", "vlan": vlan}
        mapped: dict[str, Any] = {"vni": {str(bond.vni): {}}} if bond.vni else {}
        tree["bridge"] = {"domain": {BRIDGE: {"vlan": {str(vlan): mapped}}}}
    if bond.mtu:
        for settings in ports.values():
            settings["link"] = {"mtu": bond.mtu}
    return tree


def _number_vlan(interface: str, bond: Bond) -> int:
    """Return the VLAN of a bond; 0 for one that is routed itself."""
    number = read_number(interface.removeprefix("vlan"))
    return 0 if interface == bond.name or number is None else number


def _find_astray(interface: str, bond: Bond, applied: Any) -> Iterator[str]:
    """Say where the bond's ports are, if they are not behind its interface."""
    ports = find_object(applied, "interface")
    held = find_object(ports, bond.name)
    vlan = _number_vlan(interface, bond)
    if held and held.get("type", "bond") != "bond":
        yield f"{bond.name} is no bond on the leaf; name it otherwise"
    carried = find_object(held, "bridge", "domain")
    if held and vlan and carried and bond.name not in _list_bridged(ports, vlan):
        yield f"{bond.name} is in another VLAN than {vlan}; free it on the leaf"
    for name in sorted(ports):
        entry = find_object(ports, name)
        taken = set(find_object(entry, "bond", "member")) & set(bond.members)
        if name != bond.name and taken:
            yield f"{', '.join(sorted(taken))} is in {name}; take it out there"
        ip = find_object(entry, "ip")
        own = [*find_object(ip, "address"), *filter(None, [ip.get("vrf")])]
        own += find_object(entry, "bridge", "domain")
        if name in bond.members and own:
            yield f"{name} has a network of its own ({own[0]}); take it off"
    for name in sorted(vrfs := find_object(applied, "vrf")):
        peers = find_object(vrfs, name, "router", "bgp", "neighbor")
        for member in sorted(set(peers) & set(bond.members)):
            yield f"{member} is a link of BGP in VRF {name}; take it off"


def _find_obstacles(interface: str, bond: Bond, applied: Any) -> Iterator[str]:
    ports = find_object(applied, "interface")
    held = find_object(ports, bond.name)
    vlan = _number_vlan(interface, bond)
    if bond.name.startswith(_TAKEN):
        yield f"{bond.name}: NVUE takes no bond of this name; name it bond1"
    for member in sorted(set(find_object(held, "bond", "member")) - set(bond.members)):
        yield f"{bond.name} has the member {member} too; take it out, or put it on the list"
    sharing = set(_list_bridged(ports, vlan)) if vlan else set()
    for name in sorted(sharing - {bond.name} - ({PEER_LINK} if bond.mlag else set())):
        yield f"{name} is in VLAN {vlan} too; take it out"
    if bond.segment and not _is_enabled(find_object(applied, "evpn", "multihoming")):
        yield "EVPN multihoming is off on the leaf: nv set evpn multihoming enable on"
    if bond.mlag and not find_object(applied, "mlag"):
        yield "the leaf has no MLAG: set its peer"


def _is_enabled(entry: Mapping[str, Any]) -> bool:
    return _is_on(entry.get("enable", entry.get("state")))


def _read_mode(now: Mapping[str, Any], applied: Mapping[str, Any]) -> object:
    """Return the mode in force; where it is not shown the applied one, whose default is LACP."""
    shown = find_object(now, "bond").get("mode")
    return shown or find_object(applied, "bond").get("mode", "lacp")


def _is_bond(ports: Mapping[str, Any], name: str) -> bool:
    return find_object(ports, name).get("type") == "bond" and name != PEER_LINK


def _read_vlan(ports: Mapping[str, Any], name: str) -> int:
    entry = find_object(ports, name)
    implied = name.removeprefix("vlan") if entry.get("type") == "svi" else None
    return read_number(entry.get("vlan", implied)) or 0


def _list_bridged(ports: Mapping[str, Any], vlan: int) -> Iterator[str]:
    """Yield the ports that carry a VLAN: of no other access VLAN, and no trunk without it."""
    for name in sorted(ports):
        for domain in find_object(ports, name, "bridge", "domain").values():
            settings = find_object(domain)
            access = read_number(settings.get("access"))
            trunk = find_object(settings, "vlan")
            if access == vlan or (access is None and (not trunk or _carries(trunk, vlan))):
                yield name
                break


def _carries(trunk: Mapping[str, Any], vlan: int) -> bool:
    """Return whether a list of VLANs and ranges has this one; an unreadable one may."""
    for text in trunk:
        first, _, last = str(text).partition("-")
        low = read_number(first)
        high = read_number(last or first)
        if low is None or high is None or low <= vlan <= high:
            return True
    return False


def _is_on(value: object) -> bool:
    return str(value).lower() in _YES


def _is_up(entry: Mapping[str, Any]) -> bool:
    state = find_object(entry, "link").get("state")
    return state == "up" or (isinstance(state, Mapping) and "up" in state)
