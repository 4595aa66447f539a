"""Two units' leaves on paper: they have the VRFs that they were brought, and show new lines."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import Phase, Tenant
from provisioner.model.tenant_network import NetworkLimits
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_plan import FabricPlan, plan_fabric
from provisioner.ports.isolation import FabricDelta, FabricStep

NAMES = tuple(f"leaf-su{unit}-r{rail}" for unit in (1, 2) for rail in range(2))


async def paper_plan() -> FabricPlan:
    plan = AddressPlan(units=3, rails=2, spines=1, tenants=16)
    leaves = [Node(id=name, kind=NodeKind.SWITCH) for name in (*NAMES, "spine-0")]
    limits = dict.fromkeys(NAMES, NetworkLimits(vrfs_max=255, tenant_networks=True))
    return plan_fabric(plan, leaves, limits)


class PaperLeaves:
    """Implements `ports.isolation` as far as tenants' networks go."""

    def __init__(self) -> None:
        self.vrfs: set[str] = set()

    async def delta(self, tenants: Sequence[Tenant], only: Sequence[str] = ()) -> FabricDelta:
        lines = []
        for tenant in (t for t in tenants if not only or t.name in only):
            if tenant.phase is Phase.LEAVING and tenant.vrf in self.vrfs:
                lines.append(f"nv unset vrf {tenant.vrf}")
            elif tenant.phase is Phase.MAKING and tenant.vrf not in self.vrfs:
                lines.append(f"nv set vrf {tenant.vrf} evpn vni {tenant.l3vni}")
        if not lines:
            return FabricDelta()
        return FabricDelta(steps=tuple(FabricStep(name, tuple(lines)) for name in NAMES))

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        for line in delta.steps[0].lines if delta.steps else ():
            words = line.split()
            if words[1] == "set":
                self.vrfs.add(words[3])
            else:
                self.vrfs.discard(words[3])
        return ()

    async def close(self) -> None:
        """Nothing is open."""
