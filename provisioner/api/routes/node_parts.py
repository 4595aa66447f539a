"""Routes below one node: its parts with five facts each, its plan, its results, its history."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from provisioner.api.changes import decode_cursor, encode_cursor
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, VIEWERS, Counted, Paging, Route
from provisioner.control.node.explaining import read_neighbours
from provisioner.model.base import Record
from provisioner.model.cohort import HealthReport
from provisioner.model.inventory import Device, Inventory
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Gap
from provisioner.model.plan import Plan
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.path.conditions import judge_pin, select_target
from provisioner.planning.path.history import build_history
from provisioner.planning.path.planner import PlanningNode
from provisioner.runtime import permit

TAG = "nodes"
MANAGEMENT_PORT = "eth0"  # as every supported system of switches names it


class FiveFacts(Record):
    """One component: its target version, and four facts of its present state."""

    kind: str
    slot: str
    target: str = ""  # of the release and profile; "": not pinned
    running: str = ""  # "": the device reports none
    staged: str = ""
    background_copied: str = ""  # Completed, InProgress, Pending; "": not applicable
    pending: str = ""  # the activation that the staged version waits for
    # whether the running version is the target; None: `why` names the missing fact
    met: bool | None = None
    why: str = ""  # of `met` None: not pinned, an unknown pin, a device without a version


class PartsView(Record):
    """The components and devices of a node, as last read."""

    node: str
    vendor: str
    model: str
    components: tuple[FiveFacts, ...]
    devices: tuple[Device, ...]
    gaps: tuple[Gap, ...]


class PortCount(Record):
    """The counters of one leaf port that a host is cabled to."""

    switch: str = Field(description="Name of the leaf.")
    interface: str = Field(description="Port of the leaf.")
    rail: int = Field(
        description="Rail of the east-west network; -1: north-south, or a switch's management port."
    )
    carried_bytes: int | None = Field(description="Bytes both ways; null: the leaf counts none.")
    in_errors: int | None = Field(description="Damaged frames from the host; null: not counted.")
    carrier_changes: int | None = Field(description="Changes of carrier; null: not counted.")


class PortCounts(Record):
    """The counters of a host's leaf ports, as the leaves have them now."""

    node: str
    read_at: Instant = Field(description="Time of the reading.")
    ports: tuple[PortCount, ...] = Field(description="Ports that could be read.")
    gaps: tuple[str, ...] = Field(description="Leaves that could not be read, with reasons.")


class Report(Record):
    """The results of the last validation."""

    node: str
    started_at: Instant
    ended_at: Instant
    inventory_digest: str
    results: tuple[dict[str, Any], ...]
    selected: tuple[str, ...]
    causes: tuple[str, ...]


class Action(Record):
    """One physical action, from the ledger."""

    operation: str
    action: str
    attempt: int
    status: ActionStatus
    intended_at: Instant
    settled_at: InstantOrNone
    outcome: str


class ActionPage(Counted):
    """Actions on a node, the newest first."""

    items: tuple[Action, ...]
    next: str = ""


async def show_parts(ask: Ask) -> Reply:
    """Return components and devices."""
    node = await ask.read_node()
    inventory = await ask.parts.store.evidence.get_inventory(node.id)
    if inventory is None:
        raise refuse_missing("inventory of this node yet")
    release = ask.parts.matrix.releases.get(node.release)
    profile = release.profiles.get(node.profile) if release is not None else None
    pins = profile.pins if profile is not None else {}
    facts = []
    for c in inventory.components:
        pin = pins.get(c.kind)
        verdict = judge_pin(c.kind, c.version, pin)
        facts.append(
            FiveFacts(
                kind=c.kind,
                slot=c.slot,
                target=select_target(c.kind, c.version, pin) if pin is not None else "",
                running=c.version or "",
                staged=c.staged or "",
                background_copied=c.background_copy.value if c.background_copy else "",
                pending=c.pending.value if c.pending else "",
                met=verdict.met,
                why=verdict.why,
            )
        )
    view = PartsView(
        node=node.id,
        vendor=inventory.vendor,
        model=inventory.model or "",
        components=tuple(facts),
        devices=inventory.devices,
        gaps=inventory.gaps,
    )
    return Reply(view)


async def show_plan(ask: Ask) -> Reply:
    """Return the steps with reasons, or the blockers with their remedies."""
    plan, _ = await plan_node(ask, await ask.read_node())
    return Reply(plan)


async def plan_node(ask: Ask, node: Node) -> tuple[Plan, Inventory]:
    """Return a node's plan, and the inventory that it is made from. Raises Refused without one."""
    store = ask.parts.store
    inventory = await store.evidence.get_inventory(node.id)
    if inventory is None:
        raise refuse_missing("inventory of this node yet: there is nothing to plan on")
    past = build_history(await store.operations.list_entries(node.id), await _newest(ask, node))
    posed = PlanningNode(
        inventory, node.release, node.profile, past, await read_neighbours(store, node)
    )
    # milliseconds for a situation that was planned before, tenths of a second for a new one
    return await asyncio.to_thread(ask.parts.plans.plan, posed), inventory


async def _newest(ask: Ask, node: Node) -> str:
    """Return the number of the operation under way, in which failures are counted."""
    operations = ask.parts.store.operations
    active = await operations.list_page(limit=1, status="active", node=node.id)
    return active[0].id if active else ""


async def show_report(ask: Ask) -> Reply:
    """Return the results of the last validation."""
    node = await ask.read_node()
    stored: HealthReport | None = await ask.parts.store.evidence.get_report(node.id)
    if stored is None:
        raise refuse_missing("report of this node yet")
    view = Report(
        node=node.id,
        started_at=stored.started_at,
        ended_at=stored.ended_at,
        inventory_digest=stored.inventory_digest,
        results=tuple(r.model_dump(mode="json") for r in stored.results),
        selected=stored.selected,
        causes=stored.causes,
    )
    return Reply(view)


async def list_actions(ask: Ask) -> Reply:
    """List the actions on the node, the newest first."""
    node = await ask.read_node()
    started = decode_cursor(ask.query.cursor, int)
    begin = int(started[0]) if started else 0
    entries: list[LedgerEntry] = list(
        reversed(await ask.parts.store.operations.list_entries(node.id))
    )
    shown = entries[begin : begin + ask.query.limit]
    more = begin + len(shown) < len(entries)
    items = tuple(_action(entry) for entry in shown)
    following = encode_cursor(begin + len(shown)) if more else ""
    return Reply(ActionPage(items=items, next=following, total=len(entries)))


def _action(entry: LedgerEntry) -> Action:
    return Action(
        operation=entry.operation.replace("#", ":"),
        action=entry.action,
        attempt=entry.attempt,
        status=entry.status,
        intended_at=entry.intended_at,
        settled_at=entry.settled_at,
        outcome=entry.outcome,
    )


async def count_ports(ask: Ask) -> Reply:
    """Return the counters of the leaf ports that a host is cabled to; none is reset.

    Of a switch it is its own port in the management network.
    """
    node = await ask.read_node()
    reader = ask.parts.port_reader
    if reader is None:
        raise build_refusal(409, "leaf", "This process reaches no leaf", "Ask the daemon.")
    ports = []
    gaps = []
    counted = node.ports
    if node.kind is NodeKind.SWITCH:
        counted = (Port(switch=node.id, interface=MANAGEMENT_PORT, rail=-1, nic_slot=""),)
    for name in sorted({port.switch for port in counted}):
        own = [port for port in counted if port.switch == name]
        leaf = await ask.parts.store.nodes.get(name)
        if leaf is None:
            gaps.append(f"{name}: it is not known here")
            continue
        with permit.allow_reads():
            counts = await reader.read_counters(leaf, [port.interface for port in own])
        if isinstance(counts, Blocker):
            gaps.append(f"{name}: {counts.detail}"[:300])
            continue
        for port in own:
            count = counts[port.interface]
            ports.append(
                PortCount(
                    switch=name,
                    interface=port.interface,
                    rail=port.rail,
                    carried_bytes=count.carried_bytes,
                    in_errors=count.in_errors,
                    carrier_changes=count.carrier_changes,
                )
            )
    ports.sort(key=lambda port: (port.rail, port.switch, port.interface))
    return Reply(PortCounts(node=node.id, read_at=ask.now, ports=tuple(ports), gaps=tuple(gaps)))


ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/parts",
        "show_parts",
        TAG,
        "Show components with target, running, staged, copied and pending; devices; gaps.",
        VIEWERS,
        show_parts,
        {200: PartsView},
    ),
    Route(
        "GET",
        "/nodes/{node}/plan",
        "show_plan",
        "plans",
        "Plan its upgrade now: steps with reasons, or blockers with remedies.",
        VIEWERS,
        show_plan,
        {200: Plan},
        heavy=True,
    ),
    Route(
        "GET",
        "/nodes/{node}/report",
        "show_report",
        TAG,
        "Show the results of its last validation, with digests of the evidence.",
        ANYBODY,
        show_report,
        {200: Report},
    ),
    Route(
        "GET",
        "/nodes/{node}/actions",
        "list_actions",
        TAG,
        "List physical actions on it, the newest first.",
        VIEWERS,
        list_actions,
        {200: ActionPage},
        query=Paging,
    ),
    Route(
        "GET",
        "/nodes/{node}/ports",
        "count_ports",
        TAG,
        "Show the counters of a host's leaf ports, or of a switch's management port, as of now.",
        VIEWERS,
        count_ports,
        {200: PortCounts},
        heavy=True,
        refusals={409: "This process reaches no leaf."},
    ),
)
