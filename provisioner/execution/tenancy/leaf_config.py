"""One leaf's configuration of tenants: looked at, changed by one revision, proved and saved.

Rule: a try begins with a look, and only the missing part is sent, so that a lost answer or a crash
is repaired by trying again. Ports are `execution/tenancy/leaf.py`'s; this makes and removes VRFs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from provisioner.execution.actions.reach import SwitchSource, turn
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant_network import NetworkState
from provisioner.planning.tenancy.vrf_difference import (
    LeafChange,
    find_missing_change,
    find_unproved,
    list_occupied,
)
from provisioner.ports import Clock, PortError, Switch, SwitchRefused
from provisioner.settings import Settings

TRIES_MAX = 3  # a lost answer, then a change that raced with another writer's


class LeafConfig:
    """One switch. Methods raise nothing that the world does."""

    def __init__(self, source: SwitchSource, clock: Clock, limits: Settings) -> None:
        self.name = source.name
        self._source = source
        self._clock = clock
        self._limits = limits

    async def look(self, vrfs: Collection[str] = ()) -> NetworkState | Blocker:
        """Return its configuration, VRFs, the VRF of each port, and the VNIs of `vrfs`."""
        try:
            return await (await self._source.open()).read_networks(vrfs)
        except PortError as problem:
            return self._source.describe(problem)

    async def bring(self, change: LeafChange) -> tuple[Blocker, ...]:
        """Carry a change out; () if the switch does it, and will after its next start."""
        async with turn(self.name):
            return await self._bring(change)

    async def _bring(self, change: LeafChange) -> tuple[Blocker, ...]:
        problem: Blocker | None = None
        for attempt in range(TRIES_MAX):
            if attempt:
                await self._clock.sleep(self._limits.switch_poll_s * 2**attempt)
            try:
                switch = await self._source.open()
                state = await switch.read_networks(())
                if inside := tuple(list_occupied(state, change.absent)):
                    return inside
                missing = find_missing_change(change.networks, state)
                if not missing.empty:
                    await switch.apply_networks(missing)
                if not await switch.is_saved():
                    await switch.save_configuration()
                unproved = await self._prove(switch, change)
            except SwitchRefused as refused:
                return (self._source.describe(refused),)
            except PortError as error:
                problem = self._source.describe(error)
            else:
                return unproved
        assert problem is not None
        return (problem,)

    async def _prove(self, switch: Switch, change: LeafChange) -> tuple[Blocker, ...]:
        """Return the first difference that stays for `switch_apply_limit_s`; () if none does."""
        unproved: tuple[Blocker, ...] = ()

        async def holds() -> bool:
            nonlocal unproved
            state = await switch.read_networks(change.present)
            unproved = find_unproved(change, state)
            if not unproved and not find_missing_change(change.networks, state).empty:
                unproved = (self._no(Reason.ISOLATION, "the applied change is not in force"),)
            return not unproved

        return () if await self._until(holds) else unproved[:1]

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        until = self._clock.now() + self._limits.switch_apply_limit_s
        while not await holds():
            if self._clock.now() >= until:
                return False
            await self._clock.sleep(self._limits.switch_poll_s)
        return True

    def _no(self, reason: Reason, detail: str) -> Blocker:
        return Blocker(
            reason=reason,
            subject=self.name,
            detail=detail,
            unblock="Look at the switch's revisions and log, then ask again.",
        )
