"""The store fails once in the middle of a journey: the daemon ends, and nobody is blamed for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from acts import repeated
from rig import World

from provisioner.model.node import State
from provisioner.ports import StoreFailed

HOST = "su0-n00"
DAY_S = 86_400.0


class Failing:
    """A lane that fails one transaction, before it or behind its commit."""

    def __init__(self, inner: Any, number: int, *, kept: bool) -> None:
        self._inner, self._left, self._kept = inner, number, kept

    async def run(self, work: Any) -> Any:
        self._left -= 1
        if self._left:
            return await self._inner.run(work)
        if self._kept:
            await self._inner.run(work)
        raise StoreFailed("the database failed: disk I/O error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def lives(world: World, until: float) -> str:
    """One daemon, until it ends by itself or everything rests; why it ended."""
    await world.start()
    assert world.daemon is not None
    ending = asyncio.create_task(world.daemon.wait())
    resting = asyncio.create_task(world.settle(until - world.clock.now()))
    await asyncio.wait((ending, resting), return_when=asyncio.FIRST_COMPLETED)
    why = str(ending.exception()) if ending.done() else ""
    for task in (ending, resting):
        task.cancel()
    await world.crash()
    return why


LONG = [(30, False), (140, True), (200, False), (320, False), (450, True)]


@pytest.mark.parametrize(
    ("number", "kept"),
    [(80, True), *(pytest.param(*more, marks=pytest.mark.long) for more in LONG)],
)
def test_a_store_that_fails_once_ends_the_daemon_and_blames_no_node(
    tmp_path: Path, number: int, kept: bool
) -> None:
    world = World(tmp_path, nodes=1, seed=number)

    async def scenario() -> tuple[str, str, list[str], list[str]]:
        await world.take_in()
        lane = world.store.writer
        failing = Failing(lane, number, kept=kept)
        world.store.writer = world.store.reader = failing  # type: ignore[assignment]
        first = await lives(world, world.clock.now() + DAY_S)
        second = await lives(world, world.clock.now() + DAY_S)
        blamed = [
            str(r["kind"])
            for r in await world.store.journal.list(limit=100_000)
            if r["kind"] == "parked"
        ]
        wrong = await world.violations()
        for node in await world.store.nodes.list():
            wrong += repeated(
                world.site, node.id, await world.store.operations.list_entries(node.id)
            )
            wrong += [f"{node.id}: {node.state}"] * (node.state is not State.RELEASED)
        return first, second, blamed, wrong

    first, second, blamed, wrong = virtual_time.run(scenario())

    assert "disk I/O error" in first
    assert (second, blamed, wrong) == ("", [], [])
