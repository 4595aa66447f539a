"""Cables as they are, held against cables as they should be. Pure.

Each end tells by LLDP whom it sees. A cable is known by both ends: where two are exchanged, each is
named with the port that it is in and the port that it belongs into, so that a person moves two
plugs once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record

End = tuple[str, str]  # (name of the device, name of its port), as LLDP tells them


class Fault(StrEnum):
    """What is wrong with one cable."""

    SWAPPED = "swapped"  # two planned ports carry each other's cables
    WRONG_PORT = "wrong_port"  # it is in a port that is not planned for it
    MISSING = "missing"  # neither end sees the other, nor anything else
    ONE_SIDED = "one_sided"  # one end sees what it should, the other sees nothing
    DISAGREE = "disagree"  # the two ends tell different things: one of them is out of date
    FOREIGN = "foreign"  # something that is in no plan is plugged in


class Miscabling(Record):
    """One fault: the port where it is, what should be there, what is, and what to do."""

    fault: Fault
    at: End
    planned: End | None
    seen: End | None
    remedy: str

    def __str__(self) -> str:
        planned = "/".join(self.planned) if self.planned else "nothing"
        seen = "/".join(self.seen) if self.seen else "nothing"
        return f"{self.fault}: {'/'.join(self.at)} should see {planned} and sees {seen}"


def compare(planned: Mapping[End, End], seen: Mapping[End, End]) -> tuple[Miscabling, ...]:
    """Every fault of the cables of `planned` (each cable once, either end first).

    `seen`: what each end reports as its neighbour; an end that reports nothing is not in it. Ends
    of other devices may be in it, and are looked at only where a planned end names them.
    """
    wanted = {**planned, **{b: a for a, b in planned.items()}}
    cables = dict(seen)
    for a, b in sorted(seen.items()):
        cables.setdefault(b, a)  # an end that is silent is told of by the other
    found = []
    done: set[End] = set()
    for at, other in (*sorted(planned.items()), *((b, a) for a, b in sorted(planned.items()))):
        fault = None if at in done else _fault(at, other, wanted, seen, cables)
        if fault is not None:
            found.append(fault)
            # one cable, one fault: both plugs of the cable that is really there are dealt with
            done |= {at, fault.seen or other}
    return tuple(found)


def _fault(
    at: End,
    other: End,
    wanted: Mapping[End, End],
    seen: Mapping[End, End],
    cables: Mapping[End, End],
) -> Miscabling | None:
    sees = cables.get(at)
    if sees is None:
        there = cables.get(other)
        if there is not None and there not in wanted:
            return None  # the stranger in the other end's port is the fault
        remedy = f"Plug a cable between {_name(at)} and {_name(other)}, or replace it."
        return _told(Fault.MISSING, at, other, None, remedy)
    if cables[sees] != at:
        return _told(Fault.DISAGREE, at, other, sees, "Ask both ends again: one is out of date.")
    if sees == other:
        if at in seen:
            return None
        return _told(Fault.ONE_SIDED, at, other, None, f"{_name(at)} reports nothing: see LLDP.")
    if sees not in wanted:
        remedy = f"Unplug {_name(sees)} from {_name(at)}; {_name(other)} belongs there."
        return _told(Fault.FOREIGN, at, other, sees, remedy)
    return _moved(at, other, sees, wanted, cables)


def _moved(
    at: End, other: End, sees: End, wanted: Mapping[End, End], cables: Mapping[End, End]
) -> Miscabling:
    """The cable of another planned port: exchanged with ours, or just in the wrong place."""
    owner = wanted[sees]  # who should see what we see
    if cables.get(owner) == other:
        remedy = (
            f"Exchange the plugs at {_name(sees)} and {_name(other)}: "
            f"{_name(at)} belongs into {_name(other)}, {_name(owner)} into {_name(sees)}."
        )
        return _told(Fault.SWAPPED, at, other, sees, remedy)
    remedy = f"Move the plug from {_name(sees)} to {_name(other)}."
    return _told(Fault.WRONG_PORT, at, other, sees, remedy)


def _told(fault: Fault, at: End, planned: End, seen: End | None, remedy: str) -> Miscabling:
    return Miscabling(fault=fault, at=at, planned=planned, seen=seen, remedy=remedy)


def _name(end: End) -> str:
    return "/".join(end)
