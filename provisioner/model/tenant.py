"""Who a node may be given to, and where each of its ports is."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.release import GateRow, LeafRecord

MAINTENANCE_VRF = "MAINT"  # 15 characters at most (Cumulus), never a customer's


class Phase(StrEnum):
    """How far a tenant's network is made. Only a ready one is given nodes."""

    MAKING = "making"  # written down; not yet proved on every leaf
    READY = "ready"  # seen on every leaf concerned, or prepared by the site
    LEAVING = "leaving"  # it gets nothing any more; gone once no leaf has it


class Quota(Record):
    """What a tenant may have at most. None: no limit was set."""

    nodes: int | None = Field(default=None, ge=0)
    gpus: int | None = Field(default=None, ge=0)
    prefixes: int | None = Field(default=None, ge=0)  # that it may exchange with the outside


class Outside(Record):
    """One BGP session of a tenant to the outside. What is not listed is neither sent nor taken."""

    switch: str  # node id of the leaf that has the session
    peer: str  # address of the router outside
    remote_as: int = Field(ge=1, le=4_294_967_295)
    accepts: tuple[str, ...] = ()  # prefixes that may come in, exactly these
    sends: tuple[str, ...] = ()  # prefixes that may go out, and parts of them


class Tenant(Record):
    """A customer: one VRF, or one partition. `nodes_wanted`: certified nodes it waits for or has.

    A tenant of the expected-hardware list has no number: the site prepared its VRF itself, and
    nothing here makes or removes it.
    """

    name: str
    vrf: str
    l3vni: int = 0
    nodes_wanted: int = 0
    number: int | None = None  # its VNI and route target follow (`planning/places/addressing.py`)
    pkey: int = 0  # of its InfiniBand partition; 0: none
    units: tuple[tuple[int, int], ...] = ()  # (pod, scalable unit) of its nodes; (): anywhere
    outside: tuple[Outside, ...] = ()
    storage: tuple[str, ...] = ()  # VRFs whose routes it imports, and nothing else
    quota: Quota = Quota()
    phase: Phase = Phase.READY
    generation: int = 0  # grows by one with every change

    def may_have(self, pod: int, unit: int) -> bool:
        """Whether its nodes may stand in this scalable unit."""
        return not self.units or (pod, unit) in self.units


class PortPlacement(Record):
    """The VRF of one port as read back from the switch's operational state; "" means none."""

    switch: str
    interface: str
    vrf: str


class ReleaseProof(Record):
    """What was seen when a node entered a customer VRF: stored beside the certificate.

    Version 2 has everything below `confirmed_at`. `sha256` is of the canonical JSON of all
    the rest (`planning/release/release_proof.py`), the certificate's id included.
    """

    node: str
    certificate: str
    tenant: str
    placements: tuple[PortPlacement, ...]
    leaks: tuple[str, ...] = ()  # VRFs other than the tenant's in which a node prefix was seen
    persisted: bool = False  # startup equals applied on every leaf
    revisions: tuple[str, ...] = ()  # "switch:revision"
    confirmed_at: float = 0.0

    version: int = 1
    vrf: str = ""
    began_at: float = 0.0
    certificate_digest: str = ""  # of the certificate's own record
    before: tuple[LeafRecord, ...] = ()
    after: tuple[LeafRecord, ...] = ()
    gate: tuple[GateRow, ...] = ()
    watched_s: float = 0.0  # how long it was looked at after the move, before it was believed
    sha256: str = ""
