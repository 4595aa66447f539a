"""Isolation of a node's ports: all of them, and no others, are in the desired VRF.

Sets are compared for equality, never for inclusion. A port that was not read counts as misplaced.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.location import Port
from provisioner.model.node import Placement
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement
from provisioner.planning.places.addressing import network_of

NOWHERE = frozenset({"", "default"})  # in no VRF of its own
# a cabled port in one of these is a mistake in the switch's configuration, not a tenant
_NEVER = frozenset({"mgmt"})


def placement_of(
    ports: Sequence[Port], placements: Iterable[PortPlacement]
) -> tuple[Placement, str]:
    """Return the network of all of a node's ports, with its VRF; MIXED unless each port proves
    it.
    """
    planned = {(p.switch, p.interface) for p in ports}
    vrf_of: dict[tuple[str, str], str] = {}
    for place in placements:
        key = (place.switch, place.interface)
        if vrf_of.setdefault(key, place.vrf) != place.vrf:
            return Placement.MIXED, ""
    if set(vrf_of) != planned:
        return Placement.MIXED, ""
    vrfs = set(vrf_of.values())
    if vrfs <= NOWHERE:
        return Placement.NONE, ""
    if len(vrfs) != 1 or vrfs & _NEVER:
        return Placement.MIXED, ""
    vrf = vrfs.pop()
    return (Placement.MAINTENANCE if vrf == MAINTENANCE_VRF else Placement.CUSTOMER), vrf


def find_misplaced_ports(
    ports: Sequence[Port], placements: Iterable[PortPlacement], vrf: str
) -> tuple[Blocker, ...]:
    """Return why it is not proved that exactly these ports are in this VRF; () if it is."""
    vrfs_of: dict[tuple[str, str], set[str]] = {}
    for place in placements:
        vrfs_of.setdefault((place.switch, place.interface), set()).add(place.vrf)
    planned = {(p.switch, p.interface) for p in ports}
    blockers = []
    if not planned:
        blockers.append(_blocker("no ports", "the node has no port that could be isolated"))
    for key in sorted(planned | set(vrfs_of)):
        name = "/".join(key)
        if key not in vrfs_of:
            blockers.append(_blocker(name, f"its VRF was not read; {vrf} is wanted"))
        elif key not in planned:
            blockers.append(_blocker(name, "it is not a port of this node"))
        elif vrfs_of[key] != {vrf}:
            present = " and ".join(sorted(v or "no VRF" for v in vrfs_of[key]))
            blockers.append(_blocker(name, f"it is in {present}; {vrf} is wanted"))
    return tuple(blockers)


def prefixes_of(ports: Sequence[Port]) -> tuple[str, ...] | Blocker:
    """Return the networks of a node's links, or a blocker for a port without a readable address."""
    networks = []
    for port in ports:
        network = network_of(port.address) if port.address else None
        if network is None:
            return _blocker(
                f"{port.switch}/{port.interface}",
                f"no address ({port.address!r:.40}): a leak of it could not be seen",
            )
        networks.append(network)
    return tuple(sorted(networks))


def find_route_leaks(
    prefixes: Iterable[str], routes: Mapping[str, Iterable[str]], vrf: str
) -> tuple[str, ...]:
    """Return "VRF: prefix" for every route to a node's link, or a part of it, outside its VRF.

    A shorter prefix that covers it is no leak: summaries of a whole unit are in the maintenance VRF
    by design, and lead to no port outside of it.
    """
    mine = [ipaddress.ip_network(p) for p in prefixes]
    routes_outside = []
    for foreign_vrf in sorted(set(routes) - {vrf}):
        for route in routes[foreign_vrf]:
            network = ipaddress.ip_network(route)
            for own in mine:
                if network.version == own.version and _within(network, own):
                    routes_outside.append(f"{foreign_vrf}: {route}")
                    break
    return tuple(routes_outside)


def make_leak_blocker(switch: str, listed: Sequence[str]) -> Blocker:
    """Return the blocker for leaks on one switch."""
    return _blocker(switch, f"routes to this node outside its VRF: {', '.join(listed[:4])}")


def _within(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
    own: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> bool:
    return network.prefixlen >= own.prefixlen and network.network_address in own


def _blocker(subject: str, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.ISOLATION,
        subject=subject,
        detail=detail,
        unblock="Look at the leaf's operational VRFs and routes; it is tried again by itself.",
    )
