"""What happens to the daemons of a history: each blow is drawn from the history's own seed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping

from history_log import Write
from history_world import ClusterWorld, Member

# How often each comes against the others.
BLOWS = {
    "kill": 6,
    "stop": 6,
    "cut from the database": 4,
    "cut from the devices": 2,
    "ask to end": 2,
    "fail over": 2,
    "vanish": 2,
    "set the clock": 2,
}
# Right behind a write or an intent is where a blow hurts; a few per history let it go on between.
AT_A_WRITE = 0.12
AT_AN_INTENT = 0.4  # at once: what was intended is not sent yet
AT_A_REQUEST = 0.3  # all is decided, and it is not written to the socket yet
# What shows whether its predecessor's lease, epoch and request are honoured by who comes after.
BLOWS_AT_AN_INTENT = {"stop past the lease": 6, "kill": 3, "cut from the database": 1, "vanish": 1}
CLOCK_MAX_S = 45.0  # of a machine, before or behind the database's


class Trouble:
    """`strikes_max` blows at most, at random times and right behind writes."""

    def __init__(self, world: ClusterWorld, seed: str, strikes_max: int, pause_s: float) -> None:
        self._world, self._chance = world, random.Random(seed)
        self._left, self._pause_s = strikes_max, pause_s
        self.struck: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """From now on."""
        self._world.on_write = self._written
        self._world.on_intent = self._intended
        self._world.on_request = self._requesting
        self._do(self._now_and_then())

    def end(self) -> None:
        """No blow any more, and everything that was cut is mended."""
        self._left = 0
        self._world.on_write = lambda _write: None
        self._world.on_intent = self._world.on_request = lambda _writer: None
        for task in self._tasks:
            task.cancel()
        for member in self._world.members.values():
            member.gate.go_on()
            member.gate.mend()
            for wire in member.wires:
                wire.reaches = True

    def _do(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
            members = [m for m in self._world.members.values() if not m.gate.dead.is_set()]
            if members:
                self._strike(self._chance.choice(members))

    def _written(self, write: Write) -> None:
        if self._chance.random() >= AT_A_WRITE:
            return
        for member in self._world.members.values():
            if member.name == write.writer and not member.gate.dead.is_set():
                self._do(self._soon(member))

    def _intended(self, writer: str) -> None:
        if self._chance.random() >= AT_AN_INTENT:
            return
        for member in self._world.members.values():
            if member.name == writer and not member.gate.dead.is_set():
                self._strike(member, BLOWS_AT_AN_INTENT)

    def _requesting(self, writer: str) -> None:
        if self._chance.random() >= AT_A_REQUEST:
            return
        for member in self._world.members.values():
            if member.name == writer and not member.gate.dead.is_set():
                self._strike(member, {"stop past the lease": 1})

    async def _soon(self, member: Member) -> None:
        await asyncio.sleep(self._chance.choice((0.0, 0.05, 0.2, 1.0)))
        self._strike(member)

    def _strike(self, member: Member, blows: Mapping[str, int] = BLOWS) -> None:
        if self._left <= 0 or member.gate.dead.is_set() or member.daemon is None:
            return
        self._left -= 1
        [blow] = self._chance.choices(list(blows), list(blows.values()))
        self.struck[blow] += 1
        getattr(self, "_" + blow.replace(" ", "_"))(member)

    # --- the blows

    def _kill(self, member: Member) -> None:
        member.gate.end("killed")

    def _vanish(self, member: Member) -> None:
        """Its machine is off the network: the server keeps the session until it is too old."""
        member.seat_stays = True
        member.gate.end("its machine vanished")

    def _stop(self, member: Member) -> None:
        member.gate.stop()
        self._do(self._later(member.gate.go_on))

    def _stop_past_the_lease(self, member: Member) -> None:
        member.gate.stop()
        self._do(self._later(member.gate.go_on, (15.0, 25.0, 60.0)))

    def _cut_from_the_database(self, member: Member) -> None:
        member.gate.cut()
        self._do(self._later(member.gate.mend))

    def _cut_from_the_devices(self, member: Member) -> None:
        def reach(reaches: bool) -> None:
            for wire in member.wires:
                wire.reaches = reaches

        reach(False)
        self._do(self._later(lambda: reach(True)))

    def _ask_to_end(self, member: Member) -> None:
        self._do(self._ended(member))

    async def _ended(self, member: Member) -> None:
        for part in (member.daemon, member.cluster):
            if part is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await part.stop()
        member.gate.end("it was asked to end")

    def _fail_over(self, _member: Member) -> None:
        self._world.server.fail_over(self._chance.uniform(0.5, 20.0))

    def _set_the_clock(self, member: Member) -> None:
        number = next(n for n, m in self._world.members.items() if m is member)
        self._world.skews[number] = self._chance.uniform(-CLOCK_MAX_S, CLOCK_MAX_S)

    async def _later(
        self, undo: object, after_s: tuple[float, ...] = (1.0, 4.0, 9.0, 15.0, 60.0, 200.0)
    ) -> None:
        await asyncio.sleep(self._chance.choice(after_s))
        assert callable(undo)
        undo()
