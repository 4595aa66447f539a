"""Recovery of a database that lost writes: the signs of it, and the differences to the switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone

# ------------------------------------------------------------------------------
# The release gate: the checks before a node is a customer's, and the rows of their results.
#
# A row that could not be judged is `unknown`, which is as bad as `fail`; `none` means that there
# was nothing to check (no partner, no overlay), and the proof records that.


# these become arguments of a command line: nothing but the characters of an address
Address = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$")]
InVrf = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*=[0-9]{1,3}(\.[0-9]{1,3}){3}$")]


class GateCheck(StrEnum):
    """A check of the gate. Closed: a new one is a new member with its meaning."""

    PORT_VRF = "port_vrf"  # the port forwards in the tenant's VRF
    ONE_VRF = "one_vrf"  # ... and in no other one: applied, connected routes
    REVISION = "revision"  # no pending revision could move it again
    PERSISTED = "persisted"  # the leaf's startup configuration equals the applied one
    LINK = "link"  # the port is up
    MTU = "mtu"  # and carries whole packets of the tenant's size
    CABLE = "cable"  # the planned node is at its other end
    BOND = "bond"  # a bond has exactly its planned legs, on exactly its planned leaves
    ADDRESS = "address"  # it has the address of its place, and the same ones as before
    FLAPS = "flaps"  # its carrier came and went no more than a move explains
    ACL_BOUND = "acl_bound"  # exactly the filters that must be on it
    ACL_RULES = "acl_rules"  # with the same rules as before
    ROUTE = "route"  # the tenant's VRF has the node's prefix
    OFFLOADED = "offloaded"  # ... in the ASIC
    REMOTE_ROUTE = "remote_route"  # ... and on the node's other leaves, through the overlay
    REMAINDER = "remainder"  # no other VRF has it
    FOREIGN_ROUTE = "foreign_route"  # the tenant's VRF has no route through another VRF
    DEFAULT_ROUTE = "default_route"  # no default route that is not configured
    IMPORTS = "imports"  # it imports routes of exactly the VRFs that it may
    IMPORTERS = "importers"  # and no VRF imports its routes that may not
    PEERS = "peers"  # no session that is not expected
    PEER_STATE = "peer_state"  # every expected session is established
    DYNAMIC_PEERS = "dynamic_peers"  # no dynamic session, and none is possible
    OVERLAY = "overlay"  # its routes use its own VNI only
    TARGETS = "targets"  # with its own route targets only
    FOREIGN_TARGETS = "foreign_targets"  # which no other VRF imports
    NEIGHBOURS = "neighbours"  # no entry of the node outside of its VRF
    FDB = "fdb"  # nor any of its MACs in a bridge
    QOS = "qos"  # unchanged
    LINK_ERRORS = "link_errors"  # no damaged frame received since before the move
    ADAPTIVE_ROUTING = "adaptive_routing"  # unchanged
    HEALTH = "health"  # the leaf reports itself healthy
    REACHES = "reaches"  # packets arrive where they should
    HOST_ROUTE = "host_route"  # its system sends them through the intended rail
    RDMA = "rdma"  # RDMA gets to the tenant's canary as well, on each rail
    SHUT_OUT = "shut_out"  # and to no other network
    SHUT_IN = "shut_in"  # and no other network's packets arrive at the node
    NIC_SETTINGS = "nic_settings"  # its NICs are still set as pinned
    NIC_ERRORS = "nic_errors"  # and counted no error while packets were sent
    CABLES = "cables"  # both ends of each cable report the planned neighbour
    HOSTS_APART = "hosts_apart"  # in maintenance no host reaches another on the agents' network
    STORAGE_OPEN = "storage_open"  # its tenant's export answers its addresses
    STORAGE_SHUT = "storage_shut"  # and those of no other tenant, nor another's export the node
    NVLINK_PARTITION = "nvlink_partition"  # its GPUs are in its tenant's, and in no other
    STANDS = "stands"  # unchanged after a while
    TENANT_LOGIN = "tenant_login"  # its system has the login and the keys of its tenant
    TENANT_USER_DATA = "tenant_user_data"  # its system has the user data of its tenant
    LIBRARIES = "libraries"  # its tenant was told the oldest versions that its libraries need
    LOGIN_REMOVED = "login_removed"  # the daemon's login is gone from its system


class RowVerdict(StrEnum):
    PASS = "pass"  # noqa: S105 (a word, no secret)
    FAIL = "fail"
    UNKNOWN = "unknown"
    NONE = "none"


class GateRow(Record):
    """One check at one place. `seen`: the observation, as text for a person."""

    check: GateCheck
    subject: str  # "leaf-su0-r3/swp1s0", "leaf-su0-r3", or "su0-n00 172.0.0.0 to 10.0.0.1"
    verdict: RowVerdict
    seen: str = ""

    @property
    def bad(self) -> bool:
        return self.verdict in (RowVerdict.FAIL, RowVerdict.UNKNOWN)

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: {self.seen or self.verdict}"


class LeafRecord(Record):
    """One leaf before or after a release, for the proof: digests instead of whole tables."""

    switch: str
    at: Instant
    applied: str
    saved: bool
    ports: tuple[tuple[str, str], ...]  # (interface, VRF)
    sessions: tuple[tuple[str, str, str], ...]  # (VRF, peer, state)
    neighbours: tuple[tuple[str, str, str], ...]  # (interface, address, MAC) on the node's ports
    targets: tuple[tuple[str, str], ...]  # (VRF, imported route target)
    qos: str
    adaptive_routing: str
    acls: tuple[tuple[str, str], ...]  # (name, digest)
    addresses: tuple[tuple[str, str], ...] = ()  # (interface, address)
    bound: tuple[tuple[str, str, str], ...] = ()  # (interface, ACL, direction)
    transitions: tuple[tuple[str, int], ...] = ()  # (interface, carrier changes)
    in_errors: tuple[tuple[str, int], ...] = ()  # (interface, damaged frames received)
    port_qos: tuple[tuple[str, str], ...] = ()  # (interface, digest)


# ------------------------------------------------------------------------------
# The state of one leaf at one moment, as far as the release gate judges it.
#
# Everything here was read from the leaf's operational state, except fields named `applied`, which
# are its configuration. Plain dataclasses: a busy leaf has thousands of routes, and they are made
# at every reading.


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
    bond: BondState | None = None  # that it is, or whose VLAN it routes; None: none, or unread


@dataclass(frozen=True, slots=True)
class BondState:
    """A bond as its leaf has it in force."""

    name: str
    members: frozenset[str]
    down: frozenset[str]  # of its members
    lacp: bool
    segment: str  # Ethernet segment identifier; "": none
    mlag: int  # 0: none
    leaves: int  # that are in its segment or MLAG now, this one among them
    others: frozenset[str]  # ports that are in its VLAN too
    faults: tuple[str, ...]  # the leaf's own words


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


class RevokedKind(StrEnum):
    """What was revoked: from then on it opens or proves nothing."""

    TOKEN = "token"  # noqa: S105 (a kind, not a token)
    CERTIFICATE = "certificate"
    SIGNING_KEY = "signing_key"
    # of these, all that the newest line does not keep
    TENANT = "tenant"
    WEBHOOK = "webhook"
    CAPABILITY = "capability"


class Revocation(Record):
    """One revocation, as it is remembered outside of the database. Never undone."""

    kind: RevokedKind
    id: str
    at: float  # rows that were made later are other ones
    why: str = ""
    # of a tenant, a webhook or a capability: what people left in force, by digest; all else that an
    # older row has was removed. A tenant's rows are older by generation.
    keep: tuple[str, ...] = ()
    generation: int = 0


class HighWater(Record):
    """The position of the database, as a data directory remembers it outside of the database.

    `count` is of this directory's own row in the database, which grows by one with each transaction
    that its daemon commits. `server` and `timeline` are PostgreSQL's.
    """

    site: str  # the database's identity, made with it
    place: str  # the directory's name in the database
    count: int
    journal_rows: int
    journal_head: str
    server: str = ""  # system identifier and number of the database; "" for a file
    timeline: int = 0
    synchronous: bool = False  # whether the last commit waited for a standby


class DatabasePosition(Record):
    """The position that the database itself reports at a start, to compare with a `HighWater`."""

    site: str = ""  # "" if no daemon of this version has opened it yet
    recorded_server: str = ""  # as the daemons recorded it in the database
    recorded_timeline: int = 0
    server: str = ""  # as the server reports it now
    timeline: int = 0
    count: int | None = None  # of this directory's row; None if there is none
    other_places: int = 0  # rows of other directories
    unconfirmed: tuple[str, ...] = ()  # those that have not found their writes on this timeline yet
    head: str = ""  # digest of the journal row that the `HighWater` names; "" if missing
    journal_rows: int = 0
    look_only: str = ""  # why it has been read-only since an earlier start


class DifferenceKind(StrEnum):
    """The kinds of difference between a node's row and the ports of its leaves."""

    SERVES = "serves"  # in a customer's network; the row has it in none
    OTHER_TENANT = "other_tenant"  # in another customer's network than its row has
    LEFT = "left"  # the row has it at a customer; it is no longer there
    DRAINING = "draining"  # the row drains it; it serves, since then or again
    MIXED = "mixed"  # its ports are in several networks
    UNREAD = "unread"  # a leaf does not answer
    OUTSIDE = "outside"  # in no tenant's network; its recent history is not known
    STRANGER = "stranger"  # a port in a customer's network that belongs to no node in service


class Settlement(StrEnum):
    """The decision that settles a difference."""

    ADOPT = "adopt"  # the switches are right
    KEEP = "keep"  # the row is right
    RULE = "rule"  # no decision was needed: it is erased before it gets a tenant


class Difference(Record):
    """One difference between the rows and the switches.

    `subject`: a node; a port that belongs to no node ("leaf/interface"); or a leaf that was not
    read.
    """

    subject: str
    kind: DifferenceKind
    row: str  # the row's statement
    world: str  # the reading
    leaf: str = ""  # the leaf of the port or reading; "" if it concerns a node
    vrf: str = ""  # the network of all ports; "" if there are several
    tenant: str = ""  # tenant of that network; "" if no row has it
    generation: int = 0  # of the node's row when it was compared
    seen_at: InstantOrNone = 0.0
    settled: Settlement | None = None
    settled_by: str = ""
    settled_at: InstantOrNone = 0.0
