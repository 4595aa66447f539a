"""Rows of the gate about bonds of north-south ports, on one leaf or on several. Pure.

A bond is judged at each of its leaves, and all of its legs together: they are in one VRF, and no
leaf but theirs is in its segment, since another bond with the same would get its packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.model.location import Bond, Port
from provisioner.model.recovery import BondState, GateCheck, GateRow, LeafState, RowVerdict
from provisioner.planning.release.port_isolation import GateAsk


def judge(ask: GateAsk, port: Port, leaves: Mapping[str, LeafState]) -> Iterator[GateRow]:
    """Yield the row of a port with a bond, planned or seen; others have none."""
    name = f"{port.switch}/{port.interface}"
    seen = leaves[port.switch].ports[port.interface].bond
    if port.bond is None and seen is None:
        return
    if seen is None:
        words = "its bond was not read, or is none"
        yield GateRow(check=GateCheck.BOND, subject=name, verdict=RowVerdict.UNKNOWN, seen=words)
        return
    problem = f"the list has no bond, and it is of {seen.name}"
    if port.bond is not None:
        legs = [p for p in ask.ports if p.bond and _has_same_legs(p.bond, port.bond)] or [port]
        states = [leaves[p.switch].ports.get(p.interface) for p in legs if p.switch in leaves]
        vrfs = sorted({s.vrf for s in states if s is not None})
        problem = f"its legs are in {' and '.join(vrfs)}" if len(vrfs) > 1 else ""
        problem = problem or next(_list_faults(port.bond, seen, len(legs)), "")
    verdict = RowVerdict.FAIL if problem else RowVerdict.PASS
    words = f"{seen.name} of {', '.join(sorted(seen.members))}, on {seen.leaves} leaves"
    yield GateRow(check=GateCheck.BOND, subject=name, verdict=verdict, seen=problem or words)


def _has_same_legs(one: Bond, other: Bond) -> bool:
    return bool(one.segment or one.mlag) and (one.segment, one.mlag) == (other.segment, other.mlag)


def _list_faults(wanted: Bond, seen: BondState, legs: int) -> Iterator[str]:
    if seen.name != wanted.name:
        yield f"it is of {seen.name}; {wanted.name} is planned"
    for member in sorted(set(wanted.members) - seen.members):
        yield f"{member} is not in {seen.name}"
    for member in sorted(seen.members - set(wanted.members)):
        yield f"{member} is in {seen.name} without being planned"
    for member in sorted(seen.down):
        yield f"{member} of {seen.name} has no carrier"
    if not seen.lacp:
        yield f"{seen.name} does not speak LACP"
    if (seen.segment, seen.mlag) != (wanted.segment, wanted.mlag):
        now = seen.segment or (f"MLAG {seen.mlag}" if seen.mlag else "none")
        planned = wanted.segment or (f"MLAG {wanted.mlag}" if wanted.mlag else "none")
        yield f"its segment is {now}; {planned} is planned"
    yield from seen.faults
    if seen.leaves < legs:
        yield f"{seen.leaves} of its {legs} leaves are in its segment"
    if seen.leaves > legs:
        yield f"{seen.leaves} leaves have its segment, and {legs} are planned: it is used twice"
    for other in sorted(seen.others):
        yield f"{other} is in its VLAN too"
