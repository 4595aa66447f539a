"""I13: every cable goes from the card to the leaf port that the plan says.

LLDP names the neighbour of a network interface, sysfs the card that the interface is of. Both are
needed: two swapped cables of one host show the same two neighbours, only at the other card. Whose
a port is that a cable is wrongly in is told as well, with the plugs to move (`cabling.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.checks.cabling import End, compare
from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.commands import LLDP
from provisioner.checks.readers.reading import END, json_of, mapping, pci, text_of, word
from provisioner.checks.readers.sysfs import files_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

NETDEVS = Command(
    name="netdevs",
    line=f"grep -H PCI_SLOT_NAME /sys/class/net/*/device/uevent; {END}",
    limit_s=30.0,
)

_UEVENT = re.compile(r"/sys/class/net/([\w.-]{1,32})/device/uevent")
_KEY = "PCI_SLOT_NAME="
_HERE = "this host"
_NOBODYS = "cabled to a port that is not planned"
Place = tuple[str, str]  # chassis name, port


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    seen = _neighbours(json_of(text_of(evidence, LLDP), "lldpctl"))
    slots = _slots(text_of(evidence, NETDEVS, any_exit=True))
    told_of = _remedies(seen, slots, context)
    for switch, interface in context.neighbours:
        name = f"{switch}/{interface}"
        at = sorted({local for local, place in seen if place == (switch, interface)})
        if len(at) != 1:
            there = sorted(f"{s}/{i}" for _, (s, i) in seen if s == switch)
            words = "one neighbour is seen at two ports" if at else "the planned neighbour is not"
            words += "" if at else " seen"
            told = ", ".join(there) or "nothing of this leaf"
            remedy = "" if at else told_of.get(name, "")
            yield fault(name, Severity.CONFIG, f"{words}{remedy}", told, name)
            continue
        yield from _at_its_card(name, at[0], slots, context, told_of.get(name, ""))
    leaves = {switch for switch, _ in context.neighbours}
    for local, place in seen:
        if place[0] in leaves and place not in context.neighbours:
            owner = context.port_owners.get("/".join(place), "")
            words = f"cabled to a port that is {owner}'s" if owner else _NOBODYS
            remedy = told_of.get("/".join(place), "")
            yield fault(local, Severity.CONFIG, f"{words}{remedy}", "/".join(place))


def _remedies(
    seen: Sequence[tuple[str, Place]], slots: Mapping[str, str], context: CheckContext
) -> dict[str, str]:
    """Port -> which plugs to move, for every cable that is in a wrong place.

    This host's ends are named by their card's PCI address, other nodes' by their card's name.
    """
    planned: dict[End, End] = {}
    for name, card in context.cabled_pci.items():
        switch, _, interface = name.partition("/")
        if card and (switch, interface) in context.neighbours:
            planned[_HERE, card] = (switch, interface)
    for name, owner in context.port_owners.items():
        node, _, card = owner.partition("/")
        switch, _, interface = name.partition("/")
        planned[node, card] = (switch, interface)
    found = {(_HERE, slots[local]): place for local, place in seen if slots.get(local)}
    return {
        "/".join(end): f". {miscabled.fault}: {miscabled.remedy}"
        for miscabled in compare(planned, found)
        if miscabled.at[0] == _HERE and miscabled.seen is not None
        for end in (miscabled.seen, miscabled.planned or miscabled.seen)
    }


def _at_its_card(
    name: str, local: str, slots: Mapping[str, str], context: CheckContext, remedy: str
) -> Iterator[Finding]:
    planned, found = context.cabled_pci.get(name, ""), slots.get(local, "")
    if not planned:
        words = "which card this cable belongs to is not known"
        yield fault(name, Severity.CONFIG, words, f"{local} at {found or 'no card'}")
    elif found != planned:
        words = f"the cable is plugged into another card than planned{remedy}"
        yield fault(name, Severity.CONFIG, words, f"{local} at {found or 'no card'}", planned)


@dataclass(frozen=True)
class Ends:
    """One host's ends: PCI address of each interface's card, and whom each interface hears."""

    cards: Mapping[str, str]
    heard: Sequence[tuple[str, Place]]


def ends_of(evidence: Mapping[str, Evidence]) -> Ends | None:
    """What the commands of this check told; None if that cannot be read."""
    try:
        heard = _neighbours(json_of(text_of(evidence, LLDP), "lldpctl"))
        return Ends(_slots(text_of(evidence, NETDEVS, any_exit=True)), heard)
    except Unreadable:
        return None


def _slots(text: str) -> dict[str, str]:
    """Network interface -> PCI address of its card."""
    found = {}
    for path, lines in files_of(text).items():
        if match := _UEVENT.fullmatch(path):
            listed = [line.removeprefix(_KEY) for line in lines if line.startswith(_KEY)]
            if len(listed) != 1:
                raise Unreadable(f"sysfs: {match[1]} does not say its PCI address")
            found[match[1]] = pci(listed[0])
    if not found:
        raise Unreadable("sysfs: no network interface of a card in it")
    return found


def _neighbours(document: Any) -> list[tuple[str, Place]]:
    """(local interface, neighbour) for every neighbour that names itself and its port."""
    lldp = mapping(mapping(document, "lldpctl").get("lldp"), "lldp")
    listed = lldp.get("interface", [])
    # lldpctl prints a list of one-key objects, and a plain object when there is one interface
    entries = listed if isinstance(listed, list) else [listed]
    found = []
    for entry in entries:
        for local, facts in mapping(entry, "interface").items():
            place = _place(local, mapping(facts, local))
            if place is not None:
                found.append((local, place))
    return found


def _place(local: str, facts: Mapping[str, Any]) -> Place | None:
    """None for a neighbour without a name: a card's own firmware speaks LLDP too."""
    chassis = mapping(facts.get("chassis"), "chassis")
    port = mapping(mapping(facts.get("port"), "port").get("id"), "port id")
    if "id" in chassis and "type" in mapping(chassis["id"], "chassis id"):
        return None
    names = list(chassis)
    if len(names) != 1:
        raise Unreadable(f"lldpctl: {local[:20]} has not one chassis")
    return names[0], word(port.get("value"), "port id")


CHECK = Check("lldp", Gate.A, (LLDP, NETDEVS), _findings)
