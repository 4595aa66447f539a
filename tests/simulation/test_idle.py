"""A daemon with nothing to do asks its database little: transactions are counted, not seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import virtual_time
from branches import branch, certified_host
from rig import World
from test_returns import want

from provisioner.model.outcome import Reason

HOUR_S = 3600.0
OPERATIONS = 1000  # more than there are


async def make_idle(folder: Path) -> World:
    """Return a site of one host and twelve leaves, which all rest in service."""
    world = World(folder, 1, 1)
    await world.take_in()
    await world.start()
    await world.settle(24 * HOUR_S)
    return world


async def count_hour(world: World) -> int:
    """Return the transactions of an hour in which nothing happens."""
    before = world.store.writer.transactions
    await world.clock.sleep(HOUR_S)
    return world.store.writer.transactions - before


async def list_operations(world: World) -> list[str]:
    """Return the operations that there ever were."""
    listed = await world.store.operations.list_page(limit=OPERATIONS)
    return [o.id for o in listed]


def count_idle_transactions(folder: Path) -> tuple[int, int]:
    """Return the transactions of an hour in which nothing happens, and the nodes that rest."""

    async def live() -> tuple[int, int]:
        world = await make_idle(folder)
        spent = await count_hour(world)
        nodes = await world.store.nodes.list()
        await world.crash()
        return spent, len(nodes)

    return virtual_time.run(live())


def test_looks_write_only_where_something_changed_and_end_before_a_driver() -> None:
    async def live(world: World) -> None:
        await want(world, 1)
        await world.settle(24 * HOUR_S)
        daemon = world.daemon
        assert daemon is not None
        nodes = await world.store.nodes.list()
        before = await list_operations(world)

        spent = await count_hour(world)
        assert len(nodes) == 13
        # one reading of each answer that looks, leaves' readings and logins ask for: nothing is
        # written, so that all later ones come from memory
        assert spent < 200
        assert await list_operations(world) == before

        leaf = next(n for n in nodes if n.id.startswith("leaf"))
        daemon.looks.begin(leaf)
        await asyncio.sleep(0)
        assert leaf.id in daemon.looks.under_way
        operation = await world.store.operations.open(leaf.id, "released", world.clock.now())
        assert operation is not None
        await daemon.engine.submit(operation.id)
        while operation is not None and operation.epoch == 0:  # until its driver has taken it
            await asyncio.sleep(0)
            operation = await world.store.operations.get(operation.id)
        await asyncio.sleep(0)
        assert leaf.id not in daemon.looks.under_way  # its driver alone reads it now

        await world.settle(HOUR_S)
        switch = world.site.switches[leaf.id]
        switch.partitions[switch.current] = "5.9.9"  # by a foreign hand
        await world.clock.sleep(HOUR_S)
        changed = await world.store.nodes.get(leaf.id)
        assert changed is not None
        assert [b.reason for b in changed.blockers] == [Reason.DRIFT]
        assert len(await list_operations(world)) == len(before) + 2
        await world.crash()

    branch(certified_host, live)
