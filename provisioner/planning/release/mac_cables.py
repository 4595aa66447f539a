"""The far ends of cables, by the MACs that leaves learned at their ports. Pure.

LLDP names both ends of a cable, and it is often off, or filtered by a card's firmware. A MAC of a
card at a leaf's port shows the same cable, once the card has sent a frame. It says less: a bond has
one MAC on several cables, and a bridge in a host passes on the MACs of others. Thus only a MAC that
is at one port alone counts, of a card that is at one port alone, and only where LLDP is silent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from provisioner.checks.cabling import End
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node

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
    """Return the keys that have one value only."""
    values: dict[Key, set[End]] = {}
    for key, value in pairs:
        values.setdefault(key, set()).add(value)
    return {key: next(iter(ends)) for key, ends in values.items() if len(ends) == 1}
