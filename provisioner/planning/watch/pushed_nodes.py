"""Identification of the node and rail that an external alert names. Pure.

A value that two nodes share identifies neither, and contradictory values identify no node.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports

_ADDRESS = re.compile(r"^\[?([0-9a-fA-F:.]+?)\]?(?::\d{1,5})?$")
WHO = ("node", "hostname", "serial", "ip", "switch", "interface")  # labels that name a node


class Directory:
    """Finds a node by name, serial, address, or leaf port.

    `serials`: node -> serials of its parts. A rail's address is searched at the ports as they were
    cabled, then in `plan`: it identifies the node and the rail, from either end of its cable.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        serials: Mapping[str, Iterable[str]],
        plan: AddressPlan | None = None,
    ) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._targets: dict[tuple[str, str], str] = {}  # rail that the same labels identify
        self._rails: dict[str, frozenset[int]] = {}  # node -> rails whose address is stored
        self._switches: dict[str, str] = {}  # lowercase -> its name
        self._places = None if plan is None else Ports(Addressing(plan))
        for node in nodes:
            self._add("name", node.id.lower(), node.id)
            if node.kind is NodeKind.SWITCH:
                self._switches[node.id.lower()] = node.id
            if address := address_in(node.address):
                self._add("address", address, node.id)
            for port in node.ports:
                self._add_port(node, port)
            self._rails[node.id] = frozenset(p.rail for p in node.ports if p.address)
            for bmc in node.bmcs:
                if bmc.serial:
                    self._add("serial", bmc.serial, node.id)
            for serial in serials.get(node.id, ()):
                self._add("serial", serial, node.id)

    def find(self, said: Mapping[str, Any]) -> str:
        """Return the node that all labels name; "" if none, or more than one."""
        named = {self._node(key) for key in self._keys(said)} - {""}
        return named.pop() if len(named) == 1 else ""

    def find_target(self, said: Mapping[str, Any]) -> str:
        """Return the rail, "rail3", or "leaf/port" of a port that is no rail; "" if there is
        none.
        """
        targets = {self._target(key) for key in self._keys(said)} - {""}
        return targets.pop() if len(targets) == 1 else ""

    def _keys(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        switch = _word(said, "switch")
        interface = _word(said, "interface")
        names = [word for label in ("node", "hostname") if (word := _word(said, label))]
        if interface and not switch:  # an exporter on a switch, or for it: the node cabled there
            meant = (self._switches.get(n, "") for word in names for n in _short(word))
            switch = next((s for s in meant if ("port", f"{s}/{interface}") in self._known), "")
            names = [] if switch else names
        for word in names:
            if address := address_in(word):
                yield "address", address
                continue
            for name in _short(word):
                yield "name", name
        if serial := _word(said, "serial"):
            yield "serial", serial
        if ip := _word(said, "ip"):
            yield "address", address_in(ip)
        if switch and interface:
            yield "port", f"{switch}/{interface}"

    def _node(self, key: tuple[str, str]) -> str:
        if key in self._known:
            return self._known[key]
        return self._planned(key)[0]

    def _target(self, key: tuple[str, str]) -> str:
        if key in self._known:
            return self._targets.get(key, "")
        return self._planned(key)[1]

    def _planned(self, key: tuple[str, str]) -> tuple[str, str]:
        """Return node and rail of an address by the plan, unless that rail is cabled with
        another.
        """
        kind, value = key
        end = (
            self._places.addressing.find_rail_end(value)
            if self._places and kind == "address"
            else None
        )
        if end is None or self._places is None:
            return "", ""
        node = self._known.get(("name", self._places.name_node(end).lower()), "")
        if not node or end.rail in self._rails[node]:
            return "", ""
        return node, f"rail{end.rail}"

    def _add_port(self, node: Node, port: Port) -> None:
        target = f"rail{port.rail}" if port.rail >= 0 else f"{port.switch}/{port.interface}"
        self._add("port", f"{port.switch}/{port.interface}", node.id, target)
        for address in _both_ends(port.address):
            self._add("address", address, node.id, target)

    def _add(self, kind: str, value: str, node: str, target: str = "") -> None:
        key = (kind, value)
        previous = self._known.get(key)
        self._known[key] = node if previous in (None, node) else ""
        if previous is None:
            self._targets[key] = target
        elif self._targets[key] != target:
            self._targets[key] = ""


def _both_ends(address: str) -> tuple[str, ...]:
    """Return both addresses of a cable with two; a wider network does not identify a cable."""
    try:
        network = ipaddress.ip_interface(address).network
    except ValueError:
        return ()
    return tuple(str(a) for a in network) if network.num_addresses == 2 else ()


def _word(said: Mapping[str, Any], label: str) -> str:
    word = said.get(label)
    return word if isinstance(word, str) else ""


def _short(word: str) -> tuple[str, ...]:
    """Return variants of a name: whole, without its domain, without a port and its domain."""
    low = word.lower()
    return low, low.partition(".")[0], low.partition(":")[0].partition(".")[0]


def address_in(word: str) -> str:
    """Return the IP address in "10.0.0.1:9400", "[fd00::1]:9400" or plain, in short form, or ""."""
    match = _ADDRESS.match(word) if word.count(":") < 2 or word.startswith("[") else None
    try:
        return str(ipaddress.ip_address(match[1] if match else word))
    except ValueError:
        return ""
