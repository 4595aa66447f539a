"""Tenants' networks on a leaf: VRFs with EVPN and BGP, sessions, route policies, security groups.

No operating system's own form appears here: a system's integration translates between these
records and a switch's configuration. `NetworkState` is a reading, `LeafNetworks` the desired state,
and `NetworkChange` the part of it that a leaf lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Blocker

VRF_NAME_MAX = 15  # characters: a VRF is an interface in Linux
GRACEFUL_SHUTDOWN = "65535:0"  # RFC 8326, clause 5: whoever hears it prefers any other way
MARK = "provisioner_sg_"  # at the beginning of the name of each filter of groups
PORT_MAX = 65_535


class Protocol(StrEnum):
    TCP = "tcp"
    UDP = "udp"


class GroupRule(Record):
    """One permission. Without `ports` it is for all ports of the protocol."""

    protocol: Protocol
    ports: tuple[int, ...] = Field(default=(), max_length=32)  # at the node, 1 to 65535
    source: str  # IPv4 network with its length from which connections come
    target: str = ""  # IPv4 address of the node's end with /32; "": any of its addresses


class SecurityGroup(Record):
    """A named list of permissions and the ports that have it.

    Without `nodes` it is for every node of the tenant, without `rails` for every port of them.
    """

    name: str
    nodes: tuple[str, ...] = Field(default=(), max_length=256)
    rails: tuple[int, ...] = Field(default=(), max_length=16)
    rules: tuple[GroupRule, ...] = Field(default=(), max_length=128)


class FilterRow(Record):
    """One rule of a port's filter. "" and 0 match anything.

    `established`: only packets of a TCP connection that is open already.
    """

    action: str  # "permit" | "deny"
    protocol: str
    source: str
    target: str
    port: int
    established: bool


class FilteredPort(Record):
    """A port in a tenant's VRF with the filters that are in force on it, as its leaf shows them.

    `rules`: in the order in which they are tried. `as_recorded`: it has exactly the filter that
    its groups ask for, with its rules.
    """

    switch: str
    interface: str
    node: str
    rail: int
    filters: tuple[str, ...]
    rules: tuple[FilterRow, ...]
    as_recorded: bool


class TenantFilters(Record):
    """The ports in a tenant's VRF on every leaf; blockers: leaves that were not read."""

    ports: tuple[FilteredPort, ...]
    blockers: tuple[Blocker, ...] = ()


class FilterMatch(NamedTuple):
    """One rule of a port's filter, with the meaning of `FilterRow`."""

    action: str  # "permit" | "deny"
    protocol: str = ""
    source: str = ""
    target: str = ""
    port: int = 0
    established: bool = False


PortFilter = tuple[FilterMatch, ...]  # in the order in which rules are tried


@dataclass(frozen=True)
class NetworkLimits:
    """Limits of a switch's operating system on which plans of tenants' networks depend."""

    vrf_name_max: int = VRF_NAME_MAX  # characters, as the fabric names it
    vrfs_max: int | None = None  # beside the default VRF; None: no limit is published
    tenant_networks: bool = False  # whether its adapter writes tenants' networks


@dataclass(frozen=True)
class OutsideSession:
    """A BGP session of a VRF. `is_on`: it exchanges routes of its neighbour's own family alone.

    `prefixes_max`: the session ends at one more route. A desired None, and a desired session
    without communities, leave what the leaf has.
    """

    remote_as: int | None  # None: the switch does not name a number
    policy_in: str
    policy_out: str
    is_on: bool = True
    prefixes_max: int | None = None
    sends_communities: bool = False


@dataclass(frozen=True)
class RoutePolicy:
    """The prefixes that pass a session in one direction; every other route is denied.

    `with_parts`: longer prefixes inside of the listed ones pass too. Routes that pass get exactly
    these communities, if any, and this local preference.
    """

    prefixes: tuple[str, ...]
    with_parts: bool = False
    communities: tuple[str, ...] = ()  # sorted
    local_preference: int | None = None


@dataclass(frozen=True)
class VrfNetwork:
    """The EVPN and BGP configuration of one VRF.

    `is_announced`: EVPN and BGP are on, and its connected routes go into both. `with_ipv6`: so do
    those of IPv6; a desired False leaves what the leaf has.
    """

    vnis: frozenset[int] = frozenset()
    import_targets: frozenset[str] = frozenset()
    export_targets: frozenset[str] = frozenset()
    asn: int | None = None
    router_id: str = ""
    is_announced: bool = False
    with_ipv6: bool = False
    imports_vrfs: bool = False  # whether it imports routes of other VRFs of its leaf
    imported_vrfs: frozenset[str] = frozenset()
    sessions: Mapping[str, OutsideSession] = field(default_factory=dict)  # by the peer's address


@dataclass(frozen=True)
class LeafNetworks:
    """The desired networks of a leaf.

    `site_imports`: VRF of the site -> tenants' VRFs whose routes it imports. `guards`: VRF of a
    tenant -> port -> the filter that it has while it is in that VRF.
    """

    vrfs: Mapping[str, VrfNetwork] = field(default_factory=dict)
    site_imports: Mapping[str, frozenset[str]] = field(default_factory=dict)
    policies: Mapping[str, RoutePolicy] = field(default_factory=dict)
    filters: Mapping[str, PortFilter] = field(default_factory=dict)
    guards: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkState:
    """A leaf as it was read: first its applied configuration, then its operational state.

    A policy of another form than `RoutePolicy` is None, and so is a tenant's filter. `bound`: port
    -> tenants' filters on it. `vnis_in_force` has the requested VRFs.
    `saved`: the configuration of the next start equals the applied one.
    """

    switch: str
    vrfs: Mapping[str, VrfNetwork]
    policies: Mapping[str, RoutePolicy | None]
    ports_applied: Mapping[str, str]  # interface -> VRF
    asn: int | None
    has_evpn: bool
    has_vxlan: bool
    vrfs_in_force: frozenset[str]
    ports: Mapping[str, str]
    vnis_in_force: Mapping[str, frozenset[int]] = field(default_factory=dict)
    saved: bool = True
    filters: Mapping[str, PortFilter | None] = field(default_factory=dict)
    bound: Mapping[str, frozenset[str]] = field(default_factory=dict)
    filters_in_force: Mapping[str, PortFilter | None] = field(default_factory=dict)
    bound_in_force: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def vrf_names(self) -> frozenset[str]:
        return self.vrfs_in_force | frozenset(self.vrfs)


@dataclass(frozen=True)
class VrfImports:
    """Tenants' VRFs whose routes a VRF of the site begins or ceases to import."""

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Return whether nothing changes."""
        return not self.added and not self.removed


class PortGuard(NamedTuple):
    """The one tenant's filter of a port while it is in this VRF; "": it has none."""

    vrf: str
    name: str


@dataclass(frozen=True)
class NetworkChange:
    """A change of one leaf that is applied as a whole.

    Each VRF and each policy is complete: the leaf has exactly this of it afterwards.
    """

    removed_vrfs: frozenset[str] = frozenset()
    vrfs: Mapping[str, VrfNetwork] = field(default_factory=dict)
    site_imports: Mapping[str, VrfImports] = field(default_factory=dict)
    policies: Mapping[str, RoutePolicy] = field(default_factory=dict)
    removed_policies: frozenset[str] = frozenset()
    filters: Mapping[str, PortFilter] = field(default_factory=dict)
    removed_filters: frozenset[str] = frozenset()
    bound: Mapping[str, PortGuard] = field(default_factory=dict)  # by port

    @property
    def empty(self) -> bool:
        """Return whether nothing changes."""
        parts = (self.removed_vrfs, self.vrfs, self.site_imports, self.policies)
        more = (self.removed_policies, self.filters, self.removed_filters, self.bound)
        return not any(parts) and not any(more)
