"""A journey from cabled to a tenant and on to the next one, and its forks that die at a point.

The journey itself meets every point and dies at none. At a chosen one the process forks: in the
child the daemon is gone, a new one starts on what the store holds, and the leg is gone to its end
and judged. So no point costs the way to it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import select
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import virtual_time
from points import CrashLane, Lives, Place, trace
from returned import HOST, SECRET
from rig import World
from test_erasure_crashes import wrongs
from test_journeys import HOUR_S, misdeeds

from provisioner.execution import leaf_turns
from provisioner.model.node import Node, State
from provisioner.model.tenant import Tenant
from provisioner.planning.requests import reclaim
from provisioner.store.vault import Vault

LEGS = ("blue", "red")  # tenants; before the second one every disk is erased
LIMIT_S = 24 * HOUR_S  # virtual, for a leg with a death in it: one without takes two hours
CPU_LIMIT_S = 300  # of a child, beside which it has no verdict: it goes in circles
ANSWER_MAX = 65_536


@dataclass
class Run:
    """What came of a journey and its deaths."""

    points: dict[Place, int] = field(default_factory=dict)  # and how often each was passed
    verdicts: dict[Place, str] = field(default_factory=dict)  # of those died at; "": all is well
    wrong: str = ""  # with the journey that nobody died on


class Fork:
    """Children that died at a point, at most `jobs` at once."""

    def __init__(self, run: Run, jobs: int) -> None:
        self.run, self.jobs = run, jobs
        self.answers: dict[int, tuple[int, Place]] = {}  # pipe -> child, where it died
        self.pipe = -1  # in a child: where its verdict goes
        self.deaths = 0

    def here(self, place: Place) -> bool:
        """True in the child. The parent waits until there is room for another one."""
        while len(self.answers) >= self.jobs:
            self.collect()
        self.deaths += 1
        ours, theirs = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
            self.pipe = theirs
            return True
        os.close(theirs)
        self.answers[ours] = child, place
        return False

    def collect(self) -> None:
        """Wait for one child's verdict."""
        ready, _, _ = select.select(list(self.answers), [], [])
        for pipe in ready:
            child, place = self.answers.pop(pipe)
            told = b""
            while part := os.read(pipe, ANSWER_MAX):
                told += part
            os.close(pipe)
            os.waitpid(child, 0)
            verdict = told.decode(errors="replace")
            self.run.verdicts[place] = verdict[1:] if verdict else "it ended without a verdict"

    def end(self, verdict: str) -> None:
        """In a child: tell, and be gone."""
        os.write(self.pipe, b"." + verdict.encode()[: ANSWER_MAX - 1])
        os._exit(0)


class Journey:
    """A site of one host and twelve switches, and the daemon that may die."""

    def __init__(self, directory: Path, run: Run, chosen: Callable[[int, Place], bool]) -> None:
        self.world = World(directory, nodes=1, seed=5)
        self.run, self.chosen = run, chosen
        self.lives = Lives()
        self.dead = asyncio.Event()
        store = self.world.store
        self._rows = store.writer._connection.connection.driver_connection  # type: ignore
        store.writer = store.reader = CrashLane(store.writer)  # type: ignore[assignment]

    async def go(self, fork: Fork, legs: int, deaths_max: int) -> str:
        """The journey; everything that is wrong with it. It is left off after so many deaths."""
        self.fork = fork
        self.lives.met = self._met
        trace(asyncio.get_running_loop(), self.lives)
        await self.world.take_in()
        await self._begin()
        reviving = asyncio.ensure_future(self._revive())
        wrong: list[str] = []
        for leg, tenant in enumerate(LEGS[:legs]):
            wrong += await self._leg(leg, tenant, deaths_max)
            if self.dead.is_set() or self._enough(deaths_max):
                break
        reviving.cancel()
        return "; ".join(wrong)

    def _enough(self, deaths_max: int) -> bool:
        return not self.dead.is_set() and self.fork.deaths >= deaths_max

    async def _begin(self) -> None:
        """A daemon, with nothing from an earlier one but the store and the key."""
        self.lives.now += 1
        context = self.lives.context()
        self.world.vault = Vault(self.world.store, self.world.vault._key)
        await asyncio.get_running_loop().create_task(self.world.start(), context=context)

    async def _revive(self) -> None:
        await self.dead.wait()
        await self._begin()

    def _met(self, waits: Place) -> None:
        """A task of the daemon waits for something: fork, if nobody was here before."""
        node, *lines = waits
        state = self._rows.execute("SELECT state FROM nodes WHERE id = ?", (node,)).fetchone()
        place = (node.split("-")[0], str(state[0]) if state else "", *lines)
        seen = self.run.points.get(place, 0)
        self.run.points[place] = seen + 1
        if seen or not self.chosen(len(self.run.points), place):
            return
        loop = asyncio.get_running_loop()
        if self.fork.here(place):
            asyncio._set_running_loop(loop)  # asyncio forgets it in a forked process
            leaf_turns._turns.clear()  # what the process that died had in its memory
            self.lives.met = None
            self.lives.now += 1
            self.dead.set()

    async def _leg(self, leg: int, tenant: str, deaths_max: int) -> list[str]:
        """To this tenant; what is wrong then. The second leg begins with a node to be erased."""
        await self._want(tenant)
        machine, since = self.world.site.machines[HOST], self.world.clock.now()
        if leg:
            for disk in machine.disks.values():
                disk.content, disk.holds = SECRET, "tenant"
            node = await self.world.store.node(HOST)
            assert node is not None
            back = reclaim(node, since)
            assert isinstance(back, Node)
            await self.world.store.save_node(back)
        problem = await self._released(tenant, deaths_max)
        if self._enough(deaths_max):
            return []
        if not leg:
            return problem + await misdeeds(self.world)
        rows = [r for r in await self.world.store.entries(HOST) if r.intended_at >= since]
        wrong = problem + wrongs([e for e in machine.log if e.time >= since], rows)
        wrong += await self.world.violations()
        left = [d for d in machine.disks if SECRET in machine.disks[d].content]
        return wrong + [f"{disk} still has the first tenant's data" for disk in left]

    async def _released(self, tenant: str, deaths_max: int) -> list[str]:
        until = self.world.clock.now() + LIMIT_S
        while True:
            await self.world.clock.sleep(60.0)
            node = await self.world.store.node(HOST)
            assert node is not None
            released = node.state is State.RELEASED and node.tenant == tenant
            if released or self._enough(deaths_max):
                return []
            if self.world.clock.now() > until or node.state is State.QUARANTINED:
                return [f"{HOST} did not come to {tenant}: {node.state}, {node.note}"]

    async def _want(self, tenant: str) -> None:
        for known in await self.world.store.tenants():
            asked = 1 if known.name == tenant else 0
            changed = Tenant(**{**known.model_dump(), "nodes_wanted": asked})
            await self.world.store.put_tenant(changed)


def explore(
    directory: Path,
    chosen: Callable[[int, Place], bool],
    *,
    jobs: int,
    legs: int = len(LEGS),
    deaths_max: int = sys.maxsize,
) -> Run:
    """The journey, with a death at each chosen point (its number from 1, and its place)."""
    run = Run()
    fork = Fork(run, jobs)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of tasks that never ended: on purpose

    async def main() -> str:
        return await Journey(directory, run, chosen).go(fork, legs, deaths_max)

    try:
        wrong = virtual_time.run(main())
    except BaseException:
        if fork.pipe < 0:
            raise
        wrong = traceback.format_exc(limit=-3)
    if fork.pipe >= 0:
        fork.end(wrong)
    while fork.answers:
        fork.collect()
    run.wrong = wrong
    return run
