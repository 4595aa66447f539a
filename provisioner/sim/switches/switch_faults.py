"""Faults that can be planted in a simulated switch.

A planted fault is the truth: it is in no configuration, and shows only where a real switch would
show it (routes, sessions, tables, counters) or in the delivery of packets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]


@dataclass
class Planted:
    """Faults. VRFs, prefixes and interfaces by name."""

    routes: list[tuple[str, str, str, str]] = field(default_factory=list)  # VRF prefix how via-VRF
    missing: set[str] = field(default_factory=set)  # prefixes in no table
    soft: set[str] = field(default_factory=set)  # prefixes missing in the ASIC
    peers: dict[tuple[str, str], Tree] = field(default_factory=dict)  # (VRF, peer) -> its entry
    neighbours: list[tuple[str, str, str]] = field(default_factory=list)  # interface address MAC
    macs: dict[str, str] = field(default_factory=dict)  # MAC -> interface, in a bridge
    links: dict[str, Tree] = field(default_factory=dict)  # interface -> its link document
    lldp: dict[str, tuple[str, str]] = field(default_factory=dict)  # interface -> true neighbour
    silent: set[str] = field(default_factory=set)  # interfaces that LLDP does not pass
    targets: dict[str, set[str]] = field(default_factory=dict)  # VNI -> additional imports
    issues: dict[str, str] = field(default_factory=dict)  # of the switch's health
    qos: Tree = field(default_factory=dict)
    adaptive: Tree = field(default_factory=dict)
    flaps: dict[str, int] = field(default_factory=dict)  # interface -> additional carrier changes
    paths: set[tuple[str, str]] = field(default_factory=set)  # packets pass from VRF to VRF
    drops: set[str] = field(default_factory=set)  # interfaces that drop everything
    no_rdma: set[str] = field(default_factory=set)  # interfaces that drop only RDMA
    errors: dict[str, int] = field(default_factory=dict)  # interface -> damaged frames it received
    port_qos: dict[str, Tree] = field(default_factory=dict)  # interface -> its differences
    busy: set[str] = field(default_factory=set)  # interfaces with permanent traffic
    filters_ignored: bool = False  # the hardware forwards what its access lists deny
