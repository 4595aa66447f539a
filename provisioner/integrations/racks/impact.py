"""What an act on a rack takes away, derived from a graph of what each thing needs.

Things are units by name, `feed:`, `leaf:`, `loop:` and `domain:` before the name of a shared one,
`outlet:` before one of a PDU, any word before what only the plan's `needs` describe (`spine:`,
`superspine:`, `storage:`), `host:` before a tray's name for the host that a tenant uses, and
`tenant:`. A thing is lost when one of its needs has too few members left. What is not described may
be needed: it counts as lost.
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


class ImpactGraph:
    """Every thing with its needs, and from each thing to those that need it."""

    def __init__(self, needs: Mapping[str, tuple[Need, ...]], kinds: Mapping[str, Kind]) -> None:
        self.needs = needs
        self.prefixes = {name: _prefix_of(name, kinds) for name in needs}
        self.users: dict[str, list[tuple[str, Need]]] = {}
        self.undescribed: dict[str, list[tuple[str, str]]] = {}  # by prefix: who, and what
        for name, each in needs.items():
            for need in each:
                for one in need.of:
                    self.users.setdefault(one, []).append((name, need))
                if not need.of:
                    self.undescribed.setdefault(need.prefix, []).append((name, need.what))


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
    """Return the graph of a plan; `tenants` by tray."""
    needs: dict[str, tuple[Need, ...]] = {}
    units = [(rack, unit) for rack in plan.racks for unit in rack.units]
    switches: dict[str, list[str]] = {}
    for rack, unit in units:
        needs[unit.name] = ()
        if unit.kind is Kind.NVLINK_SWITCH:
            switches.setdefault(domain_of(rack, unit), []).append(unit.name)
    shared = sorted({name for rack, unit in units for name in _shared_of(rack, unit)})
    needs.update(dict.fromkeys(shared, ()))
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
    for name, planned in plan.needs.items():
        more = (Need(n.what, n.of, n.least or len(n.of)) for n in planned)
        needs[name] = (*needs.get(name, ()), *more)
    needs.update({one: () for each in plan.needs.values() for n in each for one in n.of} | needs)
    hosts: dict[str, list[str]] = {}
    for tray, tenant in (tenants or {}).items():
        if tenant and f"host:{tray}" in needs:
            hosts.setdefault(tenant, []).append(f"host:{tray}")
    for tenant, of_tenant in sorted(hosts.items()):
        needs[f"tenant:{tenant}"] = (Need("hosts", tuple(of_tenant), len(of_tenant)),)
    return ImpactGraph(needs, {unit.name: unit.kind for _, unit in units})


def _shared_of(rack: PlannedRack, unit: PlannedUnit) -> Iterator[str]:
    yield from (f"feed:{feed}" for feed in unit.feeds)
    yield from (f"outlet:{outlet}" for outlet in unit.outlets)
    yield from (f"leaf:{leaf}" for leaf in unit.leaves)
    if loop := unit.loop or rack.loop:
        yield f"loop:{loop}"


def _needs_of(rack: PlannedRack, unit: PlannedUnit) -> Iterator[Need]:
    if unit.kind is Kind.POWER_SHELF:
        yield Need("power", tuple(f"feed:{f}" for f in unit.feeds), 1, prefix="feed:")
        # how a shelf shares its load among its inlets is published nowhere: all of them are needed
        outlets = tuple(f"outlet:{one}" for one in unit.outlets)
        yield Need("power", outlets, len(outlets), prefix="outlet:")
        return
    shelves = tuple(u.name for u in rack.units if u.kind is Kind.POWER_SHELF)
    least = min(rack.shelves_needed or len(shelves), len(shelves))
    yield Need("power", shelves, least, prefix="shelf")
    loop = unit.loop or rack.loop
    yield Need("coolant", (f"loop:{loop}",) if loop else (), 1, prefix="loop:")


def derive_impact(graph: ImpactGraph, down: Sequence[str]) -> Impact:
    """Return what is lost when the things `down` are. Raises InputError for an unknown thing."""
    lost: dict[str, str] = {}
    weakened: dict[str, str] = {}
    unknown: set[str] = set()
    queue = list(dict.fromkeys(down))
    for name in queue:
        if name not in graph.needs:
            remedy = "Name a unit, or KIND:NAME as the plan has it (feed:, outlet:, leaf:, loop:)."
            raise InputError("THING", name, "the plan has no such thing", remedy)
        lost[name] = "the act takes it"
    opened: set[str] = set()
    while queue:
        name = queue.pop()
        prefix = graph.prefixes[name]
        if prefix not in opened:
            opened.add(prefix)
            for user, what in graph.undescribed.get(prefix, ()):
                if user not in lost:
                    lost[user] = f"the plan does not say from where it has its {what}"
                    unknown.add(user)
                    queue.append(user)
        for user, need in graph.users.get(name, ()):
            if user in lost:
                continue
            gone = [one for one in need.of if one in lost]
            if len(need.of) - len(gone) >= need.least:
                weakened[user] = f"{need.what}: {_say(gone)} of {len(need.of)}"
                continue
            lost[user] = f"{need.what}: {_say(gone)}"
            if not unknown.isdisjoint(gone):
                unknown.add(user)
            queue.append(user)
    weakened = {name: why for name, why in weakened.items() if name not in lost}
    return Impact(lost, weakened, frozenset(unknown))


def find_users(found: Impact, tenants: Mapping[str, str | None]) -> Iterator[str]:
    """Yield why an act may not be: a tenant that it hits, or a host of which nobody knows one."""
    hit: dict[str, list[str]] = {}
    for host in found.find_lost("host:"):
        tenant = tenants.get(host)
        if tenant != "":
            hit.setdefault(tenant or "", []).append(host)
    for tenant, hosts in sorted(hit.items()):
        said = f"{tenant} loses" if tenant else "nobody looked who uses"
        yield f"{said} {_say(hosts)}: {found.lost[f'host:{hosts[0]}']}"


def _prefix_of(name: str, kinds: Mapping[str, Kind]) -> str:
    kind = kinds.get(name)
    if kind is Kind.NVLINK_SWITCH:
        return "switch"
    if kind is Kind.POWER_SHELF:
        return "shelf"
    return f"{name.partition(':')[0]}:"


def _say(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
