"""All that is due is looked at, as soon as there is room: no round bounds how many."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.control.watch.watched_nodes import ReadQueue
from provisioner.ports import StoreFailed


def test_what_waits_begins_when_another_one_ends() -> None:
    begun: list[str] = []
    most: list[int] = []

    async def look(name: str) -> None:
        begun.append(name)
        most.append(len(lane.running))
        await asyncio.sleep(0)
        if name == "n3":
            raise ValueError(name)  # one that fails keeps no place

    lane = ReadQueue(4, lambda name: None if name == "n7" else look(name))
    names = [f"n{number}" for number in range(300)]

    async def main() -> None:
        lane.due(names)
        async with asyncio.timeout(30):
            while lane.running:
                await asyncio.wait(list(lane.running.values()))

    asyncio.run(main())
    assert begun == [name for name in names if name != "n7"]
    assert max(most) == 4


def test_what_waits_is_forgotten_at_the_next_round_and_at_the_end() -> None:
    begun: list[str] = []

    async def look(name: str) -> None:
        begun.append(name)
        await asyncio.sleep(3600)

    async def main() -> None:
        lane = ReadQueue(2, look)
        lane.due(["a", "b", "c"])
        await asyncio.sleep(0)
        lane.due(["d", "e"])
        lane.running["a"].cancel()
        await asyncio.sleep(0.01)
        await lane.close()
        assert not lane.running

    asyncio.run(main())
    assert begun == ["a", "b", "d"]


def test_a_store_that_fails_in_a_look_ends_the_next_round() -> None:
    async def look(_name: str) -> None:
        raise StoreFailed("disk I/O error")

    async def main() -> None:
        lane = ReadQueue(2, look)
        lane.due(["a"])
        await asyncio.gather(*lane.running.values(), return_exceptions=True)
        await asyncio.sleep(0)
        with pytest.raises(StoreFailed, match="disk I/O error"):
            lane.due(["b"])

    asyncio.run(main())
