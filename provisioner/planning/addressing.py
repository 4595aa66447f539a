"""Addresses of the rails follow from the place: one /31 for each cable between NIC and leaf.

172.(32·rail + unit//256).(unit mod 256).(2·index), the host's end even, the leaf's end odd
(Netris' Spectrum-X design, rail-optimised). The inverse tells where an address belongs, which
makes a swapped cable one comparison.
"""

from __future__ import annotations

import ipaddress

from provisioner.model.base import Record

RAILS = 8
UNITS_MAX = 32 * 256
HOSTS_MAX = 128  # two addresses each in the last octet


class Link(Record):
    """Both ends of one cable, without prefix length."""

    host: str
    leaf: str

    @property
    def prefix(self) -> str:
        """The link's network, "172.0.0.0/31"."""
        return f"{self.host}/31"


class RailPlace(Record):
    """Where a rail address belongs."""

    rail: int
    scalable_unit: int
    index: int  # of the host in its scalable unit
    leaf_end: bool


def link(rail: int, scalable_unit: int, index: int) -> Link:
    """Addresses of one cable. Places outside the plan are our bug."""
    assert 0 <= rail < RAILS
    assert 0 <= scalable_unit < UNITS_MAX
    assert 0 <= index < HOSTS_MAX
    high, low = divmod(scalable_unit, 256)
    base = f"172.{32 * rail + high}.{low}"
    return Link(host=f"{base}.{2 * index}", leaf=f"{base}.{2 * index + 1}")


def place_of(address: str) -> RailPlace | None:
    """The place of a rail address, with or without prefix length; None if it is none."""
    try:
        first, second, third, last = ipaddress.IPv4Interface(address).ip.packed
    except ValueError:
        return None
    if first != 172:
        return None
    rail, high = divmod(second, 32)
    return RailPlace(
        rail=rail, scalable_unit=high * 256 + third, index=last // 2, leaf_end=last % 2 == 1
    )


def network_of(address: str) -> str | None:
    """The network of an interface address: "172.0.0.0/31" of "172.0.0.1/31"."""
    try:
        return str(ipaddress.ip_interface(address).network)
    except ValueError:
        return None
