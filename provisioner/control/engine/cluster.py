"""This daemon's place among several on one database: members, leader, and turns of switches.

A daemon that loses its lease (`store/database/seat.py`) ends at once, wherever it is: `lost` does
not return. A peer that sees the lease end takes over its operations; nothing is finished first.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

import psycopg

from provisioner.control.engine.engine import FirstFailure
from provisioner.execution.actions import reach as leaf_turns
from provisioner.model.input_error import InputError
from provisioner.planning.watch import membership
from provisioner.runtime import permit
from provisioner.runtime import permit as process_scope
from provisioner.runtime.database_clock import DatabaseClock, Reading
from provisioner.runtime.wall_clock import read_boot_clock
from provisioner.store.database.seat import Peer, Seat

log = logging.getLogger(__name__)
T = TypeVar("T")

BEATS = 5  # in a lease: two may be late, and the seat is still sure
# A loop that does nothing for so long will hardly do anything again.
HUNG_S = 60.0
TURN_POLL_S = 0.25  # a revision of a switch takes seconds
APART_S = 1.0  # a clock that NTP keeps is within some milliseconds
CLOCK_REMEDY = "Set the clocks of both machines by NTP (`chronyc tracking`), then start again."


class Threads(Protocol):
    """How the blocking work of a seat is run: a simulation runs it in the event loop."""

    def steady_s(self) -> float:
        """Return seconds that also count while this process is stopped, and while its machine
        sleeps.
        """
        ...

    async def at_seat(self, work: Callable[[], T]) -> T: ...

    async def at_desk(self, work: Callable[[], T]) -> T: ...

    def start_beating(self, beat: Callable[[], None], pause_s: float) -> None:
        """Call `beat` every `pause_s` seconds, for ever, beside the event loop."""
        ...

    def close(self) -> None:
        """Stop the heartbeat and all further work."""
        ...


class SeatThreads:
    """One thread for the session, one for the desk, one that beats."""

    def __init__(self) -> None:
        self._seat = ThreadPoolExecutor(1, "seat")
        self._desk = ThreadPoolExecutor(1, "desk")
        self._over = threading.Event()

    def steady_s(self) -> float:
        return read_boot_clock()

    async def at_seat(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._seat, work)

    async def at_desk(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._desk, work)

    def start_beating(self, beat: Callable[[], None], pause_s: float) -> None:
        def run() -> None:
            while not self._over.wait(pause_s):
                beat()

        threading.Thread(target=run, name="beat", daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._seat.shutdown(wait=False)
        self._desk.shutdown(wait=False)


@dataclass(frozen=True)
class SharedTime:
    """The clock that follows the database's, and how far this machine's may be from it."""

    clock: DatabaseClock
    apart_max_s: float


class Cluster:
    """The cluster, used in one event loop. `lost` gets the reason, ends the process, and does not
    return.
    """

    def __init__(
        self,
        seat: Seat,
        lost: Callable[[str], NoReturn],
        time: SharedTime | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._seat = seat
        self._lost = lost
        self._time = time
        self._threads = threads or SeatThreads()
        self.mixed: tuple[str, ...] = ()  # peers that work by something else, for people
        self.apart_s = 0.0  # this machine's clock before the database's, as was read last
        self._leading = asyncio.Event()
        self._alive_s = self._threads.steady_s()
        self._over = False
        self._failure = FirstFailure()
        self._pulsing: asyncio.Task[None] | None = None
        self._giving: set[asyncio.Task[None]] = set()

    @property
    def id(self) -> str:
        """Return our executor's id: new at every start."""
        return self._seat.id

    @property
    def lease_s(self) -> float:
        """Return the seconds of silence after which a daemon counts as dead."""
        return self._seat.lease_s

    async def start(self) -> None:
        """Take the lease, and keep it until `stop`.

        Raises `psycopg.Error` if the database refuses that, and `InputError` if this machine's
        clock is too far from the database's, or if living peers work by something else.
        """
        try:
            await self._threads.at_desk(self._seat.take)
        except InputError:
            await self._threads.at_seat(self._seat.leave)
            raise
        reading = self._seat.reading
        if self._time is not None and reading is not None:
            if problem := self._apart(reading):
                await self._threads.at_seat(self._seat.leave)
                raise InputError("clock", "", problem, CLOCK_REMEDY)
            self._follow(reading)
        self._alive_s = self._threads.steady_s()
        loop = asyncio.get_running_loop()
        self._threads.start_beating(lambda: self._beat(loop), self._seat.lease_s / BEATS)
        self._pulsing = asyncio.create_task(self._pulse(), name="seat")
        self._failure.watch(self._pulsing)
        log.info("seated as %s", self.id)

    @property
    def leads(self) -> bool:
        """Return whether this daemon does what only one may do."""
        return self._leading.is_set()

    async def wait_for_lead(self) -> None:
        """Wait until this daemon leads; from then on it leads until it ends."""
        await self._leading.wait()

    async def failed(self) -> None:
        """Wait until the loop that renews the lease fails; raise its error."""
        await self._failure.wait()

    async def stop(self) -> None:
        """Leave: peers take over at once."""
        self._over = True
        if self._pulsing is not None:
            self._pulsing.cancel()
            await asyncio.gather(self._pulsing, return_exceptions=True)
        await self._threads.at_seat(self._seat.leave)
        self._threads.close()

    def check(self) -> None:
        """Return while the lease is surely ours; end the process otherwise."""
        late_s = self._threads.steady_s() - self._seat.sure_until
        if late_s > 0:
            self._lost(f"the seat has not been sure for {late_s:.1f} s")

    async def find_dead(self) -> Sequence[Peer]:
        """Return the daemons that are gone. Their leases are held for us until `let_go`."""
        return await self._sure(self._threads.at_desk(self._seat.dead))

    async def let_go(self, peer: Peer) -> None:
        """Record that a dead daemon's work was taken over."""
        await self._sure(self._threads.at_desk(lambda: self._seat.let_go(peer)))

    async def find_living(self) -> frozenset[str]:
        """Return the executor ids of all daemons that live. Ends the process if it has to make
        room.
        """
        members = await self._sure(self._threads.at_desk(self._seat.members))
        peers = [m for m in members if m.id != self.id]
        now = self._now()
        if why := membership.find_end_reason(self._seat.joined, peers, now):
            self._lost(why)
        before = self.mixed
        self.mixed = membership.describe_mixed_peers(self._seat.joined, peers)
        process_scope.get_scope().notices["daemons"] = self.mixed
        if self.mixed != before:
            for sentence in self.mixed or ("all daemons work by the same",):
                log.warning("while a change rolls through: %s", sentence)
        return frozenset(m.id for m in members)

    def _now(self) -> float:
        """Return the database's clock, carried on from its last reading."""
        reading = self._seat.reading
        assert reading is not None, "not seated"
        return reading.database_s + self._threads.steady_s() - reading.boot_s

    async def count_active(self) -> int:
        """Return how many operations are active in the whole site."""
        return await self._sure(self._threads.at_desk(self._seat.active))

    async def take(self, name: str) -> None:
        """Wait for the turn of one name among all daemons (`leaf_turns.Shared`).

        A caller that is cancelled while the question is under way would not learn that the turn is
        its own: it is given back then.
        """
        while True:  # another process gives it back, or ends
            asking = asyncio.ensure_future(
                self._sure(self._threads.at_seat(lambda: self._seat.try_turn(name)))
            )
            try:
                if await asyncio.shield(asking):
                    return
            except asyncio.CancelledError:
                giving = asyncio.create_task(self._return(asking, name), name=f"return {name}")
                self._giving.add(giving)
                giving.add_done_callback(self._giving.discard)
                raise
            await asyncio.sleep(TURN_POLL_S)

    async def _return(self, asking: asyncio.Future[bool], name: str) -> None:
        if await asking:
            await self.give_back(name)

    async def give_back(self, name: str) -> None:
        """Give the turn back."""
        ending = self._threads.at_seat(lambda: self._seat.end_turn(name))
        await asyncio.shield(self._sure(ending))

    async def _pulse(self) -> None:
        """Show that the event loop lives, and look whether the seat is sure: also while the
        thread that beats waits for a database that is gone."""
        with permit.require_check(self.check), leaf_turns.share_turns(self):
            while True:
                self._alive_s = self._threads.steady_s()
                self.check()
                await asyncio.sleep(self._seat.lease_s / BEATS / 2)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renew the lease in a thread, so that a loop that is busy for a while is not taken for
        dead.
        """
        if self._over:
            return
        self.check()
        if self._threads.steady_s() - self._alive_s > HUNG_S:
            self._lost(f"the event loop has hung for {HUNG_S:.0f} s")
        try:
            self._seat.beat()
        except psycopg.Error as error:
            if not self._over:
                self._lost(f"the database ended the session: {error}")
        except Exception as error:  # a thread that ends in silence would end the daemon later
            self._lost(f"the seat cannot be kept: {error!r}")
        reading = self._seat.reading
        if self._time is not None and reading is not None:
            if problem := self._apart(reading):
                self._lost(problem)
            loop.call_soon_threadsafe(self._follow, reading)
        if self._seat.leads and not self._leading.is_set():
            log.info("this daemon leads")
            loop.call_soon_threadsafe(self._leading.set)

    def _apart(self, reading: Reading) -> str:
        """Return why this machine's clock cannot be believed; "" if it can."""
        assert self._time is not None
        if abs(reading.difference_s) <= self._time.apart_max_s:
            return ""
        return f"this machine's clock is {_apart(reading.difference_s)} the database's"

    def _follow(self, reading: Reading) -> None:
        """Follow the database's clock, and report when this machine's begins to differ."""
        assert self._time is not None
        before = self.apart_s
        self.apart_s = reading.difference_s
        self._time.clock.follow(reading)
        if abs(self.apart_s) > APART_S >= abs(before):
            notice = f"this machine's clock is {_apart(self.apart_s)} the database's"
            process_scope.get_scope().notices["clock"] = (f"{notice}: look at its NTP",)
            log.warning("%s: look at its NTP", notice)
        elif abs(self.apart_s) <= APART_S < abs(before):
            process_scope.get_scope().notices["clock"] = ()
            log.warning("this machine's clock agrees with the database's again")

    async def _sure(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except psycopg.Error as error:
            self._lost(f"the database ended the session: {error}")


def _apart(seconds: float) -> str:
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"
