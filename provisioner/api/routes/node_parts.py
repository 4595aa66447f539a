"""Routes below one node: its parts with five facts each, its plan, its results, its history."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.adapters.machine_logs import MachineLogs
from provisioner.adapters.redfish.dry_run import StandingClock, Write
from provisioner.api.changes import decode_cursor, encode_cursor
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, VIEWERS, Counted, Paging, Route
from provisioner.control.node.explaining import read_neighbours
from provisioner.execution.plan_requests import NodeBmcs, Rehearsal, StepRequests
from provisioner.model.base import Record
from provisioner.model.cohort import HealthReport
from provisioner.model.integrations.audit_export import ConsoleLine, SyslogLine
from provisioner.model.inventory import Device, Inventory
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Port
from provisioner.model.matrix import MAINTENANCE
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Gap
from provisioner.model.plan import Plan, Step
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.lifecycle.timeline import name_action
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


class PortOptic(Record):
    """The optic at the leaf's end of a link; null: unknown."""

    kind: str = Field(description="optic, copper or unknown.")
    serial: str = Field(description="Serial number.")
    part: str = Field(description="Part number of its vendor.")
    lot: str = Field(description="Date code of its vendor.")
    rx_dbm: float | None = Field(description="Light received on the darkest lane, dBm; -40: none.")
    tx_dbm: float | None = Field(description="Light sent on the darkest lane, dBm.")
    bias_ma: float | None = Field(description="Highest bias current of a laser, mA.")
    temperature_c: float | None = Field(description="Temperature of the module, °C.")


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
    queues: dict[str, int] = Field(
        default_factory=dict,
        description="pause_received (PFC frames from the host), pause_sent, ecn_marked, discards,"
        " watchdog_storms, watchdog_stuck; one that is absent is not counted.",
    )
    optic: PortOptic | None = Field(None, description="The leaf's optic; null: unknown, or none.")


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
    id: str = Field("", description="Id of the action: `GET /nodes/NODE/actions/ID` opens it.")


class ActionPage(Counted):
    """Actions on a node, the newest first."""

    items: tuple[Action, ...]
    next: str = ""


async def show_parts(ask: Ask) -> Reply:
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
    items = tuple(build_action(entry) for entry in shown)
    following = encode_cursor(begin + len(shown)) if more else ""
    return Reply(ActionPage(items=items, next=following, total=len(entries)))


def build_action(entry: LedgerEntry) -> Action:
    return Action(
        operation=entry.operation.replace("#", ":"),
        action=entry.action,
        attempt=entry.attempt,
        status=entry.status,
        intended_at=entry.intended_at,
        settled_at=entry.settled_at,
        outcome=entry.outcome,
        id=name_action(entry),
    )


def _show_optic(link: LinkReading | None) -> PortOptic | None:
    if link is None or link.optic is None:
        return None
    names = ("rx_dbm", "tx_dbm", "bias_ma", "temperature_c")
    return PortOptic(
        kind=link.optic.kind,
        serial=link.optic.serial,
        part=link.optic.part,
        lot=link.optic.lot,
        **{name: link.optic.get_worst(name) for name in names},
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
                    queues=dict(count.link.queues) if count.link is not None else {},
                    optic=_show_optic(count.link),
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


# ------------------------------------------------------------------------------
# The route of the requests that a node's plan would send to its BMCs. Nothing is sent but reads.
#
# It logs in to the node's BMCs with the stored credentials; no answer of theirs but the requests
# that follow from them is shown.


_SERVED_AT = "http://provisioner.invalid"  # the daemon's address and the boot's token are not shown


class PlanRequestsView(Record):
    """The requests of a node's plan, in the order of sending, up to its end or a refusal."""

    writes: tuple[Write, ...] = Field(description="All requests that change something.")
    refused: Blocker | None = Field(description="Why the plan goes no further; null: it does.")
    steps: tuple[StepRequests, ...] = Field(description="The steps, with the requests of each.")


async def show_plan_requests(ask: Ask) -> Reply:
    """Return the requests of the node's plan; its BMCs are read now."""
    parts = ask.parts
    node = await ask.read_node()
    if parts.vault is None or parts.transport is None:
        raise build_refusal(409, "requests", "This process reaches no BMC", "Ask the daemon.")
    plan, inventory = await plan_node(ask, node)
    clock = StandingClock()
    image = parts.matrix.images.get(MAINTENANCE)
    with tempfile.TemporaryDirectory() as folder:

        def find_file(step: Step) -> tuple[Path, bool]:
            file = parts.artifacts / step.artifact
            if file.is_file():
                return file, True
            stand_in = Path(folder) / Path(step.artifact).name
            stand_in.touch()
            return stand_in, False

        rehearsal = Rehearsal(
            reach=NodeBmcs(node, parts.transport, parts.vault, clock).open_bmc,
            find_file=find_file,
            url=_SERVED_AT,
            clock=clock,
            image=image.artifact if image is not None else "",
            way=parts.settings.maintenance_boot,
        )
        recorded = await rehearsal.record(plan, inventory)
    return Reply(
        PlanRequestsView(writes=recorded.writes, refused=recorded.refused, steps=recorded.steps)
    )


PLAN_REQUESTS_ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/plan/requests",
        "show_plan_requests",
        "plans",
        "List every request that its plan would send to its BMCs; they are only read.",
        VIEWERS,
        show_plan_requests,
        {200: PlanRequestsView},
        heavy=True,
        refusals={409: "This process reaches no BMC."},
    ),
)


# ------------------------------------------------------------------------------
# The routes of a node's own words: its serial console, and the system log that it sends here.
#
# A tenant reads those of a node that serves it, from the lines of this stay on: what an earlier
# tenant's system wrote is not shown to another one. Switches are the site's: no tenant reads
# theirs.


LINES_MAX = 2000
SCANNED_MAX = 20_000  # messages that one request looks through


class ConsoleQuery(Record):
    """The selection of lines."""

    after: int = Field(
        -1, ge=-1, description="Number of the last line that is known; -1: the last lines."
    )
    limit: int = Field(200, ge=1, le=LINES_MAX, description="Lines at most.")


class ConsolePage(Record):
    """Lines of a console in their order: printable text, without secrets."""

    lines: tuple[ConsoleLine, ...]
    last: int = Field(description="Number of the last line here, or as it was asked for.")


async def show_console(ask: Ask) -> Reply:
    node = await ask.read_node()
    lines: Sequence[ConsoleLine] = ()
    if ask.parts.directory is not None:  # else nothing is collected in this process
        book = ConsoleFiles(ask.parts.directory, ask.parts.settings.console_bytes_max)
        lines = await book.list_lines(node.id, ask.query.after, ask.query.limit)
    last = lines[-1].seq if lines else ask.query.after
    visible = tuple(line for line in lines if _may_read(ask, node, line))
    return Reply(ConsolePage(lines=visible, last=last))


class SyslogQuery(Record):
    """The selection of messages."""

    after: int = Field(
        -1, ge=-1, description="Number of the last line that is known; -1: the last lines."
    )
    limit: int = Field(200, ge=1, le=LINES_MAX, description="Lines at most.")
    facility: str = Field(
        "", max_length=16, description="Only of this part of the system: kern, daemon and so on."
    )
    program: str = Field("", max_length=48, description="Only of this program.")
    text: str = Field(
        "", max_length=200, description="Only messages with this text, in any case of letters."
    )


class SyslogPage(Record):
    """Messages of a node's system log in the order in which they came."""

    lines: tuple[SyslogLine, ...]
    last: int = Field(
        description="Number of the last message that was looked at, or as it was asked for: the "
        "`after` of the next request."
    )


async def list_syslog(ask: Ask) -> Reply:
    """Return messages of a node's system log."""
    node = await ask.read_node()
    scanned: Sequence[SyslogLine] = ()
    query: SyslogQuery = ask.query
    if ask.parts.directory is not None:  # else nothing is received in this process
        book = MachineLogs(ask.parts.directory, ask.parts.settings.log_bytes_max)
        scanned = await book.list_lines(node.id, query.after, SCANNED_MAX)
    chosen = [line for line in scanned if _matches(query, line) and _may_read(ask, node, line)]
    if query.after < 0:
        lines = chosen[-query.limit :]
        last = scanned[-1].seq if scanned else query.after
    else:
        lines = chosen[: query.limit]
        whole = len(chosen) <= query.limit
        last = (scanned[-1].seq if scanned else query.after) if whole else lines[-1].seq
    return Reply(SyslogPage(lines=tuple(lines), last=last))


def _matches(query: SyslogQuery, line: SyslogLine) -> bool:
    fits = query.facility in ("", line.facility) and query.program in ("", line.program)
    return fits and query.text.casefold() in line.text.casefold()


def _may_read(ask: Ask, node: Node, line: ConsoleLine | SyslogLine) -> bool:
    """Return whether the caller may read a line: the staff all, a tenant those of its stay."""
    if ask.caller.staff:
        return True
    return node.state is State.RELEASED and line.at >= node.entered_at


NODE_CONSOLE_ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/console",
        "show_console",
        "nodes",
        "Show the last lines of a node's serial console; to a tenant, those since it has the node.",
        ANYBODY,
        show_console,
        {200: ConsolePage},
        query=ConsoleQuery,
    ),
    Route(
        "GET",
        "/nodes/{node}/syslog",
        "list_syslog",
        "nodes",
        "Show the last messages of a node's system log; to a tenant, those since it has the node.",
        ANYBODY,
        list_syslog,
        {200: SyslogPage},
        query=SyslogQuery,
    ),
)
