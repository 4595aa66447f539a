"""Counters at both ends of the cables under test: the host's ports, and the leaf's.

They are read before and after a test of suspects, so that a bad link can be attributed to the cable
or to the optics (`planning/fault_location/fabric_verdicts.py`). An end that does not answer, or
whose counters went back, counts nothing: then the suspect stays "link". The names are mlx5's in the
kernel's documentation (counters of the physical port).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.checks.fabric.rail_port import Member
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.observe.rotation import open_switch
from provisioner.model.fabric_session import CableEnds, DamageCount
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import PortError
from provisioner.store.sql_store import SqlStore

READ_S = 30.0
HOST = ("rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy")
HOST_DOWNS = "link_down_events_phy"
LEAF = "in-errors"
LEAF_DOWNS = "carrier-transitions"
_LINE = re.compile(r"^\s*(?:device ([A-Za-z0-9._-]{1,63})|(copper)|([a-z_]{1,40}): (\d{1,20}))\s*$")
_NAMES = "|".join((*HOST, HOST_DOWNS))


@dataclass(frozen=True)
class Look:
    """What both ends of a node's cables counted until `at`, by rail."""

    at: float
    host: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    leaf: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    copper: frozenset[int] = frozenset()


async def look(
    site: Site, store: SqlStore, node: Node, member: Member, rails: Sequence[int]
) -> Look:
    """Read the counters of these rails once. An end that does not answer is left out."""
    devices = {member.find_port(rail).device: rail for rail in rails}
    host = run_commands(site, node, [("ends", line(sorted(devices)), READ_S)])
    ports = {p.rail: (p.switch, p.interface) for p in node.ports if p.rail in rails}
    leaves = asyncio.gather(*(_leaf(site, store, *ports[rail]) for rail in sorted(ports)))
    outputs, counted = await asyncio.gather(host, leaves)
    counted_of = {} if isinstance(outputs, Blocker) else read(outputs["ends"].text)
    return Look(
        at=site.clock.now(),
        host={devices[d]: counts for d, counts in counted_of.items() if d in devices},
        leaf={
            r: counts_of_leaf
            for r, counts_of_leaf in zip(sorted(ports), counted, strict=True)
            if counts_of_leaf
        },
        copper=frozenset(
            devices[d] for d, c in counted_of.items() if d in devices and "copper" in c
        ),
    )


def line(devices: Sequence[str]) -> str:
    """Return the shell line that prints the port counters of these RDMA devices."""
    return (
        f"for d in {' '.join(devices)}; do for n in /sys/class/infiniband/$d/device/net/*; do"
        " n=$(basename $n); echo device $d;"
        f" ethtool -S $n | grep -E '^ *({_NAMES}): [0-9]+$';"
        " ethtool -m $n 2>/dev/null | grep -qiE 'copper|passive cu' && echo copper;"
        " done; done; echo counted"
    )


def read(text: str) -> dict[str, dict[str, int]]:
    """Return RDMA device -> counters; {} for incomplete output."""
    counters: dict[str, dict[str, int]] = {}
    current: dict[str, int] | None = None
    *lines, last = text.strip().split("\n")
    if last.strip() != "counted":
        return {}
    for text_line in lines:
        match = _LINE.match(text_line)
        if match is None or (match[1] is None and current is None):
            return {}
        if match[1]:
            if match[1] in counters:
                return {}
            current = counters[match[1]] = {}
        elif current is not None:
            current[match[2] or match[3]] = 1 if match[2] else int(match[4])
    return counters


def between(node: str, before: Look, after: Look) -> tuple[CableEnds, ...]:
    """Return the damaged frames that each end received between two readings, for the counters that
    both have.
    """
    return tuple(
        CableEnds(
            node=node,
            rail=rail,
            at_node=_grown(before, after, before.host.get(rail), after.host.get(rail), HOST),
            at_leaf=_grown(before, after, before.leaf.get(rail), after.leaf.get(rail), (LEAF,)),
            detachable=rail not in after.copper,
        )
        for rail in sorted(set(after.host) | set(after.leaf))
    )


def _grown(
    before: Look,
    after: Look,
    had: Mapping[str, int] | None,
    has: Mapping[str, int] | None,
    names: Sequence[str],
) -> DamageCount | None:
    if had is None or has is None:
        return None
    deltas = {n: has[n] - had[n] for n in has if n in had and n != "copper"}
    damaged = [deltas[n] for n in names if n in deltas]
    downs = deltas.get(HOST_DOWNS, deltas.get(LEAF_DOWNS, 0))
    if not damaged or min(*damaged, downs, 0) < 0 or after.at <= before.at:
        return None
    return DamageCount(
        damaged=max(damaged), link_downs=downs, began_at=before.at, ended_at=after.at
    )


async def _leaf(site: Site, store: SqlStore, switch: str, interface: str) -> dict[str, int]:
    """Return a leaf port's counters; {} if the leaf does not report them."""
    node = await store.nodes.get(switch)
    if node is None:
        return {}
    try:
        opened = await open_switch(site, node)
        if isinstance(opened, Blocker):
            return {}
        counters = await opened.read_counters(interface)
    except PortError:
        return {}
    listed = {LEAF: counters.in_errors, LEAF_DOWNS: counters.carrier_changes}
    return {name: count for name, count in listed.items() if count is not None}
