"""Judges what happened in a world of racks, from its log and the site's description alone.

It shares no code with the planner: the rules are read anew from NVIDIA's guides (two bundles never
on one tray; switches before trays; a drained domain before a switch or shelf act; one supply of a
rack at a time), and the bound of the makespan is computed from the durations that the world took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One act of the log."""

    kind: str
    on: str
    begin: float
    end: float


TRAY = ("host-bundle", "hgx-bundle", "erot-copy", "activate")
SWITCH = ("switch-firmware", "nvos", "switch-reboot")
SHELF = ("pmc-backup", "pmc-primary", "psu")
TINY = 1e-6


class Checker:
    """The rules over one site."""

    def __init__(self, site: Mapping[str, Any], campaign: Mapping[str, Any]) -> None:
        self.campaign = campaign
        self.rack: dict[str, str] = {}
        self.kind: dict[str, str] = {}
        self.domain: dict[str, str] = {}
        self.racks: dict[str, set[str]] = defaultdict(set)
        self.things: dict[str, set[str]] = defaultdict(set)
        for rack in site["racks"]:
            for unit in rack["units"]:
                name = unit["name"]
                domain = unit.get("domain") or rack.get("domain", "")
                self.rack[name], self.kind[name] = rack["name"], unit["kind"]
                self.domain[name] = domain
                self.racks[domain].add(rack["name"])
                tenant = campaign["units"][name].get("tenant")
                self.things[domain] |= {("tenant", tenant)} if tenant else set()
                loop = unit.get("loop") or rack.get("loop")
                self.things[domain] |= {("loop", loop)} if loop else set()
                self.things[domain] |= {("leaf", leaf) for leaf in unit.get("leaves", ())}
                self.things[domain] |= {("feed", feed) for feed in unit.get("feeds", ())}

    def find_violations(self, log: Sequence[Row]) -> Iterator[str]:
        """Yield each broken rule as a sentence."""
        by_domain: dict[str, list[Row]] = defaultdict(list)
        for row in log:
            by_domain[self.domain.get(row.on, row.on)].append(row)
        for domain, rows in by_domain.items():
            yield from self._check_domain(domain, rows)
        yield from self._check_limits(by_domain)

    def _check_domain(self, domain: str, rows: Sequence[Row]) -> Iterator[str]:
        drained = [r.end for r in rows if r.kind == "drain"]
        proved = [r.begin for r in rows if r.kind == "prove"]
        for row in rows:
            if row.kind != "drain" and not (drained and drained[0] <= row.begin + TINY):
                yield f"{row.kind} on {row.on} before its domain was drained"
            if row.kind != "prove" and proved and row.end > proved[0] + TINY:
                yield f"{row.kind} on {row.on} after its domain was proved"
        ready = max((r.end for r in rows if r.kind in (*SWITCH, "nvlink-cluster")), default=0.0)
        restarted = any(r.kind == "switch-reboot" for r in rows)
        if restarted and not any(r.kind == "nvlink-cluster" for r in rows):
            yield f"{domain}: its switches restarted, and nobody configured the cluster"
        for row in rows:
            if row.kind == "activate" and row.begin < ready - TINY:
                yield f"{row.on} was activated before all switches of {domain} were ready"
        cluster = [r.begin for r in rows if r.kind == "nvlink-cluster"]
        for row in rows:
            if row.kind in SWITCH and cluster and row.end > cluster[0] + TINY:
                yield f"{row.kind} on {row.on} beside or after the cluster's configuration"
        yield from self._check_overlaps(domain, rows)
        yield from self._check_order(rows)

    def _check_overlaps(self, domain: str, rows: Sequence[Row]) -> Iterator[str]:
        by_unit: dict[str, list[Row]] = defaultdict(list)
        by_rack: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_unit[row.on].append(row)
            for rack in [self.rack[row.on]] if row.on in self.rack else self.racks[domain]:
                by_rack[rack].append(row)
        for unit, own in by_unit.items():
            own.sort(key=lambda r: (r.begin, r.end))
            for one, two in pairwise(own):
                if two.begin < one.end - TINY:
                    yield f"{one.kind} beside {two.kind} on {unit}"
        for rack, inside in by_rack.items():
            for shelf in (r for r in inside if r.kind in SHELF):
                for other in inside:
                    beside = other.begin < shelf.end - TINY and shelf.begin < other.end - TINY
                    if other is not shelf and beside:
                        yield f"{shelf.kind} on {shelf.on} beside {other.kind} in {rack}"

    def _check_order(self, rows: Sequence[Row]) -> Iterator[str]:
        for order in (TRAY, SWITCH, ("pmc-backup", "pmc-primary")):
            last: dict[str, Row] = {}
            for row in sorted((r for r in rows if r.kind in order), key=lambda r: r.begin):
                before = last.get(row.on)
                if before is not None and order.index(before.kind) >= order.index(row.kind):
                    yield f"{row.kind} after {before.kind} on {row.on}"
                last[row.on] = row

    def _check_limits(self, by_domain: Mapping[str, Sequence[Row]]) -> Iterator[str]:
        limits = self.campaign["limits"]
        times: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        for domain, rows in by_domain.items():
            span = (min(r.begin for r in rows), max(r.end for r in rows))
            for thing in (("site", ""), *self.things[domain]):
                times[thing] += [(span[0], 1), (span[1], -1)]
        for thing, changes in times.items():
            cap = limits.get("at_once", 1) if thing[0] == "site" else limits.get(f"per_{thing[0]}")
            out = 0
            for _, change in sorted(changes):
                out += change
                if cap is not None and out > cap:
                    yield f"{out} domains of {' '.join(thing)} were out at once: {cap} may be"
                    break

    def find_missed(self, running: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        """Yield each component that does not run the wanted version."""
        for unit, kind in self.kind.items():
            for component, version in self.campaign["targets"].get(kind, {}).items():
                if running[unit][component] != version:
                    yield f"{unit} runs {component} {running[unit][component]}"

    def find_repeated(self, flashed: Mapping[tuple[str, str], int]) -> Iterator[str]:
        """Yield what was written twice."""
        yield from (f"{what} of {on}: {n} times" for (on, what), n in flashed.items() if n > 1)

    def bound(self, log: Sequence[Row]) -> float:
        """Return a time that no order of these acts beats, by their durations and the limits."""
        by_domain: dict[str, list[Row]] = defaultdict(list)
        for row in log:
            by_domain[self.domain.get(row.on, row.on)].append(row)
        spans = {domain: self._bound_domain(rows) for domain, rows in by_domain.items()}
        limits = self.campaign["limits"]
        work: dict[tuple[str, str], float] = defaultdict(float)
        for domain, span in spans.items():
            for thing in (("site", ""), *self.things[domain]):
                cap = limits.get("at_once", 1) if not thing[1] else limits.get(f"per_{thing[0]}")
                work[thing] += span / cap if cap else 0.0
        return max((*spans.values(), *work.values()), default=0.0)

    def _bound_domain(self, rows: Sequence[Row]) -> float:
        spent: dict[tuple[str, str], float] = defaultdict(float)
        for row in rows:
            spent[row.on, row.kind] += row.end - row.begin
        whole = {kind: sum(v for (_, k), v in spent.items() if k == kind) for kind in _WHOLE}

        def longest(rack: str | None) -> float:
            units = {on for on, _ in spent if on in self.rack and rack in {None, self.rack[on]}}
            ready = max((sum(spent.get((u, k), 0) for k in SWITCH) for u in units), default=0.0)
            ready += whole["nvlink-cluster"]
            trays = (
                max(sum(spent.get((u, k), 0.0) for k in TRAY[:3]), ready) + spent[u, "activate"]
                for u in units
                if (u, "activate") in spent
            )
            shelves = sum(v for (u, k), v in spent.items() if k in SHELF and u in units)
            return max((ready, *trays)) + (shelves if rack is not None else 0.0)

        racks = {self.rack[on] for on, _ in spent if on in self.rack}
        middle = max((longest(None), *(longest(rack) for rack in racks)))
        return whole["drain"] + middle + whole["prove"]


_WHOLE = ("drain", "prove", "nvlink-cluster")
