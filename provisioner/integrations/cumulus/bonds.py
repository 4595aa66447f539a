"""Bonds of hosts' ports as NVUE has them: members, segment or MLAG, and who is in their VLAN.

Sources, in CumulusNetworks/docs (read 2026-11-30): the guide's "EVPN Multihoming" and
"Multi-Chassis Link Aggregation"; the NVUE reference of `nv show evpn multihoming esi` (JSON),
`nv show mlag` and `nv show interface <interface-id> bond mlag`. NVUE reports LACP's partner for an
MLAG only, so that who is at the other end of a member is read by LLDP.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from provisioner.integrations.cumulus.nvue_calls import PREFIX
from provisioner.integrations.cumulus.switch_state import NOW, find_object, read_number
from provisioner.model.recovery import BondState

SEGMENTS_PATH = f"{PREFIX}/evpn/multihoming/esi?{NOW}"
MLAG_PATH = f"{PREFIX}/mlag?{NOW}"
# without one of these, a segment's packets do not come to this leaf
FLAGS = ("local", "oper-up", "ready-for-bgp", "bridge-port")
PEER_LINK = "peerlink"  # which NVUE itself puts into all VLANs of an MLAG
_YES = ("true", "on", "yes")


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
        lacp=find_object(entry, "bond").get("mode", "lacp") == "lacp",  # NVUE's default
        segment=segment,
        mlag=number,
        leaves=leaves,
        others=frozenset(others - ({PEER_LINK} if number else set())),
        faults=faults,
    )


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
