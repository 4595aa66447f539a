"""A node that serves a tenant, a daemon that repairs, and the words for what happens to them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import virtual_time
from rig import World
from test_returns import want

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.daemon.daemon import Daemon
from provisioner.model.case import Case, Origin, Stage
from provisioner.model.node import Node, State

HOUR_S = 3600.0
HOST = "su0-n00"
Result = TypeVar("Result")


class Shop:
    """A world whose daemon repairs; it may be killed and started again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = world.store.cases
        self.daemon: Daemon | None = None
        self.background: asyncio.Task[None] | None = None  # of a story, ended with the world

    async def start(self) -> None:
        """A daemon with cases, on the parts of the rig's."""
        await self.stop()
        await self.world.start()
        assert self.world.daemon is not None
        await self.world.daemon.stop()
        parts = dataclasses.replace(self.world.daemon.parts, cases=self.book)
        self.daemon = self.world.daemon = Daemon(parts)
        await self.daemon.start()

    async def stop(self) -> None:
        if self.daemon is not None:
            await self.daemon.stop()
            self.daemon = None

    @property
    def case_service(self) -> CaseService:
        world = self.world
        return CaseService(Context(world.store, world.clock, world.settings), self.book, None)

    async def node(self) -> Node:
        found = await self.world.store.nodes.get(HOST)
        assert found is not None
        return found

    async def report(self, reason: str, origin: Origin = Origin.OPERATOR) -> Case:
        """Somebody reports a fault."""
        case = await self.case_service.open(await self.node(), origin, reason, "somebody")
        assert isinstance(case, Case), case
        return case

    async def newest(self) -> Case:
        """The node's newest case."""
        cases = await self.book.list(HOST)
        assert cases, "there is no case"
        return cases[0]

    async def until(
        self, seen: Callable[[Node, Case], bool], limit_s: float = 48 * HOUR_S
    ) -> tuple[Node, Case]:
        """Let time pass until node and newest case look so."""
        end = self.world.clock.now() + limit_s
        while self.world.clock.now() < end:
            await self.world.clock.sleep(20.0)
            cases = await self.book.list(HOST)
            if cases and seen(await self.node(), cases[0]):
                return await self.node(), cases[0]
        cases = await self.book.list(HOST)
        raise AssertionError((await self.node(), cases[:1]))

    async def ended(self, limit_s: float = 48 * HOUR_S) -> tuple[Node, Case]:
        """Until the case is closed or waits for people."""

        def resting(_node: Node, case: Case) -> bool:
            return case.stage in (Stage.CLOSED, Stage.HARDWARE)

        return await self.until(resting, limit_s)

    def broken(self, preset: str, part: str = "") -> None:
        """Put a fault of the catalogue on the host."""
        from provisioner.integrations.sim.site.control import inject_fault

        inject_fault(self.world.site, preset, HOST, part)


def lived(
    directory: Path,
    story: Callable[[Shop], Awaitable[Result]],
    *,
    wanted: int = 1,
    **settings: float | str | bool,
) -> tuple[Result, list[str]]:
    """A node that serves, then the story; its result, and what must never be."""

    async def main() -> tuple[Result, list[str]]:
        world = World(directory, nodes=1, seed=5, **settings)  # type: ignore[arg-type]
        await world.take_in()
        await want(world, wanted)
        shop = Shop(world)
        await shop.start()
        wished = State.RELEASED if wanted else State.CERTIFIED
        end = world.clock.now() + 24 * HOUR_S
        while (await shop.node()).state is not wished and world.clock.now() < end:
            await world.clock.sleep(20.0)
        assert (await shop.node()).state is wished, await shop.node()
        told = await story(shop)
        if shop.background is not None:
            shop.background.cancel()
        wrong = await world.violations()
        await shop.stop()
        return told, wrong

    return virtual_time.run(main())
