"""The release gate: the checks before a node is a customer's, and the rows of their results.

A row that could not be judged is `unknown`, which is as bad as `fail`; `none` means that there was
nothing to check (no partner, no overlay), and the proof records that.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant

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
    STANDS = "stands"  # unchanged after a while
    TENANT_LOGIN = "tenant_login"  # its system has the login and the keys of its tenant
    TENANT_USER_DATA = "tenant_user_data"  # its system has the user data of its tenant
    LOGIN_REMOVED = "login_removed"  # the daemon's login is gone from its system


class RowVerdict(StrEnum):
    """The result of a row."""

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
        """Return whether the row keeps a node from its tenant."""
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
