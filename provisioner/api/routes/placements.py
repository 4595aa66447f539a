"""Routes of the places of tenants: units and racks, exchanges to offer, InfiniBand partitions."""

from __future__ import annotations

from collections import Counter

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import ANYBODY, VIEWERS, Route
from provisioner.model.base import Record
from provisioner.model.integrations.partition import FabricPartitions
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant_network import TenantFilters
from provisioner.planning.tenancy.allocation import find_area, is_coming
from provisioner.planning.tenancy.placement import RACK, UNIT
from provisioner.planning.tenancy.spares import Exchange, propose_exchanges


class TenantPlaces(Record):
    """The places of one tenant's nodes."""

    tenant: str
    nodes: int
    units: int = Field(description="Scalable units in which it stands.")
    racks: int = Field(description="Racks in which it stands.")
    wanted: int = Field(description="Nodes that it waits for or has.")


class UnitPlaces(Record):
    """The nodes of one scalable unit that no tenant has."""

    pod: int
    unit: int
    nodes: int
    free: int = Field(description="Certified nodes without a tenant.")
    coming: int = Field(description="Nodes without a tenant on their way to a certificate.")


class Placements(Record):
    """Where tenants stand, what is free, and exchanges that tenants may be offered."""

    tenants: tuple[TenantPlaces, ...]
    units: tuple[UnitPlaces, ...]
    exchanges: tuple[Exchange, ...]


async def show_placement(ask: Ask) -> Reply:
    """Return the places of all tenants, with the exchanges that would bring them together."""
    nodes = await ask.parts.store.nodes.list()
    tenants = await ask.parts.store.tenants.list()
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    rows = []
    for tenant in tenants:
        areas = [find_area(n) for n in hosts if n.tenant == tenant.name]
        rows.append(
            TenantPlaces(
                tenant=tenant.name,
                nodes=len(areas),
                units=len({a[:UNIT] for a in areas}),
                racks=len({a[:RACK] for a in areas}),
                wanted=tenant.nodes_wanted,
            )
        )
    units = _count_units(hosts, ask.parts.clock.now())
    exchanges = propose_exchanges(hosts, tenants)
    return Reply(Placements(tenants=tuple(rows), units=units, exchanges=exchanges))


def _count_units(hosts: list[Node], now: float) -> tuple[UnitPlaces, ...]:
    def count(chosen: list[Node]) -> Counter[tuple[int, int]]:
        return Counter((n.location.pod, n.location.scalable_unit) for n in chosen)

    total = count(hosts)
    free = count([n for n in hosts if n.state is State.CERTIFIED and not n.tenant])
    coming = count([n for n in hosts if is_coming(n, now)])
    return tuple(
        UnitPlaces(pod=pod, unit=unit, nodes=n, free=free[pod, unit], coming=coming[pod, unit])
        for (pod, unit), n in sorted(total.items())
    )


async def list_partitions(ask: Ask) -> Reply:
    """Return the InfiniBand partitions as UFM lists them now."""
    listed = await ask.parts.keeper.list_partitions()
    if listed is None:
        raise refuse_missing("fabric with partitions")
    return Reply(listed)


async def show_filters(ask: Ask) -> Reply:
    """Read the filters of security groups on the tenant's ports from every leaf of it."""
    return Reply(await ask.parts.keeper.read_filters(await ask.read_tenant()))


ROUTES = (
    Route(
        "GET",
        "/tenants/{tenant}/filters",
        "show_tenant_filters",
        "tenants",
        "Read the filters of a tenant's security groups on the ports of its nodes.",
        ANYBODY,
        show_filters,
        {200: TenantFilters},
        heavy=True,
    ),
    Route(
        "GET",
        "/placement",
        "show_placement",
        "tenants",
        "Show where tenants stand, what is free, and exchanges that would bring nodes together.",
        VIEWERS,
        show_placement,
        {200: Placements},
        heavy=True,
    ),
    Route(
        "GET",
        "/fabric/partitions",
        "list_partitions",
        "tenants",
        "List InfiniBand partitions with their tenants, and the keys of the subnet manager.",
        VIEWERS,
        list_partitions,
        {200: FabricPartitions},
        refusals={404: "This site has no InfiniBand fabric."},
        heavy=True,
    ),
)
