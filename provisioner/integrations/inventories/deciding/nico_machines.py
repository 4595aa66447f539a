"""Read the records of an NVIDIA infra controller (NICo): machines, expected machines, racks. Pure.

Source: the published OpenAPI document of its REST API, `rest-api/openapi/spec.yaml` of
NVIDIA/infra-controller, version 1.5.0 (commit a02fa34b, 30 May 2026): schemas Machine,
MachineStatus, MachineMetadata, ExpectedMachine, Rack, RackComponent, TenantAccount, Site. No field
is required there: each may be absent, and metadata and serials are shown to a provider alone. No
NICo was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.integrations.inventories.deciding.belief import Belief, SourceRow
from provisioner.integrations.inventories.deciding.belief_comparison import (
    bracket_address,
    format_address,
)

Tree = Mapping[str, Any]
TEXT_MAX = 300  # characters of a field
IN_USE = "InUse"
IDLE = frozenset({"Ready"})
WORKING = frozenset({"Initializing", "Reset"})
HELD = frozenset({"Maintenance"})
POWER = {"on": "On", "off": "Off"}


@dataclass(frozen=True)
class NicoRecords:
    """What was read; of `racks`, `expected`, `sites` and `accounts` an answer may be missing."""

    machines: tuple[Tree, ...]
    expected: tuple[Tree, ...] = ()
    racks: tuple[Tree, ...] = ()
    sites: tuple[Tree, ...] = ()
    accounts: tuple[Tree, ...] = ()  # of tenants


def list_records(document: object) -> tuple[Tree, ...]:
    """Return the records of one page. Raises ValueError."""
    if not isinstance(document, list) or not all(isinstance(r, dict) for r in document):
        raise ValueError("the answer is no list of records")
    return tuple(document)


def list_rows(records: NicoRecords) -> tuple[SourceRow, ...]:
    """Return every machine of the records with an id, in their order."""
    sites = {_text(s, "id"): _text(s, "name") for s in records.sites}
    tenants = {_text(a, "tenantId"): _text(a, "tenantOrg") for a in records.accounts}
    expected = {_text(e, "machineId"): e for e in records.expected}
    components = {
        _text(component, "componentId") or _text(component, "id"): (rack, component)
        for rack in records.racks
        for component in _list_trees(rack.get("components"))
    }
    rows = []
    for machine in records.machines:
        number = _text(machine, "id")
        if not number:
            continue
        rack, component = components.get(number, ({}, {}))
        entry = expected.get(number, {})
        metadata = _tree(machine, "metadata")
        bmc = _tree(metadata, "bmcInfo")
        state = _text(machine, "status")
        tenant = _text(machine, "tenantId")
        address = _text(bmc, "ip") or _text(entry, "bmcIpAddress")
        belief = Belief(
            key=number,
            name=_text(entry, "name") or _text(component, "name"),
            address=format_address(bracket_address(address)),
            serial=_read_serial(machine, entry, component),
            power=POWER.get(_text(component, "powerState").lower(), ""),
            state=state,
            serves=_serves(machine, state),
            busy=_describe_work(machine, state),
            tenant=tenants.get(tenant) or tenant,
            site=sites.get(_text(machine, "siteId"), ""),
            rack=_text(rack, "name") or _text(entry, "rackId"),
            versions=dict(_list_versions(metadata)),
        )
        rows.append(
            SourceRow(belief=belief, mac=_text(bmc, "mac") or _text(entry, "bmcMacAddress"))
        )
    return tuple(rows)


def _serves(machine: Tree, state: str) -> bool | None:
    if _text(machine, "instanceId") or state == IN_USE:
        return True
    return False if state in IDLE else None


def _describe_work(machine: Tree, state: str) -> str:
    if state in HELD:
        message = _text(machine, "maintenanceMessage")
        return f"{state}: {message}" if message else state
    return state if state in WORKING else ""


def _read_serial(machine: Tree, entry: Tree, component: Tree) -> str:
    board = _tree(_tree(machine, "metadata"), "dmiData")
    return (
        _text(machine, "serialNumber")
        or _text(board, "productSerial")
        or _text(component, "serialNumber")
        or _text(entry, "chassisSerialNumber")
    )


def _list_versions(metadata: Tree) -> Iterator[tuple[str, str]]:
    if bios := _text(_tree(metadata, "dmiData"), "biosVersion"):
        yield "host.bios", bios
    if bmc := _text(_tree(metadata, "bmcInfo"), "firmwareRevision"):
        yield "host.bmc", bmc


def _list_trees(value: object) -> Sequence[Tree]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else ()


def _tree(tree: Tree, name: str) -> Tree:
    value = tree.get(name)
    return value if isinstance(value, dict) else {}


def _text(tree: Tree, name: str) -> str:
    value = tree.get(name)
    return value[:TEXT_MAX] if isinstance(value, str) and value.isprintable() else ""
