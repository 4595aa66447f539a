"""A world of racks in virtual time, and sites of made-up racks: it shares no code with the planner.

Each act takes its expected duration, give or take; bundles are staged until a tray is power cycled
or a switch restarts; a shelf's files run at once. What happened is in `log`, which the checker
reads. Durations are those of rack_acts.csv, most of them limits or assumptions: no rack was here.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Site = dict[str, Any]
STAGED = {
    "switch-firmware": "switch-firmware",
    "nvos": "nvos",
    "host-bundle": "host-bundle",
    "hgx-bundle": "hgx-bundle",
}


class Sent(Protocol):
    """An act as it is sent."""

    @property
    def key(self) -> str: ...
    @property
    def on(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def duration_s(self) -> float: ...
    @property
    def target(self) -> str: ...


@dataclass
class Happened:
    """One act as the world saw it."""

    key: str
    kind: str
    on: str
    begin_s: float
    end_s: float


@dataclass
class World:
    """Units by name with what runs and what is staged, and a clock that jumps to the next end."""

    running: dict[str, dict[str, str]]
    wanted: Mapping[str, Mapping[str, str]]
    members: Mapping[str, tuple[str, ...]]  # domain: its units
    seed: int = 0
    jitter: float = 0.1
    now: float = 0.0
    log: list[Happened] = field(default_factory=list)
    staged: dict[tuple[str, str], str] = field(default_factory=dict)
    flashed: dict[tuple[str, str], int] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    configured: set[str] = field(default_factory=set)
    broken: frozenset[str] = frozenset()  # keys of acts that end in a fault
    dumb: frozenset[str] = frozenset()  # keys of acts of which nothing is ever seen
    begun: dict[str, Happened] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)
    sent: dict[str, Sent] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)

    def send(self, act: Sent) -> None:
        """Begin an act."""
        chance = random.Random(f"{self.seed} {act.key}")
        takes = act.duration_s * (1 + chance.uniform(-self.jitter, self.jitter))
        happened = Happened(act.key, str(act.kind), act.on, self.now, self.now + takes)
        self.begun[act.key] = happened
        self.sent[act.key] = act
        self.log.append(happened)
        self.under_way.add(act.key)
        heapq.heappush(self.ends, (happened.end_s, act.key))

    def step(self) -> str | None:
        """Let time pass to the next end; return the act that ended."""
        if not self.ends:
            return None
        self.now, key = heapq.heappop(self.ends)
        self.under_way.discard(key)
        if key not in self.broken:
            self._take_effect(self.sent[key])
        return key

    def look(self, act: Sent) -> str:
        """Return what a reading of the machines shows of an act."""
        if act.key in self.dumb:
            return "unknown"
        if act.key not in self.begun:
            return "idle"
        if act.key in self.under_way:
            return "running"
        return "done" if self._reached(act) else "failed"

    def _reached(self, act: Sent) -> bool:
        kind = str(act.kind)
        if kind in STAGED:
            return act.target in (
                self.staged.get((act.on, kind)),
                self.running[act.on][kind],
            )
        if kind == "prove":
            named = self.members[act.on]
            return all(self.wanted[unit].items() <= self.running[unit].items() for unit in named)
        return act.key not in self.broken

    def _take_effect(self, act: Sent) -> None:
        kind = str(act.kind)
        if kind in STAGED:
            self.staged[act.on, kind] = act.target
            self._count(act.on, kind)
        elif kind in {"activate", "switch-reboot"}:
            for name in STAGED:
                if (act.on, name) in self.staged:
                    self.running[act.on][name] = self.staged.pop((act.on, name))
        elif kind == "psu":
            self._count(act.on, act.key)
            self.running[act.on]["psu"] = act.target
        elif kind in {"pmc-backup", "pmc-primary"}:
            self._count(act.on, kind)
            if kind == "pmc-primary":
                self.running[act.on]["pmc"] = act.target
        elif kind == "drain":
            self.drained |= set(self.members[act.on])
        elif kind == "nvlink-cluster":
            self.configured.add(act.on)

    def _count(self, on: str, what: str) -> None:
        self.flashed[on, what] = self.flashed.get((on, what), 0) + 1


OLD = {
    "compute-tray": {"host-bundle": "25.06", "hgx-bundle": "25.06-A"},
    "nvlink-switch": {"switch-firmware": "88.0002.1336", "nvos": "25.02.2553"},
    "power-shelf": {"pmc": "3.2.3", "psu": "0103"},
}
NEW = {
    "compute-tray": {"host-bundle": "25.08-9", "hgx-bundle": "25.08-B"},
    "nvlink-switch": {"switch-firmware": "88.0002.1958", "nvos": "25.02.4317"},
    "power-shelf": {"pmc": "3.2.4", "psu": "0104"},
}


@dataclass(frozen=True)
class Shape:
    """How many units the racks of a made-up site have."""

    trays: int = 18
    switches: int = 9
    shelves: int = 8
    supplies: int = 6


def make_site(
    racks: int, seed: int = 0, shape: Shape | None = None, *, current: float = 0.1
) -> tuple[Site, Site]:
    """Return a plan of racks and a campaign over them, as their files would hold them.

    `current`: the share of components that run the wanted version already. Every eighth pair of
    racks is cabled as one domain; each fifth tray's host has a tenant.
    """
    rng, shape = random.Random(seed), shape or Shape()
    planned, units = [], {}
    for number in range(racks):
        paired = number % 16 in {6, 7} and number // 2 * 2 + 1 < racks
        domain = f"d{number // 2 * 2:03d}" if paired else f"d{number:03d}"
        rack = f"r{number:03d}"
        listed = list(_make_units(rack, number, shape))
        planned.append(
            {
                "name": rack,
                "chassis_serial": f"18{number:06d}",
                "domain": domain,
                "loop": f"cdu{number // 16}",
                "units": listed,
            }
        )
        for unit in listed:
            kind = unit["kind"]
            mixed = {
                name: NEW[kind][name] if rng.random() < current else old
                for name, old in OLD[kind].items()
            }
            units[unit["name"]] = {"running": mixed, "member": True}
            units[unit["name"]]["water"] = "none" if kind == "power-shelf" else "dry"
            if kind == "compute-tray":
                used = rng.random() < 0.2
                units[unit["name"]]["tenant"] = f"tenant-{number % 8}" if used else ""
    limits = {"at_once": 16, "per_tenant": 4, "per_loop": 4}
    return {"racks": planned}, {"targets": NEW, "units": units, "limits": limits}


def _make_units(rack: str, number: int, shape: Shape) -> list[Site]:
    units: list[Site] = []
    for n in range(shape.trays):
        leaves = [f"su{number // 16}-leaf{n % 4}"]
        units.append({"name": f"{rack}-t{n}", "kind": "compute-tray", "leaves": leaves})
    units += [{"name": f"{rack}-s{n}", "kind": "nvlink-switch"} for n in range(shape.switches)]
    for n, unit in enumerate(units):
        index = int(unit["name"].rpartition("-")[2][1:])
        unit.update(u=n + 11, slot=n + 10, tray_index=index)
    for n in range(shape.shelves):
        feeds = [f"hall{number // 64}-{'ab'[n % 2]}"]
        unit = {"name": f"{rack}-p{n}", "kind": "power-shelf", "u": 64 - n, "feeds": feeds}
        units.append(unit | {"supplies": shape.supplies})
    return units


def make_world(site: Site, campaign: Site, seed: int = 0) -> World:
    """Return the world that a campaign's file describes."""
    members: dict[str, list[str]] = {}
    for rack in site["racks"]:
        for unit in rack["units"]:
            members.setdefault(unit.get("domain") or rack["domain"], []).append(unit["name"])
    running = {name: dict(unit["running"]) for name, unit in campaign["units"].items()}
    wanted = {
        unit["name"]: campaign["targets"].get(unit["kind"], {})
        for rack in site["racks"]
        for unit in rack["units"]
    }
    return World(running, wanted, {name: tuple(each) for name, each in members.items()}, seed)
