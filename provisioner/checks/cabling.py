"""Compares the cables that LLDP reports with the cabling plan. Pure.

Each end reports its neighbour by LLDP, so a cable is visible from both ends. Where two cables are
exchanged, the fault names the current and the planned port of each plug, so that a person moves
each plug once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record

End = tuple[str, str]  # (name of the device, name of its port), as LLDP reports them


class CableFault(StrEnum):
    SWAPPED = "swapped"  # two planned ports carry each other's cables
    WRONG_PORT = "wrong_port"  # the plug is in a port that the plan does not give it
    MISSING = "missing"  # neither end reports the other or any other neighbour
    ONE_SIDED = "one_sided"  # one end reports the planned neighbour, the other end reports none
    DISAGREE = "disagree"  # the two ends report different neighbours: one report is out of date
    FOREIGN = "foreign"  # a device that is not in the plan is plugged in


class Miscabling(Record):
    """One cabling fault: the port, its planned and its reported neighbour, and the remedy."""

    fault: CableFault
    at: End
    planned: End | None
    neighbour: End | None
    remedy: str
    by_mac: bool = False  # LLDP is silent: the leaf's table of MACs has the neighbour

    def __str__(self) -> str:
        planned = "/".join(self.planned) if self.planned else "nothing"
        neighbour = "/".join(self.neighbour) if self.neighbour else "nothing"
        sees = f"{neighbour} (by its MAC; LLDP is silent)" if self.by_mac else neighbour
        return f"{self.fault}: {'/'.join(self.at)} should see {planned} and sees {sees}"


def compare(planned: Mapping[End, End], reported: Mapping[End, End]) -> tuple[Miscabling, ...]:
    """Return every fault of the cables of `planned` (each cable once, either end first).

    `reported` maps each end to the neighbour that it reports; an end that reports none is absent.
    Ends of other devices may be included; they matter only where a planned end names them.
    """
    peer_of = {**planned, **{b: a for a, b in planned.items()}}
    cables = dict(reported)
    for a, b in sorted(reported.items()):
        cables.setdefault(b, a)  # the other end of the cable speaks for an end that is silent
    faults = []
    handled: set[End] = set()
    for at, peer in (*sorted(planned.items()), *((b, a) for a, b in sorted(planned.items()))):
        fault = None if at in handled else _find_fault(at, peer, peer_of, reported, cables)
        if fault is not None:
            faults.append(fault)
            # one cable, one fault: both plugs of the cable that is actually there are handled
            handled |= {at, fault.neighbour or peer}
    return tuple(faults)


def _find_fault(
    at: End,
    peer: End,
    peer_of: Mapping[End, End],
    reported: Mapping[End, End],
    cables: Mapping[End, End],
) -> Miscabling | None:
    neighbour = cables.get(at)
    if neighbour is None:
        peer_neighbour = cables.get(peer)
        if peer_neighbour is not None and peer_neighbour not in peer_of:
            return None  # the fault is the unplanned device in the other end's port
        remedy = f"Plug a cable between {_name(at)} and {_name(peer)}, or replace it."
        return _miscabling(CableFault.MISSING, at, peer, None, remedy)
    if cables[neighbour] != at:
        return _miscabling(
            CableFault.DISAGREE,
            at,
            peer,
            neighbour,
            "Read both ends again: one report is out of date.",
        )
    if neighbour == peer:
        if at in reported:
            return None
        return _miscabling(
            CableFault.ONE_SIDED,
            at,
            peer,
            None,
            f"{_name(at)} reports no neighbour: check its LLDP.",
        )
    if neighbour not in peer_of:
        remedy = f"Unplug {_name(neighbour)} from {_name(at)}; {_name(peer)} belongs there."
        return _miscabling(CableFault.FOREIGN, at, peer, neighbour, remedy)
    return _classify_misplaced(at, peer, neighbour, peer_of, cables)


def _classify_misplaced(
    at: End, peer: End, neighbour: End, peer_of: Mapping[End, End], cables: Mapping[End, End]
) -> Miscabling:
    """Return the fault of a port that has another planned port's cable: swapped or misplaced."""
    owner = peer_of[neighbour]  # the end that should report this neighbour
    if cables.get(owner) == peer:
        remedy = (
            f"Exchange the plugs at {_name(neighbour)} and {_name(peer)}: "
            f"{_name(at)} belongs into {_name(peer)}, {_name(owner)} into {_name(neighbour)}."
        )
        return _miscabling(CableFault.SWAPPED, at, peer, neighbour, remedy)
    remedy = f"Move the plug from {_name(neighbour)} to {_name(peer)}."
    return _miscabling(CableFault.WRONG_PORT, at, peer, neighbour, remedy)


def _miscabling(
    fault: CableFault, at: End, planned: End, neighbour: End | None, remedy: str
) -> Miscabling:
    return Miscabling(fault=fault, at=at, planned=planned, neighbour=neighbour, remedy=remedy)


def _name(end: End) -> str:
    return "/".join(end)
