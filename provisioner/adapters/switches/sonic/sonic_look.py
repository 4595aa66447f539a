"""Reads all of one SONiC leaf that the gate of a release judges.

A command whose output cannot be read ends the look: it is whole or it is none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.adapters.switches.sonic import acl_rows, config_db, switch_state
from provisioner.adapters.switches.sonic.config_db import Configuration, Kernel
from provisioner.adapters.switches.systems import ShellLine, list_port_macs
from provisioner.model.recovery import LeafState, PortState, RouteState, VniState, VrfState
from provisioner.model.switch import PortCounters
from provisioner.ports import Clock, Malformed

FAMILIES = ("ipv4", "ipv6")
PHYSICAL = re.compile(r"Ethernet[0-9]{1,4}")  # a port of the front panel


async def read_configuration(line: ShellLine, source: str = "applied") -> Configuration:
    """Return CONFIG_DB ("applied") or the file of the next start ("startup")."""
    command = config_db.STARTUP if source == "startup" else config_db.CONFIGURATION
    read = config_db.read_configuration(await line.read_json(command))
    return line.check(read, command)


async def read_kernel(line: ShellLine, applied: Configuration) -> Kernel:
    """Return the kernel's VRFs and ports."""
    kernel = config_db.read_kernel(await line.read_json(config_db.LINKS), applied)
    return line.check(kernel, config_db.LINKS)


async def read_counts(line: ShellLine, interface: str) -> tuple[int, int, int] | None:
    """Return bytes in, bytes out and damaged frames of one port; None if it has no counters."""
    oid = switch_state.read_port_id(await line.read_text(switch_state.PORT_IDS), interface)
    if oid is None:
        return None
    command = switch_state.build_counters_query(oid)
    return line.check(switch_state.read_counters(await line.read_text(command)), command)


async def read_port_counters(line: ShellLine, interface: str) -> PortCounters:
    """Return the counters of one port. SONiC does not count changes of carrier here."""
    counts = await read_counts(line, interface)
    if counts is None:
        return PortCounters()
    return PortCounters(carried_bytes=counts[0] + counts[1], in_errors=counts[2])


async def read_neighbours(line: ShellLine, interface: str) -> frozenset[tuple[str, str]]:
    """Return the devices that one port hears by LLDP."""
    answer = await line.read_json(switch_state.LLDP)
    return line.check(switch_state.read_lldp(answer, interface), switch_state.LLDP)


async def read_macs(line: ShellLine) -> dict[str, frozenset[str]]:
    """Return front-panel port -> MACs, of its VLANs and of its routed ports."""
    listed = switch_state.read_neighbours(await line.read_json(switch_state.NEIGHBOURS))
    bridged = switch_state.read_macs(await line.read_text(switch_state.MACS))
    return list_port_macs(
        PHYSICAL,
        line.check(listed, switch_state.NEIGHBOURS),
        line.check(bridged, switch_state.MACS),
    )


async def read_state(line: ShellLine, clock: Clock, interfaces: Sequence[str]) -> LeafState:
    """Return the leaf with these ports."""
    applied = await read_configuration(line)
    startup = await read_configuration(line, "startup")
    kernel = await read_kernel(line, applied)
    health = switch_state.read_health(await line.read_text(switch_state.HEALTH))
    listed = switch_state.read_neighbours(await line.read_json(switch_state.NEIGHBOURS))
    lldp = await line.read_json(switch_state.LLDP)
    ports = {}
    for name in interfaces:
        heard = line.check(switch_state.read_lldp(lldp, name), switch_state.LLDP)
        ports[name] = await _read_port(line, name, applied, kernel, heard)
    return LeafState(
        switch=line.name,
        at=clock.now(),
        applied=_digest([sorted(applied.vrfs), repr(sorted(applied.ports.items()))]),
        unsaved=config_db.list_unsaved_ports(applied, startup),
        on_the_way=(),
        issues=line.check(health, switch_state.HEALTH),
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
        neighbours=line.check(listed, switch_state.NEIGHBOURS),
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
        command = switch_state.build_routes_query(vrf, family)
        read = switch_state.read_routes(await line.read_json(command))
        routes += line.check(read, command)
        command = switch_state.build_leaks_query(vrf, family)
        imports |= line.check(switch_state.read_leaks(await line.read_json(command)), command)
    command = switch_state.build_peers_query(vrf)
    peers = line.check(switch_state.read_peers(await line.read_json(command)), command)
    owners = switch_state.read_vnis(await line.read_json(switch_state.VNIS))
    vnis: dict[str, VniState] = {}
    for vni, owner in line.check(owners, switch_state.VNIS).items():
        if owner == vrf and vni.isascii() and vni.isdigit():
            command = switch_state.build_targets_query(vni)
            read_vni = switch_state.read_targets(await line.read_json(command))
            vnis[vni] = line.check(read_vni, command)
    return VrfState(routes=tuple(routes), peers=peers, imports=imports, vnis=vnis)


def _list_acls(tables: Mapping[str, Any], port: str) -> list[tuple[str, str]]:
    """Return (name, direction) of each ACL that is bound to a port."""
    bound = []
    for name, row in tables.get("ACL_TABLE", {}).items():
        if port in acl_rows.list_bound_ports(row):
            egress = str(row.get("stage", acl_rows.STAGE)).lower() == "egress"
            bound.append((name, "outbound" if egress else "inbound"))
    return bound


def _list_rules(tables: Mapping[str, Any], table: str) -> dict[str, Any]:
    rules = tables.get("ACL_RULE", {})
    return {key: row for key, row in rules.items() if key.startswith(f"{table}|")}


def _digest(document: Any) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
