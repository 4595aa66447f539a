"""A campaign over racks: which acts each unit needs, in which order, and what may not overlap.

Pure. The rules are those of NVIDIA's guides: NVLink switches before compute trays, since else each
tray restarts once more; the whole domain drained before an act on a switch or a shelf; never two
bundles on one tray; one power supply of a rack at a time, and nothing else in that rack meanwhile.
Shelves come last: a shelf that goes off drops what is staged in the trays. What is unknown is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated

from pydantic import Field, StringConstraints

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import build_graph, derive_impact, domain_of
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.integrations.racks.update_packages import Package
from provisioner.model.base import Record
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.shipped_tables import read_table

_Units = list[tuple[PlannedRack, PlannedUnit]]
COMPONENTS = {  # of each kind, in the order of their acts
    Kind.NVLINK_SWITCH: ("switch-firmware", "nvos"),
    Kind.COMPUTE_TRAY: ("host-bundle", "hgx-bundle"),
    Kind.POWER_SHELF: ("pmc", "psu"),
}


class ActKind(StrEnum):
    """One thing that is done to a unit or to a domain."""

    DRAIN = "drain"
    SWITCH_FIRMWARE = "switch-firmware"
    NVOS = "nvos"
    SWITCH_REBOOT = "switch-reboot"
    CLUSTER = "nvlink-cluster"
    HOST_BUNDLE = "host-bundle"
    HGX_BUNDLE = "hgx-bundle"
    COPY = "erot-copy"
    ACTIVATE = "activate"
    PMC_BACKUP = "pmc-backup"
    PMC_PRIMARY = "pmc-primary"
    PSU = "psu"
    PROVE = "prove"


SHELF_ACTS = frozenset({ActKind.PMC_BACKUP, ActKind.PMC_PRIMARY, ActKind.PSU})
DOMAIN_ACTS = frozenset({ActKind.DRAIN, ActKind.CLUSTER, ActKind.PROVE})


class UnitState(Record):
    """What is known of a unit before a campaign: the versions that run, and who uses a tray.

    `tenant` "" means that nobody does; None that nobody looked. `water` as `rack show` prints it.
    """

    running: Mapping[str, str] = Field(default={}, max_length=8)
    tenant: str | None = Field(default=None, max_length=63)
    water: str = Field(default="unknown", max_length=16)
    member: bool = False  # `rack show` proved it to be where the plan has it


class Limits(Record):
    """How many domains may be out at one time: of the site, and of each shared thing."""

    at_once: int = Field(default=1, ge=1, le=4096)
    per_tenant: int = Field(default=4096, ge=1, le=4096)
    per_feed: int = Field(default=4096, ge=1, le=4096)
    per_leaf: int = Field(default=4096, ge=1, le=4096)
    per_loop: int = Field(default=4096, ge=1, le=4096)


Version = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


class CampaignFile(Record):
    """What a person writes: targets by kind and component, states by unit, limits.

    `packages` are what `rack update` writes; `rack plan` needs none.
    """

    targets: Mapping[Kind, Mapping[str, Version]] = Field(min_length=1, max_length=8)
    units: Mapping[str, UnitState] = Field(default={}, max_length=1 << 20)
    limits: Limits = Limits()
    durations_s: Mapping[ActKind, float] = Field(default={})
    packages: Mapping[Kind, Mapping[str, Package]] = Field(default={}, max_length=8)


@dataclass(frozen=True)
class Act:
    """One act. `key` names it in the journal; `after` holds the keys that come before it."""

    key: str
    kind: ActKind
    on: str  # a unit, or a domain
    racks: tuple[str, ...]
    after: tuple[str, ...]
    duration_s: float
    component: str = ""
    target: str = ""


@dataclass(frozen=True)
class DomainJob:
    """All acts of one NVLink domain, and what else is out with it."""

    domain: str
    racks: tuple[str, ...]
    acts: tuple[Act, ...]
    hosts: tuple[str, ...]  # trays whose hosts its acts take away
    things: tuple[str, ...]  # "tenant:a", "feed:b": each has a limit
    expected_s: float


@dataclass(frozen=True)
class Campaign:
    """The jobs that can begin, and every reason why a domain cannot."""

    jobs: tuple[DomainJob, ...]
    held: Mapping[str, tuple[Blocker, ...]]
    done: tuple[str, ...]  # domains that have every target already
    limits: Limits


@cache
def read_durations() -> Mapping[ActKind, tuple[float, str]]:
    """Return each act's expected duration and who says so."""
    rows = read_table("provisioner.integrations.racks", "rack_acts.csv")
    return {ActKind(row["act"]): (float(row["duration_s"]), row["source"]) for row in rows}


def plan_campaign(plan: RackPlan, asked: CampaignFile) -> Campaign:
    """Return the jobs of all domains. A domain with anything unknown is held, and named."""
    tenants = {name: state.tenant or "" for name, state in asked.units.items()}
    graph = build_graph(plan, tenants)
    jobs: list[DomainJob] = []
    held: dict[str, tuple[Blocker, ...]] = {}
    done: list[str] = []
    for domain, units in sorted(group_units(plan).items()):
        if reasons := tuple(_find_unknown(domain, units, asked)):
            held[domain] = reasons
            continue
        acts = tuple(_build_acts(domain, units, asked))
        if not acts:
            done.append(domain)
            continue
        touched = [a.on for a in acts if a.kind not in DOMAIN_ACTS]
        lost = derive_impact(graph, sorted(set(touched)))
        drained = set(_hosts_of(units))
        if beyond := set(lost.find_lost("host:")) - drained:
            held[domain] = (_hold_beyond(domain, sorted(beyond)),)
            continue
        things = sorted(_things_of(units, asked))
        racks = tuple(sorted({rack.name for rack, _ in units}))
        expected = measure_path(acts)
        jobs.append(DomainJob(domain, racks, acts, tuple(sorted(drained)), tuple(things), expected))
    return Campaign(tuple(jobs), held, tuple(done), asked.limits)


def _job_of(rack: PlannedRack, unit: PlannedUnit) -> str:
    return domain_of(rack, unit) or f"{rack.name} (no domain)"


def group_units(plan: RackPlan) -> Mapping[str, _Units]:
    """Return the units of each job: of a domain, or of several that share a rack, whose shelves
    feed them all.
    """
    domains: dict[str, _Units] = {}
    for rack in plan.racks:
        for unit in rack.units:
            domains.setdefault(_job_of(rack, unit), []).append((rack, unit))
    owner: dict[str, str] = {}
    joined: dict[str, _Units] = {}
    for domain, units in sorted(domains.items()):
        racks = {rack.name for rack, _ in units}
        into = sorted({owner[name] for name in racks if name in owner})
        listed = [*units, *(pair for name in into for pair in joined.pop(name))]
        key = "+".join(sorted([domain, *into]))
        joined[key] = listed
        for rack, _ in listed:
            owner[rack.name] = key
    return joined


def _hosts_of(units: _Units) -> Iterator[str]:
    return (unit.name for _, unit in units if unit.kind is Kind.COMPUTE_TRAY)


def _find_unknown(domain: str, units: _Units, asked: CampaignFile) -> Iterator[Blocker]:
    """Yield each thing that has to be known before anything in the domain may begin."""
    for rack, unit in units:
        targets = asked.targets.get(unit.kind, {})
        known = COMPONENTS.get(unit.kind, ())
        for component in sorted(set(targets) - set(known)):
            detail = f"no {unit.kind} has a component {component}"
            yield _hold(unit.name, detail, f"It has {', '.join(known) or 'none'}.")
        state = asked.units.get(unit.name)
        if state is None:
            yield _hold(unit.name, "nothing is said of it", "Read it, and give its state.")
            continue
        if not domain_of(rack, unit) and unit.kind is not Kind.POWER_SHELF:
            yield _hold(unit.name, "the plan states no NVLink domain", "Give `domain`.")
        if not state.member:
            remedy = "Prove its place: `provisioner rack show`."
            yield _hold(unit.name, "it is not proved to be where the plan has it", remedy)
        if state.water not in _DRY.get(unit.kind, ("dry",)):
            yield _hold(unit.name, f"water is {state.water}", "See docs/racks.md#water.")
        if unit.kind is Kind.COMPUTE_TRAY and state.tenant is None:
            yield _hold(unit.name, "nobody looked whose host it is", 'Give `tenant`, or "".')
        for component in targets:
            if component in known and not state.running.get(component, "").strip():
                detail = f"the running version of {component} is not known"
                yield _hold(unit.name, detail, "Read its inventory.")
        if unit.kind is Kind.POWER_SHELF and "psu" in targets and unit.supplies is None:
            detail = "how many power supplies it has is not known"
            yield _hold(unit.name, detail, "Give `supplies`.")


_DRY = {Kind.POWER_SHELF: ("dry", "none")}  # a shelf has no detector


def _hold(subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.CANNOT_TELL, subject=subject, detail=detail, unblock=unblock)


def _hold_beyond(domain: str, hosts: Sequence[str]) -> Blocker:
    listed = ", ".join(hosts[:4])
    detail = f"its acts take away hosts that are not its own: {listed}"
    return _hold(domain, detail, "Correct `domain`, or describe the racks as one domain.")


def _things_of(units: _Units, asked: CampaignFile) -> set[str]:
    things = set()
    for rack, unit in units:
        state = asked.units[unit.name]
        if unit.kind is Kind.COMPUTE_TRAY and state.tenant:
            things.add(f"tenant:{state.tenant}")
        things |= {f"feed:{one}" for one in unit.feeds} | {f"leaf:{one}" for one in unit.leaves}
        if loop := unit.loop or rack.loop:
            things.add(f"loop:{loop}")
    return things


def _build_acts(domain: str, units: _Units, asked: CampaignFile) -> Iterator[Act]:
    """Yield a domain's acts, each after those that it needs; none where nothing is wanted."""
    racks = tuple(sorted({rack.name for rack, _ in units}))
    drain = f"{domain}/{ActKind.DRAIN}"
    build = _Builder(asked, used=any(asked.units[unit.name].tenant for _, unit in units))
    last: dict[str, list[str]] = {}  # NVLink domain: the last act of each of its switches
    for rack, unit in _of(units, Kind.NVLINK_SWITCH):
        if changed := build.wanted(unit):
            keys = [drain]
            for component in changed:
                keys.append(build.add(ActKind(component), unit.name, rack, keys[-1:], component))
            end = build.add(ActKind.SWITCH_REBOOT, unit.name, rack, keys[-1:])
            last.setdefault(domain_of(rack, unit), []).append(end)
    clusters = {  # each NVLink domain of joined ones has a control plane of its own
        name: build.add_for(ActKind.CLUSTER, name, _racks_of(units, name), after)
        for name, after in last.items()
    }
    ends: dict[str, list[str]] = {name: [] for name in racks}
    for rack, unit in _of(units, Kind.COMPUTE_TRAY):
        if changed := build.wanted(unit):
            keys = [drain]
            for component in changed:
                keys.append(build.add(ActKind(component), unit.name, rack, keys[-1:], component))
            keys.append(build.add(ActKind.COPY, unit.name, rack, keys[-1:]))
            cluster = clusters.get(domain_of(rack, unit))
            after = [keys[-1], *([cluster] if cluster else [])]
            ends[rack.name].append(build.add(ActKind.ACTIVATE, unit.name, rack, after))
    shelves: list[str] = []
    behind = {name: ends[name] + list(clusters.values()) or [drain] for name in racks}
    for rack, unit in _of(units, Kind.POWER_SHELF):
        for component in build.wanted(unit):
            for kind, suffix in _shelf_steps(unit, component):
                key = build.add(kind, unit.name, rack, behind[rack.name], component, suffix)
                behind[rack.name] = [key]
                shelves.append(key)
    if not build.acts:
        return
    all_ends = [key for name in racks for key in behind[name]]
    yield build.make(ActKind.DRAIN, domain, racks, ())
    yield from build.acts
    yield build.make(ActKind.PROVE, domain, racks, tuple(dict.fromkeys(all_ends)))


def _racks_of(units: _Units, domain: str) -> tuple[str, ...]:
    return tuple(sorted({rack.name for rack, unit in units if domain_of(rack, unit) == domain}))


def _shelf_steps(unit: PlannedUnit, component: str) -> Sequence[tuple[ActKind, str]]:
    if component == "pmc":  # both flashes, the backup first (NVIDIA DGX GB200 guide)
        return ((ActKind.PMC_BACKUP, ""), (ActKind.PMC_PRIMARY, ""))
    return [(ActKind.PSU, f"-{n + 1}") for n in range(unit.supplies or 0)]


def _of(units: _Units, kind: Kind) -> Iterable[tuple[PlannedRack, PlannedUnit]]:
    listed = [pair for pair in units if pair[1].kind is kind]
    return sorted(listed, key=lambda pair: (pair[0].name, pair[1].tray_index or 0, pair[1].name))


class _Builder:
    """Collects the acts of one domain."""

    def __init__(self, asked: CampaignFile, *, used: bool) -> None:
        self.acts: list[Act] = []
        self.used = used
        self._asked = asked

    def wanted(self, unit: PlannedUnit) -> list[str]:
        """Return the components whose running version is not the wanted one, by equality."""
        targets = self._asked.targets.get(unit.kind, {})
        running = self._asked.units[unit.name].running
        return [c for c in COMPONENTS[unit.kind] if c in targets and running[c] != targets[c]]

    def add(
        self,
        kind: ActKind,
        on: str,
        rack: PlannedRack,
        after: Sequence[str],
        component: str = "",
        suffix: str = "",
    ) -> str:
        act = self.make(kind, on, (rack.name,), tuple(after), component, suffix)
        self.acts.append(act)
        return act.key

    def add_for(
        self, kind: ActKind, domain: str, racks: tuple[str, ...], after: Sequence[str]
    ) -> str:
        act = self.make(kind, domain, racks, tuple(after))
        self.acts.append(act)
        return act.key

    def make(
        self,
        kind: ActKind,
        on: str,
        racks: tuple[str, ...],
        after: tuple[str, ...],
        component: str = "",
        suffix: str = "",
    ) -> Act:
        duration = self._asked.durations_s.get(kind, read_durations()[kind][0])
        if kind is ActKind.DRAIN and not self.used:
            duration = 0.0  # nobody has to leave
        target = ""
        if component:
            by_kind = (Kind.NVLINK_SWITCH, Kind.COMPUTE_TRAY, Kind.POWER_SHELF)
            of = next(k for k in by_kind if component in COMPONENTS[k])
            target = self._asked.targets[of][component]
        return Act(f"{on}/{kind}{suffix}", kind, on, racks, after, duration, component, target)


def measure_path(acts: Sequence[Act]) -> float:
    """Return the length of the longest path: acts stand after those that they need, but PROVE."""
    ends: dict[str, float] = {}
    for act in acts:
        begin = max((ends[key] for key in act.after), default=0.0)
        ends[act.key] = begin + act.duration_s
    return max(ends.values(), default=0.0)


def exclude(act: Act, other: Act) -> bool:
    """Return whether two acts may not overlap."""
    if act.on == other.on:  # two bundles; a flash and a power cycle; a copy and its loss
        return True
    if SHELF_ACTS.isdisjoint({act.kind, other.kind}):
        return False
    return not set(act.racks).isdisjoint(other.racks)  # a shelf's act beside anything in its rack
