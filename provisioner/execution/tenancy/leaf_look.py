"""Looks at one leaf for the gate of a release, in looks that callers share.

A caller that comes while a look is being read gets the next one, because the part of its question
may have changed after that part was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from provisioner.execution.actions.reach import SwitchSource
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import LeafState
from provisioner.ports import Clock, PortError
from provisioner.settings import Settings

GATHER_PART = 0.2  # of `switch_gather_s`


class LeafLook:
    """Looks at one leaf. `state` may be called by any number of nodes at once."""

    def __init__(self, source: SwitchSource, clock: Clock, limits: Settings) -> None:
        self._source = source
        self._clock = clock
        self._limits = limits
        self._wanted: set[str] = set()
        self._next: asyncio.Task[LeafState | Blocker] | None = None
        self._reading: set[asyncio.Task[LeafState | Blocker]] = set()

    async def state(self, interfaces: Collection[str]) -> LeafState | Blocker:
        """Return the leaf with at least these ports, read after this was called."""
        self._wanted |= set(interfaces)
        if self._next is None:
            self._next = asyncio.create_task(self._look(), name=f"look at {self._source.name}")
            self._reading.add(self._next)
            self._next.add_done_callback(self._reading.discard)
        return await asyncio.shield(self._next)

    async def heard(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return the devices that one port hears by LLDP; () if the leaf does not report them."""
        try:
            return await (await self._source.open()).read_neighbours(interface)
        except PortError as problem:
            self._source.describe(problem)
            return frozenset()

    async def learned(self) -> Mapping[str, frozenset[str]]:
        """Return port -> MACs learned there; {} if the leaf does not report them."""
        try:
            return await (await self._source.open()).read_macs()
        except PortError as problem:
            self._source.describe(problem)
            return {}

    async def close(self) -> None:
        """Stop looking."""
        tasks = tuple(self._reading)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> LeafState | Blocker:
        try:
            await self._clock.sleep(self._limits.switch_gather_s * GATHER_PART)
        finally:
            interfaces = sorted(self._wanted)
            self._wanted = set()
            self._next = None
        try:
            return await (await self._source.open()).read_state(interfaces)
        except PortError as problem:
            return self._source.describe(problem)
