"""Report of repair times by stage, part and vendor, and of the availability of tenants' nodes.
Pure.

Availability is computed from the journal's rows of state: a node counts for its tenant from its
first release to the tenant until it is reclaimed for good; the time between draining and release is
lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Any

from provisioner.model.base import Record
from provisioner.model.case import Case, Ending, Stage
from provisioner.model.times.instant import Instant, InstantOrNone

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
    """Return the report of cases opened within the time; `states` are the journal's rows, in
    order.
    """
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
