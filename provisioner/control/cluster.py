"""Our place among several daemons on one database: who lives, who leads, whose turn a switch is.

A daemon that loses its seat (`store/seat.py`) ends at once, wherever it is: `lost` does not return.
What it was driving is taken over by whoever sees its seat empty; nothing of it is finished first.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, TypeVar

import psycopg

from provisioner import permit
from provisioner.execution import leaf_turns
from provisioner.store.seat import Peer, Seat, steady_s

log = logging.getLogger(__name__)
T = TypeVar("T")

BEATS = 5  # in a lease: two may be late, and the seat is still sure
# A loop that does nothing for so long will hardly do anything again.
HUNG_S = 60.0
TURN_POLL_S = 0.25  # a revision of a switch takes seconds


class Cluster:
    """Used in one event loop. `lost` is told why, ends the process, and does not return."""

    def __init__(self, seat: Seat, lost: Callable[[str], NoReturn]) -> None:
        self._seat = seat
        self._lost = lost
        self._thread = ThreadPoolExecutor(1, "seat")
        self._leading = asyncio.Event()
        self._alive_s = steady_s()
        self._over = threading.Event()
        self._pulsing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Our executor's id: new at every start."""
        return self._seat.id

    @property
    def lease_s(self) -> float:
        """After so long a silence a daemon is dead."""
        return self._seat.lease_s

    async def start(self) -> None:
        """Sit down, and stay seated until `stop`. Raises `psycopg.Error` if that is refused."""
        await self._in_thread(self._seat.take)
        self._alive_s = steady_s()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._beat, args=(loop,), name="beat", daemon=True).start()
        self._pulsing = asyncio.create_task(self._pulse(), name="seat")
        log.info("seated as %s", self.id)

    @property
    def leads(self) -> bool:
        """Whether this daemon does what only one may do."""
        return self._leading.is_set()

    async def leading(self) -> None:
        """Until this daemon does what only one may do; from then on it leads until it ends."""
        await self._leading.wait()

    async def stop(self) -> None:
        """Leave: peers take over at once."""
        self._over.set()
        if self._pulsing is not None:
            self._pulsing.cancel()
            await asyncio.gather(self._pulsing, return_exceptions=True)
        await self._in_thread(self._seat.leave)
        self._thread.shutdown(wait=False)

    def check(self) -> None:
        """Returns while the seat is surely ours; ends the process otherwise."""
        late_s = steady_s() - self._seat.sure_until
        if late_s > 0:
            self._lost(f"the seat has not been sure for {late_s:.1f} s")

    async def dead(self) -> Sequence[Peer]:
        """Daemons that are gone. Their seats are held empty for us until `let_go`."""
        return await self._sure(self._seat.dead)

    async def let_go(self, peer: Peer) -> None:
        """A dead daemon's work was taken over."""
        await self._sure(lambda: self._seat.let_go(peer))

    async def living(self) -> frozenset[str]:
        """The executor ids of all daemons that live."""
        return await self._sure(self._seat.living)

    async def active(self) -> int:
        """How many operations are active in the whole site."""
        return await self._sure(self._seat.active)

    async def take(self, name: str) -> None:
        """Wait for the turn of one name among all daemons (`leaf_turns.Shared`)."""
        while True:  # another process gives it back, or ends
            if await self._sure(lambda: self._seat.try_turn(name)):
                return
            await asyncio.sleep(TURN_POLL_S)

    async def give(self, name: str) -> None:
        """Give the turn back."""
        await asyncio.shield(self._sure(lambda: self._seat.end_turn(name)))

    async def _pulse(self) -> None:
        """Show that the event loop lives, and look whether the seat is sure: also while the
        thread that beats waits for a database that is gone."""
        with permit.required(self.check), leaf_turns.shared(self):
            while True:
                self._alive_s = steady_s()
                self.check()
                await asyncio.sleep(self._seat.lease_s / BEATS / 2)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread, so that a loop that is busy for a while is not taken for dead."""
        while not self._over.wait(self._seat.lease_s / BEATS):
            self.check()
            if steady_s() - self._alive_s > HUNG_S:
                self._lost(f"the event loop has hung for {HUNG_S:.0f} s")
            try:
                self._seat.beat()
            except psycopg.Error as error:
                if not self._over.is_set():
                    self._lost(f"the database ended the session: {error}")
            if self._seat.leads and not self._leading.is_set():
                log.info("this daemon leads")
                loop.call_soon_threadsafe(self._leading.set)

    async def _sure(self, work: Callable[[], T]) -> T:
        try:
            return await self._in_thread(work)
        except psycopg.Error as error:
            self._lost(f"the database ended the session: {error}")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
