"""The location of a node, its leaf ports, and the outlets of power distribution units (PDUs)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# Places of a fabric: an end of a rail's cable, a switch, an uplink, a tenant. Numbers start at 0.
#
# Named tuples, because a fabric has a million of them: a record would take ten times as long to
# make.


# the ends of a rail's cable
HOST = 0
LEAF = 1
TIERS = ("leaf", "spine", "superspine", "front")


class RailEnd(NamedTuple):
    """One end of the cable between a node's SuperNIC and its leaf."""

    pod: int
    unit: int  # scalable unit, in its pod
    node: int  # in its scalable unit
    rail: int
    plane: int = 0
    link: int = 0  # number among several cables of one rail and plane
    end: int = HOST

    @property
    def other(self) -> RailEnd:
        return self._replace(end=1 - self.end)


class NodePlace(NamedTuple):
    pod: int
    unit: int
    node: int


class SwitchPlace(NamedTuple):
    """A switch. A spine has no scalable unit, a superspine has no pod: 0.

    A leaf of the front-end, for hosts' north-south ports, is the tier "front": no rail is on it.
    """

    tier: str  # of `TIERS`
    pod: int
    unit: int
    number: int  # of a leaf: in its unit and plane; of a spine: in its pod and plane
    plane: int = 0


class Uplink(NamedTuple):
    """A cable from a switch to one of the tier above. The ends have no numbered addresses."""

    lower: SwitchPlace
    number: int  # 0 is the first uplink port of the lower switch


class TenantPlace(NamedTuple):
    """A tenant's number; its VNI and route target are derived from it."""

    number: int


Place = RailEnd | NodePlace | SwitchPlace | Uplink | TenantPlace


class Location(Record):
    """A place in the site. Numbers start at 0."""

    site: str = "site"
    pod: int = 0
    scalable_unit: int = 0
    rack: str = ""
    index: int = 0  # of the node in its scalable unit

    def __str__(self) -> str:
        return f"{self.site}/pod{self.pod}/su{self.scalable_unit}/{self.rack}/n{self.index:02d}"


class Bond(Record):
    """One leaf's part of a bond of a host's north-south ports, which may have a part on each of
    several leaves. Without `segment` and `mlag` all of it is on this leaf.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")  # the leaf's own: "bond1"
    members: tuple[str, ...] = Field(min_length=1, max_length=16)  # front-panel ports of the leaf
    # Ethernet segment identifier of EVPN multihoming (RFC 7432, section 5), ten bytes
    segment: str = Field("", pattern=r"^([0-9a-f]{2}(:[0-9a-f]{2}){9})?$")
    mlag: int = Field(0, ge=0, le=65_535)  # number of an MLAG
    made: bool = False  # the daemon makes it, its VLAN and its segment; otherwise the site does
    vni: int = Field(0, ge=0, lt=1 << 24)  # of the VLAN that is made; 0: none
    mtu: int = Field(0, ge=0, le=9216)  # of bond and VLAN, where made; 0: as the leaf has it


class Port(Record):
    """One leaf port that a node's NIC is cabled to; a port is in exactly one VRF."""

    switch: str  # node id of the leaf
    interface: str  # "swp1s0"
    rail: int  # 0..7 for the SuperNICs; -1 for north-south ports, at leaves of the front-end
    nic_slot: str  # slot of the NIC at the node's end
    address: str = ""  # the leaf end's address with prefix length, "172.0.0.1/31"
    guid: str = Field("", pattern=r"^([0-9a-f]{16})?$")  # of the node's InfiniBand port
    # `interface` is then what routes for it: the interface of its VLAN ("vlan101"), or the bond
    bond: Bond | None = None

    @property
    def plug(self) -> tuple[str, str]:
        """(switch, front-panel port) where its cable is; of a bond its first member."""
        return self.switch, self.bond.members[0] if self.bond else self.interface


def is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def find_host_end(leaf_end: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    """Return "172.0.0.0/31" of "172.0.0.1/31": the other end of a network of two addresses."""
    try:
        leaf = ipaddress.ip_interface(leaf_end)
    except ValueError:
        return None
    if leaf.network.num_addresses != 2:
        return None
    (address,) = (a for a in leaf.network if a != leaf.ip)
    return ipaddress.ip_interface(f"{address}/{leaf.network.prefixlen}")


def list_rail_paths(ports: Sequence[Port], *, to_other_leaf: bool) -> tuple[tuple[str, str], ...]:
    """Return (own address, target) of every rail that has a planned address.

    The target is the leaf's end of the next rail on another leaf. A node of one leaf, and one whose
    rails are not connected with each other, has its own leaf's end.
    """
    rails = [
        (port, end)
        for port in sorted(ports, key=lambda p: p.rail)
        if port.rail >= 0 and not port.guid and (end := find_host_end(port.address)) is not None
    ]
    paths = []
    for number, (port, end) in enumerate(rails):
        later = [other for other, _ in (*rails[number + 1 :], *rails[:number])]
        elsewhere = [
            other
            for other in later
            if to_other_leaf
            and other.switch != port.switch
            and (":" in other.address) == (end.version == 6)
        ]
        target = (elsewhere or [port])[0].address.partition("/")[0]
        paths.append((str(end.ip), target))
    return tuple(paths)


class OutletState(StrEnum):
    """The state that a PDU reports; UNKNOWN covers transitions and everything else."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class Outlet(Record):
    """One outlet: the PDU by its name in the settings, the outlet as that PDU names it."""

    pdu: str = Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    outlet: str = Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")

    def __str__(self) -> str:
        return f"{self.pdu}/{self.outlet}"
