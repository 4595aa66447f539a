"""Small fabrics, tenants and leaves for the tests of tenants."""

from __future__ import annotations

import copy
from typing import Any

from provisioner.model.location import Location
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Outside, Phase, Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.tenants import PKEY_FIRST
from provisioner.planning.tenancy.vrf_difference import LeafChange
from provisioner.planning.tenancy.vrf_obstacles import SeenLeaf
from provisioner.planning.tenancy.vrf_plan import FabricPlan, plan_fabric

BASE: dict[str, Any] = {
    "evpn": {"enable": "on"},
    "nve": {"vxlan": {"enable": "on"}},
    "interface": {"swp1s0": {"type": "swp"}, "swp33s0": {"type": "swp"}},
    "vrf": {"default": {}, "mgmt": {}, "MAINT": {}, "STORAGE": {}},
}


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
    return plan_fabric(plan, [*leaves, switch("spine-0")])


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


def seen(
    name: str = "leaf-su0-r0", applied: Any = None, ports: dict[str, str] | None = None
) -> SeenLeaf:
    tree = copy.deepcopy(BASE if applied is None else applied)
    return SeenLeaf(name, tree, frozenset(tree.get("vrf", {})), ports or {})


def apply(leaf: SeenLeaf, change: LeafChange) -> SeenLeaf:
    """What the leaf is after the change, as a switch would do it."""
    tree: Any = copy.deepcopy(dict(leaf.applied))
    for path in change.unset:
        inner = tree
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
    _merge(tree, change.wanted)
    return SeenLeaf(leaf.switch, tree, frozenset(tree["vrf"]), leaf.ports)


def _merge(tree: dict[str, Any], more: Any) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _merge(tree.setdefault(key, {}), value)
        else:
            tree[key] = value
