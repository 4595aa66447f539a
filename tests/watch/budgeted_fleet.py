"""A fleet of released nodes whose watch is run for a while, within a budget, under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rig import World
from virtual_time import VirtualClock

from provisioner.control.context import Context
from provisioner.control.watch.watcher import Watcher, WatchParts
from provisioner.execution.actions.reach import Reach
from provisioner.model.certificate import Certificate
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.ports import BmcAddress, Call, Reply, Secret
from provisioner.settings import Settings
from provisioner.store.rows import evidence_rows, node_rows
from provisioner.store.sql_store import open_store

DAY_S = 86400.0


class Fleet:
    """Many BMCs with the tree of one simulated BMC: what it said once is said by all of them, but
    for its clock, which is read anew."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self._world, self._clock = world, clock
        bmc = world.site.machines["su0-n00"].bmcs["host"]
        url = world.site.urls["su0-n00/host"]
        self._one = BmcAddress(url, bmc.username, Secret(bmc.password))
        self._said: dict[tuple[str, bool], Reply] = {}
        self.asked: list[float] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        assert call.method == "GET", "a watch changes nothing"
        self.asked.append(self._clock.now())
        await asyncio.sleep(0.05)
        key = (call.path, bmc.secret is not None)
        if key not in self._said or "/Managers" in call.path:  # a clock goes on
            self._said[key] = await self._world.transport.request(self._one, call)
        return self._said[key]

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return ""

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return None

    async def forget(self, bmc: BmcAddress) -> None:
        return None

    async def close(self) -> None:
        return None


class OnePassword:
    """`Credentials` of a fleet."""

    async def current(self, name: str) -> tuple[str, Secret] | None:
        return "admin", Secret(f"password of {name}")


async def watch_fleet(
    folder: Path, nodes: int, run_s: float, names: Sequence[str] = ("host",), **settings: float
) -> tuple[Fleet, Watcher, int, dict[str, list[float]]]:
    """Watch so many nodes with BMCs of these names for a while.

    Return the fleet, the watch, the number of rows written, and the times of glances per node.
    """
    clock, store = VirtualClock(), open_store(":memory:", inline=True)
    fleet = Fleet(World(folder, 1, 7), clock)
    now = clock.now()

    def fill(connection: Any) -> None:
        for number in range(nodes):
            name = f"n{number:04d}"
            bmcs = tuple(BmcRef(name=b, url=f"https://{name}.{b}.test") for b in names)
            node_rows.add_node(connection, Node(id=name, kind=NodeKind.HOST, state=State.RELEASED,
                                                bmcs=bmcs, certificate=f"c-{name}"))  # fmt: skip
            evidence_rows.put_certificate(
                connection,
                Certificate(id=f"c-{name}", node=name, release="r", profile="p", serials=(),
                            versions=(), boot_id="", location="", ports=(), report_digest="",
                            matrix_digest="", issued_at=now, expires_at=now + 30 * DAY_S),
            )  # fmt: skip

    await store.write(fill)
    glances: dict[str, list[float]] = {}

    async def nobody(_: str) -> None:
        return None

    class Noting(Watcher):
        async def _look(self, node: Node, turns: Any) -> None:
            await super()._look(node, turns)
            glances.setdefault(node.id, []).append(clock.now())

    reach = Reach(fleet, None, OnePassword())  # type: ignore[arg-type]
    parts = WatchParts(store.alerts, lambda: "s")
    context = Context(store, clock, Settings.model_validate(settings))
    watcher = Noting(context, parts, reach, nobody)
    before = await store.read(lambda c: c.connection.total_changes)
    task = asyncio.create_task(watcher.run())
    await clock.sleep(run_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    after = await store.read(lambda c: c.connection.total_changes)
    await store.close()
    return fleet, watcher, after - before, glances
