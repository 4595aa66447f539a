"""Seats and turns of several daemons on one PostgreSQL, which may keep them waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import psycopg
import pytest

from provisioner.control.cluster import Cluster
from provisioner.store.seat import Seat, steady_s

LEASE_S = 2.0  # the seat is sure for three quarters of it
LIMIT_S = 30.0


class Daemon:
    """A seat with its cluster; `ends` records why it would have ended the process."""

    def __init__(self, database: str, name: str) -> None:
        self.ends: list[str] = []
        self.seat = Seat(database, name, "test", LEASE_S)
        self.cluster = Cluster(self.seat, self._end)

    def _end(self, why: str) -> NoReturn:
        self.ends.append(why)
        raise SystemExit(why)


@asynccontextmanager
async def seated(database: str, *names: str) -> AsyncIterator[list[Daemon]]:
    daemons = [Daemon(database, name) for name in names]
    for daemon in daemons:
        await daemon.cluster.start()
    try:
        yield daemons
    finally:
        for daemon in daemons:
            await daemon.cluster.stop()


@pytest.mark.parametrize("table", ["executors", "operations"])
def test_a_lock_on_a_table_that_outlasts_the_lease_ends_no_daemon(database, table):
    async def scenario() -> list[list[str]]:
        async with seated(database, "a", "b") as daemons:
            person = psycopg.connect(database)
            person.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            began = steady_s()
            waiting = [
                asyncio.ensure_future(ask())
                for d in daemons
                for ask in (d.cluster.dead, d.cluster.living, d.cluster.active)
            ]
            while steady_s() < began + 2 * LEASE_S:
                await asyncio.sleep(0.1)
                for daemon in daemons:
                    daemon.cluster.check()
            assert not all(task.done() for task in waiting), "nothing waited for the table"
            await asyncio.wait_for(daemons[0].cluster.take("leaf"), LIMIT_S)  # moves go on
            person.rollback()
            person.close()
            await asyncio.wait_for(asyncio.gather(*waiting), LIMIT_S)
            return [d.ends for d in daemons]

    assert asyncio.run(scenario()) == [[], []]


def test_a_turn_whose_waiter_was_cancelled_is_given_back(database):
    """It was cancelled after the database had been asked, and before the answer was there."""

    async def scenario() -> list[list[str]]:
        async with seated(database, "a", "b") as daemons:
            ours, peer = daemons
            for _ in range(20):
                waiter = asyncio.ensure_future(ours.cluster.take("leaf"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                waiter.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiter
            for cluster in (peer.cluster, ours.cluster):
                await asyncio.wait_for(cluster.take("leaf"), LIMIT_S)
                await cluster.give("leaf")
            return [d.ends for d in daemons]

    assert asyncio.run(scenario()) == [[], []]
