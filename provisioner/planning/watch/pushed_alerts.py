"""Alerts that other systems push: Alertmanager's JSON, and a plain format of our own. Pure.

A source reports observations, never consequences: it may use only the classifications that the site
assigned to it, and an item that does not identify one node is not attributed to any.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from provisioner.checks.xid.error_codes import rank_severity
from provisioner.checks.xid.xid_explain import explain_xid
from provisioner.model.alert import Classification, Signal
from provisioner.model.base import Record
from provisioner.model.cohort import Severity
from provisioner.model.location import Port
from provisioner.model.names import PortNames
from provisioner.model.node import Node, NodeKind
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports
from provisioner.planning.watch.watch_rules import Counters

# ------------------------------------------------------------------------------
# Identification of the node and rail that an external alert names. Pure.
#
# A value that two nodes share identifies neither, and contradictory values identify no node.


_ADDRESS = re.compile(r"^\[?([0-9a-fA-F:.]+?)\]?(?::\d{1,5})?$")
WHO = ("node", "hostname", "serial", "ip", "switch", "interface")  # labels that name a node


class Directory:
    """Finds a node by name, serial, address, or leaf port.

    `serials`: node -> serials of its parts. `port_names`: of leaves that call their ports
    otherwise. A rail's address is searched at the ports as they were cabled, then in `plan`: it
    identifies the node and the rail, from either end of its cable.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        serials: Mapping[str, Iterable[str]],
        plan: AddressPlan | None = None,
        port_names: PortNames | None = None,
    ) -> None:
        self._port_names = port_names or {}
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
                if node.kind is NodeKind.SWITCH:
                    self._switches[address] = "" if address in self._switches else node.id
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
        """The rail, "rail3", or "leaf/port" of a port that is no rail; "" if there is none."""
        targets = {self._target(key) for key in self._keys(said)} - {""}
        return targets.pop() if len(targets) == 1 else ""

    def _keys(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        switch = _word(said, "switch")
        interface = _word(said, "interface")
        names = [word for label in ("node", "hostname") if (word := _word(said, label))]
        if interface and not switch:  # an exporter on a switch, or for it: the node cabled there
            words = [n for word in names for n in (*_short(word), address_in(word))]
            meant = [self._switches.get(n, "") for n in words]
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
            switch = next((s for n in _short(switch) if (s := self._switches.get(n))), switch)
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
        called = self._port_names.get(port.switch, {})
        same = {port.interface, *(a for a, own in called.items() if own == port.interface)}
        for name in sorted(same | {called.get(port.interface, port.interface)}):
            self._add("port", f"{port.switch}/{name}", node.id, target)
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


ITEMS_MAX = 512  # of one request; Alertmanager's groups have tens
COUNTERS_MAX = 128  # of one port; ethtool has more, the rules use few
WORDS_MAX = 400
FUTURE_S = 60.0  # clocks differ
C = Classification
ORDINARY = (C.HARDWARE, C.SENSOR_WARNING, C.SENSOR_CRITICAL, C.SENSOR_FAILURE, C.LINK)
_NAME = re.compile(r"[A-Za-z0-9][\w.:/ -]{0,127}")
# labels that name a node, as Alertmanager's usual sources write them (dcgm-exporter: "Hostname")
_NODE_LABELS = ("node", "hostname", "Hostname", "host", "nodename", "instance", "source")
# node_exporter on a switch: "device"; snmp_exporter: IF-MIB's columns; gNMIc: "interface_name"
_PORT_LABELS = ("interface", "port", "device", "ifname", "ifName", "ifDescr", "interface_name")
_TARGET_LABELS = ("target", "gpu", "device", "port", "interface", "rail", "sensor")
_SEVERITY = {"critical": (C.HARDWARE,), "error": (C.HARDWARE,), "warning": (C.SENSOR_WARNING,)}


class Source(Record):
    """A system that may push, with its format and the classifications that it may use."""

    name: str
    format: Literal["alertmanager", "plain"]
    classifications: tuple[Classification, ...] = ORDINARY


class PortSaid(Record):
    """Reported counters, or a reported change of link, of one port."""

    node: str
    port: str
    at: float
    counters: Counters | None = None
    link: str = ""


class Told(Record):
    """The contents of one request. `unnamed`: labels of items whose node is not identified."""

    signals: tuple[Signal, ...] = ()
    ports: tuple[PortSaid, ...] = ()
    unnamed: tuple[str, ...] = ()
    unreadable: int = 0


def parse_push(source: Source, body: Any, directory: Directory, now: float) -> Told:
    """Parse one request. Never raises; unreadable items are counted."""
    if not isinstance(body, dict):
        return Told(unreadable=1)
    signals: list[Signal] = []
    ports: list[PortSaid] = []
    unnamed: list[str] = []
    unreadable = 0
    read = _alertmanager if source.format == "alertmanager" else _plain
    for item in _items(body.get("alerts")):
        alert = read(item) if item is not None else None
        if alert is None:
            unreadable += 1
            continue
        node = directory.find(alert["who"])
        if not node:
            unnamed.append(_who(alert["who"]))
            continue
        signals.append(
            Signal(
                node=node,
                id=alert["id"],
                target=_target(alert, directory),
                classifications=tuple(
                    c for c in alert["classifications"] if c in source.classifications
                ),
                message=alert["message"],
                source=f"webhook/{source.name}",
                at=now,  # our time: a sender's clock is not trusted
                active=alert["active"],
            )
        )
    for item in _items(body.get("ports") if source.format == "plain" else None):
        port = None if item is None else _port(item, directory, now)
        if isinstance(port, PortSaid):
            ports.append(port)
        elif port is None:
            unreadable += 1
        else:
            unnamed.append(port)
    return Told(
        signals=tuple(signals), ports=tuple(ports), unnamed=tuple(unnamed), unreadable=unreadable
    )


def _target(said: Mapping[str, Any], directory: Directory) -> str:
    """Return the target in the source's terms, except for a port under its switch's own name."""
    told_target: str = said["target"]
    if told_target not in ("", said["who"].get("interface")):
        return told_target
    return directory.find_target(said["who"]) or told_target


def _items(value: Any) -> Iterator[dict[str, Any] | None]:
    for item in (value if isinstance(value, list) else [])[:ITEMS_MAX]:
        yield item if isinstance(item, dict) else None


def _alertmanager(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return one alert of Alertmanager's webhook, version 4: labels, annotations, status."""
    raw = item.get("labels")
    notes = item.get("annotations")
    status = item.get("status")
    if not isinstance(raw, dict) or status not in ("firing", "resolved"):
        return None
    labels = {k: v for k, v in list(raw.items())[:64] if isinstance(v, str)}
    name = _name(labels.get("alertname"))
    if not name:
        return None
    labels_of_node = {"node": next((labels[n] for n in _NODE_LABELS if labels.get(n)), "")}
    labels_of_node |= {n: labels[n] for n in ("serial", "ip", "switch") if labels.get(n)}
    labels_of_node |= {"interface": next((labels[n] for n in _PORT_LABELS if labels.get(n)), "")}
    annotations = notes if isinstance(notes, dict) else {}
    message = next(
        (annotations[n] for n in ("summary", "description") if isinstance(annotations.get(n), str)),
        "",
    )
    target = next((labels[n] for n in (*_TARGET_LABELS, *_PORT_LABELS) if labels.get(n)), "")
    labelled = _classes(labels.get("classifications", labels.get("classification", "")).split(","))
    ident = name
    classes = labelled or _SEVERITY.get(labels.get("severity", "").lower(), ())
    code = labels.get("xid") or labels.get("err_code", "")
    if "xid" in name.lower() and code.isascii() and code.isdigit() and 0 < len(code) <= 4:
        ident = f"Xid{int(code)}"
        classes = labelled or _xid(int(code))
    return _said(labels_of_node, ident, _name(target), classes, message, active=status == "firing")


def _plain(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return one alert of the plain format (docs/watch.md)."""
    name = _name(item.get("id"))
    active = item.get("active", True)
    message = item.get("message", "")
    target = item.get("target", "")
    listed = item.get("classifications", [])
    readable = isinstance(active, bool) and isinstance(message, str) and isinstance(listed, list)
    if not name or not readable or not isinstance(target, str):
        return None
    identity = {k: item[k] for k in WHO if isinstance(item.get(k), str)}
    classes = _classes(listed[:16])
    return _said(identity, name, _name(target), classes, message, active=active)


def _said(
    who: Mapping[str, str],
    ident: str,
    target: str,
    classes: tuple[Classification, ...],
    words: str,
    *,
    active: bool,
) -> dict[str, Any]:
    message = "".join(c for c in words[:WORDS_MAX] if c.isprintable())
    return {
        "who": who,
        "id": ident,
        "target": target,
        "classifications": classes,
        "message": message,
        "active": active,
    }


def _port(item: dict[str, Any], directory: Directory, now: float) -> PortSaid | str | None:
    """Return a port's report; the labels of an unidentified node as text; None: unreadable."""
    port = _name(item.get("port"))
    link = item.get("link", "")
    raw = item.get("counters")
    boot = item.get("boot", "")
    at = item.get("at", now)
    if not port or link not in ("", "up", "down") or not isinstance(boot, str):
        return None
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at <= now + FUTURE_S:
        return None
    counters = None
    if raw is not None:
        if not isinstance(raw, dict) or len(raw) > COUNTERS_MAX:
            return None
        values = {k: v for k, v in raw.items() if type(v) is int and 0 <= v < 2**64 and _name(k)}
        if len(values) != len(raw):
            return None
        counters = Counters(at=float(at), boot=boot[:64], values=values)
    if counters is None and not link:
        return None
    node = directory.find(item)
    if not node:
        return _who(item)
    return PortSaid(node=node, port=port, at=min(float(at), now), counters=counters, link=link)


def _who(said: Mapping[str, Any]) -> str:
    pairs = (f"{k}={v}" for k, v in said.items() if k in WHO and isinstance(v, str) and v)
    return "".join(c for c in ", ".join(pairs)[:128] if c.isprintable()) or "names no node"


def _name(value: Any) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


def _classes(listed: Iterable[Any]) -> tuple[Classification, ...]:
    by_name = {c.value: c for c in Classification}
    classes = (by_name.get(str(word).strip()) for word in listed)
    return tuple(dict.fromkeys(c for c in classes if c is not None))


def _xid(code: int) -> tuple[Classification, ...]:
    severity = explain_xid(code).severity
    if severity is None:
        return ()
    fatal = rank_severity(severity) >= rank_severity(Severity.RESET_GPU)
    return (C.FATAL_EVENT, C.HARDWARE) if fatal else (C.HARDWARE,)
