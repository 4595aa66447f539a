"""Read the state of BGP and EVPN for a tenant on its leaves: the last part of "made".

A network that was configured and saved may still carry nothing, or another tenant's routes: only
the leaf's present imports and exports, and established sessions, count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.switch_source import SwitchSource
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.place import TenantPlace
from provisioner.model.tenant import Tenant
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.tenancy import tenant_sessions as rules
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.ports import Clock, PortError, Store, SwitchAddress
from provisioner.settings import Settings

LEAVES_AT_ONCE = 16


class TenantSessions:
    """Looks at leaves; changes nothing."""

    def __init__(self, store: Store, reach: Reach, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._reach = reach
        self._clock = clock
        self._settings = settings

    async def missing(self, tenant: Tenant, fabric: FabricPlan) -> tuple[Blocker, ...]:
        """Return the parts that are missing on the tenant's leaves within `switch_apply_limit_s`;
        () if none.

        Routes and sessions take seconds after a revision: they are given the revision's limit.
        """
        assert tenant.number is not None
        target = Addressing(fabric.plan).get_route_target(TenantPlace(tenant.number))
        unproved: Sequence[str] = [leaf.switch for leaf in fabric.select_leaves(tenant)]
        until = self._clock.now() + self._settings.switch_apply_limit_s
        slots = asyncio.Semaphore(LEAVES_AT_ONCE)

        async def looked(switch: str) -> tuple[Blocker, ...]:
            async with slots:
                return await self._leaf(tenant, switch, target)

        while True:
            outcomes = await asyncio.gather(*map(looked, unproved))
            unproved = [switch for switch, no in zip(unproved, outcomes, strict=True) if no]
            if not unproved or self._clock.now() >= until:
                return tuple(blocker for no in outcomes for blocker in no)
            await self._clock.sleep(self._settings.switch_poll_s)

    async def _leaf(self, tenant: Tenant, switch: str, target: str) -> tuple[Blocker, ...]:
        async def lookup() -> SwitchAddress | Blocker:
            node = await self._store.nodes.get(switch)
            return _gone(switch) if node is None else await self._reach.switch(node)

        source = SwitchSource(switch, lookup, self._reach.switches, self._clock, self._settings)
        try:
            opened = await source.open()
            routing = await opened.read_tenant_routing(tenant.vrf, str(tenant.l3vni))
        except PortError as problem:
            return (source.describe(problem),)
        return rules.find_leaf_differences(
            tenant, switch, target, routing.targets, routing.sessions
        )


def _gone(switch: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_EXPECTED,
        subject=switch,
        detail=f"no switch {switch} is known",
        unblock="Take it in.",
    )
