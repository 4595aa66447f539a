"""Routes below one node: its parts with five facts each, its plan, its results, its history."""

from __future__ import annotations

import asyncio
from typing import Any

from provisioner.api.cursor import cursor, place
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import missing
from provisioner.api.route import ANYBODY, VIEWERS, Paging, Route
from provisioner.control.node.neighbours import neighbours
from provisioner.model.base import Record
from provisioner.model.health import HealthReport
from provisioner.model.inventory import Device
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Gap
from provisioner.model.plan import Plan
from provisioner.planning.path.history import build_history
from provisioner.planning.path.pins import judge_pin
from provisioner.planning.path.planner import PlanningNode

TAG = "nodes"


class FiveFacts(Record):
    """One component: what should be, and four facts of what is."""

    kind: str
    slot: str
    target: str = ""  # of the release and profile; "": not pinned
    running: str = ""  # "": the device gives none
    staged: str = ""
    background_copied: str = ""  # Completed, InProgress, Pending; "": it has no such thing
    pending: str = ""  # the activation that the staged version waits for
    met: bool | None = None  # whether what runs is the target; None: `why` says what is missing
    why: str = ""  # of `met` None: not pinned, an unknown pin, a device that gives no version


class PartsView(Record):
    """What a node consists of, as last seen."""

    node: str
    vendor: str
    model: str
    components: tuple[FiveFacts, ...]
    devices: tuple[Device, ...]
    gaps: tuple[Gap, ...]


class Report(Record):
    """The results of the last validation."""

    node: str
    started_at: float
    ended_at: float
    inventory_digest: str
    results: tuple[dict[str, Any], ...]
    selected: tuple[str, ...]
    causes: tuple[str, ...]


class Action(Record):
    """One physical action, as the ledger has it."""

    operation: str
    action: str
    attempt: int
    status: str
    intended_at: float
    settled_at: float
    outcome: str


class ActionPage(Record):
    """Actions on a node, the newest first."""

    items: tuple[Action, ...]
    next: str = ""


async def parts(ask: Ask) -> Reply:
    """Components and devices."""
    node = await ask.node()
    seen = await ask.parts.store.evidence.get_inventory(node.id)
    if seen is None:
        raise missing("inventory of this node yet")
    release = ask.parts.matrix.releases.get(node.release)
    profile = release.profiles.get(node.profile) if release is not None else None
    pins = profile.pins if profile is not None else {}
    facts = []
    for c in seen.components:
        pin = pins.get(c.kind)
        verdict = judge_pin(c.kind, c.version, pin)
        facts.append(
            FiveFacts(
                kind=c.kind,
                slot=c.slot,
                target=pin.version if pin is not None else "",
                running=c.version or "",
                staged=c.staged or "",
                background_copied=c.background_copy.value if c.background_copy else "",
                pending=c.pending.value if c.pending else "",
                met=verdict.met,
                why=verdict.why,
            )
        )
    told = PartsView(
        node=node.id,
        vendor=seen.vendor,
        model=seen.model or "",
        components=tuple(facts),
        devices=seen.devices,
        gaps=seen.gaps,
    )
    return Reply(told)


async def plan(ask: Ask) -> Reply:
    """Steps with reasons, or what blocks and what would unblock it."""
    node = await ask.node()
    store = ask.parts.store
    seen = await store.evidence.get_inventory(node.id)
    if seen is None:
        raise missing("inventory of this node yet: there is nothing to plan on")
    past = build_history(await store.operations.list_entries(node.id), await _newest(ask, node))
    posed = PlanningNode(seen, node.release, node.profile, past, await neighbours(store, node))
    # milliseconds for a situation that was planned before, tenths of a second for a new one
    return Reply(await asyncio.to_thread(ask.parts.plans.plan, posed))


async def _newest(ask: Ask, node: Node) -> str:
    """The operation that failures are counted in: the one that is under way."""
    operations = ask.parts.store.operations
    active = await operations.list_page(limit=1, status="active", node=node.id)
    return active[0].id if active else ""


async def report(ask: Ask) -> Reply:
    """What the last validation found."""
    node = await ask.node()
    found: HealthReport | None = await ask.parts.store.evidence.get_report(node.id)
    if found is None:
        raise missing("report of this node yet")
    told = Report(
        node=node.id,
        started_at=found.started_at,
        ended_at=found.ended_at,
        inventory_digest=found.inventory_digest,
        results=tuple(r.model_dump(mode="json") for r in found.results),
        selected=found.selected,
        causes=found.causes,
    )
    return Reply(told)


async def actions(ask: Ask) -> Reply:
    """What was done to the node, the newest first."""
    node = await ask.node()
    started = place(ask.query.cursor, int)
    begin = int(started[0]) if started else 0
    entries: list[LedgerEntry] = list(
        reversed(await ask.parts.store.operations.list_entries(node.id))
    )
    shown = entries[begin : begin + ask.query.limit]
    more = begin + len(shown) < len(entries)
    items = tuple(_action(entry) for entry in shown)
    return Reply(ActionPage(items=items, next=cursor(begin + len(shown)) if more else ""))


def _action(entry: LedgerEntry) -> Action:
    return Action(
        operation=entry.operation.replace("#", ":"),
        action=entry.action,
        attempt=entry.attempt,
        status=entry.status.value,
        intended_at=entry.intended_at,
        settled_at=entry.settled_at,
        outcome=entry.outcome,
    )


ROUTES = (
    Route("GET", "/nodes/{node}/parts", "show_parts", TAG,
          "Components with target, running, staged, copied and pending; devices; gaps.",
          VIEWERS, parts, {200: PartsView}),
    Route("GET", "/nodes/{node}/plan", "show_plan", "plans",
          "What would be done to it now: steps with reasons, or what blocks and unblocks.",
          VIEWERS, plan, {200: Plan}, heavy=True),
    Route("GET", "/nodes/{node}/report", "show_report", TAG,
          "Results of its last validation, with digests of the evidence.", ANYBODY, report,
          {200: Report}),
    Route("GET", "/nodes/{node}/actions", "list_actions", TAG,
          "Physical actions on it, the newest first.", VIEWERS, actions, {200: ActionPage},
          query=Paging),
)  # fmt: skip
