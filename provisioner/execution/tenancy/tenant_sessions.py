"""Reads what BGP and EVPN do for a tenant on its leaves: the last part of "made".

A network that was configured and saved may still carry nothing, or another tenant's routes: only
what the leaf imports and exports now, and sessions that stand, are believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from provisioner.execution.actions.reach import Reach
from provisioner.execution.tenancy.leaf_line import LeafLine, Refused
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.place import TenantPlace
from provisioner.model.tenant import Tenant
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.tenancy import tenant_sessions as rules
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.ports import Clock, PortError, Store, SwitchAddress
from provisioner.settings import Settings
from provisioner.switches.cumulus import PREFIX

LEAVES_AT_ONCE = 16


class TenantSessions:
    """Looks at leaves; changes nothing."""

    def __init__(self, store: Store, reach: Reach, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._reach = reach
        self._clock = clock
        self._settings = settings

    async def missing(self, tenant: Tenant, fabric: FabricPlan) -> tuple[Blocker, ...]:
        """What is not so yet on the tenant's leaves, within `switch_apply_limit_s`; () if all is.

        Routes and sessions take seconds after a revision: they are given the revision's limit.
        """
        assert tenant.number is not None
        target = Addressing(fabric.plan).get_route_target(TenantPlace(tenant.number))
        left: Sequence[str] = [leaf.switch for leaf in fabric.select_leaves(tenant)]
        until = self._clock.now() + self._settings.switch_apply_limit_s
        slots = asyncio.Semaphore(LEAVES_AT_ONCE)

        async def looked(switch: str) -> tuple[Blocker, ...]:
            async with slots:
                return await self._leaf(tenant, switch, target)

        while True:
            found = await asyncio.gather(*map(looked, left))
            left = [switch for switch, no in zip(left, found, strict=True) if no]
            if not left or self._clock.now() >= until:
                return tuple(blocker for no in found for blocker in no)
            await self._clock.sleep(self._settings.switch_poll_s)

    async def _leaf(self, tenant: Tenant, switch: str, target: str) -> tuple[Blocker, ...]:
        async def lookup() -> SwitchAddress | Blocker:
            node = await self._store.node(switch)
            return _gone(switch) if node is None else await self._reach.switch(node)

        line = LeafLine(switch, lookup, self._reach.switches, self._clock)
        vni, vrf = str(tenant.l3vni), quote(tenant.vrf, safe="")
        try:
            told = await _read(line, f"/evpn/vni/{vni}/bgp-info")
            sessions = await _read(line, f"/vrf/{vrf}/router/bgp/neighbor")
        except (PortError, Refused) as problem:
            return (line.blocker(problem),)
        states = rules.read_states({} if sessions is None else sessions)
        return rules.find_leaf_differences(tenant, switch, target, rules.read_targets(told), states)


async def _read(line: LeafLine, path: str) -> Any:
    """What is operational at this path; None where there is nothing."""
    try:
        return await line.get(f"{PREFIX}{path}?rev=operational")
    except Refused as refused:
        if "status 404" in str(refused):
            return None
        raise


def _gone(switch: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_EXPECTED,
        subject=switch,
        detail=f"no switch {switch} is known",
        unblock="Take it in.",
    )
