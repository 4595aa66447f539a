"""A daemon's watch whose looks are written down instead of sent; run by `test_shared_looks.py`.

    python looking_daemon.py DATABASE NAME LEASE_S INTERVAL_S

Its seat, its shards, the order of its looks and the permit that each asks for are a daemon's own.
It prints each look as JSON: the node, when it was due, when it began by the database's clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any, NoReturn

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.control.context import Context
from provisioner.control.engine.cluster import Cluster, SharedTime
from provisioner.control.watch.shards import Shards
from provisioner.control.watch.watched_nodes import Turns
from provisioner.control.watch.watcher import Watcher, WatchParts
from provisioner.daemon.cluster import LOST
from provisioner.execution.actions.reach import Reach
from provisioner.model.node import Node
from provisioner.planning.watch import watch_rules
from provisioner.runtime import permit
from provisioner.runtime.database_clock import DatabaseClock
from provisioner.settings import Settings
from provisioner.store import open_store
from provisioner.store.database.seat import Seat


class Looking(Watcher):
    """A watch that writes each look down. A look takes a while, as one at BMCs does."""

    async def _look(self, node: Node, turns: Turns) -> None:
        due, now = turns.glance_at, self._clock.now()
        permit.ask(writes=False)  # as every request to a device does
        print(json.dumps({"node": node.id, "due": due, "at": now}), flush=True)  # noqa: T201
        interval_s = self._settings.watch_node_s
        turns.glance_at = watch_rules.find_later_turn(node.id, interval_s, due, now)
        await asyncio.sleep(0.2)


async def nobody(_operation: str) -> None:
    """No operation is opened here."""


def end(_why: str) -> NoReturn:
    os._exit(LOST)


async def main(database: str, name: str, lease_s: float, interval_s: float, ahead_s: float) -> None:
    settings = Settings(watch_node_s=interval_s, watch_s=1e9, watch_parts_s=1e9, watch_first_s=0.0)
    clock = DatabaseClock()
    seat = Seat(database, name, "test", lease_s, lambda: time.time() + ahead_s)
    cluster = Cluster(seat, end, SharedTime(clock, 60.0))
    await cluster.start()
    store = open_store(database)
    shards = Shards(store, clock, cluster)
    nothing: Any = None  # no device is reached
    reach = Reach(RedfishTransport(), nothing, nothing)
    parts = WatchParts(store.alerts, lambda: "")
    watcher = Looking(Context(store, clock, settings), parts, reach, nobody, shards=shards)
    await asyncio.gather(shards.run(), watcher.run(), cluster.failed())


if __name__ == "__main__":
    url, name, *numbers = sys.argv[1:]
    asyncio.run(main(url, name, *map(float, numbers)))
