"""Proof that hosts cannot reach each other on the network where maintenance agents are looked up.
Pure.

Three trees of a leaf must agree: operational, applied, and startup. A port that was not read counts
as unfiltered. Packets are sent as well (`release_probes.py` has the form of a probe), because a
filter alone only states an intention.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from provisioner.model.fabric_session import FabricSession
from provisioner.model.host_filter import Door, HostFilter, SeenFilter, count_rules, is_held
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.release import GateCheck, GateRow, RowVerdict
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.planning.release.release_probes import SMALL, Errand, Ping, host_end

PARTNERS_MAX = 2  # hosts that the node tries to reach, and that try to reach it
TRIED_IN = (State.CERTIFIED, State.VALIDATING)  # states in which a fenced host has a system of ours

Ports = Mapping[str, tuple[str, bool]]  # port -> its VRF, and whether it has the filter


def guarded_ports(
    leaf: str, owned: Iterable[str], ports: Ports, patterns: Sequence[str]
) -> tuple[str, ...]:
    """Return the ports of a leaf that must have the filter.

    They are the ports of hosts of ours in the maintenance VRF, and those that the site names.
    `ports`: from the operational state.
    """
    guarded = {p for p in owned if ports.get(p, ("", False))[0] == MAINTENANCE_VRF}
    guarded |= {p for p in ports if any(fnmatchcase(f"{leaf}/{p}", one) for one in patterns)}
    return tuple(sorted(guarded))


def find_gaps(
    wanted: HostFilter,
    filters: Mapping[str, SeenFilter | None],
    trees: Mapping[str, Ports],
    guarded: Sequence[str],
) -> tuple[str, ...]:
    """Return descriptions of missing parts of the filter; () if every tree has all of it."""
    gaps: list[str] = []
    if not guarded:
        return ()
    for tree in ("applied", "startup"):
        if not is_held(filters.get(tree), wanted, with_doors=True):
            gaps += [f"the filter between hosts is not as it must be ({tree})"]
    count = count_rules(filters.get("operational"))
    if count != len(wanted):
        gaps.append(f"it does {count} of {len(wanted)} rules")
    for tree, ports in trees.items():
        bare = [p for p in guarded if not ports.get(p, ("", False))[1]]
        if bare:
            more = " ..." if len(bare) > 4 else ""
            gaps.append(f"not on {', '.join(bare[:4])}{more} ({tree})")
    return tuple(gaps)


def doors_of(sessions: Iterable[FabricSession], nodes: Mapping[str, Node]) -> tuple[Door, ...]:
    """Return the pairs of hosts that tests among nodes allow to connect now, by the rows alone."""
    doors: set[Door] = set()
    for session in sessions:
        if session.ended_at:
            continue
        for group in session.doors:
            addresses = sorted({_address(nodes.get(name)) for name in group} - {""})
            doors |= {(a, b) for i, a in enumerate(addresses) for b in addresses[i + 1 :]}
    return tuple(sorted(doors))


def leaf_row(leaf: str, gaps: Sequence[str] | None) -> GateRow:
    """Return the row of one leaf. None: it was not read."""
    if gaps is None:
        reading = "it was not read"
        verdict = RowVerdict.UNKNOWN
    else:
        reading = "; ".join(gaps)
        verdict = RowVerdict.FAIL if gaps else RowVerdict.PASS
    return GateRow(check=GateCheck.HOSTS_APART, subject=leaf, verdict=verdict, seen=reading[:300])


def errands_of(
    node: Node, nodes: Iterable[Node], networks: Sequence[str], doors: Sequence[Door]
) -> tuple[Errand, ...]:
    """Return probes between the node and hosts in maintenance, both ways, on that network.

    A host is logged in to over its in-band address, so that an answer to the login proves that it
    reaches the daemon. Hosts that a test lets connect now are left out.
    """
    mine = _address(node)
    if not _is_within(mine, networks):
        return ()
    open_ends = {end for door in doors for end in door if mine in door}
    partners = [
        partner
        for partner in sorted(nodes, key=lambda n: n.id)
        if partner.id != node.id
        and partner.kind is NodeKind.HOST
        and partner.placement is Placement.MAINTENANCE
        and partner.state in TRIED_IN
        and _is_within(_address(partner), networks)
        and _address(partner) not in open_ends
    ][:PARTNERS_MAX]
    if not partners:
        return ()
    outward = tuple(_ping(mine, _address(o), f"host {o.id}") for o in partners)
    outward += tuple(
        _ping(rail, _address(o), f"host {o.id}") for rail in _rails(node) for o in partners[:1]
    )
    inward = tuple(
        Errand(o.id, o.address, (_ping(_address(o), mine, f"host {node.id}"),)) for o in partners
    )
    return (Errand(node.id, node.address, outward), *inward)


def judge_probes(
    errands: Sequence[Errand], answers: Mapping[tuple[str, Ping], int | None]
) -> tuple[GateRow, ...]:
    """Return a row for each probe; a missing exit code is unknown, never silence."""
    rows = []
    for errand in errands:
        for ping in errand.pings:
            code = answers.get((errand.host, ping))
            subject = f"{errand.host} {ping.source} to {ping.target} ({ping.what})"
            if code == 0:
                verdict = RowVerdict.FAIL
                reading = "it was answered"
            elif code == 1:  # ping: it was sent, and no answer came
                verdict = RowVerdict.PASS
                reading = ""
            else:
                verdict = RowVerdict.UNKNOWN
                reading = "it was not sent"
            rows.append(
                GateRow(check=GateCheck.HOSTS_APART, subject=subject, verdict=verdict, seen=reading)
            )
    return tuple(rows)


def none_row(subject: str, why: str) -> GateRow:
    """Return the row of a site, or node, for which there is nothing to check."""
    return GateRow(
        check=GateCheck.HOSTS_APART, subject=subject, verdict=RowVerdict.NONE, seen=why[:300]
    )


def _ping(source: str, target: str, what: str) -> Ping:
    return Ping(source, target, SMALL, what, GateCheck.HOSTS_APART)


def _rails(node: Node) -> list[str]:
    return sorted({end for p in node.ports if (end := host_end(p.address))})[:1]


def _address(node: Node | None) -> str:
    """Return a host's in-band address; "" if it is not IPv4."""
    try:
        return "" if node is None else str(ipaddress.IPv4Address(node.address))
    except ValueError:
        return ""


def _is_within(address: str, networks: Sequence[str]) -> bool:
    if not address:
        return False
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(n) for n in networks)
