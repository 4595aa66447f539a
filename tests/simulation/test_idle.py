"""A daemon with nothing to do asks its database little: transactions are counted, not seconds."""

from __future__ import annotations

from pathlib import Path

import virtual_time
from rig import World

HOUR_S = 3600.0


def count_idle_transactions(folder: Path) -> tuple[int, int]:
    """Return the transactions of an hour in which nothing happens, and the nodes that rest."""

    async def live() -> tuple[int, int]:
        world = World(folder, 1, 1)
        await world.take_in()
        await world.start()
        nodes = await world.settle(24 * HOUR_S)
        lane = world.store.writer
        before = lane.transactions
        await world.clock.sleep(HOUR_S)
        spent = lane.transactions - before
        await world.crash()
        return spent, len(nodes)

    return virtual_time.run(live())


def test_an_idle_hour_costs_few_transactions(tmp_path: Path) -> None:
    spent, nodes = count_idle_transactions(tmp_path)

    # four looks at each node by an operation, and one reading of each leaf a minute; whether the
    # lookups of a reading fall together with a write is the seed's: 1,281 to 1,440 in five seeds
    assert nodes == 13
    assert spent < 1_500
