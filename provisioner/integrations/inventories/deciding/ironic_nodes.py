"""Read the records of an Ironic: its nodes, their firmware components and their inventories. Pure.

Source: ironic/api/controllers/v1 and ironic/common/states.py of Ironic 39.0.0, of which a test has
the answers. An answer may lack fields: an Ironic shows less to a user of one project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.integrations.inventories.deciding.belief import Belief
from provisioner.integrations.inventories.deciding.belief_comparison import format_address
from provisioner.integrations.inventories.deciding.host_table import find_rail
from provisioner.model.location import Port

TEXT_MAX = 300  # characters of a field
# ironic/common/states.py: a tenant's instance is on the node
SERVING = frozenset(
    {
        "active",
        "rescue",
        "rescue failed",
        "rescue wait",
        "rescuing",
        "service failed",
        "service hold",
        "service wait",
        "servicing",
        "unrescue failed",
        "unrescuing",
    }
)
# no instance is on it, and none is being written
IDLE = frozenset({"available", "enroll", "manageable"})
POWER = {"power on": "On", "power off": "Off"}
# `component` of its firmware interface -> our kind
COMPONENTS = {"bios": "host.bios", "bmc": "host.bmc"}


def list_nodes(document: object) -> tuple[Mapping[str, Any], ...]:
    """Return the nodes of a page. Raises ValueError."""
    return _list_records(document, "nodes")


def list_ports(document: object) -> tuple[Mapping[str, Any], ...]:
    """Return the ports of a page. Raises ValueError."""
    return _list_records(document, "ports")


def list_links(ports: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Port, ...]]:
    """Return the leaf ports of each node by its uuid.

    A port's `local_link_connection` names the switch in `switch_info` and its interface in
    `port_id`; one without both says nothing. The card is the port's name, if it has one.
    """
    links: dict[str, list[Port]] = {}
    for port in ports:
        link = port.get("local_link_connection")
        link = link if isinstance(link, dict) else {}
        switch = _read_text(link, "switch_info")
        interface = _read_text(link, "port_id")
        if switch and interface:
            slot = _read_text(port, "name")
            row = Port(switch=switch, interface=interface, rail=find_rail(slot), nic_slot=slot)
            links.setdefault(_read_text(port, "node_uuid"), []).append(row)
    return {node: tuple(rows) for node, rows in links.items()}


def _list_records(document: object, kind: str) -> tuple[Mapping[str, Any], ...]:
    records = document.get(kind) if isinstance(document, dict) else None
    if not isinstance(records, list) or not all(isinstance(n, dict) for n in records):
        raise ValueError(f"the answer has no list of {kind}")
    if not all(_read_text(n, "uuid") for n in records):
        raise ValueError(f"one of its {kind} has no uuid")
    return tuple(records)


def read_belief(node: Mapping[str, Any], firmware: object, inventory: object) -> Belief:
    """Return the record of one node; `firmware`, `inventory`: their answers, None if refused."""
    info = node.get("driver_info")
    info = info if isinstance(info, dict) else {}
    address = _read_text(info, "redfish_address") or _read_text(info, "ipmi_address")
    state = _read_text(node, "provision_state") or "available"  # null before API version 1.2
    serves = True if state in SERVING else False if state in IDLE else None
    return Belief(
        key=_read_text(node, "uuid"),
        name=_read_text(node, "name"),
        address=format_address(address),
        serial=_read_serial(inventory),
        power=POWER.get(_read_text(node, "power_state"), ""),
        state=state,
        serves=serves,
        busy=_describe_work(node, state),
        tenant=_read_text(node, "lessee"),
        versions=_read_versions(firmware),
    )


def _describe_work(node: Mapping[str, Any], state: str) -> str:
    if node.get("maintenance") is True:
        reason = _read_text(node, "maintenance_reason")
        return f"maintenance: {reason}" if reason else "maintenance"
    if holder := _read_text(node, "reservation"):
        return f"locked by {holder}, in {state}"
    target = _read_text(node, "target_provision_state")
    return f"{state}, on its way to {target}" if target and target != state else ""


def _read_versions(firmware: object) -> dict[str, str]:
    rows = firmware.get("firmware") if isinstance(firmware, dict) else None
    versions: dict[str, str] = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and (kind := COMPONENTS.get(_read_text(row, "component"))):
            version = _read_text(row, "current_version")
            versions |= {kind: version} if version else {}
    return versions


def _read_serial(inventory: object) -> str:
    tree: object = inventory
    for name in ("inventory", "system_vendor"):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return _read_text(tree, "serial_number") if isinstance(tree, dict) else ""


def _read_text(tree: Mapping[str, Any], name: str) -> str:
    value = tree.get(name)
    return value[:TEXT_MAX] if isinstance(value, str) and value.isprintable() else ""
