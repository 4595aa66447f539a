"""A simulated site with a keeper of tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from leaf_rig import Rig

from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.execution.tenancy.release_recheck import TenantSessions
from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.model.tenant import Tenant
from provisioner.planning.places.address_plan import AddressPlan


class World:
    """A simulated site with a keeper; `writes` counts what may change a leaf."""

    def __init__(self) -> None:
        self.rig = Rig(nodes=2, switch_apply_limit_s=60.0)

    async def open(self) -> World:
        await self.rig.open()
        self.keeper = self.new_keeper()
        return self

    def new_keeper(self) -> TenantKeeper:
        """As another process would have it, after a crash."""
        effects = self.rig.effects
        vrfs = VrfIsolation(
            self.rig.store, AddressPlan(), effects.reach, effects.clock, effects.settings
        )
        rig = self.rig
        sessions = TenantSessions(rig.store, effects.reach, rig.clock, effects.settings)
        self.fabric, self.sessions = vrfs.fabric, sessions
        return TenantKeeper(rig.store, rig.clock, [vrfs], vrfs.fabric, sessions.missing)

    async def close(self) -> None:
        await self.keeper.close()
        await self.rig.close()

    def writes(self) -> int:
        return sum(method != "GET" for _, method, _ in self.rig.switches.calls)

    def leaves_with(self, vrf: str) -> int:
        self.rig.site.advance()
        return sum(
            vrf in switch.operational["vrf"]
            for name, switch in self.rig.site.switches.items()
            if name.startswith("leaf")
        )

    async def row(self, name: str) -> Tenant | None:
        return next((t for t in await self.rig.store.tenants.list() if t.name == name), None)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            world = await World().open()
            try:
                await scenario(world)
            finally:
                await world.close()

    asyncio.run(bounded())
