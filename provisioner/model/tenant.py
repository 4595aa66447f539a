"""Tenants, and the placement of each port of their nodes."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.matrix import UNKNOWN
from provisioner.model.recovery import GateRow, LeafRecord
from provisioner.model.storage import FileStorage
from provisioner.model.tenant_network import SecurityGroup
from provisioner.model.times.instant import Instant, InstantOrNone

MAINTENANCE_VRF = "MAINT"  # at most VRF_NAME_MAX characters, never a customer's
PKEY_MAINTENANCE = 0xFF  # the P_Key of the InfiniBand partition that stands for it
PKEYS = range(0x1, 0x7FFF)  # UFM: between 0x0 and 0x7fff, both excluded


class Phase(StrEnum):
    """The phase of a tenant's network. Only a ready one gets nodes."""

    MAKING = "making"  # recorded; not yet proved on every leaf
    READY = "ready"  # observed on every leaf concerned, or prepared by the site
    LEAVING = "leaving"  # it gets no more nodes; removed once no leaf has it


class Quota(Record):
    """The limits of a tenant. None: no limit is set."""

    nodes: int | None = Field(default=None, ge=0)
    gpus: int | None = Field(default=None, ge=0)
    prefixes: int | None = Field(default=None, ge=0)  # that it may exchange with the outside


class Outside(Record):
    """One BGP session of a tenant to the outside, for IPv4 or IPv6 as its peer's address is.

    Prefixes that are not listed pass in no direction.
    """

    switch: str  # node id of the leaf that has the session
    peer: str  # address of the router outside
    remote_as: int = Field(ge=1, le=4_294_967_295)
    accepts: tuple[str, ...] = ()  # prefixes that may come in, exactly these
    sends: tuple[str, ...] = ()  # prefixes that may go out, and parts of them
    accepts_parts: bool = False  # parts of `accepts` may come in too; this needs a limit
    # "AS:NUMBER" (RFC 1997) or "AS:NUMBER:NUMBER" (RFC 8092), on each route that goes out
    communities: tuple[str, ...] = Field(default=(), max_length=32)
    # routes from the peer at which the session ends; None: the site's `outside_prefixes_max`
    prefixes_max: int | None = Field(default=None, ge=1, le=4_294_967_295)


class TenantKey(Record):
    """A public key of SSH that a tenant's nodes get at their handover."""

    name: str
    public_key: str  # kind and base64 of OpenSSH, without a comment
    added_by: str
    added_at: Instant


class TenantUserData(Record):
    """The user data that a tenant's nodes get at their handover. Its text is in the vault alone.

    Not even a digest is here: a guess of a secret in it could be tried against that.
    """

    version: str = Field(description="Name of this text, made at random.")
    kind: str = Field(description="Its form: cloud-config or script.")
    size_bytes: int = Field(description="Length of the text in bytes.")
    set_by: str = Field(description="Person or program that set it.")
    set_at: Instant = Field(description="Time at which it was set.")


def name_user_data(tenant: str, version: str) -> str:
    return f"user-data/{tenant}/{version}"


# in place of a space's id, from before the first request for it on: an empty one is ours then
SPACE_MAKING = "making"


class Tenant(Record):
    """A customer: one VRF, or one partition. `nodes_wanted`: certified nodes that it has or waits
    for.

    A tenant of the expected-hardware list has no number: the site prepared its VRF itself, and the
    daemon neither makes nor removes it.
    """

    name: str
    vrf: str
    l3vni: int = 0
    nodes_wanted: int = 0
    number: int | None = None  # basis of VNI and route target (`planning/places/addressing.py`)
    pkey: int = 0  # of its InfiniBand partition; 0: none
    units: tuple[tuple[int, int], ...] = ()  # (pod, scalable unit) of its nodes; (): anywhere
    picked: tuple[str, ...] = ()  # nodes that a person chose for it: it gets them before others
    spread: bool = False  # its nodes are spread over units and racks, not kept together
    outside: tuple[Outside, ...] = ()
    storage: tuple[str, ...] = ()  # VRFs from which it imports routes, and no others
    file_storage: FileStorage | None = None  # its shared storage; None: it has none
    space_handle: str = ""  # the storage's lasting id of the space that was made for it
    security_groups: tuple[SecurityGroup, ...] = ()
    quota: Quota = Quota()
    ssh_keys: tuple[TenantKey, ...] = ()  # of its own login on its nodes, by name
    user_data: TenantUserData | None = None  # of its nodes' first boot; None: it has none
    phase: Phase = Phase.READY
    generation: int = 0  # grows by one with every change

    @property
    def is_damaged(self) -> bool:
        """Whether its row cannot be read, so that only name, VRF and number are left of it."""
        return self.generation < 0

    @property
    def takes_nodes(self) -> bool:
        """Whether all that is made for it is there, so that nodes may be given to it."""
        return self.phase is Phase.READY and (self.file_storage is None or self.has_space)

    @property
    def has_space(self) -> bool:
        """Whether its space on the storage was made, and is known."""
        return self.space_handle not in ("", SPACE_MAKING)

    def may_have(self, pod: int, unit: int) -> bool:
        """Return whether its nodes may be in this scalable unit."""
        return not self.units or (pod, unit) in self.units


class LibraryMinimum(Record):
    """The oldest version of a library that a tenant's software needs on a node, as published."""

    library: str = Field(description="`nccl`, `doca` or `cuda`.")
    minimum: str = Field(description="Oldest version; `unknown`: no public document says one.")
    tested: str = Field("", description="Version of the release's own stack; empty: none is named.")
    why: str = Field("", description="What the documents say.")
    evidence: tuple[str, ...] = Field((), description="Where it is published.")

    def __str__(self) -> str:
        tested = f" (tested with {self.tested})" if self.tested else ""
        known = self.minimum != UNKNOWN
        words = f"{self.minimum} or newer" if known else "minimum not published"
        return f"{self.library.upper()}: {words}{tested}"


class PortPlacement(Record):
    """The VRF of one port as read back from the switch's operational state; "" means none."""

    switch: str
    interface: str
    vrf: str


class ReleaseProof(Record):
    """The observations when a node entered a customer VRF: stored beside the certificate.

    Version 2 has everything below `confirmed_at`. `sha256` is of the canonical JSON of all other
    fields (`planning/release/release_probes.py`), the certificate's id included.
    """

    node: str
    certificate: str
    tenant: str
    placements: tuple[PortPlacement, ...]
    leaks: tuple[str, ...] = ()  # VRFs other than the tenant's that had a prefix of the node
    persisted: bool = False  # startup equals applied on every leaf
    revisions: tuple[str, ...] = ()  # "switch:revision"
    confirmed_at: InstantOrNone = 0.0

    version: int = 1
    vrf: str = ""
    began_at: InstantOrNone = 0.0
    certificate_digest: str = ""  # of the certificate's own record
    before: tuple[LeafRecord, ...] = ()
    after: tuple[LeafRecord, ...] = ()
    gate: tuple[GateRow, ...] = ()
    watched_s: float = 0.0  # how long it was observed after the move
    libraries: tuple[LibraryMinimum, ...] = ()  # that its tenant was told
    sha256: str = ""
