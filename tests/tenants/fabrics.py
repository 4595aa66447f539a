"""Small fabrics, tenants and leaves for the tests of tenants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Outside, Phase, Tenant
from provisioner.model.tenant_network import NetworkLimits, NetworkState, VrfNetwork
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.tenants import PKEY_FIRST
from provisioner.planning.tenancy.vrf_difference import LeafChange
from provisioner.planning.tenancy.vrf_plan import FabricPlan, plan_fabric

BASE = {name: VrfNetwork() for name in ("default", "mgmt", "MAINT", "STORAGE")}
LIMITS = NetworkLimits(vrfs_max=255, tenant_networks=True)


def switch(name: str) -> Node:
    return Node(id=name, kind=NodeKind.SWITCH)


def host(unit: int, index: int, **changes: Any) -> Node:
    return Node(
        id=f"su{unit}-n{index:02}",
        kind=NodeKind.HOST,
        location=Location(scalable_unit=unit, index=index, rack=f"r{index // 4}"),
        **{"state": State.CERTIFIED, **changes},
    )


def two_units() -> FabricPlan:
    """Two leaves in each of two scalable units, one spine."""
    plan = AddressPlan(units=2, rails=2, spines=1, tenants=8)
    leaves = [switch(f"leaf-su{u}-r{r}") for u in range(2) for r in range(2)]
    limits = {leaf.id: LIMITS for leaf in leaves}
    return plan_fabric(plan, [*leaves, switch("spine-0")], limits)


def tenant(name: str = "red", number: int = 0, **changes: Any) -> Tenant:
    return Tenant(
        name=name,
        vrf=name.upper(),
        number=number,
        l3vni=4001 + number,
        pkey=PKEY_FIRST + number,
        **{"phase": Phase.MAKING, **changes},
    )


def session(**changes: Any) -> Outside:
    given = {"switch": "leaf-su0-r0", "peer": "192.0.2.1", "remote_as": 64500}
    return Outside(**{**given, **changes})


def read_leaf(name: str = "leaf-su0-r0", **changes: Any) -> NetworkState:
    vrfs = changes.pop("vrfs", BASE)
    fields = {
        "policies": {},
        "ports_applied": {"swp1s0": "default", "swp33s0": "default"},
        "asn": None,
        "has_evpn": True,
        "has_vxlan": True,
        "vrfs_in_force": frozenset(vrfs),
        "ports": {},
    }
    return NetworkState(name, vrfs, **{**fields, **changes})


def apply(leaf: NetworkState, change: LeafChange) -> NetworkState:
    """The leaf after the change, as a switch would do it."""
    order = change.networks
    vrfs = {v: n for v, n in leaf.vrfs.items() if v not in order.removed_vrfs} | dict(order.vrfs)
    for vrf, imports in order.site_imports.items():
        listed = vrfs[vrf].imported_vrfs - imports.removed | imports.added
        is_on = vrfs[vrf].imports_vrfs or bool(imports.added)
        vrfs[vrf] = replace(vrfs[vrf], imported_vrfs=listed, imports_vrfs=is_on)
    policies = {n: p for n, p in leaf.policies.items() if n not in order.removed_policies}
    return replace(
        leaf,
        vrfs=vrfs,
        policies={**policies, **order.policies},
        vrfs_in_force=frozenset(vrfs),
    )
