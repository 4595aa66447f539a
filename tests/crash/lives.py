"""A journey of several legs (`legs.py`), and its forks that die at a point.

The journey itself meets every point and dies at none. At a chosen one the process forks: in the
child the daemon is gone, a new one starts on what the store holds, and the leg is gone to its end
and judged. So no point costs the way to it again. With `second`, whoever takes over dies as well,
at each place that no daemon comes to without a death: there the child is what the journey was.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import logging
import os
import resource
import select
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import virtual_time
from hurt_world import HurtWorld
from legs import LEGS, Leg, journey_to, made, slow
from points import LOOPS, CrashLane, Lives, Place, trace
from returned import HOST

from provisioner.runtime import permit as process_scope
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import SqlStore, open_store

Chosen = Callable[[str, int], bool]  # whether to die at this leg's point; they count from 1
LIMIT_S = 24 * 3600.0  # virtual, for a leg with a death in it: one without takes two hours
BEHIND_S = 900.0  # virtual
CPU_LIMIT_S = 300  # of a child, beside which it has no verdict: it goes in circles
ANSWER_MAX = 65_536


@dataclass
class Run:
    """What came of a journey and its deaths."""

    points: dict[Place, int] = field(default_factory=dict)  # and how often each was passed
    legs: Counter[str] = field(default_factory=Counter)  # in which leg they were met first
    verdicts: dict[Place, str] = field(default_factory=dict)  # of those died at; "": all is well
    wrong: str = ""  # with the journey that nobody died on
    tell: Callable[[Place, str], None] = lambda place, verdict: None

    def add(self, other: Run) -> None:
        """Another journey as well; a leg that both have counts once."""
        for place, passed in other.points.items():
            self.points[place] = self.points.get(place, 0) + passed
        self.legs = other.legs | self.legs
        self.verdicts |= other.verdicts
        self.wrong = "; ".join(filter(None, (self.wrong, other.wrong)))


class Seconds:
    """Places of second deaths: those that are not on the way without deaths, each once.

    Children of one journey run side by side, so who is first is told by a file.
    """

    def __init__(self, directory: Path, known: Collection[Place]) -> None:
        self.known, self._file = frozenset(known), directory / "second_deaths"

    def claim(self, place: Place) -> bool:
        """Whether nobody died a second death here yet."""
        if place in self.known:
            return False
        line = json.dumps(place)
        with self._file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if line in file.read().splitlines():
                return False
            file.write(line + "\n")
        return True

    def places(self) -> list[Place]:
        """All that were claimed."""
        if not self._file.exists():
            return []
        return [tuple(json.loads(line)) for line in self._file.read_text("utf-8").splitlines()]


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
            gc.freeze()  # what the parent had is not looked through again, nor copied for it
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
            self.run.tell(place, self.run.verdicts[place])

    def wrong(self) -> str:
        """What ended wrong of all children; waits for those that are left."""
        while self.answers:
            self.collect()
        bad = [(place, told.strip()) for place, told in self.run.verdicts.items() if told]
        return "; ".join(f"and died again at {' > '.join(p)}: {told}" for p, told in bad)

    def end(self, verdict: str) -> None:
        """In a child: tell, and be gone."""
        os.write(self.pipe, b"." + verdict.encode()[: ANSWER_MAX - 1])
        os._exit(0)


class Journey:
    """A site of one host and twelve switches, and the daemon that may die."""

    def __init__(
        self,
        directory: Path,
        run: Run,
        chosen: Chosen,
        forks: list[Fork],
        second: Seconds | None,
        kind: type[HurtWorld],
        behind_s: float | None,
    ) -> None:
        self.world = made(directory, kind)
        self.world.lose_writes = self._lose_writes
        self.run, self.chosen, self.second = run, chosen, second
        self.forks = forks  # of each generation; the last one is ours
        self.lives = Lives()
        self.leg = LEGS[0]
        self.dead = asyncio.Event()
        self.deaths = 0  # on the way to here
        self.behind_s, self.died_at = behind_s, 0.0
        self._take(self.world.store)

    def _take(self, store: SqlStore) -> None:
        """This is the database; its commits can be died at."""
        self._rows = store.writer._connection.connection.driver_connection  # type: ignore
        store.writer = store.reader = CrashLane(  # type: ignore[assignment]
            store.writer, lambda: self.world.way_s
        )
        self.world.store, self.world.judge.rows = store, self._rows

    async def go(self, last: str, deaths_max: int) -> str:
        """The journey; everything that is wrong with it. It is left off after so many deaths."""
        self.lives.met = self._met
        trace(asyncio.get_running_loop(), self.lives)
        await self.world.take_in()
        await self._begin()
        reviving = asyncio.ensure_future(self._revive())
        wrong: list[str] = []
        for leg in journey_to(last):
            wrong += await self._leg(leg, deaths_max)
            if self.deaths or self._enough(deaths_max) or leg.name == last:
                break
        reviving.cancel()
        return "; ".join(wrong)

    def _enough(self, deaths_max: int) -> bool:
        return not self.deaths and self.forks[0].deaths >= deaths_max

    async def _begin(self) -> None:
        """A daemon, with nothing from an earlier one but the store and the key."""
        self.lives.now += 1
        context = self.lives.context()
        self.world.cases = self.world.store.cases
        self.world.vault = Vault(self.world.store, self.world.vault._key)
        await asyncio.get_running_loop().create_task(self.world.start(), context=context)

    async def _revive(self) -> None:
        """Whoever dies while it begins is waited for by nobody."""
        while True:
            await self.dead.wait()
            self.dead.clear()
            self.began = asyncio.ensure_future(self._begin())

    def _met(self, waits: Place) -> None:
        """A task of the daemon waits for something: fork, if nobody was here before."""
        who, *lines = waits
        node = HOST if who in LOOPS else who  # a loop, by what it finds: the host in this state
        state = self._rows.execute("SELECT state FROM nodes WHERE id = ?", (node,)).fetchone()
        told = f"{state[0] if state else ''}{self.leg.during}"
        place = (who if who in LOOPS else who.split("-")[0], told, *lines)
        seen = self.run.points.get(place, 0)
        self.run.points[place] = seen + 1
        if not seen and self._is_chosen(place):
            loop = asyncio.get_running_loop()
            if self.forks[-1].here(place):
                asyncio._set_running_loop(loop)  # asyncio forgets it in a forked process
                self._die()

    def _is_chosen(self, place: Place) -> bool:
        if self.deaths:
            return self.second is not None and self.second.claim(place)
        name = self.leg.name + self.world.find_part(place)
        self.run.legs[name] += 1
        return self.chosen(name, self.run.legs[name])

    def _die(self) -> None:
        """In the child: the daemon is gone."""
        self.deaths += 1
        self.died_at = self.world.clock.now()
        if self.second is None or self.deaths > 1:
            self.lives.met = None
        else:
            self.forks.append(Fork(Run(), jobs=1))
        self._end_life()

    def _end_life(self) -> None:
        scope = process_scope.get_scope()  # what the process that died had in its memory
        scope.locks.clear()
        scope.closed.clear()
        self.lives.now += 1
        self.dead.set()

    def _lose_writes(self, backup: sqlite3.Connection) -> None:
        """The daemon is gone, and the next one gets this database."""
        self._end_life()
        self._take(open_store(":memory:", inline=True))
        backup.backup(self._rows)

    async def _leg(self, leg: Leg, deaths_max: int) -> list[str]:
        """One leg to its end, and what is wrong then."""
        self.leg = leg
        since = self.world.clock.now()
        await leg.begin(self.world)
        until = since + LIMIT_S
        while (problem := await leg.over(self.world)) is None:
            if self._enough(deaths_max):
                return []
            now = self.world.clock.now()
            if self.deaths and self.behind_s is not None and now > self.died_at + self.behind_s:
                return self.world.judge_moments()
            if now > until:
                break
            await self.world.clock.sleep(60.0)
        if self.deaths and problem == "":
            # what the new daemon does behind the end counts too
            await self.world.clock.sleep(BEHIND_S)
            problem = await leg.over(self.world)
        if problem is None:
            problem = await slow(self.world, leg)
        wrong = [problem] * bool(problem) + await leg.judge(self.world, since)
        return wrong + self.world.judge_moments()


def seconds(directory: Path, last: str) -> Seconds:
    """Second deaths on the way to the end of this leg, which is gone once without any."""
    way = directory / "way"
    way.mkdir()
    run = explore(way, lambda _leg, _number: False, jobs=1, last=last)
    return Seconds(directory, run.points)


def explore(
    directory: Path,
    chosen: Chosen,
    *,
    jobs: int,
    last: str = LEGS[-1].name,
    deaths_max: int = sys.maxsize,
    tell: Callable[[Place, str], None] = lambda place, verdict: None,
    second: Seconds | None = None,
    kind: type[HurtWorld] = HurtWorld,
    behind_s: float | None = None,
) -> Run:
    """The journey to the end of this leg, with a death at each chosen point.

    `tell` hears each verdict at once. `second`: whoever takes over dies as well. `behind_s`: a life
    after a death is judged so long after it, by what was seen at each moment until then.
    """
    run = Run(tell=tell)
    forks = [Fork(run, jobs)]
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of tasks that never ended: on purpose
    logging.getLogger("provisioner").setLevel(logging.CRITICAL)  # of what a judge says better

    async def main() -> str:
        journey = Journey(directory, run, chosen, forks, second, kind, behind_s)
        return await journey.go(last, deaths_max)

    try:
        wrong = virtual_time.run(main())
    except BaseException:
        if forks[0].pipe < 0:
            raise
        wrong = traceback.format_exc(limit=-3)
    mine = next((f for f in reversed(forks) if f.pipe >= 0), None)
    if mine is None:
        forks[0].wrong()
        run.wrong = wrong
        return run
    if forks[-1] is not mine:  # it had children itself
        wrong = "; ".join(filter(None, (wrong, forks[-1].wrong())))
    mine.end(wrong)
    raise AssertionError("a child has ended before")
