"""Isolation of a node's ports: all of them, and no others, are in the desired VRF.

Sets are compared for equality, never for inclusion. A port that was not read counts as misplaced.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple
from zlib import crc32

from provisioner.model.location import Port, TenantPlace
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import LeafRecord, LeafState
from provisioner.model.tenant import MAINTENANCE_VRF, Phase, PortPlacement, Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing, network_of
from provisioner.planning.places.place_ports import plan_port_filter

# ------------------------------------------------------------------------------
# Requirements of a release: the desired state of one node's ports in one tenant's VRF. Pure.


# Moving an interface between VRFs takes it down and up on some releases: two changes of carrier,
# and as many again where it is tried a second time. Ours; NVIDIA publishes no figure.
FLAPS_OF_A_MOVE = 4
# The filters that a fence puts on a port: the two of a reclaim, and the one between hosts.
FENCE_ACLS = ("provisioner_deny4", "provisioner_deny6", "provisioner_apart4")


@dataclass(frozen=True)
class GateAsk:
    """One node in one VRF. `storage`: the only VRFs that this one exchanges routes with.

    `exact`: the tenant was made by us, so that its imports are determined; a VRF that the site
    prepared itself is compared with its own configuration.
    """

    node: str
    ports: tuple[Port, ...]
    vrf: str
    mtu: int
    front_mtu: int = 0  # of its north-south ports; 0: the same
    acls: frozenset[str] = frozenset()  # that must be bound to every port
    frozen_by: frozenset[str] = frozenset(FENCE_ACLS)  # bound by a fence
    storage: frozenset[str] = frozenset()
    exact: bool = False
    vni: str = ""  # of the tenant; "": any
    target: str = ""  # its route target; "": the configured one
    peers: frozenset[tuple[str, str]] | None = None  # (leaf, peer); None: those configured
    defaults: frozenset[str] = frozenset()  # default routes that a session may bring
    storage_of: tuple[tuple[str, str], ...] = ()  # (other tenant's VRF, storage VRF) allowed
    guids: tuple[Port, ...] = ()  # InfiniBand ports, whose partitions are judged instead
    # (leaf, port) -> the tenant's filter on it; None: its network is being changed, so not judged
    guards: Mapping[tuple[str, str], str] | None = None

    def find_mtu(self, port: Port) -> int:
        return self.front_mtu or self.mtu if port.rail < 0 else self.mtu

    @cached_property  # compared with every leaf and VRF
    def prefixes(self) -> frozenset[str]:
        addresses = (p.address for p in self.ports if p.address)
        return frozenset(str(ipaddress.ip_interface(a).network) for a in addresses)


FAR_LEAVES_MAX = 8  # leaves without a port of the node that are read; each needs a complete reading


def far_leaves(node: Node, vrf: str, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return other leaves with ports of the same tenant: a few, spread by the node's name."""
    own = {p.switch for p in node.ports}
    leaves = {
        port.switch
        for neighbour in nodes
        if neighbour.state is State.RELEASED and neighbour.vrf == vrf
        for port in neighbour.ports
        if not port.guid and port.switch not in own
    }
    return tuple(sorted(leaves, key=lambda n: crc32(f"{node.id}/{n}".encode()))[:FAR_LEAVES_MAX])


DEFAULTS = frozenset({"0.0.0.0/0", "::/0"})


def ask_of(
    node: Node,
    vrf: str,
    tenants: Iterable[Tenant],
    *,
    mtu: int,
    front_mtu: int = 0,
    acls: Sequence[str] = (),
    plan: AddressPlan | None = None,
) -> GateAsk:
    """Return the requirements of a node's release into a VRF, from its tenant's record.

    `plan`: determines the route target; without it the configured one counts.
    """
    listed = list(tenants)
    tenant = next((t for t in listed if t.vrf == vrf), None)
    leaves = tuple(p for p in node.ports if not p.guid)
    guids = tuple(p for p in node.ports if p.guid)
    bare_ask = GateAsk(
        node=node.id,
        ports=leaves,
        vrf=vrf,
        mtu=mtu,
        front_mtu=front_mtu,
        acls=frozenset(acls),
        guids=guids,
    )
    if tenant is None:
        return bare_ask
    exact = tenant.number is not None
    peers = frozenset((o.switch, o.peer) for o in tenant.outside)
    return replace(
        bare_ask,
        storage=frozenset(tenant.storage),
        exact=exact,
        vni=str(tenant.l3vni) if exact and tenant.l3vni else "",
        target=_target(tenant, plan),
        peers=peers if exact else None,
        defaults=frozenset(p for o in tenant.outside for p in o.accepts) & DEFAULTS,
        storage_of=tuple((t.vrf, s) for t in listed for s in t.storage),
        guards=_plan_guards(node.id, tenant, leaves) if tenant.phase is Phase.READY else None,
    )


def _plan_guards(node: str, tenant: Tenant, ports: Iterable[Port]) -> dict[tuple[str, str], str]:
    return {(p.switch, p.interface): plan_port_filter(tenant, node, p.rail)[0] for p in ports}


def _target(tenant: Tenant, plan: AddressPlan | None) -> str:
    if plan is None or tenant.number is None or not tenant.l3vni:
        return ""
    return Addressing(plan).get_route_target(TenantPlace(tenant.number))


def record_of(leaf: LeafState, interfaces: Iterable[str]) -> LeafRecord:
    """Return the part of a leaf's state that is stored, for the ports of one node."""
    mine = [i for i in interfaces if i in leaf.ports]
    ports = {i: leaf.ports[i] for i in mine}
    return LeafRecord(
        switch=leaf.switch,
        at=leaf.at,
        applied=leaf.applied,
        saved=not leaf.unsaved & {"", *mine},
        ports=tuple((i, p.vrf) for i, p in sorted(ports.items())),
        sessions=tuple(
            (vrf, peer, session.state)
            for vrf, state in sorted(leaf.vrfs.items())
            for peer, session in sorted(state.peers.items())
        ),
        neighbours=tuple(
            sorted((n.interface, n.address, n.mac) for n in leaf.neighbours if n.interface in ports)
        ),
        targets=tuple(
            (vrf, target)
            for vrf, state in sorted(leaf.vrfs.items())
            for vni in sorted(state.vnis)
            for target in sorted(state.vnis[vni].imports)
        ),
        qos=leaf.qos,
        adaptive_routing=leaf.adaptive_routing,
        acls=tuple(sorted(leaf.acls.items())),
        addresses=tuple((i, a) for i, p in sorted(ports.items()) for a in sorted(p.addresses)),
        bound=tuple(
            (i, name, way) for i, p in sorted(ports.items()) for name, way in sorted(p.acls)
        ),
        transitions=tuple(
            (i, p.transitions) for i, p in sorted(ports.items()) if p.transitions is not None
        ),
        in_errors=tuple(
            (i, p.in_errors) for i, p in sorted(ports.items()) if p.in_errors is not None
        ),
        port_qos=tuple((i, p.qos) for i, p in sorted(ports.items()) if p.qos),
    )


NOWHERE = frozenset({"", "default"})  # in no VRF of its own
# a cabled port in one of these is a mistake in the switch's configuration, not a tenant
_NEVER = frozenset({"mgmt"})


def placement_of(
    ports: Sequence[Port], placements: Iterable[PortPlacement]
) -> tuple[Placement, str]:
    """The network of all of a node's ports, with its VRF; MIXED unless each port proves it."""
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
        network = network_of(port.address)
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
    mine = frozenset(map(_read_prefix, prefixes))
    kinds = {prefix.kind for prefix in mine}
    routes_outside = []
    for foreign_vrf in sorted(set(routes) - {vrf}):
        for route in routes[foreign_vrf]:
            prefix = _read_prefix(route)
            if any(prefix.shorten(kind) in mine for kind in kinds):
                routes_outside.append(f"{foreign_vrf}: {route}")
    return tuple(routes_outside)


def make_leak_blocker(switch: str, listed: Sequence[str]) -> Blocker:
    return _blocker(switch, f"routes to this node outside its VRF: {', '.join(listed[:4])}")


class _Prefix(NamedTuple):
    version: int
    length: int
    first: int  # its address, without the bits of hosts

    @property
    def kind(self) -> tuple[int, int]:
        return self.version, self.length

    def shorten(self, kind: tuple[int, int]) -> _Prefix | None:
        """Return the prefix of this kind that covers it; None if there is none."""
        version, length = kind
        if version != self.version or length > self.length:
            return None
        return _Prefix(version, length, self.first >> (self.length - length))


@lru_cache(maxsize=65_536)  # leaves show the same routes at each look
def _read_prefix(text: str) -> _Prefix:
    network = ipaddress.ip_network(text)
    shift = network.max_prefixlen - network.prefixlen
    return _Prefix(network.version, network.prefixlen, int(network.network_address) >> shift)


def _blocker(subject: str, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.ISOLATION,
        subject=subject,
        detail=detail,
        unblock="Look at the leaf's operational VRFs and routes; it is tried again by itself.",
    )
