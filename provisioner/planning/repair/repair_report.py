"""Report of repair times by stage, part and vendor, and of the availability of tenants' nodes.
Pure.

Availability is computed from the journal's rows of state: a node counts for its tenant from its
first release to the tenant until it is reclaimed for good; the time between draining and release is
lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Any

from provisioner.model.base import Record
from provisioner.model.case import Case, Ending, Stage
from provisioner.model.integrations.audit_export import UNKNOWN, TicketMessage, WorkPart, WorkPlace
from provisioner.model.inventory import Inventory
from provisioner.model.location import Port
from provisioner.model.names import is_named
from provisioner.model.node import Node
from provisioner.model.times.instant import Instant, InstantOrNone

# ------------------------------------------------------------------------------
# The contents of a ticket: the work, the part with its serial, and the way to it. Pure.
#
# Tickets are synchronised by state, not by event: `identify_wanted` identifies the message that the
# ticket system should have, so that a restarted daemon sends only missing messages.


CLOSED = "closed"
TEXT_MAX = 20_000  # characters of a message


def key_of(site: str, case: Case) -> str:
    """Return the ticket's key, which identifies the case for ever."""
    return f"{site}/{case.id}"


def identify_wanted(case: Case) -> str:
    """Return the identity of the message that the ticket system should have now; "": none."""
    ticket = case.ticket
    if ticket is None:
        return ""
    if ticket.closed_at or case.stage is not Stage.HARDWARE:
        return CLOSED if ticket.asked else ""
    content = "\x1f".join((ticket.work, ticket.rma, ticket.bundle, _spare(case)))
    return f"open {hashlib.sha256(content.encode()).hexdigest()[:16]}"


def make_message(case: Case, node: Node, inventory: Inventory | None, site: str) -> TicketMessage:
    """Return the message for the state in `case.ticket.asked`."""
    ticket = case.ticket
    assert ticket is not None
    closed = ticket.asked == CLOSED
    event = "closed" if closed else "changed" if ticket.told else "open"
    key = key_of(site, case)
    made = TicketMessage(
        key=key,
        id=key if event == "open" else f"{key}/{ticket.asks}",
        event=event,
        case=case.id,
        title=_line(f"[{key}] {node.location.rack or 'rack unknown'} {node.id}: {ticket.work}"),
        text="",
        work=case.note if closed else ticket.work,
        place=place_of(case, node),
        part=part_of(case, inventory),
        confidence=case.suspect.confidence if case.suspect else 0.0,
        evidence=case.suspect.evidence[:16] if case.suspect else (),
        rma=ticket.rma,
        spare=_spare(case),
        led=_led(case),
        bundle_sha256=ticket.bundle,
        bundle_name=f"{case.id}.tar.gz" if ticket.bundle else "",
        ticket=ticket.id,
    )
    return made.model_copy(update={"text": render_words(made)[:TEXT_MAX]})


def place_of(case: Case, node: Node) -> WorkPlace:
    where = node.location
    part = case.suspect.part if case.suspect else ""
    ports = ports_of(part, node)
    rails = sorted({p.rail for p in ports})
    return WorkPlace(
        site=where.site,
        pod=where.pod,
        scalable_unit=where.scalable_unit,
        rack=where.rack or UNKNOWN,
        unit=str(where.index),
        node=node.id,
        slot=part or UNKNOWN,
        rail=", ".join("north-south" if r < 0 else str(r) for r in rails) or UNKNOWN,
        leaf_ports=tuple(f"{p.switch}/{p.interface}" for p in ports),
    )


def ports_of(part: str, node: Node) -> tuple[Port, ...]:
    """The leaf ports that a part is cabled to: a card's own, a leaf's, or the one it names."""
    slot = part.split("/")[0]
    named = [p for p in node.ports if is_named([f"{p.switch}/{p.interface}"], part)]
    cards = [p for p in node.ports if p.nic_slot == slot]
    return tuple(named or cards or [p for p in node.ports if p.switch == slot])


def part_of(case: Case, inventory: Inventory | None) -> WorkPart | None:
    suspect = case.suspect
    if suspect is None:
        return None
    devices = inventory.devices if inventory is not None else ()
    device = next((d for d in devices if d.slot == suspect.part), None)
    was = {slot: (serial, model) for _, slot, serial, model in case.parts_before}
    former = was.get(suspect.part, ("", ""))
    return WorkPart(
        kind=suspect.kind.value,
        slot=suspect.part,
        serial=suspect.serial or (device.serial if device else "") or former[0] or UNKNOWN,
        part_number=suspect.part_number or (device.part if device else "") or former[1] or UNKNOWN,
        vendor=suspect.vendor or case.vendor or UNKNOWN,
    )


def render_words(told: TicketMessage) -> str:
    p = told.place
    lines = [
        told.work,
        "",
        f"Case      {told.case}",
        f"Place     site {p.site}, pod {p.pod}, scalable unit {p.scalable_unit}, rack {p.rack}",
        f"Node      {p.node}, unit {p.unit}",
        f"Slot      {p.slot}",
        f"Rail      {p.rail}",
        f"Leaf      {', '.join(p.leaf_ports) or UNKNOWN}",
        f"LED       {told.led}",
    ]
    if told.part is not None:
        part = told.part
        lines += [
            f"Part      {part.kind} of {part.vendor}",
            f"Serial    {part.serial}, part number {part.part_number}",
            f"Certainty {told.confidence:.0%}",
        ]
    lines += [f"RMA       {told.rma}"] if told.rma else []
    lines += [f"Spare     {told.spare}"] if told.spare else []
    if told.bundle_sha256:
        lines.append(f"Evidence  {told.bundle_name}, SHA-256 {told.bundle_sha256}")
    lines += ["", *(f"- {e}" for e in told.evidence)]
    if told.event != "closed":
        lines += ["", f"When it is done: provisioner case returned {told.case} --work '...'"]
    return "\n".join(_clean(line) for line in lines) + "\n"


def _led(case: Case) -> str:
    ticket = case.ticket
    assert ticket is not None
    if ticket.led:
        return "the identify LED is on"
    return f"off ({ticket.led_problem})" if ticket.led_problem else "off"


def _spare(case: Case) -> str:
    spare = case.spare
    if spare is None:
        return ""
    identity = (spare.part_number and f"part number {spare.part_number}", spare.serial)
    return ", ".join((spare.kind.value, *(s for s in identity if s)))


def _line(text: str) -> str:
    return _clean(" ".join(text.split()))[:200]


def _clean(text: str) -> str:
    """Return text of devices and tenants without characters that control a terminal or split a
    header.
    """
    return "".join(c if c.isprintable() else " " for c in text)


PROPER = frozenset({Ending.CURED, Ending.REPAIRED})  # cases in which something was repaired


class Figure(Record):
    """Times in seconds of a number of cases."""

    name: str
    cases: int
    mean_s: float
    median_s: float
    longest_s: float


class TenantTime(Record):
    """The time that a tenant's nodes served it, of the time that they were allocated to it."""

    tenant: str
    nodes: int
    owed_s: float
    served_s: float

    @property
    def availability(self) -> float:
        """Return a share from 0 to 1; 1 if no node was allocated yet."""
        return self.served_s / self.owed_s if self.owed_s > 0 else 1.0


class RepairReport(Record):
    """Closed cases, and the number of open ones."""

    since: InstantOrNone
    until: Instant
    opened: int
    open_now: int
    endings: Mapping[str, int]
    total: Figure | None  # from opening to the end, of cases in which something was repaired
    by_stage: tuple[Figure, ...]
    by_part: tuple[Figure, ...]
    by_vendor: tuple[Figure, ...]
    by_remedy: Mapping[str, Mapping[str, int]]  # remedy -> outcome -> count
    tenants: tuple[TenantTime, ...]


def make_report(
    cases: Sequence[Case], states: Iterable[Mapping[str, Any]], since: float, until: float
) -> RepairReport:
    """The report of cases opened within the time; `states` are the journal's rows, in order."""
    mine = [c for c in cases if since <= c.opened_at < until]
    repaired = [c for c in mine if c.ending in PROPER]
    stages: dict[str, list[float]] = {}
    parts: dict[str, list[float]] = {}
    vendors: dict[str, list[float]] = {}
    remedies: dict[str, dict[str, int]] = {}
    for case in mine:
        for tried in case.tries:
            counts = remedies.setdefault(tried.remedy.value, {})
            counts[tried.outcome.value] = counts.get(tried.outcome.value, 0) + 1
    for case in repaired:
        took = case.closed_at - case.opened_at
        parts.setdefault(case.suspect.kind.value if case.suspect else "unknown", []).append(took)
        vendors.setdefault(case.vendor or "unknown", []).append(took)
        for stage, spent in stage_times(case).items():
            stages.setdefault(stage.value, []).append(spent)
    ends = [c.ending.value for c in mine if c.ending is not None]
    whole = [c.closed_at - c.opened_at for c in repaired]
    return RepairReport(
        since=since,
        until=until,
        opened=len(mine),
        open_now=sum(c.open for c in mine),
        endings={end: ends.count(end) for end in sorted(set(ends))},
        total=_figure("all", whole) if whole else None,
        by_stage=_figures(stages),
        by_part=_figures(parts),
        by_vendor=_figures(vendors),
        by_remedy={name: remedies[name] for name in sorted(remedies)},
        tenants=compute_availability(states, since, until),
    )


def stage_times(case: Case) -> dict[Stage, float]:
    """Return the seconds in each stage; several stays in one stage are summed."""
    seconds: dict[Stage, float] = {}
    for entered, following in zip(case.stages, case.stages[1:], strict=False):
        seconds[entered.stage] = seconds.get(entered.stage, 0.0) + max(
            0.0, following.at - entered.at
        )
    return seconds


def compute_availability(
    rows: Iterable[Mapping[str, Any]], since: float, until: float
) -> tuple[TenantTime, ...]:
    """Return the times of every tenant that had a node within the time, by name."""
    serving: dict[str, tuple[str, float]] = {}  # node -> (tenant, since when it serves)
    owned: dict[str, tuple[str, float]] = {}
    owed: dict[str, float] = {}
    served: dict[str, float] = {}
    nodes: dict[str, set[str]] = {}

    def add(sums: dict[str, float], begun: tuple[str, float], at: float, node: str) -> None:
        tenant, start = begun
        seconds = min(at, until) - max(start, since)
        if seconds > 0:
            sums[tenant] = sums.get(tenant, 0.0) + seconds
            nodes.setdefault(tenant, set()).add(node)

    for row in rows:
        node = str(row["node"])
        at = float(row["at"])
        detail = row["detail"]
        if row["kind"] == "released":
            tenant = str(detail.get("tenant", ""))
            if node in owned and owned[node][0] != tenant:
                add(owed, owned.pop(node), at, node)
            owned.setdefault(node, (tenant, at))
            serving.setdefault(node, (tenant, at))
        elif row["kind"] == "request":
            _left(detail, node, at, serving, owned, add, served, owed)
        elif row["kind"] in ("retired", "replaced"):  # it belongs to no tenant from now on
            reclaim = {"request": "reclaim"}
            _left(reclaim, node, at, serving, owned, add, served, owed)
    for node, begun in serving.items():
        add(served, begun, until, node)
    for node, begun in owned.items():
        add(owed, begun, until, node)
    return tuple(
        TenantTime(
            tenant=tenant,
            nodes=len(nodes[tenant]),
            owed_s=owed[tenant],
            served_s=served.get(tenant, 0.0),
        )
        for tenant in sorted(owed)
    )


def _left(
    detail: Mapping[str, Any],
    node: str,
    at: float,
    serving: dict[str, tuple[str, float]],
    owned: dict[str, tuple[str, float]],
    add: Any,
    served: dict[str, float],
    owed: dict[str, float],
) -> None:
    """End the service of a reclaimed node: under repair it stays allocated, otherwise it does
    not.
    """
    word = str(detail.get("request", ""))
    if word not in ("repair", "reclaim", "shrink"):
        return
    if node in serving:
        add(served, serving.pop(node), at, node)
    if word != "repair" and node in owned:
        add(owed, owned.pop(node), at, node)


def _figures(groups: Mapping[str, Sequence[float]]) -> tuple[Figure, ...]:
    return tuple(_figure(name, groups[name]) for name in sorted(groups))


def _figure(name: str, times: Sequence[float]) -> Figure:
    return Figure(
        name=name,
        cases=len(times),
        mean_s=mean(times),
        median_s=median(times),
        longest_s=max(times),
    )
