"""The release gate: every row of it, judged from the present state of the node's leaves. Pure.

Sets that isolate must be equal, never contain; a value that was not read is `unknown`, which keeps
a node from its tenant as surely as a fault. Values that must only stay unchanged are compared with
the reading before the move. This module has the rows of ports and leaves, `release_gate_routes.py`
those of routes, sessions and overlay, and `release_probes.py` those of packets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence, Set

from provisioner.model.location import Port
from provisioner.model.names import resolve_system
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import (
    GateCheck,
    GateRow,
    LeafRecord,
    LeafState,
    PortState,
    RowVerdict,
)
from provisioner.model.tenant_network import MARK
from provisioner.planning.release import release_bonds, release_gate_routes
from provisioner.planning.release.port_isolation import FLAPS_OF_A_MOVE, GateAsk

Looks = Mapping[str, LeafState]
Before = Mapping[str, LeafRecord]
_CABLING = (GateCheck.CABLE, GateCheck.CABLES)


def judge(ask: GateAsk, before: Before, after: Looks) -> tuple[GateRow, ...]:
    """Return every row, good and bad, in a fixed order. A leaf missing in `after` was not read."""
    rows: list[GateRow] = []
    for port in sorted(ask.ports, key=lambda p: (p.switch, p.interface)):
        leaf = after.get(port.switch)
        if leaf is None or (state := leaf.ports.get(port.interface)) is None:
            rows.append(make_unread_row(GateCheck.PORT_VRF, f"{port.switch}/{port.interface}"))
        else:
            rows += _port(ask, port, leaf, state, before.get(port.switch))
            rows += release_bonds.judge(ask, port, after)
    for switch in sorted({p.switch for p in ask.ports}):
        if switch not in after:
            rows.append(make_unread_row(GateCheck.HEALTH, switch))
            continue
        rows += _leaf(ask, after[switch], before.get(switch))
        rows += release_gate_routes.judge(ask, after[switch], before.get(switch))
    if not ask.ports and not ask.guids:
        rows.append(make_row(GateCheck.PORT_VRF, ask.node, "the node has no port"))
    return tuple(rows)


def list_gate_blockers(rows: Sequence[GateRow], most: int = 8) -> tuple[Blocker, ...]:
    """Return the blockers that keep the node from its tenant; () if there are none."""
    bad = [r for r in rows if r.bad]
    return tuple(
        Blocker(
            reason=Reason.CABLING if r.check in _CABLING else Reason.ISOLATION,
            subject=r.subject,
            detail=f"{r.check}: {r.seen or r.verdict}",
            unblock="See docs/release.md for what this row means; it is tried again by itself.",
        )
        for r in bad[:most]
    )


def make_row(check: GateCheck, subject: str, problem: str = "", seen: str = "") -> GateRow:
    """Return a row that fails if there is a problem, and passes if there is none."""
    verdict = RowVerdict.FAIL if problem else RowVerdict.PASS
    return GateRow(check=check, subject=subject, verdict=verdict, seen=(problem or seen)[:300])


def make_unread_row(check: GateCheck, subject: str) -> GateRow:
    """Return a row for a value that was not read."""
    return GateRow(check=check, subject=subject, verdict=RowVerdict.UNKNOWN, seen="it was not read")


def _port(
    ask: GateAsk, port: Port, leaf: LeafState, state: PortState, before: LeafRecord | None
) -> Iterator[GateRow]:
    name = f"{port.switch}/{port.interface}"
    wrong = "" if state.vrf == ask.vrf else f"it is in {state.vrf}; {ask.vrf} is wanted"
    yield make_row(GateCheck.PORT_VRF, name, wrong, state.vrf)
    yield make_row(GateCheck.ONE_VRF, name, _second(ask, port, leaf, state))
    away = sorted(state.coming - {ask.vrf})
    revision = f"revision {', '.join(leaf.on_the_way[:4])} moves it to {away[0]}" if away else ""
    yield make_row(GateCheck.REVISION, name, revision)
    yield make_row(GateCheck.LINK, name, "" if state.up else "its link is down")
    wanted = ask.find_mtu(port)
    mtu = "" if state.mtu == wanted else f"{state.mtu} instead of {wanted}"
    yield make_row(GateCheck.MTU, name, mtu, str(state.mtu))
    yield make_row(GateCheck.CABLE, name, _miscabled(ask, state), _names(state))
    yield make_row(GateCheck.ADDRESS, name, _misaddressed(port, state, before))
    yield make_row(GateCheck.ACL_BOUND, name, _unfiltered(ask, port, state, before))
    yield _flaps(port, state, before)
    yield _damaged(port, state, before)
    yield _queues(port, state, before)


def _second(ask: GateAsk, port: Port, leaf: LeafState, state: PortState) -> str:
    if state.applied_vrf != state.vrf:
        return f"it is in {state.vrf}, and {state.applied_vrf} is applied"
    own = {str(ipaddress.ip_interface(a).network) for a in (*state.addresses, port.address) if a}
    for vrf, vrf_state in sorted(leaf.vrfs.items()):
        if vrf == ask.vrf:
            continue
        for route in vrf_state.routes:
            if route.protocol == "connected" and route.prefix in own:
                return f"{route.prefix} is connected in {vrf} too"
    return ""


def _names(state: PortState) -> str:
    return ", ".join(sorted(f"{system}/{port}" for system, port in state.neighbours))


def _miscabled(ask: GateAsk, state: PortState) -> str:
    if not state.neighbours:
        return "its leaf port hears no LLDP neighbour"
    heard = {resolve_system(system, {ask.node}) for system, _ in state.neighbours}
    if heard != {ask.node}:
        return f"{_names(state)[:100]} is at its other end; {ask.node} is planned"
    return ""


def _misaddressed(port: Port, state: PortState, before: LeafRecord | None) -> str:
    if not port.address:
        return "no address is planned for it: a leak of it could not be seen"
    if port.address not in state.addresses:
        return f"it does not have {port.address}"
    if before is not None:
        old = {address for name, address in before.addresses if name == port.interface}
        if more := sorted(state.addresses ^ old):
            return f"{more[0]} was bound or unbound by the move"
    return ""


def _unfiltered(ask: GateAsk, port: Port, state: PortState, before: LeafRecord | None) -> str:
    """Return the fault in the bound filters: required ones, and all that were bound before."""
    required = {(name, way) for name in ask.acls for way in ("inbound", "outbound")}
    if unbound := sorted(ask.acls - {name for name, _ in state.acls}):
        return f"{unbound[0]} is not bound to it"
    guards = {(name, way) for name, way in state.acls if name.startswith(MARK)}
    if fault := _misguarded(ask, port, guards):
        return fault
    others = state.acls - guards
    if before is not None:
        old = {(n, way) for i, n, way in before.bound if i == port.interface}
        old -= {(n, way) for n, way in old if n in ask.frozen_by or n.startswith(MARK)}
        if changed := sorted(others ^ old):
            name, way = changed[0]
            return f"{name} ({way}) was bound or unbound by the move"
    elif extra := sorted(others - required):
        return f"{extra[0][0]} is bound to it without being required"
    return ""


def _misguarded(ask: GateAsk, port: Port, guards: Set[tuple[str, str]]) -> str:
    """Return the fault in the filters of security groups on a port: exactly its tenant's one."""
    if ask.guards is None:
        return ""
    name = ask.guards.get((port.switch, port.interface), "")
    wrong = sorted(guards ^ ({(name, "outbound")} if name else set()))
    return f"{wrong[0][0]} is against its security groups" if wrong else ""


def _flaps(port: Port, state: PortState, before: LeafRecord | None) -> GateRow:
    name = f"{port.switch}/{port.interface}"
    old = dict(before.transitions).get(port.interface) if before is not None else None
    if old is None or state.transitions is None:
        reading = "its counter was not read before and after"
        return GateRow(check=GateCheck.FLAPS, subject=name, verdict=RowVerdict.NONE, seen=reading)
    came = state.transitions - old
    many = came > FLAPS_OF_A_MOVE or came < 0
    return make_row(GateCheck.FLAPS, name, f"its carrier changed {came} times" if many else "")


def _damaged(port: Port, state: PortState, before: LeafRecord | None) -> GateRow:
    name = f"{port.switch}/{port.interface}"
    old = dict(before.in_errors).get(port.interface) if before is not None else None
    if old is None or state.in_errors is None:
        reading = "its counter was not read before and after"
        return GateRow(
            check=GateCheck.LINK_ERRORS, subject=name, verdict=RowVerdict.NONE, seen=reading
        )
    came = state.in_errors - old
    return make_row(GateCheck.LINK_ERRORS, name, f"{came} damaged frames came in" if came else "")


def _queues(port: Port, state: PortState, before: LeafRecord | None) -> GateRow:
    """Return the row of a port's RoCE settings; a leaf without them has only its own row."""
    name = f"{port.switch}/{port.interface}"
    old = dict(before.port_qos).get(port.interface, "") if before is not None else ""
    if not old and (before is not None or not state.qos):
        verdict = RowVerdict.FAIL if state.qos else RowVerdict.NONE
        reading = (
            "there is no earlier reading of it" if state.qos else "the leaf does not report it"
        )
        return GateRow(check=GateCheck.QOS, subject=name, verdict=verdict, seen=reading)
    changed = bool(old) and old != state.qos
    reading = f"{state.qos[:12] or 'nothing'}, before {old[:12]}" if changed else ""
    return make_row(GateCheck.QOS, name, reading, state.qos)


def _leaf(ask: GateAsk, leaf: LeafState, before: LeafRecord | None) -> Iterator[GateRow]:
    name = leaf.switch
    # other nodes' ports are moved and saved meanwhile, perhaps by another daemon: theirs to judge
    mine = {"", *(p.interface for p in ask.ports if p.switch == name)}
    parts = ", ".join(sorted(p or "other parts" for p in leaf.unsaved & mine))
    unsaved = f"it would start with another configuration of {parts}" if parts else ""
    yield make_row(GateCheck.PERSISTED, name, unsaved, leaf.applied)
    yield make_row(GateCheck.HEALTH, name, "; ".join(leaf.issues[:4]))
    for check, now, old in (
        (GateCheck.QOS, leaf.qos, None if before is None else before.qos),
        (
            GateCheck.ADAPTIVE_ROUTING,
            leaf.adaptive_routing,
            None if before is None else before.adaptive_routing,
        ),
    ):
        if old is None:
            yield GateRow(check=check, subject=name, verdict=RowVerdict.NONE, seen=now)
        else:
            changed = now != old
            yield make_row(check, name, f"{now[:12]}, before {old[:12]}" if changed else "", now)
    rules = dict(before.acls) if before is not None else dict(leaf.acls)
    # ours come with the first reclaim on a leaf, of whichever node
    names = {n for n in (*rules, *leaf.acls) if not n.startswith(MARK)} - ask.frozen_by
    changed_rules = sorted(n for n in names if rules.get(n) != leaf.acls.get(n))
    yield make_row(
        GateCheck.ACL_RULES, name, f"{changed_rules[0]} has other rules" if changed_rules else ""
    )
