"""What one tray needs to come into its tenant's NVLink partition, or out of every one. Pure.

`tenant_partitions.py` plans whole domains from a file; this plans the tray of one handover from the
nodes' rows, and touches no GPU but that tray's. Other trays may be off or unlisted. A partition of
its tenant that has a GPU which the rows do not give that tenant admits nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.partitions.tenant_partitions import (
    DEFAULT,
    Gpu,
    Partition,
    PartitionAct,
    PartitionPlan,
    Place,
    Verb,
    build_blocker,
    find_wrong,
    judge_domains,
)
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker


@dataclass(frozen=True)
class Tray:
    """A planned compute tray. `tenant` "": it leaves its partitions. `for_good`: and its rack, of
    which the manager may list nothing any more.
    """

    plan: RackPlan
    rack: PlannedRack
    unit: PlannedUnit
    tenant: str = ""
    holders: Mapping[str, str] = field(default_factory=dict)  # whose each tray with a node is
    for_good: bool = False
    settled: frozenset[str] = frozenset()  # trays that their handover brought into a partition

    @property
    def domain(self) -> str:
        return domain_of(self.rack, self.unit)

    @property
    def partition(self) -> str:
        """The name of the partition that it has to be in, "" for none."""
        return f"{self.tenant}.{self.domain}" if self.tenant else ""

    def is_in(self, one: Partition) -> bool:
        """Return whether it belongs there; one without a readable name is nobody's."""
        return bool(self.tenant) and one.name == self.partition

    def concerns(self, act: PartitionAct, gpus: Sequence[Gpu]) -> bool:
        """Return whether an act is of its tenant's partition, or of a GPU in its slot, in its rack
        or in a chassis whose serial no listed GPU tells.
        """
        if not act.name.endswith(f".{self.domain}"):
            return False
        serials: dict[tuple[str, int], set[str]] = {}
        for gpu in gpus:
            at = (gpu.place.domain, gpu.place.chassis)
            serials.setdefault(at, set()).add(gpu.chassis_serial)
        own = {self.rack.chassis_serial, ""}
        return act.name == self.partition or any(
            place.slot == self.unit.slot and own & serials.get((place.domain, place.chassis), own)
            for place in act.members
        )


def is_settled(node: Node) -> bool:
    """Return whether a node is its tenant's, and no move of it is under way."""
    return node.state is State.RELEASED and node.placement is Placement.CUSTOMER


def plan_tray(tray: Tray, gpus: Sequence[Gpu], partitions: Sequence[Partition]) -> PartitionPlan:
    """Return what has to be sent for one tray, one act after the other, each after a new look."""
    own, blockers = find_own(tray, gpus, partitions)
    suffix = f".{domain_of(tray.rack, tray.unit)}"
    said = {gpu.partition for gpu in gpus if gpu.place in own}
    listed = {gpu.place for gpu in gpus}
    mine: list[Partition] = []
    for one in partitions:
        if one.members is None:  # the manager's other list may say that it has none of them
            if tray.is_in(one) or one.number in said or not (own and own <= listed):
                detail = "its members are not named by their places"
                blockers.append(build_blocker(one.name, detail))
        elif tray.is_in(one) or (
            one.members & own and (one.number == DEFAULT or one.name.endswith(suffix))
        ):
            mine.append(one)
        elif taken := one.members & own:
            detail = f"it is nobody's of ours, and has {len(taken)} GPUs of {tray.unit.name}"
            blockers.append(build_blocker(one.name, detail))
    if len({one.name for one in mine}) != len(mine):
        blockers.append(build_blocker("partitions", "two of them have one name"))
    blockers += _find_strangers(tray, own, mine, gpus)
    blockers += _find_lost(tray, mine, gpus)
    if blockers:
        return PartitionPlan(blockers=tuple(blockers))
    acts = tuple(_find_acts(tray, own, mine))
    return PartitionPlan(acts, wrong=() if acts else tuple(find_wrong(mine, gpus, own)))


def find_own(
    tray: Tray, gpus: Sequence[Gpu], partitions: Sequence[Partition]
) -> tuple[frozenset[Place], list[Blocker]]:
    """Return the places of a tray's GPUs. One that leaves may be listed no more, as it is off: its
    places are then those of its slot that a partition still has.
    """
    name = tray.unit.name
    trays = list_trays(tray.plan, gpus)
    listed = trays.get(name, frozenset())
    chassis = {
        (place.domain, place.chassis)
        for unit in tray.rack.units
        for place in trays.get(unit.name, ())
    }
    if listed:  # one rack may hold several domains
        chassis = {(place.domain, place.chassis) for place in listed}
    in_slot = frozenset(
        place
        for one in partitions
        for place in one.members or ()
        if (place.domain, place.chassis) in chassis and place.slot == tray.unit.slot
    )
    if not chassis and tray.for_good and all(one.members == frozenset() for one in partitions):
        return frozenset(), []  # nobody is in any
    if not chassis:
        detail = f"the manager lists no GPU of rack {tray.rack.name}"
        return frozenset(), [build_blocker(name, detail)]
    if not tray.tenant:
        return listed | in_slot, []
    return listed, list(_judge_listed(tray, listed, in_slot, trays))


def _judge_listed(
    tray: Tray,
    listed: frozenset[Place],
    in_slot: frozenset[Place],
    trays: Mapping[str, frozenset[Place]],
) -> Iterable[Blocker]:
    """Yield why the listed GPUs of a tray are not all of it, or not of its planned domain."""
    name = tray.unit.name
    most = max(map(len, trays.values()), default=0)
    if not tray.partition.removeprefix(f"{tray.tenant}."):
        yield build_blocker(name, "the plan states no NVLink domain of it")
    if not listed:
        yield build_blocker(name, "the manager lists no GPU in its slot")
    elif len(listed) < most:
        yield build_blocker(name, f"it shows {len(listed)} GPUs, and others {most}")
    if in_slot - listed:
        yield build_blocker(name, "a partition has a GPU of its slot that is not listed")
    domains = {u.name: domain_of(rack, u) for rack in tray.plan.racks for u in rack.units}
    own = domain_of(tray.rack, tray.unit)
    yield from (one for one in judge_domains(trays, domains) if one.subject == own)


def list_trays(plan: RackPlan, gpus: Sequence[Gpu]) -> Mapping[str, frozenset[Place]]:
    """Return the listed GPUs of each planned tray that has any."""
    slots: dict[tuple[str, int], set[Place]] = {}
    for gpu in gpus:
        slots.setdefault((gpu.chassis_serial, gpu.place.slot), set()).add(gpu.place)
    planned = [
        (unit.name, (rack.chassis_serial, unit.slot))
        for rack in plan.racks
        for unit in rack.units
        if unit.kind is Kind.COMPUTE_TRAY and unit.slot is not None
    ]
    return {name: frozenset(slots[where]) for name, where in planned if where in slots}


def _find_strangers(
    tray: Tray, own: frozenset[Place], mine: Sequence[Partition], gpus: Sequence[Gpu]
) -> Iterable[Blocker]:
    """Yield the GPUs in its tenant's partition that no row gives its tenant."""
    trays = list_trays(tray.plan, gpus)
    whose = {place: name for name, places in trays.items() for place in places}
    for one in mine:
        if not tray.is_in(one):
            continue
        others = (one.members or frozenset()) - own
        for name in sorted({whose.get(place, "") for place in others}):
            holder = tray.holders.get(name, "")
            if not name:
                yield build_blocker(one.name, "it has GPUs of no planned tray that is listed")
            elif holder != tray.tenant:
                detail = f"it has GPUs of {name}, which serves {holder or 'nobody we know of'}"
                yield build_blocker(one.name, detail)


def _find_lost(tray: Tray, mine: Sequence[Partition], gpus: Sequence[Gpu]) -> Iterable[Blocker]:
    """Yield its tenant's other trays that are not in its partition any more: nobody joins them."""
    trays = list_trays(tray.plan, gpus)
    members = {place for one in mine if tray.is_in(one) for place in one.members or ()}
    domains = {u.name: domain_of(rack, u) for rack in tray.plan.racks for u in rack.units}
    for name in sorted(tray.settled - {tray.unit.name}):
        beside = bool(tray.tenant) and tray.holders.get(name) == tray.tenant
        if not beside or domains[name] != domain_of(tray.rack, tray.unit):
            continue
        if lost := trays.get(name, frozenset()) - members:
            detail = f"{len(lost)} GPUs of {name}, which it was handed over with, are not in it"
            yield build_blocker(tray.partition, detail)


def _find_acts(
    tray: Tray, own: frozenset[Place], mine: Sequence[Partition]
) -> Iterable[PartitionAct]:
    """Yield what leaves first, and then what enters."""
    for one in mine:
        members = one.members or frozenset()
        if tray.is_in(one) or not members & own:
            continue
        stays = members - own
        verb = Verb.SET if stays else Verb.DELETE
        yield PartitionAct(verb, one.name, stays, one.ident)
    if not tray.tenant:
        return
    at = next((one for one in mine if tray.is_in(one)), None)
    if at is None:
        yield PartitionAct(Verb.CREATE, tray.partition, own)
    elif not own <= (at.members or frozenset()):
        yield PartitionAct(Verb.SET, at.name, (at.members or frozenset()) | own, at.ident)
