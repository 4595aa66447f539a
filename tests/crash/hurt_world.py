"""The world of a journey on which others hurt the site: it judges ports and counts writes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from port_judge import PortJudge
from rig import World

from provisioner.control.watch.recovery import Recovery
from provisioner.model.recovery import HighWater
from provisioner.planning.watch.high_water import judge
from provisioner.runtime import permit
from provisioner.store.database.high_water import MarkFile, Marking, look, settle_mark

PLACE = "the daemon's directory"
SURVEY = "recovery"  # the name of the task that compares rows and world


class MemoryMark(MarkFile):
    """A directory's high-water mark in memory: forked processes must not share one."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.kept: HighWater | None = None

    def read(self) -> HighWater | None:
        return self.kept

    def write(self, mark: HighWater) -> None:
        self.kept = mark


class HurtWorld(World):
    """`lose_writes` is the journey's: the daemon dies, and its database is a backup's."""

    def judge_moments(self) -> list[str]:
        """Return what must never have been so, at any moment until now."""
        return self.judge.judge()

    def find_part(self, place: tuple[str, ...]) -> str:
        """Return the part of a leg that a point is counted in; "": the leg's own."""
        return ""

    lose_writes: Callable[[sqlite3.Connection], None]

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.judge = PortJudge(self)
        self.judge.watch()
        self.mark = MemoryMark()
        self.backup: sqlite3.Connection | None = None
        self.old_startup: Any = None  # what a leaf started with when the node served
        self.step = 0  # of the leg
        self.cut_until = 0.0  # when there is a way to all devices again
        self.way_s = 0.0  # from the daemon to its database, one way
        self.people: asyncio.Task[None] | None = None  # who does something meanwhile

    async def start(self) -> None:
        """A daemon as `serve` begins it: it judges its database, and only looks if writes lack."""
        daemon = await self.build()
        if why := await self._judge_database():
            book = self.store.recovery
            recovery = Recovery(self.store, book, self.clock, daemon.tenancy)
            with permit.close_gate(why):
                await asyncio.create_task(recovery.run(), name=SURVEY)
        await daemon.start()

    async def _judge_database(self) -> str:
        """Why this daemon may only look; its writes are counted from then on."""
        self.store.writer.count_by(None)  # who counted is gone
        kept, now = self.mark.read(), self.clock.now()
        database = await self.store.read(lambda c: look(c, PLACE, kept))
        standing = judge(kept, database)
        assert not standing.refused, standing.refused
        why = "; ".join(standing.look_only)
        mark = await self.store.write(lambda c: settle_mark(c, PLACE, kept, why, now))
        self.mark.write(mark)
        self.store.writer.count_by(Marking(self.mark, mark))
        return why
