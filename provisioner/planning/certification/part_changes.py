"""The differences in parts before and after people worked on a node. Pure.

A part without a serial before or after proves nothing; it is named, and never counted as unchanged.
A part that was built in is unknown hardware, whatever its model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provisioner.model.base import Record
from provisioner.model.case import Case, PartChange, PartsDifference, RemedyKind
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import BmcRef, Node, Placement, State

Parts = tuple[tuple[str, str, str, str], ...]  # (kind, slot, serial, model)


def list_parts(inventory: Inventory | None) -> Parts:
    """Return every part that can be swapped; "" where it reports no serial or model."""
    if inventory is None:
        return ()
    return tuple(
        sorted((d.kind.value, d.slot, d.serial or "", _model(d)) for d in inventory.devices)
    )


def _model(device: Device) -> str:
    """Return the identity of a matching spare: the part number, or else the model."""
    return device.part or device.model or ""


def compare_parts(case: Case, after: Inventory) -> PartsDifference:
    """Return the differences between the case's parts and the present ones, in slot order."""
    was = {(k, s): (serial, model) for k, s, serial, model in case.parts_before}
    now = {(k, s): (serial, model) for k, s, serial, model in list_parts(after)}
    old_place = {serial: slot for (_, slot), (serial, _) in was.items() if serial}
    changes = []
    unknown = []
    for key in sorted(was.keys() | now.keys()):
        before = was.get(key)
        then = now.get(key)
        serials = tuple(None if p is None else p[0] for p in (before, then))
        if "" in serials:
            unknown.append("/".join(key))
            continue
        if serials[0] == serials[1]:
            continue
        changes.append(
            PartChange(
                kind=DeviceKind(key[0]),
                slot=key[1],
                before=serials[0],
                after=serials[1],
                model_before=before[1] if before else None,
                model_after=then[1] if then else None,
                moved_from=old_place.get(serials[1] or "", ""),
            )
        )
    system = bool(
        case.system_before and after.system_serial and case.system_before != after.system_serial
    )
    return _judge_changes(case, tuple(changes), tuple(unknown), system=system)


def _judge_changes(
    case: Case, changes: tuple[PartChange, ...], unknown: tuple[str, ...], *, system: bool
) -> PartsDifference:
    requested = _wanted(case)
    swapped = {c.slot for c in changes}
    return PartsDifference(
        changes=changes,
        unknown=unknown,
        unexpected=tuple(sorted(f"{c.kind}/{c.slot}" for c in changes if c.slot not in requested)),
        missing=tuple(sorted(s for s in requested - swapped if _known(case, s))),
        wrong=tuple(sorted(_wrong(c) for c in changes if _wrong(c))),
        system_changed=system,
    )


def _wanted(case: Case) -> set[str]:
    """Return the slots into which the case asked people to put another part."""
    last = case.tries[-1] if case.tries else None
    return {last.part} if last is not None and last.remedy is RemedyKind.REPLACE else set()


def _known(case: Case, slot: str) -> bool:
    """Return whether the inventory ever listed the slot: an optic or a cable has no serial here."""
    return any(s == slot and serial for _, s, serial, _ in case.parts_before)


def _wrong(change: PartChange) -> str:
    """Return a part of another make than the one before; "" if it is the same or unknown."""
    was = change.model_before
    now = change.model_after
    if not was or not now or was == now:
        return ""
    return f"{change.kind}/{change.slot}: {now} instead of {was}"


def is_doubtful(case: Case) -> bool:
    """Return whether serials cannot show people's work, in which case everything is tested."""
    last = case.tries[-1] if case.tries else None
    if case.deeper or last is None or last.remedy is not RemedyKind.REPLACE:
        return True
    return not any(slot == last.part and serial for _, slot, serial, _ in case.parts_before)


def reset_exchanged_bmcs(node: Node, slots: Iterable[str]) -> tuple[BmcRef, ...]:
    """Return the node's BMCs, those of exchanged cards without their pin, serial and credential."""
    fresh = set(slots)
    bare = {"pin": "", "serial": "", "base_mac": "", "rotated": False}
    return tuple(b.model_copy(update=bare) if b.name in fresh else b for b in node.bmcs)


class Replacement(Record):
    """A host that replaces another one, and the credentials of its predecessor, to be removed."""

    node: Node
    forget: tuple[str, ...]  # names in the vault


def replace_host(node: Node, now: float, bmcs: Sequence[BmcRef] = ()) -> Replacement:
    """Return another host in the same place: it keeps only name, location and cables.

    It has no tenant, certificate, profile, erasure or operating system of its predecessor; its own
    disks are as unknown as the host, so that they may hold data until they are erased.
    """
    fresh = Node(
        id=node.id,
        kind=node.kind,
        generation=node.generation,
        state=State.DISCOVERED,
        entered_at=now,
        placement=node.placement if node.placement is Placement.MAINTENANCE else Placement.NONE,
        vrf=node.vrf if node.placement is Placement.MAINTENANCE else "",
        fenced_at=node.fenced_at,
        release=node.release,
        served=STRANGER,
        address=node.address,
        location=node.location,
        ports=node.ports,
        bmcs=tuple(bmcs) or reset_exchanged_bmcs(node, {b.name for b in node.bmcs}),
        note="another host stands in this place",
    )
    return Replacement(node=fresh, forget=tuple(f"{node.id}/{b.name}" for b in node.bmcs))


STRANGER = "unknown"  # a host may bring unknown data along; it is erased before anything else
