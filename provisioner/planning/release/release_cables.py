"""Comparison of both ends of a node's cables, as LLDP reports them, with the plan. Pure.

The leaf reports a host's interface, and the host reports its leaf's port. A host's ends are
identified here by the card's slot, because a plan contains the slot and a person pulls the card.
The owners of the other ports of the leaves are included, so that an exchanged cable is named with
both actual ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from provisioner.checks.cabling import CableFault, End, Miscabling, compare
from provisioner.checks.lldp import Ends
from provisioner.model.inventory import Inventory
from provisioner.model.leaf_state import LeafState
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.release import GateCheck, GateRow, RowVerdict

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
        (o.id, p.nic_slot): (p.switch, p.interface)
        for o in others
        if o.id != node.id
        for p in o.ports
        if not p.guid and p.switch in switches
    }
    slots = {d.pci.lower(): d.slot for d in inventory.devices if d.pci}
    named = {i: slots.get(pci, i) for i, pci in host.cards.items()} if host else {}
    mine = {end[1] for end in planned}
    observed: dict[End, End] = {}
    for at in planned.values():
        for system, port in sorted(heard.get(at, ())):
            short = system.split(".")[0]
            if short == node.id.split(".")[0]:
                # the host did not report the card of that interface: taken as the planned one
                observed[at] = (node.id, named.get(port, "") or _slot_at(planned, at))
            else:
                observed[at] = (short, _their_slot(short, at[0], theirs) or port)
    for interface, place in host.neighbours if host else ():
        if (slot := named.get(interface, interface)) in mine:
            observed[node.id, slot] = (place[0].split(".")[0], place[1])
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
    """Return a blocker for each cable that a person has to plug elsewhere."""
    return tuple(
        Blocker(reason=Reason.CABLING, subject="/".join(f.at), detail=str(f), unblock=f.remedy)
        for f in wrong
    )


def heard_by(leaves: Mapping[str, LeafState]) -> dict[End, frozenset[End]]:
    """Return the neighbours of the ports in these readings."""
    return {
        (leaf.switch, name): port.neighbours
        for leaf in leaves.values()
        for name, port in leaf.ports.items()
    }


def select_observed_faults(
    found: Iterable[Miscabling], known: Collection[str]
) -> tuple[Miscabling, ...]:
    """Return those faults in which another end of ours was observed.

    Missing neighbours are not counted, because a host may not run yet; nor are systems outside of
    the known names, because a host under intake may report any name.
    """
    silent = (CableFault.MISSING, CableFault.ONE_SIDED)
    names = {name.split(".")[0] for name in known}
    return tuple(
        f for f in found if f.fault not in silent and f.neighbour and f.neighbour[0] in names
    )


def judge_cables(
    node: Node,
    others: Iterable[Node],
    inventory: Inventory,
    host: Ends | None,
    heard: Heard,
) -> tuple[GateRow, ...]:
    """Return one row for each fault, or one row with the number of cables confirmed at both
    ends.
    """
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
    """Return a row for each fault."""
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
    return {(node.id, p.nic_slot): (p.switch, p.interface) for p in node.ports if not p.guid}


def _slot_at(planned: Mapping[End, End], at: End) -> str:
    return next(slot for (_, slot), place in planned.items() if place == at)


def _their_slot(node: str, leaf: str, theirs: Mapping[End, End]) -> str:
    """Return another node's card if it has only one on this leaf; otherwise ""."""
    slots = [slot for (name, slot), place in theirs.items() if (name, place[0]) == (node, leaf)]
    return slots[0] if len(slots) == 1 else ""
