"""Which trays' NVLink partitions are not as their handovers proved them. Pure.

Judged are trays that serve a tenant, and those that serve nobody; one on its way is its handover's
affair. What cannot be told of a tray is a finding of its own, and no absence of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from provisioner.integrations.racks.duty.node_holds import find_tenant
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.partitions.tenant_partitions import (
    DEFAULT,
    Gpu,
    Partition,
    Place,
)
from provisioner.integrations.racks.partitions.tray_plan import (
    Tray,
    find_own,
    is_settled,
    list_trays,
)
from provisioner.integrations.racks.plan import RackPlan
from provisioner.model.node import Node, Placement
from provisioner.ports.isolation import Drift


def find_drift(
    plan: RackPlan,
    placed: Mapping[str, Node],
    owed: Collection[str],
    gpus: Sequence[Gpu],
    partitions: Sequence[Partition],
) -> Mapping[str, Drift]:
    """Return by judged node what is not as it has to be, or nothing.

    `placed`: the nodes by their trays; `owed`: of these, by node, who came into a partition with
    its release.
    """
    found: dict[str, Drift] = {}
    listed = list_trays(plan, gpus)
    whose = {place: name for name, places in listed.items() for place in places}
    holders = {unit: find_tenant(node) for unit, node in placed.items()}
    for rack in plan.racks:
        for unit in rack.units:
            node = placed.get(unit.name)
            if unit.kind is not Kind.COMPUTE_TRAY or node is None:
                continue
            tenant = holders[unit.name]
            serves = is_settled(node) and node.id in owed
            if not serves and (tenant or node.placement is Placement.MIXED):
                continue
            own, blockers = find_own(Tray(plan, rack, unit), gpus, partitions)
            unread = [one.detail for one in blockers]
            wrong: list[str] = []
            if serves:
                name = Tray(plan, rack, unit, tenant).partition
                if not listed.get(unit.name) and not unread:
                    unread.append("the manager lists no GPU in its slot")
                wrong += _find_missing(name, own, gpus, partitions)
                wrong += _find_strangers(name, tenant, whose, holders, partitions)
                wrong += _find_elsewhere(name, own, gpus, partitions)
            else:
                wrong += _find_elsewhere("", own, gpus, partitions)
            shown = len(listed.get(unit.name, ()))
            found[node.id] = Drift(unit.name, frozenset(wrong), frozenset(unread), shown)
    return found


def _find_missing(
    name: str, own: frozenset[Place], gpus: Sequence[Gpu], partitions: Sequence[Partition]
) -> Iterator[str]:
    """Yield why a tray's GPUs are not all in its tenant's partition."""
    named = [one for one in partitions if one.name == name]
    if len(named) != 1:
        yield f"{name} is gone" if not named else f"{len(named)} partitions are called {name}"
        return
    (one,) = named
    members = one.members
    if members is None:  # named by ids: what the GPUs say is all there is
        members = frozenset(gpu.place for gpu in gpus if gpu.partition == one.number)
    if missing := own - members:
        yield f"{len(missing)} of its {len(own)} GPUs are not in {name}"
    if one.health != "HEALTHY":
        yield f"{name} says {one.health or 'nothing of its health'}"


def _find_strangers(
    name: str,
    tenant: str,
    whose: Mapping[Place, str],
    holders: Mapping[str, str],
    partitions: Sequence[Partition],
) -> Iterator[str]:
    """Yield whose GPUs are in a tenant's partition, and not that tenant's."""
    members = {p for one in partitions if one.name == name for p in one.members or ()}
    for unit in sorted({whose.get(place, "") for place in members}):
        holder = holders.get(unit, "")
        if not unit:
            yield f"{name} has GPUs of no planned tray that is listed"
        elif holder != tenant:
            yield f"{name} has GPUs of {unit}, which serves {holder or 'nobody we know of'}"


def _find_elsewhere(
    name: str, own: frozenset[Place], gpus: Sequence[Gpu], partitions: Sequence[Partition]
) -> Iterator[str]:
    """Yield the partitions that have a tray's GPUs beside the one of this name. One that serves
    nobody may be in the factory's.
    """
    right = {one.number for one in partitions if one.name == name} if name else {DEFAULT, None}
    for one in partitions:
        taken = (one.members or frozenset()) & own
        if taken and one.number not in right:
            yield f"{len(taken)} of its GPUs are in {one.name or f'partition {one.number}'}"
    for number in sorted({gpu.partition or 0 for gpu in gpus if gpu.place in own}):
        if (number or None) not in right:
            yield f"a GPU of it says {f'partition {number}' if number else 'no partition'}"
