"""Read the records of a MAAS: its machines, as its API 2.0 lists them. Pure.

Source: MAAS' published API documentation (canonical.com/maas/docs/api, "List machines") and the
values of `NodeStatus` and `PowerState` in its repository (canonical/maas, commit 9e51f33c,
August 2026). A machine's `hardware_info` has "Unknown" where nothing was read. No MAAS was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from provisioner.integrations.inventories.deciding.belief import Belief

Tree = Mapping[str, Any]
TEXT_MAX = 300  # characters of a field
UNREAD = frozenset({"", "unknown"})
# NodeStatus: Deployed, and the ways in, within and out of rescue mode: its owner has the machine
SERVING = frozenset({6, 16, 17, 18, 19, 20})
IDLE = frozenset({0, 4, 5, 10})  # New, Ready, Reserved, Allocated: nothing is deployed on it
# Commissioning, Deploying, Releasing, Disk erasing, entering and leaving rescue mode, Testing
WORKING = frozenset({1, 9, 12, 14, 17, 19, 21})
BROKEN = 8
POWER = {"on": "On", "off": "Off"}


class TenantField(StrEnum):
    """The field of a machine that a site uses for its tenants."""

    OWNER = "owner"
    POOL = "pool"


class ZoneMeaning(StrEnum):
    """The place that a site's availability zones stand for."""

    SITE = "site"
    RACK = "rack"


def list_zones(document: object) -> tuple[str, ...]:
    """Return the names of the availability zones. Raises ValueError."""
    zones = _list_trees(document, "zones")
    return tuple(name for zone in zones if (name := _text(zone, "name")))


def list_machines(document: object) -> tuple[Tree, ...]:
    """Return the machines of an answer. Raises ValueError."""
    machines = _list_trees(document, "machines")
    if not all(_text(m, "system_id") for m in machines):
        raise ValueError("a machine has no system_id")
    return machines


def read_machine(machine: Tree, tenant: TenantField, zone: ZoneMeaning) -> Belief:
    """Return the record of one machine."""
    status = machine.get("status")
    status = status if isinstance(status, int) else -1
    state = _text(machine, "status_name")
    hardware = _tree(machine, "hardware_info")
    place = _text(_tree(machine, "zone"), "name")
    pool = _text(_tree(machine, "pool"), "name")
    return Belief(
        key=_text(machine, "system_id"),
        name=_text(machine, "hostname"),
        serial=_read_text(hardware, "system_serial"),
        power=POWER.get(_text(machine, "power_state"), ""),
        state=state,
        serves=True if status in SERVING else False if status in IDLE else None,
        busy=_describe_work(machine, status, state),
        tenant=_text(machine, "owner") if tenant is TenantField.OWNER else pool,
        site=place if zone is ZoneMeaning.SITE else "",
        rack=place if zone is ZoneMeaning.RACK else "",
        versions=dict(_list_versions(hardware)),
    )


def _describe_work(machine: Tree, status: int, state: str) -> str:
    if status == BROKEN:
        cause = _text(machine, "error_description")
        return f"{state}: {cause}" if cause else state
    return state if status in WORKING else ""


def _list_versions(hardware: Tree) -> Iterator[tuple[str, str]]:
    if bios := _read_text(hardware, "mainboard_firmware_version"):
        yield "host.bios", bios


def _list_trees(document: object, kind: str) -> tuple[Tree, ...]:
    if not isinstance(document, list) or not all(isinstance(m, dict) for m in document):
        raise ValueError(f"the answer is no list of {kind}")
    return tuple(document)


def _tree(tree: Tree, name: str) -> Tree:
    value = tree.get(name)
    return value if isinstance(value, dict) else {}


def _read_text(tree: Tree, name: str) -> str:
    value = _text(tree, name)
    return "" if value.lower() in UNREAD else value


def _text(tree: Tree, name: str) -> str:
    value = tree.get(name)
    return value[:TEXT_MAX] if isinstance(value, str) and value.isprintable() else ""
