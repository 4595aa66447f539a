"""Rows of the gate about one leaf's routes, sessions, overlay, neighbours and MACs. Pure.

A tenant's routes stay in its VRF on every leaf, in both address families. Every way in which routes
enter (an import, a route target, a session) must be one that the tenant requested.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Set
from functools import lru_cache

from provisioner.model.recovery import (
    GateCheck,
    GateRow,
    LeafRecord,
    LeafState,
    RouteState,
    RowVerdict,
    VrfState,
)
from provisioner.planning.release.port_isolation import DEFAULTS, GateAsk

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
UP = "established"


def judge(ask: GateAsk, leaf: LeafState, before: LeafRecord | None) -> Iterator[GateRow]:
    name = leaf.switch
    own = leaf.vrfs.get(ask.vrf)
    if own is None:
        yield _row(GateCheck.ROUTE, name, f"it has no VRF {ask.vrf}")
        return
    yield from _present(ask, leaf, own)
    yield _row(GateCheck.REMAINDER, name, _remainder(ask, leaf))
    yield _row(GateCheck.FOREIGN_ROUTE, name, _foreign(ask, own))
    yield _row(GateCheck.DEFAULT_ROUTE, name, _default(ask, own))
    yield from _imports(ask, leaf, own)
    yield from _sessions(ask, leaf, own)
    yield from _overlay(ask, leaf, own)
    yield _row(GateCheck.NEIGHBOURS, name, _neighbours(ask, leaf, before))
    yield _row(GateCheck.FDB, name, _bridged(ask, leaf, before))


def judge_far_leaf(ask: GateAsk, leaf: LeafState) -> Iterator[GateRow]:
    """Return the rows of a leaf that has no port of the node but some of its tenant's."""
    own = leaf.vrfs.get(ask.vrf)
    if own is None:
        yield _row(GateCheck.REMOTE_ROUTE, leaf.switch, f"it has no VRF {ask.vrf}")
        return
    yield _learnt(ask, leaf, own, frozenset())
    yield _row(GateCheck.REMAINDER, leaf.switch, _remainder(ask, leaf))
    yield from _overlay(ask, leaf, own)


def _present(ask: GateAsk, leaf: LeafState, own: VrfState) -> Iterator[GateRow]:
    """Return rows for the prefixes of the leaf's own ports and, on an overlay, of the node's
    others.
    """
    here = {
        str(parse_network(p.address)) for p in ask.ports if p.switch == leaf.switch and p.address
    }
    by_prefix: dict[str, list[RouteState]] = {}
    for route in own.routes:
        by_prefix.setdefault(route.prefix, []).append(route)
    missing = sorted(p for p in here if not any(r.selected for r in by_prefix.get(p, ())))
    yield _row(GateCheck.ROUTE, leaf.switch, f"{ask.vrf} has no {missing[0]}" if missing else "")
    soft = [
        p
        for p in sorted(here & set(by_prefix))
        if not any(r.offloaded and r.selected for r in by_prefix[p])
    ]
    problem = f"{soft[0]} is in the kernel and not in the ASIC" if soft else ""
    yield _row(GateCheck.OFFLOADED, leaf.switch, problem)
    yield _learnt(ask, leaf, own, here)


def _learnt(ask: GateAsk, leaf: LeafState, own: VrfState, here: Set[str]) -> GateRow:
    """Return whether, on an overlay, this leaf has learnt the prefixes of the node's other
    leaves.
    """
    if not own.vnis:
        return GateRow(
            check=GateCheck.REMOTE_ROUTE,
            subject=leaf.switch,
            verdict=RowVerdict.NONE,
            seen="no overlay in this VRF",
        )
    selected = [
        parse_network(r.prefix) for r in own.routes if r.selected and r.prefix not in DEFAULTS
    ]
    far = sorted(
        p for p in ask.prefixes - here if not any(_covers(s, parse_network(p)) for s in selected)
    )
    problem = f"{ask.vrf} has no {far[0]} of the node's other leaf" if far else ""
    return _row(GateCheck.REMOTE_ROUTE, leaf.switch, problem)


def own_networks(ask: GateAsk, leaf: LeafState) -> frozenset[str]:
    """The node's networks: the planned ones, and those of all addresses of its ports here."""
    networks = set(ask.prefixes)
    for port in ask.ports:
        state = leaf.ports.get(port.interface) if port.switch == leaf.switch else None
        for address in state.addresses if state is not None else ():
            network = ipaddress.ip_interface(address).network
            if not network.network_address.is_link_local:
                networks.add(str(network))
    return frozenset(networks)


def _remainder(ask: GateAsk, leaf: LeafState) -> str:
    """Return a route to the node, or to a part of one of its links, in any VRF but its own.

    A shorter prefix is none: a unit's summary is in the maintenance VRF by design. Nor is a route
    that a storage VRF of its tenant imported from the tenant's, because storage could not answer
    without it.
    """
    mine = [parse_network(p) for p in own_networks(ask, leaf)]
    lengths = min((m.prefixlen for m in mine), default=0)
    for vrf in sorted(set(leaf.vrfs) - {ask.vrf}):
        for route in leaf.vrfs[vrf].routes:
            if vrf in ask.storage and route.via == (ask.vrf,):
                continue
            network = parse_network(route.prefix)
            if network.prefixlen >= lengths and any(_covers(m, network) for m in mine):
                return f"{vrf} has a route to {route.prefix} ({route.protocol or 'unknown'})"
    return ""


def _foreign(ask: GateAsk, own: VrfState) -> str:
    allowed = {ask.vrf, *ask.storage}
    for route in own.routes:
        if strange := sorted(set(route.via) - allowed):
            return f"{route.prefix} goes through {strange[0]}"
    return ""


def _default(ask: GateAsk, own: VrfState) -> str:
    """An unexpected default route. The kernel's own `unreachable default` has no next hop."""
    for route in own.routes:
        unreachable = route.protocol in ("kernel", "table") and not route.via
        if route.prefix in DEFAULTS - ask.defaults and not unreachable:
            return f"{route.prefix} ({route.protocol or 'unknown'})"
    return ""


def _imports(ask: GateAsk, leaf: LeafState, own: VrfState) -> Iterator[GateRow]:
    wrong = sorted(own.imports ^ ask.storage) if ask.exact else sorted(own.imports - ask.storage)
    problem = ""
    if wrong:
        does = "takes routes of" if wrong[0] in own.imports else "does not take routes of"
        problem = f"{ask.vrf} {does} {wrong[0]}"
    yield _row(GateCheck.IMPORTS, leaf.switch, problem, ", ".join(sorted(own.imports)))
    takers = {v for v, s in leaf.vrfs.items() if ask.vrf in s.imports and v != ask.vrf}
    strange = sorted(takers - ask.storage)
    problem = f"{strange[0]} takes routes of {ask.vrf}" if strange else ""
    yield _row(GateCheck.IMPORTERS, leaf.switch, problem)


def _sessions(ask: GateAsk, leaf: LeafState, own: VrfState) -> Iterator[GateRow]:
    if ask.peers is None:
        expected = leaf.applied_peers.get(ask.vrf, frozenset())
    else:
        expected = frozenset(peer for switch, peer in ask.peers if switch == leaf.switch)
    strange = sorted(set(own.peers) - expected)
    problem = f"{strange[0]} is not a configured peer" if strange else ""
    yield _row(GateCheck.PEERS, leaf.switch, problem)
    down = sorted(p for p in expected if p not in own.peers or own.peers[p].state != UP)
    if down:
        state = own.peers[down[0]].state if down[0] in own.peers else "not there"
        problem = f"{down[0]} is {state or 'without a state'}"
    else:
        problem = ""
    yield _row(GateCheck.PEER_STATE, leaf.switch, problem)
    came = sorted(p for p, session in own.peers.items() if session.dynamic)
    problem = f"{came[0]} is a dynamic session" if came else ""
    if ask.vrf in leaf.listens:
        problem = problem or f"{ask.vrf} accepts sessions from a whole range"
    yield _row(GateCheck.DYNAMIC_PEERS, leaf.switch, problem)


def _overlay(ask: GateAsk, leaf: LeafState, own: VrfState) -> Iterator[GateRow]:
    name = leaf.switch
    vnis = {ask.vni} if ask.vni else set(own.vnis)
    if not vnis:
        for check in (GateCheck.OVERLAY, GateCheck.TARGETS, GateCheck.FOREIGN_TARGETS):
            reading = "no overlay in this VRF"
            yield GateRow(check=check, subject=name, verdict=RowVerdict.NONE, seen=reading)
        return
    problem = ""
    if set(own.vnis) != vnis or len(vnis) > 1:
        problem = f"VNIs {', '.join(sorted(own.vnis)) or 'none'} instead of {', '.join(vnis)}"
    shared = [v for v, s in leaf.vrfs.items() if v != ask.vrf and set(s.vnis) & set(own.vnis)]
    problem = problem or (f"{shared[0]} has the same VNI" if shared else "")
    yield _row(GateCheck.OVERLAY, name, problem)
    takes = {t for v in own.vnis.values() for t in v.imports}
    sends = {t for v in own.vnis.values() for t in v.exports}
    yield _row(GateCheck.TARGETS, name, _targets(ask, leaf, takes, sends))
    for vrf, state in sorted(leaf.vrfs.items()):
        if vrf == ask.vrf:
            continue
        others_take = {t for v in state.vnis.values() for t in v.imports}
        others_send = {t for v in state.vnis.values() for t in v.exports}
        if both := sorted(others_take & sends):
            yield _row(GateCheck.FOREIGN_TARGETS, name, f"{vrf} takes in {both[0]}")
            return
        if both := sorted(others_send & takes):
            yield _row(GateCheck.FOREIGN_TARGETS, name, f"{ask.vrf} takes in {both[0]} of {vrf}")
            return
    yield _row(GateCheck.FOREIGN_TARGETS, name, "")


def _targets(ask: GateAsk, leaf: LeafState, takes: set[str], sends: set[str]) -> str:
    """Return the fault in route targets: not the planned one, the configured ones, or the VNI's."""
    configured = leaf.applied_targets.get(ask.vrf)
    if ask.target:
        wanted_in = wanted_out = {ask.target}
    elif configured is not None:
        wanted_in = set(configured.imports)
        wanted_out = set(configured.exports)
    else:  # derived by the switch: AS number, then the VNI
        ends = tuple(f":{vni}" for vni in leaf.vrfs[ask.vrf].vnis)
        wanted_in = {t for t in takes if t.endswith(ends)}
        wanted_out = {t for t in sends if t.endswith(ends)}
    for actual, expected, does in ((takes, wanted_in, "takes in"), (sends, wanted_out, "sends")):
        if wrong := sorted(actual ^ expected):
            word = does if wrong[0] in actual else f"no longer {does}"
            return f"{ask.vrf} {word} {wrong[0]}"
        if not actual:
            return f"{ask.vrf} {does} no route target"
    return ""


def _macs(ask: GateAsk, leaf: LeafState, before: LeafRecord | None) -> frozenset[str]:
    """Return MACs that were learned on the node's own ports here, before or now."""
    own = {p.interface for p in ask.ports if p.switch == leaf.switch}
    macs = {n.mac for n in leaf.neighbours if n.interface in own}
    if before is not None:
        macs |= {mac for interface, _, mac in before.neighbours if interface in own}
    return frozenset(m for m in macs if m)


def _neighbours(ask: GateAsk, leaf: LeafState, before: LeafRecord | None) -> str:
    own = {p.interface for p in ask.ports if p.switch == leaf.switch}
    macs = _macs(ask, leaf, before)
    mine = [parse_network(p) for p in own_networks(ask, leaf)]
    for entry in leaf.neighbours:
        if entry.interface in own or leaf.vrf_of.get(entry.interface) == ask.vrf:
            continue
        try:
            address = parse_network(entry.address)
        except ValueError:
            return f"an unreadable address on {entry.interface}"
        if entry.mac in macs or any(_covers(m, address) for m in mine):
            vrf = leaf.vrf_of.get(entry.interface, "no VRF")
            return f"{entry.address} at {entry.mac} on {entry.interface} ({vrf})"
    return ""


def _bridged(ask: GateAsk, leaf: LeafState, before: LeafRecord | None) -> str:
    own = {p.interface for p in ask.ports if p.switch == leaf.switch}
    bonds = {p.bond.name for p in ask.ports if p.switch == leaf.switch and p.bond}
    for mac in sorted(_macs(ask, leaf, before) & set(leaf.fdb)):
        if leaf.fdb[mac] not in bonds:
            return f"{mac} is bridged on {leaf.fdb[mac]}"
    ports = sorted(set(leaf.fdb.values()) & own)
    return f"{ports[0]} is in a bridge" if ports else ""


@lru_cache(maxsize=65_536)  # the prefixes of a site; parsing them is most of a judgement's time
def parse_network(prefix: str) -> Network:
    return ipaddress.ip_network(prefix, strict=False)


def _covers(outer: Network, inner: Network) -> bool:
    return outer.prefixlen <= inner.prefixlen and inner.network_address in outer


def _row(check: GateCheck, subject: str, problem: str, seen: str = "") -> GateRow:
    verdict = RowVerdict.FAIL if problem else RowVerdict.PASS
    return GateRow(check=check, subject=subject, verdict=verdict, seen=(problem or seen)[:300])
