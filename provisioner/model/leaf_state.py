"""What one leaf does at one moment, as far as a release is judged by it.

Rule: all of it was read from the leaf; nothing here is what somebody meant it to do, except where
a name says `applied`. Plain dataclasses: a busy leaf has thousands of routes, made at every look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RouteState:
    """One route of one VRF. `via`: VRFs that its next hops are in; () if it names none."""

    prefix: str
    protocol: str
    selected: bool
    offloaded: bool  # the ASIC has it, not only the kernel
    via: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VniState:
    """Route targets that routes of one L3VNI are taken in by, and sent out with."""

    imports: frozenset[str]
    exports: frozenset[str]


@dataclass(frozen=True, slots=True)
class PeerState:
    """One BGP session of a VRF. `dynamic`: nobody configured it, it came by itself."""

    state: str
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class VrfState:
    """One VRF of one leaf. `imports`: VRFs whose routes it takes, by a configuration in force."""

    routes: tuple[RouteState, ...]
    peers: Mapping[str, PeerState]
    imports: frozenset[str]
    vnis: Mapping[str, VniState]


@dataclass(frozen=True, slots=True)
class PortState:
    """One port. None where the leaf does not say."""

    vrf: str
    applied_vrf: str
    coming: frozenset[str]  # VRFs that revisions on their way would put it into
    up: bool
    mtu: int | None
    addresses: frozenset[str]
    acls: frozenset[tuple[str, str]]  # (name, "inbound" | "outbound")
    neighbours: frozenset[tuple[str, str]]  # LLDP: (system, port)
    transitions: int | None  # of its carrier, since counting began
    in_bytes: int | None = None
    out_bytes: int | None = None
    in_errors: int | None = None  # frames that came in damaged, after FEC
    qos: str = ""  # digest of what of RoCE is in force on it


@dataclass(frozen=True, slots=True)
class NeighbourState:
    """One entry of the tables of ARP and neighbour discovery."""

    interface: str
    address: str
    mac: str


@dataclass(frozen=True, slots=True)
class LeafState:
    """One leaf. Digests are SHA-256 of canonical JSON; "" where the leaf has no such thing."""

    switch: str
    at: float
    applied: str  # digest of the whole configuration in force
    unsaved: frozenset[str]  # ports with which it would start otherwise; "": whatever is no port
    on_the_way: tuple[str, ...]  # revisions that were sent and have not ended
    issues: tuple[str, ...]  # of its own health; () means OK
    qos: str
    adaptive_routing: str
    acls: Mapping[str, str]  # name -> digest of its rules
    ports: Mapping[str, PortState]  # those that were asked for
    vrf_of: Mapping[str, str]  # every interface that is in a VRF of its own
    vrfs: Mapping[str, VrfState]
    applied_targets: Mapping[str, VniState]  # VRF -> route targets as configured; where they are
    applied_peers: Mapping[str, frozenset[str]]  # VRF -> peers as configured
    listens: frozenset[str]  # VRFs that take sessions from whoever comes
    neighbours: tuple[NeighbourState, ...] = ()
    fdb: Mapping[str, str] = field(default_factory=dict)  # MAC -> interface
