"""This daemon's place among several on one database: members, leader, and turns of switches.

A daemon that loses its lease (`store/database/seat.py`) ends at once, wherever it is: `lost` does
not return. A peer that sees the lease end takes over its operations; nothing is finished first.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, Protocol, TypeVar

import psycopg

from provisioner.control.engine.engine import FirstFailure
from provisioner.execution.actions import reach
from provisioner.model.input_error import InputError
from provisioner.planning.watch import membership
from provisioner.planning.watch.membership import Fitness, Standing
from provisioner.runtime import permit
from provisioner.runtime.database_clock import DatabaseClock, Reading
from provisioner.runtime.event_loop import end_tasks
from provisioner.runtime.wall_clock import read_boot_clock
from provisioner.store.database.seat import Peer, Seat

log = logging.getLogger(__name__)
T = TypeVar("T")

BEATS = 5  # in a lease: two may be late, and the seat is still sure
# A loop that does nothing for so long will hardly do anything again.
HUNG_S = 60.0
TURN_POLL_S = 0.25  # a revision of a switch takes seconds
LOOK_S = 5.0  # between two statements of which devices answer
HEARD_S = 60.0  # of requests to devices that a statement counts
IDLE_TRIES = 2  # devices that a daemon tries which asked none in that time
TIMED = 10  # round trips, the shortest counts: a busy interpreter lengthens most, a link all
PROBE_S = 3.0  # a device on the management network accepts a connection in milliseconds
Probe = Callable[[str, float], Awaitable[bool]]  # HOST:PORT, seconds; whether it accepts
APART_S = 1.0  # a clock that NTP keeps is within some milliseconds
INHERITED_S = 600.0  # what an earlier life stated is believed for so long
DRIVES = {
    True: "this daemon will give its work to its peers",
    False: "this daemon drives nothing, its peers do its work",
}
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

    def close(self) -> None: ...


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
        probe: Probe | None = None,
    ) -> None:
        """`probe`: how silent devices are tried; None: nothing is stated of their reach."""
        self._probe = probe
        self._fitness = Fitness()
        self._fit = asyncio.Event()
        self._remembered: tuple[str, ...] = ()  # silent devices, of a daemon that is not fit
        self._asked_last: tuple[str, ...] = ()  # devices, where it asked none lately
        self._unfit: frozenset[str] = frozenset()  # living peers that drive nothing
        self._round_trips: deque[float] = deque(maxlen=TIMED)  # seconds, to the database
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
        self._looking: asyncio.Task[None] | None = None
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
        self._inherit()
        loop = asyncio.get_running_loop()
        self._threads.start_beating(lambda: self._beat(loop), self._seat.lease_s / BEATS)
        self._pulsing = asyncio.create_task(self._pulse(), name="seat")
        self._failure.watch(self._pulsing)
        if self._probe is not None:
            self._looking = asyncio.create_task(self._look_for_ever(self._probe), name="reach")
            self._failure.watch(self._looking)
        log.info("seated as %s", self.id)

    @property
    def leads(self) -> bool:
        """Return whether this daemon does what only one may do."""
        return self._leading.is_set()

    async def wait_for_lead(self) -> None:
        """Wait until this daemon leads; from then on it leads until it ends."""
        await self._leading.wait()

    async def wait_until_fit(self) -> None:
        """Wait until this daemon may drive operations: it reaches what its peers reach."""
        await self._fit.wait()

    @property
    def fit(self) -> bool:
        """Return whether this daemon drives operations; it did not give its work to peers."""
        return self._fit.is_set()

    async def failed(self) -> None:
        """Wait until the loop that renews the lease fails; raise its error."""
        await self._failure.wait()

    async def stop(self) -> None:
        """Leave: peers take over at once."""
        self._over = True
        await end_tasks(self._pulsing, self._looking)
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
        """The executor ids of all daemons that live. Ends the process if it has to make room."""
        members = await self._sure(self._threads.at_desk(self._seat.members))
        peers = [m for m in members if m.id != self.id]
        now = self._now()
        if why := membership.find_end_reason(self._seat.joined, peers, now):
            self._lost(why)
        before = self.mixed
        self.mixed = membership.describe_mixed_peers(self._seat.joined, peers)
        permit.get_scope().notices["daemons"] = self.mixed
        if self.mixed != before:
            for sentence in self.mixed or ("all daemons work by the same",):
                log.warning("while a change rolls through: %s", sentence)
        return frozenset(m.id for m in members)

    def _now(self) -> float:
        """Return the database's clock, carried on from its last reading."""
        reading = self._seat.reading
        assert reading is not None, "not seated"
        return reading.database_s + self._threads.steady_s() - reading.boot_s

    async def count_fit(self) -> int:
        """Return how many daemons share the work."""
        return len(await self.find_living() - self._unfit)

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
        ending = self._threads.at_seat(lambda: self._seat.end_turn(name))
        await asyncio.shield(self._sure(ending))

    # --- duties that are shared (`watch.shards.Peers`)

    @property
    def number(self) -> int:
        """Return our number among all daemons that ever joined."""
        return self._seat.number

    async def share(self) -> None:
        await self._sure(self._threads.at_seat(self._seat.share))

    async def read_sharing(self) -> Mapping[int, frozenset[int]]:
        return await self._sure(self._threads.at_seat(self._seat.read_sharing))

    async def take_shards(self, shards: Collection[int]) -> frozenset[int]:
        return await self._sure(self._threads.at_seat(partial(self._seat.try_shards, shards)))

    async def give_shards(self, shards: Collection[int]) -> None:
        await self._sure(self._threads.at_seat(partial(self._seat.end_shards, shards)))

    # --- the reach of this daemon, against its peers'

    def _inherit(self) -> None:
        """Begin where the last life in this place ended: one that gave its work away goes on so."""
        last = self._seat.inherited
        if self._probe is None or last.fit or self._now() - last.at > INHERITED_S:
            self._fit.set()
            return
        self._remembered = last.sample
        why = "its last life gave its work to its peers"
        self._take_fitness(Fitness(fit=False, why=why))

    async def _look_for_ever(self, probe: Probe) -> None:
        peers: Sequence[Standing] = ()
        while True:
            ours = await self._measure(peers, probe)
            peers = await self._state(ours)
            now = self._now()
            why = membership.find_difference(ours, peers, now)
            alone = membership.is_alone(peers, now)
            fitness = membership.judge_fitness(self._fitness, why, now, alone=alone)
            if self._fitness.fit and not fitness.fit:
                await self._give_up(ours, why)
                continue
            self._take_fitness(fitness)
            self._unfit = frozenset(p.id for p in peers if not p.fit)
            unfit = membership.describe_unfit_peers(peers, now)
            notices = permit.get_scope().notices
            notices["reach of peers"] = unfit
            notices["database"] = membership.describe_slow_link(ours)
            await asyncio.sleep(LOOK_S)

    async def _give_up(self, ours: Standing, why: str) -> None:
        """End, so that peers take over all operations, and the lead, at once; the next life here
        waits until it reaches what they reach.

        If the peer that should do the work gave up at the same moment, nothing is given away.
        """
        told = ours.model_copy(update={"fit": False})
        peers = await self._state(told)
        if membership.find_difference(ours, peers, self._now()):
            self._lost(f"its work goes to its peers: {why}")
        self._fitness = Fitness()

    async def _state(self, ours: Standing) -> Sequence[Standing]:
        """State our standing, and return those of the living peers."""
        told = membership.shorten(ours)
        written = bool(self.mixed)  # peers of another version may read nothing but the row
        return await self._sure(
            self._threads.at_desk(partial(self._seat.state, told, written=written))
        )

    async def _measure(self, peers: Sequence[Standing], probe: Probe) -> Standing:
        """Return our standing. Only what accepts no connection from us either counts as silent."""
        heard = permit.take_heard(self._threads.steady_s() - HEARD_S)
        # who asked nothing for a while may have lost its way: it tries whom it asked last
        idle = not heard and self._fitness.fit
        self._asked_last = tuple(heard)[-IDLE_TRIES:] or self._asked_last
        quiet = [where for where, answered in heard.items() if not answered]
        if not self._fitness.fit:
            own = list(self._remembered)
        else:
            own = list(self._asked_last if idle else quiet[: membership.SAMPLE_MAX])
        before = Standing(fit=self._fitness.fit, sample=tuple(own))
        asked = membership.list_asked(before, peers)
        tries = tuple(dict.fromkeys((*own, *asked)))
        answers = await asyncio.gather(*(probe(where, PROBE_S) for where in tries))
        result = dict(zip(tries, answers, strict=True))
        sample = tuple(where for where in own if not result[where])
        tried = len(own)
        silent = len(sample)
        if self._fitness.fit and not idle:
            tried = len(heard)
            silent = round(len(quiet) * len(sample) / len(own)) if own else 0
        return Standing(
            id=self.id,
            place=self._seat.place,
            at=self._now(),
            fit=self._fitness.fit,
            tried=tried,
            silent=silent,
            sample=sample,
            probed={where: result[where] for where in asked if where not in own},
            round_trip_ms=1000 * min(self._round_trips, default=0.0),
        )

    def _take_fitness(self, fitness: Fitness) -> None:
        """Go on as fit, or not; a daemon that is fit again also asks for the lead again."""
        before = self._fitness
        self._fitness = fitness
        self._seat.may_lead = fitness.fit
        notice = () if not fitness.why else (f"{DRIVES[fitness.fit]}: {fitness.why}",)
        permit.get_scope().notices["reach"] = notice
        if fitness.fit:
            self._fit.set()
        if fitness.why != before.why:
            log.warning(notice[0] if notice else "it reaches what its peers reach")

    async def _pulse(self) -> None:
        """Show that the event loop lives, and look whether the seat is sure: also while the
        thread that beats waits for a database that is gone."""
        with permit.require_check(self.check), reach.share_turns(self):
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
        if reading is not None:
            self._round_trips.append(2 * reading.error_s)
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
            permit.get_scope().notices["clock"] = (f"{notice}: look at its NTP",)
            log.warning("%s: look at its NTP", notice)
        elif abs(self.apart_s) <= APART_S < abs(before):
            permit.get_scope().notices["clock"] = ()
            log.warning("this machine's clock agrees with the database's again")

    async def _sure(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except psycopg.Error as error:
            self._lost(f"the database ended the session: {error}")


def _apart(seconds: float) -> str:
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"
