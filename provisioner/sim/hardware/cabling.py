"""The cable plan of a rail-optimised Spectrum-X site: names, ports and addresses.

One scalable unit is 32 nodes and one leaf per rail; the addresses of a cable follow from its place
(NVIDIA's reference layout, one /31 per cable: 172.(32 rail).(unit).(2 node)).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

NODES_PER_UNIT = 32
RAILS = 8
SPINES = 4
NODES_PER_RACK = 4
FIRST_UPLINK = 33  # lower leaf ports connect nodes, two per breakout cable


class Place(NamedTuple):
    """A node's position. Numbers start at 0."""

    unit: int
    number: int  # in its unit

    @property
    def node(self) -> str:
        return f"su{self.unit}-n{self.number:02d}"

    @property
    def rack(self) -> str:
        return f"su{self.unit}-rack{self.number // NODES_PER_RACK}"

    def name_leaf(self, rail: int) -> str:
        """Name of the leaf that serves a rail here."""
        return f"leaf-su{self.unit}-r{rail}"

    @property
    def interface(self) -> str:
        """The port on each of its leaves: "swp1s0", "swp1s1", "swp2s0", ..."""
        return f"swp{self.number // 2 + 1}s{self.number % 2}"

    def get_addresses(self, rail: int) -> tuple[str, str]:
        """(host end, leaf end) of a rail's cable, each with its prefix length."""
        prefix = f"172.{32 * rail}.{self.unit}."
        return f"{prefix}{2 * self.number}/31", f"{prefix}{2 * self.number + 1}/31"


def list_places(nodes: int) -> Iterator[Place]:
    """The first `nodes` places, unit by unit."""
    for number in range(nodes):
        yield Place(number // NODES_PER_UNIT, number % NODES_PER_UNIT)


def count_units(nodes: int) -> int:
    """The number of scalable units for this many nodes."""
    return -(-nodes // NODES_PER_UNIT)
