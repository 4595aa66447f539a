"""Reads all of one SONiC leaf that the gate of a release judges.

A command whose output cannot be read ends the look: it is whole or it is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.adapters.switches.shell_line import ShellLine
from provisioner.adapters.switches.sonic import acl_words, config_words, state_words
from provisioner.adapters.switches.sonic.config_words import Configuration, Kernel
from provisioner.model.leaf_state import LeafState, PortState, RouteState, VniState, VrfState
from provisioner.model.switch import PortCounters
from provisioner.ports import Clock, Malformed

FAMILIES = ("ipv4", "ipv6")


async def read_configuration(line: ShellLine, source: str = "applied") -> Configuration:
    """Return CONFIG_DB ("applied") or the file of the next start ("startup")."""
    command = config_words.STARTUP if source == "startup" else config_words.CONFIGURATION
    read = config_words.read_configuration(await line.read_json(command))
    return line.check(read, command)


async def read_kernel(line: ShellLine, applied: Configuration) -> Kernel:
    """Return the kernel's VRFs and ports."""
    kernel = config_words.read_kernel(await line.read_json(config_words.LINKS), applied)
    return line.check(kernel, config_words.LINKS)


async def read_counts(line: ShellLine, interface: str) -> tuple[int, int, int] | None:
    """Return bytes in, bytes out and damaged frames of one port; None if it has no counters."""
    oid = state_words.read_port_id(await line.read_text(state_words.PORT_IDS), interface)
    if oid is None:
        return None
    command = state_words.counters(oid)
    return line.check(state_words.read_counters(await line.read_text(command)), command)


async def read_port_counters(line: ShellLine, interface: str) -> PortCounters:
    """Return the counters of one port. SONiC does not count changes of carrier here."""
    counts = await read_counts(line, interface)
    if counts is None:
        return PortCounters()
    return PortCounters(carried_bytes=counts[0] + counts[1], in_errors=counts[2])


async def read_neighbours(line: ShellLine, interface: str) -> frozenset[tuple[str, str]]:
    """Return the devices that one port hears by LLDP."""
    answer = await line.read_json(state_words.LLDP)
    return line.check(state_words.read_lldp(answer, interface), state_words.LLDP)


async def read_state(line: ShellLine, clock: Clock, interfaces: Sequence[str]) -> LeafState:
    """Return the leaf with these ports."""
    applied = await read_configuration(line)
    startup = await read_configuration(line, "startup")
    kernel = await read_kernel(line, applied)
    health = state_words.read_health(await line.read_text(state_words.HEALTH))
    listed = state_words.read_neighbours(await line.read_json(state_words.NEIGHBOURS))
    lldp = await line.read_json(state_words.LLDP)
    ports = {}
    for name in interfaces:
        heard = line.check(state_words.read_lldp(lldp, name), state_words.LLDP)
        ports[name] = await _read_port(line, name, applied, kernel, heard)
    return LeafState(
        switch=line.name,
        at=clock.now(),
        applied=_digest([sorted(applied.vrfs), repr(sorted(applied.ports.items()))]),
        unsaved=config_words.list_unsaved_ports(applied, startup),
        on_the_way=(),
        issues=line.check(health, state_words.HEALTH),
        qos="",
        adaptive_routing="",
        acls={
            name: _digest([row, _list_rules(applied.tables, name)])
            for name, row in applied.tables.get("ACL_TABLE", {}).items()
        },
        ports=ports,
        vrf_of={name: port.vrf for name, port in kernel.ports.items()},
        vrfs={vrf: await _read_vrf(line, vrf) for vrf in sorted(kernel.vrfs)},
        applied_targets={},
        applied_peers={vrf: frozenset() for vrf in applied.vrfs},
        listens=frozenset(),
        neighbours=line.check(listed, state_words.NEIGHBOURS),
    )


async def _read_port(
    line: ShellLine,
    name: str,
    applied: Configuration,
    kernel: Kernel,
    heard: frozenset[tuple[str, str]],
) -> PortState:
    if name not in kernel.ports or name not in applied.ports:
        raise Malformed(f"{line.url}: it has no interface {name}")
    port = kernel.ports[name]
    counts = await read_counts(line, name)
    return PortState(
        vrf=port.vrf,
        applied_vrf=applied.ports[name].vrf,
        coming=frozenset(),
        up=port.up,
        mtu=port.mtu,
        addresses=frozenset(port.addresses),
        acls=frozenset(_list_acls(applied.tables, name)),
        neighbours=heard,
        transitions=None,
        in_bytes=None if counts is None else counts[0],
        out_bytes=None if counts is None else counts[1],
        in_errors=None if counts is None else counts[2],
    )


async def _read_vrf(line: ShellLine, vrf: str) -> VrfState:
    routes: list[RouteState] = []
    imports: frozenset[str] = frozenset()
    for family in FAMILIES:
        command = state_words.routes(vrf, family)
        read = state_words.read_routes(await line.read_json(command))
        routes += line.check(read, command)
        command = state_words.leaks(vrf, family)
        imports |= line.check(state_words.read_leaks(await line.read_json(command)), command)
    command = state_words.peers(vrf)
    peers = line.check(state_words.read_peers(await line.read_json(command)), command)
    owners = state_words.read_vnis(await line.read_json(state_words.VNIS))
    vnis: dict[str, VniState] = {}
    for vni, owner in line.check(owners, state_words.VNIS).items():
        if owner == vrf and vni.isascii() and vni.isdigit():
            command = state_words.targets(vni)
            read_vni = state_words.read_targets(await line.read_json(command))
            vnis[vni] = line.check(read_vni, command)
    return VrfState(routes=tuple(routes), peers=peers, imports=imports, vnis=vnis)


def _list_acls(tables: Mapping[str, Any], port: str) -> list[tuple[str, str]]:
    """Return (name, direction) of each ACL that is bound to a port."""
    bound = []
    for name, row in tables.get("ACL_TABLE", {}).items():
        if port in acl_words.list_bound_ports(row):
            egress = str(row.get("stage", acl_words.STAGE)).lower() == "egress"
            bound.append((name, "outbound" if egress else "inbound"))
    return bound


def _list_rules(tables: Mapping[str, Any], table: str) -> dict[str, Any]:
    rules = tables.get("ACL_RULE", {})
    return {key: row for key, row in rules.items() if key.startswith(f"{table}|")}


def _digest(document: Any) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
