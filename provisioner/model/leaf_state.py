"""The state of one leaf at one moment, as far as the release gate judges it.

Everything here was read from the leaf's operational state, except fields named `applied`, which are
its configuration. Plain dataclasses: a busy leaf has thousands of routes, and they are made at
every reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RouteState:
    """One route of one VRF. `via`: VRFs of its next hops; () if it names none."""

    prefix: str
    protocol: str
    selected: bool
    offloaded: bool  # in the ASIC, not only in the kernel
    via: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VniState:
    """The import and export route targets of one L3VNI."""

    imports: frozenset[str]
    exports: frozenset[str]


@dataclass(frozen=True, slots=True)
class PeerState:
    """One BGP session of a VRF. `dynamic`: it is not configured; the peer opened it itself."""

    state: str
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class VrfState:
    """One VRF of one leaf. `imports`: VRFs whose routes it takes, by the configuration in force."""

    routes: tuple[RouteState, ...]
    peers: Mapping[str, PeerState]
    imports: frozenset[str]
    vnis: Mapping[str, VniState]


@dataclass(frozen=True, slots=True)
class PortState:
    """One port. None where the leaf reports no value."""

    vrf: str
    applied_vrf: str
    coming: frozenset[str]  # VRFs that pending revisions would put it into
    up: bool
    mtu: int | None
    addresses: frozenset[str]
    acls: frozenset[tuple[str, str]]  # (name, "inbound" | "outbound")
    neighbours: frozenset[tuple[str, str]]  # LLDP: (system, port)
    transitions: int | None  # of its carrier, since counting began
    in_bytes: int | None = None
    out_bytes: int | None = None
    in_errors: int | None = None  # damaged frames received, after FEC
    qos: str = ""  # digest of the RoCE settings in force on it


@dataclass(frozen=True, slots=True)
class NeighbourState:
    """One entry of the ARP or neighbour discovery tables."""

    interface: str
    address: str
    mac: str


@dataclass(frozen=True, slots=True)
class LeafState:
    """One leaf. Digests are SHA-256 of canonical JSON; "" where the leaf does not have the
    feature.
    """

    switch: str
    at: float
    applied: str  # digest of the whole configuration in force
    unsaved: frozenset[str]  # ports whose startup configuration differs; "": outside of ports
    on_the_way: tuple[str, ...]  # revisions that were sent and have not ended
    issues: tuple[str, ...]  # from its own health report; () means OK
    qos: str
    adaptive_routing: str
    acls: Mapping[str, str]  # name -> digest of its rules
    ports: Mapping[str, PortState]  # the requested ones
    vrf_of: Mapping[str, str]  # every interface that is in a VRF other than the default
    vrfs: Mapping[str, VrfState]
    applied_targets: Mapping[str, VniState]  # VRF -> configured route targets, where there are any
    applied_peers: Mapping[str, frozenset[str]]  # VRF -> configured peers
    listens: frozenset[str]  # VRFs that accept sessions from any peer
    neighbours: tuple[NeighbourState, ...] = ()
    fdb: Mapping[str, str] = field(default_factory=dict)  # MAC -> interface
