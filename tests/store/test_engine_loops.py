"""A background loop that fails ends the daemon with its reason, instead of standing still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from test_seats import LIMIT_S, seated

from provisioner.control.engine.engine import EmbeddedEngine
from provisioner.control.engine.engine_shared import SharedEngine
from provisioner.model.node import Node, NodeKind
from provisioner.store import open_store


class BrokenQueue:
    """A queue whose named method fails, as a table that is gone or a bug would make it."""

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def _use(self, method: str) -> None:
        if method == self.broken:
            raise LookupError(f"{method} is broken")

    async def open(self, executor: str, run: Callable[[str], Awaitable[None]]) -> None:
        pass

    async def put(self, operation_id: str, *, again: bool = False) -> None:
        self._use("put")

    async def requeue(self, executor: str) -> int:
        self._use("requeue")
        return 0

    async def driven_by(self, living: frozenset[str]) -> frozenset[str]:
        self._use("driven_by")
        return frozenset()

    async def allow(self, count: int) -> None:
        self._use("allow")

    async def forget(self) -> None:
        self._use("forget")

    def close(self) -> None:
        pass


async def idle(_operation: str) -> None:
    """Drive nothing."""


@pytest.mark.parametrize("broken", ["requeue", "driven_by", "allow", "forget"])
def test_a_loop_of_the_shared_engine_that_fails_ends_the_daemon(database, broken):
    async def scenario() -> None:
        store = open_store(database)
        async with seated(database, "a") as [ours]:
            async with seated(database, "b"):
                pass  # a peer that is gone, whose work is to be taken over
            engine = SharedEngine(store, idle, 8, ours.cluster, BrokenQueue(broken))
            await engine.start()
            try:
                await asyncio.wait_for(engine.failed(), LIMIT_S)
            finally:
                await engine.stop()
                await store.close()

    with pytest.raises(LookupError, match=f"{broken} is broken"):
        asyncio.run(scenario())


def test_an_embedded_engine_that_cannot_take_up_what_was_left_ends_the_daemon(tmp_path):
    class Broken(EmbeddedEngine):
        async def submit(self, operation_id: str) -> None:
            raise LookupError("no room")

    async def scenario() -> None:
        store = open_store(":memory:", inline=True)
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        await store.operations.open("n1", "journey", 1.0)
        engine = Broken(store, idle, 8)
        await engine.start()
        try:
            await asyncio.wait_for(engine.failed(), LIMIT_S)
        finally:
            await engine.stop()
            await store.close()

    with pytest.raises(LookupError, match="no room"):
        asyncio.run(scenario())


def test_a_driver_that_only_waits_gives_its_place_to_another():
    order: list[str] = []

    async def scenario() -> None:
        store = open_store(":memory:", inline=True)
        over = asyncio.Event()
        ended = asyncio.Event()

        async def drive(operation: str) -> None:
            order.append(f"{operation} begins")
            if operation == "waits":
                async with engine.away(operation):
                    await over.wait()
                order.append("waits goes on")
                ended.set()
                return
            over.set()
            await asyncio.sleep(0)  # the first one is due, and there is one place
            order.append(f"{operation} ends")

        engine = EmbeddedEngine(store, drive, 1)
        for operation in ("waits", "second", "third"):
            await engine.submit(operation)
        async with asyncio.timeout(LIMIT_S):
            await ended.wait()
        await engine.stop()
        await store.close()

    asyncio.run(scenario())

    begins = ["waits begins", "second begins", "second ends", "third begins", "third ends"]
    assert order == [*begins, "waits goes on"]


def test_a_driver_that_is_stopped_while_it_waits_leaves_no_place_behind():
    begun: list[str] = []

    async def scenario() -> None:
        store = open_store(":memory:", inline=True)

        async def drive(operation: str) -> None:
            begun.append(operation)
            async with engine.away(operation):
                await asyncio.Event().wait()

        engine = EmbeddedEngine(store, drive, 1)
        for operation in ("first", "second"):
            await engine.submit(operation)
        await asyncio.sleep(0.01)
        await engine.stop()
        await engine.submit("third")
        await asyncio.sleep(0.01)
        await engine.stop()
        await store.close()

    asyncio.run(scenario())

    assert begun == ["first", "second", "third"]
