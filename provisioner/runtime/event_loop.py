"""A daemon's event loop: small TLS connections, many files, short waits of threads, ended tasks.

The daemon keeps tens of thousands of connections. asyncio keeps a 256 KiB buffer for each TLS
connection (308 KB measured); uvloop needs 57 KB, and asyncio with a smaller buffer 67 KB
(docs/sources/engine.md#tls).
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import ctypes
import gc
import resource
import sys
import threading
from collections import deque
from time import thread_time
from typing import Any

# A thread that waits for the interpreter gets it after this time. A store's thread waits once for
# each statement: with CPython's 5 ms a transaction of 100 statements takes half a second beside a
# busy loop, and holds the lock of the only writer among all daemons for that time. Measured: writes
# 2.5 times as fast on PostgreSQL, 1.3 times on a file, for a twentieth of the loop's iterations.
SWITCH_S = 0.0005
SETTLED_S = 60.0  # after a start, the fleet's rows are read and the first rounds are under way
DAY_S = 86400.0
# New objects that bring a collection of the young ones, which takes longer the larger the process:
# at 10,000 one held the loop for 90 ms while a fleet was read first, at CPython's 700 they took a
# fourteenth of the CPU time of a look (perf).
YOUNG_MAX = 3_000
# Collections of the young ones that bring one of those that survived them, after one more: at
# CPython's 10 it held the loop for 127 ms. With 3,000 and 3 it takes 149 ms of a process that reads
# 256 hosts; with 1,500 and 3, 107 ms of one with 1,614, and 4 % more CPU in all that runs here.
YOUNG_TURNS = 3
# Old objects that a full collection may walk: a millisecond for each thousand on a busy machine.
# Beyond, they are exempted unwalked.
GROWN_MIN = 40_000
# Answers that are worked on in one turn of the loop, each for one to five milliseconds.
TURNS_MAX = 8
# Of requests under way: how many at the least, and how much CPU time a turn of the loop may take
# before there are fewer.
PACED_MIN = 16
TURN_MAX_S = 0.04
# How long a turn of the loop may work on answers, and between two collections of young objects.
ANSWERS_MAX_S = 0.03
COLLECTED_S = 0.05
YOUNGEST = 0
YOUNGER = 1  # generations of objects
OLDEST = 2
# All that a daemon may open; more would only make tools slow that close every number one by one.
OPEN_FILES_MAX = 65_536
TLS_BUFFER_BYTES = 16 * 1024  # one TLS record (RFC 8446 section 5.1), the useful minimum


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed, else asyncio's with the small buffer.

    For `asyncio.Runner(loop_factory=new_event_loop)`.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(YOUNG_MAX, YOUNG_TURNS, gc.get_threshold()[2])
    try:
        import uvloop
    except ImportError:
        shrink_tls_buffers()
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel what still runs, and return once each has ended; how it ended is nobody's business."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


class FairTurns:
    """Lets some coroutines go on in one turn of the loop, and others in the next turns, in order.

    What comes in at once is else worked on at once: 256 answers of BMCs hold a loop for a third of
    a second, in which nothing else of the daemon is served. A turn has at most `most`, and fewer
    where the last ones took long.
    """

    def __init__(self, most: int = TURNS_MAX) -> None:
        self._most = most
        self._fit = most  # of the next turn
        self._gone = 0  # in this turn
        self._began_s = 0.0  # this turn, in CPU time of this thread
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Return at once, or in a later turn of the loop if this one has had its number."""
        loop = asyncio.get_running_loop()
        if not self._gone:
            self._began_s = thread_time()
            loop.call_soon(self._go_on)
        self._gone += 1
        if self._gone > self._fit:
            self._waiting.append(loop.create_future())
            await self._waiting[-1]

    def _go_on(self) -> None:
        now_s = thread_time()
        took_s = now_s - self._began_s
        self._began_s = now_s
        if took_s > ANSWERS_MAX_S:
            self._fit = max(1, self._fit // 2)
        elif self._fit < self._most:
            self._fit += 1
        self._gone = 0
        while self._waiting and self._gone < self._fit:
            one = self._waiting.popleft()
            if not one.done():  # its waiter was cancelled
                one.set_result(None)
                self._gone += 1
        if self._gone:
            asyncio.get_running_loop().call_soon(self._go_on)
        collect_young()


def collect_young() -> None:
    """Collect young garbage if this thread has worked for a while since it last did.

    CPython counts allocations less deallocations, also of old objects: where a fleet's new readings
    take the place of old ones, a million young objects come together before it looks, and one
    collection of them held the loop for 0.2 s.
    """
    now_s = thread_time()
    if now_s - _collected.at_s >= COLLECTED_S:
        _collected.at_s = now_s
        _collected.count += 1
        gc.collect(YOUNGER if _collected.count % (YOUNG_TURNS + 1) == 0 else YOUNGEST)


class _Collected(threading.local):
    """When this thread last collected young objects, in its CPU time, and how often it has."""

    at_s = 0.0
    count = 0


_collected = _Collected()


class PacedSlots:
    """A semaphore of `most` places, with fewer of them while turns of the loop take long.

    What has come from all connections is worked on in one turn: beside a site that answers at once,
    256 requests under way hold the loop for up to half a second, and nothing is done sooner by it.
    Where devices take their time, turns are short, and all places are given, one more in a turn:
    after a calm, requests begin with few again, for it is too late once all have been answered.
    """

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._allowed = float(min(most, PACED_MIN))
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._measuring = False  # the turn after this one, from its begin to its end

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        if self._used + 1 <= self._allowed and not self._waiting:
            self._used += 1
        else:
            mine = loop.create_future()
            self._waiting.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():  # the place had just been given
                    await self.__aexit__()
                raise
        if not self._measuring:
            self._measuring = True
            loop.call_soon(self._begin_turn)

    async def __aexit__(self, *_: object) -> None:
        self._used -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._used + 1 <= self._allowed:
            one = self._waiting.popleft()
            if not one.done():  # its waiter was cancelled
                one.set_result(None)
                self._used += 1

    def _begin_turn(self) -> None:
        asyncio.get_running_loop().call_soon(self._end_turn, thread_time())

    def _end_turn(self, began_s: float) -> None:
        self._measuring = False
        if thread_time() - began_s > TURN_MAX_S:
            fit = self._allowed * 0.7
        elif self._waiting:
            fit = self._allowed + 1
        else:
            fit = min(self._allowed, 2 * self._used)
        self._allowed = min(self._most, max(PACED_MIN, fit))
        self._admit()


def find_open_files_limit() -> int:
    """Return how many files this process may open after `raise_open_files`."""
    soft, hard = (_count(n) for n in resource.getrlimit(resource.RLIMIT_NOFILE))
    return max(soft, min(hard, OPEN_FILES_MAX))


def raise_open_files() -> None:
    """Raise this process's soft limit of open files as far as its hard limit allows.

    systemd and login shells give 1,024, which select(2) needs and this program does not; a program
    that can do with more is to raise it itself (systemd.exec(5), "LimitNOFILE=").
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _count(soft) < find_open_files_limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (find_open_files_limit(), hard))


def _count(limit: int) -> int:
    """Return a limit as a number that compares: the kernel's "no limit" as more than any."""
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def exempt_heap() -> None:
    """Exempt what exists now from garbage collections, until the next call.

    A full collection stops every thread while it walks all objects: half of the 99th percentile of
    a plan's time with the matrix alone, and up to 3.9 s with the rows of 65,536 nodes (measured).
    What is in a cycle, exists now and is dropped later stays until the next call. What a collection
    freed goes back to the kernel: glibc alone keeps all but the end of its heap (malloc_trim(3)).
    """
    watched = exempt_growth in gc.callbacks
    if watched:
        gc.callbacks.remove(exempt_growth)
    gc.unfreeze()
    _exempt_rest()
    if watched:
        gc.callbacks.append(exempt_growth)


def _exempt_rest(generation: int = OLDEST) -> None:
    gc.collect(generation)
    gc.freeze()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # other C libraries have none
        trim(0)


def exempt_growth(phase: str, collection: dict[str, int]) -> None:
    """Exempt what came since, where a full collection of it would hold every thread up.

    A callback of `gc`. A fleet that is read first fills the heap by millions of objects, which hang
    together by no cycle; cycles among them that are dropped stay until the day's `exempt_heap`.
    """
    if phase == "start" and collection["generation"] == OLDEST and _count_old() > GROWN_MIN:
        gc.freeze()


def _count_old() -> int:
    """Return how many objects a full collection would walk; no other thread runs in between.

    One that is making a tuple meanwhile would find a second reference to it, and fail with
    SystemError: `next` has no Python code of its own, after which threads may change.
    """
    return next(map(len, map(gc.get_objects, (OLDEST,))))


async def exempt_heap_daily() -> None:
    """Exempt modules and the matrix at once, what a growing fleet adds, and all of it each day.

    A minute after the start only young objects are walked: a large fleet is still being read, and
    to walk all of it stops every thread for seconds. Never ends. A process that starts many
    loops, as tests do, pays for none of it: a collection of everything that exists takes 0.4 s
    where modules and tests fill half a gigabyte.
    """
    exempt_heap()
    gc.callbacks.append(exempt_growth)
    try:
        await asyncio.sleep(SETTLED_S)
        _exempt_rest(YOUNGER)
        while True:
            await asyncio.sleep(DAY_S)
            exempt_heap()
    finally:
        gc.callbacks.remove(exempt_growth)


def shrink_tls_buffers() -> bool:
    """Make asyncio's TLS buffers small for later connections; return False if it is not possible.

    `SSLProtocol.max_size` is not a public interface: it is changed only where it is as expected.
    """
    protocol = getattr(asyncio.sslproto, "SSLProtocol", None)
    size = getattr(protocol, "max_size", None)
    if protocol is None or not isinstance(size, int) or size < TLS_BUFFER_BYTES:
        return False
    protocol.max_size = TLS_BUFFER_BYTES
    return True
