"""Joins the ends of a node's links with what its validations kept, read from the store.

Which optic a reading is of stands only in raw outputs, which are large: they are read where the
node's laser would be accused, since another optic has another current and is no older for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.mlxlink_ports import MLXLINK, read
from provisioner.checks.readers.tool_output import read_output
from provisioner.integrations.optics.ends import Joined, join_ends, read_host_days
from provisioner.integrations.optics.trends import Day, Verdict
from provisioner.model.cohort import Evidence, HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.ports import DamagedRow

_OUTPUTS = TypeAdapter(dict[str, Evidence])  # of a result, by the command's name, as stored


class ReadsEvidence(Protocol):
    """What the store knows of a node's validations."""

    async def list_reports(self, node: str, since: float) -> Sequence[HealthReport]: ...

    async def get_inventory(self, node: str) -> Inventory | None: ...

    async def get_output(self, digest: str) -> str | None: ...


Links = Sequence[tuple[str, Verdict, Sequence[Day]]]  # a card's slot, by its leaf alone, its days


async def join_node(
    store: ReadsEvidence, node: Node, links: Links, since: float
) -> tuple[list[Joined], dict[str, list[Day]]]:
    """Return each link's verdict by both ends, and slot -> days of validations since a time."""
    reports = await store.list_reports(node.id, since)
    inventory = await store.get_inventory(node.id)
    days = await asyncio.to_thread(read_host_days, node, reports, inventory)
    joined = _join(links, days)
    if any((j.verdict.state, j.verdict.end) == ("dying", "node") for j in joined):
        serials = {r.ended_at: await _read_serials(store, r) for r in reports}
        days = await asyncio.to_thread(read_host_days, node, reports, inventory, serials)
        joined = _join(links, days)
    return joined, days


def _join(links: Links, days: Mapping[str, Sequence[Day]]) -> list[Joined]:
    return [join_ends(found, leaf, days.get(slot, ())) for slot, found, leaf in links]


async def _read_serials(store: ReadsEvidence, report: HealthReport) -> dict[str, str]:
    """Return a card's address -> the serial of its optic; {}: the output is gone or tells none."""
    digest = next((r.evidence for r in report.results if r.check == "optics" and r.evidence), "")
    try:
        text = await store.get_output(digest) if digest else None
    except DamagedRow:
        return {}
    return await asyncio.to_thread(list_serials, text)


def list_serials(text: str | None) -> dict[str, str]:
    """Return a card's address -> the serial of its optic, of a validation's stored outputs."""
    try:
        outputs = _OUTPUTS.validate_json(text or "")
        ports = read(read_output(outputs, MLXLINK, any_exit=True))
        told = {p.pci: p.get_text("Module Info", "Vendor Serial Number") for p in ports if p.pci}
    except (ValidationError, Unreadable):
        return {}
    return {address: serial for address, serial in told.items() if serial}
