"""Who a node may be given to, and where each of its ports is."""

from __future__ import annotations

from provisioner.model.base import Record

MAINTENANCE_VRF = "MAINT"  # 15 characters at most (Cumulus), never a customer's


class Tenant(Record):
    """A customer: one VRF. `nodes_wanted` is how many certified nodes it waits for or has."""

    name: str
    vrf: str
    l3vni: int = 0
    nodes_wanted: int = 0


class PortPlacement(Record):
    """The VRF of one port as read back from the switch's operational state; "" means none."""

    switch: str
    interface: str
    vrf: str


class ReleaseProof(Record):
    """What was seen when a node entered a customer VRF: stored beside the certificate."""

    node: str
    certificate: str
    tenant: str
    placements: tuple[PortPlacement, ...]
    leaks: tuple[str, ...] = ()  # VRFs other than the tenant's in which a node prefix was seen
    persisted: bool = False  # startup equals applied on every leaf
    revisions: tuple[str, ...] = ()  # "switch:revision"
    confirmed_at: float = 0.0
