"""Faults that may be planted in a simulated switch.

A planted fault is the truth: it is not in any configuration, and shows only where a real switch
would show it (routes, sessions, tables, counters) or in the fate of packets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]


@dataclass
class Planted:
    """Faults. VRFs, prefixes and interfaces by name."""

    routes: list[tuple[str, str, str, str]] = field(default_factory=list)  # VRF prefix how via-VRF
    missing: set[str] = field(default_factory=set)  # prefixes that are in no table
    soft: set[str] = field(default_factory=set)  # prefixes that the ASIC does not have
    peers: dict[tuple[str, str], Tree] = field(default_factory=dict)  # (VRF, peer) -> its entry
    neighbours: list[tuple[str, str, str]] = field(default_factory=list)  # interface address MAC
    macs: dict[str, str] = field(default_factory=dict)  # MAC -> interface, in a bridge
    links: dict[str, Tree] = field(default_factory=dict)  # interface -> what its link shows
    lldp: dict[str, tuple[str, str]] = field(default_factory=dict)  # interface -> true neighbour
    targets: dict[str, set[str]] = field(default_factory=dict)  # VNI -> taken in as well
    issues: dict[str, str] = field(default_factory=dict)  # of the switch's health
    qos: Tree = field(default_factory=dict)
    adaptive: Tree = field(default_factory=dict)
    flaps: dict[str, int] = field(default_factory=dict)  # interface -> carrier changes more
    paths: set[tuple[str, str]] = field(default_factory=set)  # packets get from VRF to VRF
    drops: set[str] = field(default_factory=set)  # interfaces through which nothing gets
    no_rdma: set[str] = field(default_factory=set)  # interfaces through which only that is lost
    errors: dict[str, int] = field(default_factory=dict)  # interface -> damaged frames it received
    port_qos: dict[str, Tree] = field(default_factory=dict)  # interface -> what differs there
    busy: set[str] = field(default_factory=set)  # interfaces that never fall silent
