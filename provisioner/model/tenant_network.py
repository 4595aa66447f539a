"""Tenants' networks on a leaf: VRFs with EVPN and BGP, sessions to the outside, route policies.

No operating system's own form appears here: `adapters/switches` translates between these records
and a switch's configuration. `NetworkState` is a reading, `LeafNetworks` the desired state, and
`NetworkChange` the part of it that a leaf lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VRF_NAME_MAX = 15  # characters: a VRF is an interface in Linux


@dataclass(frozen=True)
class NetworkLimits:
    """Limits of a switch's operating system on which plans of tenants' networks depend."""

    vrf_name_max: int = VRF_NAME_MAX  # characters, as the fabric names it
    vrfs_max: int | None = None  # beside the default VRF; None: no limit is published
    tenant_networks: bool = False  # whether its adapter writes tenants' networks


@dataclass(frozen=True)
class OutsideSession:
    """A BGP session of a VRF. `is_on`: it exchanges IPv4 routes with a neighbour by address."""

    remote_as: int | None  # None: the switch does not name a number
    policy_in: str
    policy_out: str
    is_on: bool = True


@dataclass(frozen=True)
class RoutePolicy:
    """The prefixes that pass a session in one direction; every other route is denied.

    `with_parts`: longer prefixes inside of the listed ones pass too.
    """

    prefixes: tuple[str, ...]
    with_parts: bool = False


@dataclass(frozen=True)
class VrfNetwork:
    """The EVPN and BGP configuration of one VRF.

    `is_announced`: EVPN and BGP are on, and its connected routes go into both.
    """

    vnis: frozenset[int] = frozenset()
    import_targets: frozenset[str] = frozenset()
    export_targets: frozenset[str] = frozenset()
    asn: int | None = None
    router_id: str = ""
    is_announced: bool = False
    imports_vrfs: bool = False  # whether it imports routes of other VRFs of its leaf
    imported_vrfs: frozenset[str] = frozenset()
    sessions: Mapping[str, OutsideSession] = field(default_factory=dict)  # by the peer's address


@dataclass(frozen=True)
class LeafNetworks:
    """The desired networks of a leaf.

    `site_imports`: VRF of the site -> tenants' VRFs whose routes it imports.
    """

    vrfs: Mapping[str, VrfNetwork] = field(default_factory=dict)
    site_imports: Mapping[str, frozenset[str]] = field(default_factory=dict)
    policies: Mapping[str, RoutePolicy] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkState:
    """A leaf as it was read: first its applied configuration, then its operational state.

    A policy of another form than `RoutePolicy` is None. `vnis_in_force` has the requested VRFs.
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

    @property
    def vrf_names(self) -> frozenset[str]:
        """Return the names of all VRFs, of the configuration and of the operational state."""
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

    @property
    def empty(self) -> bool:
        """Return whether nothing changes."""
        parts = (self.removed_vrfs, self.vrfs, self.site_imports, self.policies)
        return not any(parts) and not self.removed_policies
