"""Processors of several systems behind one BMC: which are one part, and which look alike. Pure.

A baseboard that is a system of its own lists the host's CPUs again: GB200 under the same Ids, with
the same serials; GH200 under other Ids ("HGX_CPU_0" beside "CPU_0"), without serials, at the same
`Socket` (NVIDIA/libredfish, tests/mockups). Two hosts behind one BMC have a "CPU_0" each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from provisioner.model.inventory import Device


class Processor(NamedTuple):
    """A processor as one system lists it. `board`: the system is a baseboard."""

    device: Device
    system: str
    socket: str
    board: bool


def tell_apart(processors: Sequence[Processor]) -> tuple[Device, ...]:
    """Return each processor once, under the name that the host's own system gives it.

    Where two systems have different ones of the same name, the name begins with the system's.
    """
    unique: list[Processor] = []
    for one in sorted(processors, key=lambda p: p.board):  # stable: hosts' own first
        same = next((n for n, other in enumerate(unique) if _are_same(one, other)), None)
        if same is None:
            unique.append(one)
        else:
            unique[same] = unique[same]._replace(device=_fill(unique[same].device, one.device))
    names = Counter((p.device.kind, p.device.slot) for p in _by_system(unique))
    return tuple(
        p.device
        if names[p.device.kind, p.device.slot] == 1
        else p.device.model_copy(update={"slot": f"{p.system}/{p.device.slot}"})
        for p in unique
    )


def _by_system(processors: Iterable[Processor]) -> Iterable[Processor]:
    """Return one of each name per system; a name that a system lists twice stays one here."""
    return {(p.system, p.device.kind, p.device.slot): p for p in processors}.values()


def _are_same(one: Processor, other: Processor) -> bool:
    if one.device.kind is not other.device.kind or one.system == other.system:
        return False
    if one.device.serial and other.device.serial:
        return one.device.serial == other.device.serial
    if one.board == other.board:
        return False
    return one.device.slot == other.device.slot or (one.socket != "" and one.socket == other.socket)


def _fill(device: Device, more: Device) -> Device:
    """The device with what only the other listing knows."""
    update = {
        name: getattr(more, name)
        for name in ("model", "serial", "part")
        if getattr(device, name) is None
    }
    return device.model_copy(update=update)
