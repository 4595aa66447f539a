"""Every cable goes from its card to the planned leaf port.

LLDP names the neighbour of a network interface, and sysfs names the card of the interface. Both are
needed: two swapped cables of one host show the same two neighbours, only at the other card. For a
cable in a wrong port, the finding names the owner of that port and the plugs to move
(`cabling.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from provisioner.checks.cabling import End, compare
from provisioner.checks.check import Check, CheckContext, Command, NotJudged, Unreadable, fault
from provisioner.checks.commands import LLDP
from provisioner.checks.readers.sysfs import parse_files
from provisioner.checks.readers.tool_output import (
    END,
    parse_json,
    read_output,
    require_object,
    require_text,
)
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.names import Place, PortNames, normalize_pci, resolve_system, spell_port

NETDEVS = Command(
    name="netdevs",
    line=f"grep -H PCI_SLOT_NAME /sys/class/net/*/device/uevent; {END}",
    limit_s=30.0,
)

_UEVENT = re.compile(r"/sys/class/net/([\w.-]{1,32})/device/uevent")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")
_KEY = "PCI_SLOT_NAME="
_HERE = "this host"
_NOBODYS = "cabled to a port that is not planned"
# subtypes whose id is what the switch calls its port, which need not be the port's own name
_OWN_WORDS = ("local", "ifalias")


class Heard(NamedTuple):
    """One neighbour as LLDP has it: IEEE 802.1AB, port id with its subtype, and description."""

    switch: str
    port: str
    subtype: str
    described: str

    @property
    def is_mac(self) -> bool:
        """Return whether the port is called by a MAC, as by lldpd's own default."""
        return self.subtype == "mac" or _MAC.fullmatch(self.port) is not None

    def named(self, names: PortNames, known: Collection[Place]) -> Place | None:
        """Return the neighbour by the port's own name; None where that is not known yet.

        `names`: of switches that call their ports otherwise. `known`: ports that are in the plan.

        SONiC sends the port's alias as a local id once lldpmgrd has run, and the MAC before; its
        description is the port's name only while CONFIG_DB has none
        (sonic-net/sonic-buildimage, dockers/docker-lldp/lldpmgrd).
        """
        if self.is_mac:
            return None
        switch = self.among({switch for switch, _ in known}).switch
        own_words = self.subtype in _OWN_WORDS
        called = names.get(switch, {}) if own_words or (switch, self.port) not in known else {}
        place = spell_port(switch, called.get(self.port, self.port), names, known)
        if place in known or self.port in called or not own_words:
            return place
        described = spell_port(switch, self.described, names, known)
        return described if described in known else None

    def among(self, switches: Collection[str]) -> Heard:
        """Return the neighbour by its switch's planned name: LLDP may send it with its domain."""
        return self._replace(switch=resolve_system(self.switch, switches))


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    owned = (tuple(name.rpartition("/")[::2]) for name in context.port_owners)
    known = {*context.neighbours, *((switch, port) for switch, port in owned)}
    leaves = {switch for switch, _ in context.neighbours}
    heard = _read_neighbours(parse_json(read_output(evidence, LLDP), "lldpctl"))
    heard = [(local, h.among({switch for switch, _ in known})) for local, h in heard]
    named = [(local, h, h.named(context.port_names, known)) for local, h in heard]
    unnamed = [(local, h) for local, h, place in named if place is None and h.switch in leaves]
    neighbours = [(local, place) for local, _, place in named if place is not None]
    unclear = {h.switch for _, h in unnamed}
    slots = _read_slots(read_output(evidence, NETDEVS, any_exit=True))
    remedies = _find_remedies(neighbours, slots, context)
    for switch, interface in context.neighbours:
        name = f"{switch}/{interface}"
        locals_ = sorted({local for local, place in neighbours if place == (switch, interface)})
        if not locals_ and switch in unclear:
            continue
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
    for local, place in neighbours:
        if place[0] in leaves and place not in context.neighbours:
            owner = context.port_owners.get("/".join(place), "")
            detail = f"cabled to a port that is {owner}'s" if owner else _NOBODYS
            remedy = remedies.get("/".join(place), "")
            yield fault(local, Severity.CONFIG, f"{detail}{remedy}", "/".join(place))
    if unnamed:
        local, unknown = unnamed[0]
        told = "a MAC" if unknown.is_mac else "a name"
        raise NotJudged(
            f"{local} hears port {unknown.port[:40]!r} of {unknown.switch[:60]}: {told} that is "
            "not the port's own; it is known when the switch has been read, and its LLDP has begun"
        )


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


def read_ends(
    evidence: Mapping[str, Evidence], names: PortNames, known: Collection[Place]
) -> Ends | None:
    """Return the ends that this check's commands report; None if they cannot be read, or if a
    switch of `known` calls its ports by names that are not known (see `Heard.named`).
    """
    switches = {switch for switch, _ in known}
    try:
        heard = _read_neighbours(parse_json(read_output(evidence, LLDP), "lldpctl"))
        neighbours = []
        for local, neighbour in heard:
            place = neighbour.named(names, known)
            if place is None and neighbour.among(switches).switch in switches:
                return None
            if place is not None:
                neighbours.append((local, place))
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


def _read_neighbours(document: Any) -> list[tuple[str, Heard]]:
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


def _read_place(local: str, facts: Mapping[str, Any]) -> Heard | None:
    """Return a neighbour's chassis and port; None without a name (a card's own firmware)."""
    chassis = require_object(facts.get("chassis"), "chassis")
    remote = require_object(facts.get("port"), "port")
    port = require_object(remote.get("id"), "port id")
    if "id" in chassis and "type" in require_object(chassis["id"], "chassis id"):
        return None
    names = list(chassis)
    if len(names) != 1:
        raise Unreadable(f"lldpctl: {local[:20]} does not have exactly one chassis")
    subtype = port.get("type", "")
    described = remote.get("descr", "")
    return Heard(
        names[0],
        require_text(port.get("value"), "port id"),
        subtype if isinstance(subtype, str) else "",
        described if isinstance(described, str) else "",
    )


CHECK = Check("lldp", Gate.A, (LLDP, NETDEVS), _findings)
