"""The contents of a ticket: the work, the part with its serial, and the way to it. Pure.

Tickets are synchronised by state, not by event: `identify_wanted` identifies the message that the
ticket system should have, so that a restarted daemon sends only missing messages.
"""

from __future__ import annotations

import hashlib

from provisioner.model.case import Case, Stage
from provisioner.model.integrations.ticket import UNKNOWN, TicketMessage, WorkPart, WorkPlace
from provisioner.model.inventory import Inventory
from provisioner.model.location import Port
from provisioner.model.node import Node

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
    """Return the place of the suspect part."""
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
    """Return the leaf ports that a part is cabled to: a card's own, a leaf's, or the one it
    names.
    """
    slot = part.split("/")[0]
    named = [p for p in node.ports if f"{p.switch}/{p.interface}" in part]
    cards = [p for p in node.ports if p.nic_slot == slot]
    return tuple(named or cards or [p for p in node.ports if p.switch == slot])


def part_of(case: Case, inventory: Inventory | None) -> WorkPart | None:
    """Return the suspect, with its details from the last inventory."""
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
    """Return the message as text for people."""
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
