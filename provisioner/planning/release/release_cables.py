"""Comparison of both ends of a node's cables, as LLDP reports them, with the plan. Pure.

The leaf reports a host's interface, and the host reports its leaf's port. A host's ends are
identified here by the card's slot, because a plan contains the slot and a person pulls the card.
The owners of the other ports of the leaves are included, so that an exchanged cable is named with
both actual ends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from provisioner.checks.cabling import CableFault, End, Miscabling, compare
from provisioner.checks.lldp import Ends
from provisioner.model.fabric_session import FabricSession
from provisioner.model.host_filter import Door, HostFilter, SeenFilter, count_rules, is_held
from provisioner.model.inventory import Inventory
from provisioner.model.names import normalize_pci, resolve_system, short_name
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow, LeafState, RowVerdict
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.planning.release.release_probes import (
    ASTRAY,
    SILENT,
    SMALL,
    Ping,
    ProbeSet,
    host_end,
)

# ------------------------------------------------------------------------------
# The far ends of cables, by the MACs that leaves learned at their ports. Pure.
#
# LLDP names both ends of a cable, and it is often off, or filtered by a card's firmware. A MAC of a
# card at a leaf's port shows the same cable, once the card has sent a frame. It says less: a bond
# has one MAC on several cables, and a bridge in a host passes on the MACs of others. Thus only a
# MAC that is at one port alone counts, of a card that is at one port alone, and only where LLDP is
# silent.


Key = TypeVar("Key")
Learned = Mapping[End, Collection[str]]  # (leaf, port) -> MACs, in lower case


def list_card_macs(node: Node, inventory: Inventory | None) -> Iterator[tuple[str, End]]:
    """Return (MAC, (node, slot)) of each port of the cards that the plan cables."""
    cabled = {p.nic_slot for p in node.ports if not p.guid}
    for device in inventory.devices if inventory else ():
        if device.slot in cabled:
            for mac in {device.mac, *device.macs} - {None, ""}:
                yield str(mac).lower(), (node.id, device.slot)
    for bmc in node.bmcs:
        if bmc.name in cabled and bmc.base_mac:
            yield bmc.base_mac.lower(), (node.id, bmc.name)


def find_far_ends(learned: Learned, cards: Iterable[tuple[str, End]]) -> dict[End, End]:
    """Return leaf's port -> (node, slot) of the one card whose MACs were learned there."""
    owners = _take_unique(cards)
    places = _take_unique((mac, at) for at, macs in learned.items() for mac in macs)
    pairs = {(places[mac], end) for mac, end in owners.items() if mac in places}
    of_port = _take_unique((at, end) for at, end in pairs)
    of_card = _take_unique((end, at) for at, end in pairs)
    return {at: end for at, end in of_port.items() if of_card.get(end) == at}


def _take_unique(pairs: Iterable[tuple[Key, End]]) -> dict[Key, End]:
    values: dict[Key, set[End]] = {}
    for key, value in pairs:
        values.setdefault(key, set()).add(value)
    return {key: next(iter(ends)) for key, ends in values.items() if len(ends) == 1}


# ------------------------------------------------------------------------------
# Proof that hosts cannot reach each other on the network where maintenance agents are looked up.
# Pure.
#
# Three trees of a leaf must agree: operational, applied, and startup. A port that was not read
# counts as unfiltered. Packets are sent as well (`release_probes.py` has the form of a probe),
# because a filter alone only states an intention.


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


def probe_sets_of(
    node: Node, nodes: Iterable[Node], networks: Sequence[str], doors: Sequence[Door]
) -> tuple[ProbeSet, ...]:
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
        ProbeSet(o.id, o.address, (_ping(_address(o), mine, f"host {node.id}"),)) for o in partners
    )
    return (ProbeSet(node.id, node.address, outward), *inward)


def judge_probes(
    probe_sets: Sequence[ProbeSet], answers: Mapping[tuple[str, Ping], int | None]
) -> tuple[GateRow, ...]:
    """Return a row for each probe; a missing exit code is unknown, never silence."""
    rows = []
    for probe_set in probe_sets:
        for ping in probe_set.pings:
            code = answers.get((probe_set.host, ping))
            subject = f"{probe_set.host} {ping.source} to {ping.target} ({ping.what})"
            if code == 0:
                verdict = RowVerdict.FAIL
                reading = "it was answered"
            elif code in (SILENT, ASTRAY):  # by whichever way
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


Heard = Mapping[End, Collection[End]]  # a leaf's port -> (system, port) of its LLDP neighbours


def find_cable_faults(
    node: Node,
    others: Iterable[Node],
    inventory: Inventory,
    host: Ends | None,
    heard: Heard,
    by_mac: Mapping[End, End] | None = None,
) -> tuple[Miscabling, ...]:
    """Return every fault of the node's cables.

    `host` None: it reported nothing, which is one fault per cable. `heard`: the neighbours of the
    leaves' ports, for all leaves that the node is planned to be cabled to. `by_mac`: the cards
    behind leaves' ports, by their MACs; they count where both ends hear no neighbour.
    """
    planned = _planned(node)
    switches = {switch for switch, _ in planned.values()}
    theirs = {
        (o.id, p.nic_slot): p.plug
        for o in others
        if o.id != node.id
        for p in o.ports
        if not p.guid and p.switch in switches
    }
    slots = {normalize_pci(d.pci): d.slot for d in inventory.devices if d.pci}
    named = {i: slots.get(pci, i) for i, pci in host.cards.items()} if host else {}
    systems = {node.id, *(name for name, _ in theirs)}
    mine = {end[1] for end in planned}
    observed: dict[End, End] = {}
    for at in planned.values():
        for system, port in sorted(heard.get(at, ())):
            name = resolve_system(system, systems)
            if name == node.id:
                # the host did not report the card of that interface: taken as the planned one
                observed[at] = (node.id, named.get(port, "") or _slot_at(planned, at))
            else:
                name = name if name in systems else short_name(name)
                observed[at] = (name, _their_slot(name, at[0], theirs) or port)
    for interface, place in host.neighbours if host else ():
        if (slot := named.get(interface, interface)) in mine:
            observed[node.id, slot] = (resolve_system(place[0], switches), place[1])
    ends = {*observed, *observed.values()}
    silent = {at: end for at, end in (by_mac or {}).items() if at not in ends and end not in ends}
    miscablings = compare({**planned, **theirs}, {**observed, **silent})
    own = set(planned) | set(planned.values())
    return tuple(
        f.model_copy(update={"by_mac": f.at in silent or f.neighbour in silent})
        for f in miscablings
        if f.at in own or f.neighbour in own
    )


def make_cable_blockers(wrong: Iterable[Miscabling]) -> tuple[Blocker, ...]:
    return tuple(
        Blocker(reason=Reason.CABLING, subject="/".join(f.at), detail=str(f), unblock=f.remedy)
        for f in wrong
    )


def heard_by(leaves: Mapping[str, LeafState]) -> dict[End, frozenset[End]]:
    """Return the neighbours of the ports in these readings."""
    return {
        (leaf.switch, plug): port.neighbours
        for leaf in leaves.values()
        for name, port in leaf.ports.items()
        for plug in (port.bond.members if port.bond else (name,))
    }


def select_observed_faults(
    found: Iterable[Miscabling], known: Collection[str]
) -> tuple[Miscabling, ...]:
    """Return those faults in which another end of ours was observed.

    Missing neighbours are not counted, because a host may not run yet; nor are systems outside of
    the known names, because a host under intake may report any name.
    """
    silent = (CableFault.MISSING, CableFault.ONE_SIDED)
    names = set(known)
    return tuple(
        f
        for f in found
        if f.fault not in silent and f.neighbour and resolve_system(f.neighbour[0], names) in names
    )


def judge_cables(
    node: Node, others: Iterable[Node], inventory: Inventory, host: Ends | None, heard: Heard
) -> tuple[GateRow, ...]:
    """Return a row for each fault, or one with the number of cables confirmed at both ends."""
    check = GateCheck.CABLES
    if host is None:
        reading = "the host does not report the LLDP neighbours of its cards"
        return (GateRow(check=check, subject=node.id, verdict=RowVerdict.UNKNOWN, seen=reading),)
    wrong = find_cable_faults(node, others, inventory, host, heard)
    if not wrong:
        reading = f"{len(_planned(node))} cables confirmed at both ends"
        return (GateRow(check=check, subject=node.id, verdict=RowVerdict.PASS, seen=reading),)
    return make_fault_rows(wrong)


def make_fault_rows(wrong: Iterable[Miscabling]) -> tuple[GateRow, ...]:
    return tuple(
        GateRow(
            check=GateCheck.CABLES,
            subject="/".join(f.at),
            verdict=RowVerdict.FAIL,
            seen=f"{f}. {f.remedy}"[:300],
        )
        for f in wrong
    )


def _planned(node: Node) -> dict[End, End]:
    return {(node.id, p.nic_slot): p.plug for p in node.ports if not p.guid}


def _slot_at(planned: Mapping[End, End], at: End) -> str:
    return next(slot for (_, slot), place in planned.items() if place == at)


def _their_slot(node: str, leaf: str, theirs: Mapping[End, End]) -> str:
    """Return another node's card if it has only one on this leaf; otherwise ""."""
    slots = [slot for (name, slot), place in theirs.items() if (name, place[0]) == (node, leaf)]
    return slots[0] if len(slots) == 1 else ""
