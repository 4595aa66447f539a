"""I13: every cable goes from its card to the planned leaf port.

LLDP names the neighbour of a network interface, and sysfs names the card of the interface. Both are
needed: two swapped cables of one host show the same two neighbours, only at the other card. For a
cable in a wrong port, the finding names the owner of that port and the plugs to move
(`cabling.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.checks.cabling import End, compare
from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.commands import LLDP
from provisioner.checks.readers.sysfs import parse_files
from provisioner.checks.readers.tool_output import (
    END,
    normalize_pci,
    parse_json,
    read_output,
    require_object,
    require_text,
)
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
    neighbours = _read_neighbours(parse_json(read_output(evidence, LLDP), "lldpctl"))
    slots = _read_slots(read_output(evidence, NETDEVS, any_exit=True))
    remedies = _find_remedies(neighbours, slots, context)
    for switch, interface in context.neighbours:
        name = f"{switch}/{interface}"
        locals_ = sorted({local for local, place in neighbours if place == (switch, interface)})
        if len(locals_) != 1:
            leaf_ports = sorted(f"{s}/{i}" for _, (s, i) in neighbours if s == switch)
            detail = (
                "one neighbour is seen at two ports" if locals_ else "the planned neighbour is not"
            )
            detail += "" if locals_ else " seen"
            reported = ", ".join(leaf_ports) or "no port of this leaf"
            remedy = "" if locals_ else remedies.get(name, "")
            yield fault(name, Severity.CONFIG, f"{detail}{remedy}", reported, name)
            continue
        yield from _judge_card(name, locals_[0], slots, context, remedies.get(name, ""))
    leaves = {switch for switch, _ in context.neighbours}
    for local, place in neighbours:
        if place[0] in leaves and place not in context.neighbours:
            owner = context.port_owners.get("/".join(place), "")
            detail = f"cabled to a port that is {owner}'s" if owner else _NOBODYS
            remedy = remedies.get("/".join(place), "")
            yield fault(local, Severity.CONFIG, f"{detail}{remedy}", "/".join(place))


def _find_remedies(
    neighbours: Sequence[tuple[str, Place]], slots: Mapping[str, str], context: CheckContext
) -> dict[str, str]:
    """Return port -> which plugs to move, for every cable in a wrong place.

    This host's ends are named by their card's PCI address, other nodes' ends by their card's name.
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
    reported = {(_HERE, slots[local]): place for local, place in neighbours if slots.get(local)}
    return {
        "/".join(end): f". {miscabled.fault}: {miscabled.remedy}"
        for miscabled in compare(planned, reported)
        if miscabled.at[0] == _HERE and miscabled.neighbour is not None
        for end in (miscabled.neighbour, miscabled.planned or miscabled.neighbour)
    }


def _judge_card(
    name: str, local: str, slots: Mapping[str, str], context: CheckContext, remedy: str
) -> Iterator[Finding]:
    planned = context.cabled_pci.get(name, "")
    actual = slots.get(local, "")
    if not planned:
        detail = "the planned card of this cable is unknown"
        yield fault(name, Severity.CONFIG, detail, f"{local} at {actual or 'no card'}")
    elif actual != planned:
        detail = f"the cable is plugged into another card than planned{remedy}"
        yield fault(name, Severity.CONFIG, detail, f"{local} at {actual or 'no card'}", planned)


@dataclass(frozen=True)
class Ends:
    """One host's ends: the PCI address of each interface's card, and each interface's neighbour."""

    cards: Mapping[str, str]
    neighbours: Sequence[tuple[str, Place]]


def read_ends(evidence: Mapping[str, Evidence]) -> Ends | None:
    """Return the ends that this check's commands report; None if they cannot be read."""
    try:
        neighbours = _read_neighbours(parse_json(read_output(evidence, LLDP), "lldpctl"))
        return Ends(_read_slots(read_output(evidence, NETDEVS, any_exit=True)), neighbours)
    except Unreadable:
        return None


def _read_slots(text: str) -> dict[str, str]:
    """Return network interface -> PCI address of its card."""
    slot_of = {}
    for path, lines in parse_files(text).items():
        if match := _UEVENT.fullmatch(path):
            listed = [line.removeprefix(_KEY) for line in lines if line.startswith(_KEY)]
            if len(listed) != 1:
                raise Unreadable(f"sysfs: {match[1]} does not report its PCI address")
            slot_of[match[1]] = normalize_pci(listed[0])
    if not slot_of:
        raise Unreadable("sysfs: no network interface of a card in it")
    return slot_of


def _read_neighbours(document: Any) -> list[tuple[str, Place]]:
    """Return (local interface, neighbour) for every neighbour that names itself and its port."""
    lldp = require_object(require_object(document, "lldpctl").get("lldp"), "lldp")
    listed = lldp.get("interface", [])
    # lldpctl prints a list of one-key objects, and a plain object when there is one interface
    entries = listed if isinstance(listed, list) else [listed]
    neighbours = []
    for entry in entries:
        for local, facts in require_object(entry, "interface").items():
            place = _read_place(local, require_object(facts, local))
            if place is not None:
                neighbours.append((local, place))
    return neighbours


def _read_place(local: str, facts: Mapping[str, Any]) -> Place | None:
    """Return a neighbour's chassis and port; None without a name (a card's own firmware)."""
    chassis = require_object(facts.get("chassis"), "chassis")
    port = require_object(require_object(facts.get("port"), "port").get("id"), "port id")
    if "id" in chassis and "type" in require_object(chassis["id"], "chassis id"):
        return None
    names = list(chassis)
    if len(names) != 1:
        raise Unreadable(f"lldpctl: {local[:20]} does not have exactly one chassis")
    return names[0], require_text(port.get("value"), "port id")


CHECK = Check("lldp", Gate.A, (LLDP, NETDEVS), _findings)
