"""Reads all that `planning/lifecycle/explain.py` needs to know of one node; decides and changes
nothing.
"""

from __future__ import annotations

import asyncio

from provisioner.model.campaign import SETTLED, Campaign, CampaignRow
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.operation import ActionStatus
from provisioner.model.plan import History, Neighbour, Plan
from provisioner.planning.certification.attested_state import list_differences
from provisioner.planning.lifecycle.explain import Situation
from provisioner.planning.path.history import OPEN, build_history
from provisioner.planning.path.planner import PlanCache, PlanningNode
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# What runs at the other ends of a node's cables, as last seen: a plan may depend on it.


# switch components that a host's plan may depend on, and host components a switch's may
_FACING = ("switch.os", "bluefield.nic", "supernic.nic", "nic.cx7", "nic.cx8", "host.doca")


async def read_neighbours(store: SqlStore, node: Node) -> tuple[Neighbour, ...]:
    """Return the versions at the other ends of this node's cables, as last read."""
    if node.kind is NodeKind.HOST:
        names = sorted({p.switch for p in node.ports})
    else:
        names = [n.id for n in await store.nodes.list_cabled([node.id])]
    ends = []
    for name in names:
        inventory = await store.evidence.get_inventory(name)
        if inventory is not None:
            ends.append(Neighbour(node=name, versions=read_facing_versions(inventory)))
    return tuple(ends)


def read_facing_versions(inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """Return the versions that another node's plan may depend on."""
    versions: dict[str, tuple[str, ...]] = {}
    for kind in _FACING:
        distinct = sorted({c.version for c in inventory.of_kind(kind) if c.version})
        if distinct:
            versions[kind] = tuple(distinct)
    return versions


ROWS_MAX = 500  # of a node's journal: its last few journeys
_PLANNED = frozenset({State.CONVERGING, State.VALIDATING, State.QUARANTINED, State.REPAIRING})


async def read_situation(store: SqlStore, node: Node, plans: PlanCache, now: float) -> Situation:
    """Return everything on record about `node` at `now` (seconds since the epoch)."""
    rows, _ = await store.journal.list_page(after=0, limit=ROWS_MAX, node=node.id, backwards=True)
    operations = await store.operations.list_page(limit=1, status="active", node=node.id)
    entries = await store.operations.list_entries(node.id)
    held = await store.evidence.get_certificate(node.certificate) if node.certificate else None
    revoked = ""
    if held is not None and await store.evidence.is_revoked(held.id):
        reasons = [
            r.reason for r in await store.evidence.list_revocations() if r.certificate == held.id
        ]
        revoked = reasons[-1] if reasons else "no reason was recorded"
    campaign, row = await _campaign(store, node)
    alerts = [a for a in await store.alerts.list(node.id) if a.active]
    report = await store.evidence.get_report(node.id)
    operation = operations[0] if operations else None
    past = build_history(entries, operation.id if operation else "")
    return Situation(
        node=node,
        now=max([now, *(r["at"] for r in rows[:1])]),  # a simulated site's clock runs ahead
        history=rows,
        operation=operation,
        under_way=tuple(e for e in entries if e.status in OPEN | {ActionStatus.UNCLEAR}),
        plan=await _plan(store, node, plans, past),
        certificate=held,
        revoked=revoked,
        case=await store.cases.get_open(node.id),
        campaign=campaign,
        row=row,
        alerts=tuple(alerts),
        evidence=list_differences(report) if report is not None else (),
    )


async def _plan(store: SqlStore, node: Node, plans: PlanCache, past: History) -> Plan | None:
    """Return the plan from the last inventory; None where no plan is made."""
    inventory = await store.evidence.get_inventory(node.id)
    if inventory is None or node.state not in _PLANNED or not (node.release and node.profile):
        return None
    posed = PlanningNode(
        inventory, node.release, node.profile, past, await read_neighbours(store, node)
    )
    return await asyncio.to_thread(plans.plan, posed)


async def _campaign(store: SqlStore, node: Node) -> tuple[Campaign | None, CampaignRow | None]:
    """Return the campaign that is not over and has this node still before it."""
    book = store.campaigns
    for row in await book.list_active_rows():
        if row.node == node.id and row.progress.state not in SETTLED:
            return await book.get(row.campaign), row
    return None, None
