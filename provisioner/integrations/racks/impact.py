"""What an act on a rack takes away, derived from a graph of what each thing needs.

Things are units by name, `feed:`, `leaf:`, `loop:` and `domain:` before the name of a shared one,
`host:` before a tray's name for the host that a tenant uses, and `tenant:`. A thing is lost when
one of its needs has too few members left. What is not described may be needed: it counts as lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.model.input_error import InputError


@dataclass(frozen=True)
class Need:
    """`least` of the things `of` have to be there. Empty `of`: nobody described them."""

    what: str  # "power", "coolant", "NVLink", "network", "tray", "hosts"
    of: tuple[str, ...]
    least: int
    prefix: str = ""  # things of this kind would be its members, where `of` is empty


@dataclass(frozen=True)
class ImpactGraph:
    """Every thing with its needs, in an order in which needs stand before the needing."""

    needs: Mapping[str, tuple[Need, ...]]


@dataclass(frozen=True)
class Impact:
    """What is lost, what only has less left than before, and why: a sentence for each thing."""

    lost: Mapping[str, str] = field(default_factory=dict)
    weakened: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()  # of the lost: those that nobody described

    def find_lost(self, prefix: str) -> tuple[str, ...]:
        """Return the names behind `prefix` that are lost."""
        return tuple(sorted(n.removeprefix(prefix) for n in self.lost if n.startswith(prefix)))


def domain_of(rack: PlannedRack, unit: PlannedUnit) -> str:
    """Return a unit's NVLink domain, "" where the plan states none."""
    return unit.domain or rack.domain


def build_graph(plan: RackPlan, tenants: Mapping[str, str] | None = None) -> ImpactGraph:
    """Return the graph of a plan; `tenants` by tray. Raises InputError: a name stands twice."""
    needs: dict[str, tuple[Need, ...]] = {}
    units = [(rack, unit) for rack in plan.racks for unit in rack.units]
    switches: dict[str, list[str]] = {}
    for rack, unit in units:
        if unit.name in needs:
            remedy = "Give each unit of the site a name of its own."
            raise InputError("units", unit.name, "this name stands in two racks", remedy)
        needs[unit.name] = ()
        if unit.kind is Kind.NVLINK_SWITCH:
            switches.setdefault(domain_of(rack, unit), []).append(unit.name)
    shared = sorted({name for rack, unit in units for name in _shared_of(rack, unit)})
    ordered = dict.fromkeys(shared, ())
    shelves = [u.name for _, u in units if u.kind is Kind.POWER_SHELF]
    others = [u.name for _, u in units if u.kind is not Kind.POWER_SHELF]
    needs = {**ordered, **dict.fromkeys((*shelves, *others), ())}
    for rack, unit in units:
        needs[unit.name] = tuple(_needs_of(rack, unit))
    for rack, unit in units:
        if unit.kind is Kind.COMPUTE_TRAY:
            domain = domain_of(rack, unit)
            stray = [  # a switch of its rack whose domain nobody described may be one of its own
                u.name
                for u in rack.units
                if u.kind is Kind.NVLINK_SWITCH and not domain_of(rack, u)
            ]
            of = (*switches.get(domain, ()), *stray) if domain else ()
            leaves = tuple(f"leaf:{leaf}" for leaf in unit.leaves)
            needs[f"host:{unit.name}"] = (
                Need("tray", (unit.name,), 1),
                # one switch less makes each partition UNHEALTHY (NMX-M manual, resiliency modes)
                Need("NVLink", of, len(of), prefix="switch"),
                Need("network", leaves, len(leaves), prefix="leaf:"),
            )
    hosts: dict[str, list[str]] = {}
    for tray, tenant in (tenants or {}).items():
        if tenant and f"host:{tray}" in needs:
            hosts.setdefault(tenant, []).append(f"host:{tray}")
    for tenant, of_tenant in sorted(hosts.items()):
        needs[f"tenant:{tenant}"] = (Need("hosts", tuple(of_tenant), len(of_tenant)),)
    return ImpactGraph(needs)


def _shared_of(rack: PlannedRack, unit: PlannedUnit) -> Iterator[str]:
    yield from (f"feed:{feed}" for feed in unit.feeds)
    yield from (f"leaf:{leaf}" for leaf in unit.leaves)
    if loop := unit.loop or rack.loop:
        yield f"loop:{loop}"


def _needs_of(rack: PlannedRack, unit: PlannedUnit) -> Iterator[Need]:
    if unit.kind is Kind.POWER_SHELF:
        yield Need("power", tuple(f"feed:{f}" for f in unit.feeds), 1, prefix="feed:")
        return
    shelves = tuple(u.name for u in rack.units if u.kind is Kind.POWER_SHELF)
    least = min(rack.shelves_needed or len(shelves), len(shelves))
    yield Need("power", shelves, least, prefix="shelf")
    loop = unit.loop or rack.loop
    yield Need("coolant", (f"loop:{loop}",) if loop else (), 1, prefix="loop:")


def derive_impact(
    graph: ImpactGraph, plan: RackPlan, down: Sequence[str], *, weaken: bool = True
) -> Impact:
    """Return what is lost when the things `down` are. Raises InputError for an unknown thing."""
    kinds = {unit.name: unit.kind for rack in plan.racks for unit in rack.units}
    for name in down:
        if name not in graph.needs:
            remedy = "Name a unit, or feed:, leaf: or loop: with its name; see `rack check`."
            raise InputError("THING", name, "the plan has no such thing", remedy)
    undescribed = {_prefix_of(name, kinds) for name in down}
    lost: dict[str, str] = dict.fromkeys(down, "the act takes it")
    weakened: dict[str, str] = {}
    unknown: set[str] = set()
    for name, needs in graph.needs.items():
        if name in lost:
            undescribed.add(_prefix_of(name, kinds))
            continue
        for need in needs:
            gone = [one for one in need.of if one in lost]
            if not need.of and need.prefix in undescribed:
                lost[name] = f"the plan does not say from where it has its {need.what}"
                unknown.add(name)
            elif gone and len(need.of) - len(gone) < need.least:
                lost[name] = f"{need.what}: {_say(gone)}"
                if not unknown.isdisjoint(gone):
                    unknown.add(name)
            elif gone and weaken:
                weakened.setdefault(name, f"{need.what}: {_say(gone)} of {len(need.of)}")
            if name in lost:
                undescribed.add(_prefix_of(name, kinds))
                break
    weakened = {name: why for name, why in weakened.items() if name not in lost}
    return Impact(lost, weakened, frozenset(unknown))


def _prefix_of(name: str, kinds: Mapping[str, Kind]) -> str:
    kind = kinds.get(name)
    if kind is Kind.NVLINK_SWITCH:
        return "switch"
    if kind is Kind.POWER_SHELF:
        return "shelf"
    return f"{name.partition(':')[0]}:"


def _say(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
