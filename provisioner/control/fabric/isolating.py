"""Puts together how tenants are kept apart: who moves ports, and who makes tenants' networks."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.execution.actions.work import Site
from provisioner.execution.tenancy.partition_tenancy import PartitionTenancy
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.tenancy.tenant_sessions import TenantSessions
from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Isolation, Partitions, Store


@dataclass(frozen=True)
class Fabrics:
    """A site's fabrics. `partitions`: UFM's, on InfiniBand; the caller that opened it closes it."""

    plan: AddressPlan
    partitions: Partitions | None = None


def tenancy_of(site: Site, store: Store, fabrics: Fabrics | None) -> Tenancy:
    """Return the mover of a node's ports: the leaves, or with `isolation: infiniband` UFM beside
    them.
    """
    leaves = Tenancy(site, store, None if fabrics is None else fabrics.plan)
    if site.settings.isolation == "vrf":
        return leaves
    assert fabrics is not None
    assert fabrics.partitions is not None
    return PartitionTenancy(leaves, fabrics.partitions, store)


def keeper_of(site: Site, store: Store, fabrics: Fabrics | None) -> TenantKeeper | None:
    """Return the keeper of tenants' networks; None without the site's address plan."""
    if fabrics is None:
        return None
    vrfs = VrfIsolation(store, fabrics.plan, site.reach, site.clock, site.settings)
    sessions = TenantSessions(store, site.reach, site.clock, site.settings)
    isolations: list[Isolation] = [vrfs]
    if fabrics.partitions is not None:
        isolations.append(fabrics.partitions)
    return TenantKeeper(
        store, site.clock, isolations, vrfs.fabric, sessions.missing, fabrics.partitions
    )
