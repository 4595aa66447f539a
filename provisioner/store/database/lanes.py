"""Where statements run: a lane is one connection, used by one thread at a time.

`ThreadLane` keeps the event loop free and lets the writes of many coroutines share one commit:
an fsync costs milliseconds, a row costs microseconds. `InlineLane` runs in the calling thread, for
simulation under virtual time, where a wait for a thread would let the virtual clock jump.

The rule that a reader would otherwise break: `work` may be run twice (a group that failed as a
whole is run again one by one), so it touches nothing but its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from provisioner.ports.errors import StoreFailed
from provisioner.store.database import waits
from provisioner.store.database.read_cache import Question, ReadCache

Result = TypeVar("Result")
Work = Callable[[Connection], Result]

# Chosen so that a group holds its transaction for some 50 ms at 200 µs a write: long enough to make
# the fsync cheap, short enough that no caller waits noticeably for a neighbour's write.
GROUP_MAX = 256


class Counting(Protocol):
    """Counts transactions, so that a database that lost some is noticed (`high_water.py`)."""

    def count(self, connection: Connection) -> object:
        """Run as the last statement of a transaction; the answer goes to `keep`."""
        ...

    def keep(self, counted: object) -> None:
        """Run once the transaction is on disk."""
        ...


class Overtaken(Exception):
    """Others were faster again and again: nothing is written, and the lock has to be held."""


class Link(Protocol):
    """The way to a database that others write to: nobody waits for this client's round trips."""

    def commit(
        self, works: Sequence[Work[Any]], counting: Counting | None
    ) -> tuple[list[Any], list[BaseException | None], int]:
        """Run work without the writers' lock; return results, errors, transactions.

        Over a near link, work that others are faster than ends as `Overtaken`.
        """
        ...

    def close(self) -> None: ...


class Lane(Protocol):
    """Runs work in a transaction that is on disk when `run` returns."""

    transactions: int  # committed or rolled back, for measurement
    jobs: int  # pieces of work done, for measurement

    def count_by(self, counting: Counting | None) -> None:
        """Count every transaction from the next one on: a database is judged before it is counted.
        None: no more.
        """
        ...

    @property
    def waiting(self) -> int: ...

    async def run(self, work: Work[Result]) -> Result: ...

    async def recall(self, question: Question) -> Any:
        """Answer as `run` would, without a transaction if nothing changed since the last time."""
        ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class _Job:
    """One piece of work and where its answer goes."""

    work: Work[Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    question: Question | None = None  # of a read that may be answered from the cache
    result: Any = None
    cached: bool = False
    error: BaseException | None = None

    def tell(self) -> None:
        """Deliver the result in the loop's thread. A cancelled caller gets none; its write may be
        on disk.
        """
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)


def run_alone(
    connection: Connection, work: Work[Result], counting: Counting | None = None
) -> Result:
    """Run one piece of work in a transaction of its own.

    Raises the work's own exception; `StoreFailed` if the database fails; `AssertionError` if a row
    breaks a constraint, which only a bug of ours can do.
    """
    try:
        with connection.begin():
            result = work(connection)
            counted = None if counting is None else counting.count(connection)
        if counting is not None:
            counting.keep(counted)
        return result
    except IntegrityError as error:
        raise AssertionError(f"a row breaks a constraint: {error.orig}") from error
    except DBAPIError as error:
        _end_transaction(connection)
        raise StoreFailed(f"the database failed: {error.orig}") from error


def _end_transaction(connection: Connection) -> None:
    """End the transaction after a COMMIT that failed: the driver may still be inside of it.

    SQLAlchemy counts it as ended; without this the next BEGIN fails, and so on to the end of days.
    """
    try:
        connection.rollback()
        connection.connection.rollback()
    except Exception as error:
        connection.invalidate(error)  # the next use connects anew


def run_group(
    connection: Connection,
    jobs: Sequence[_Job],
    *,
    reads: bool = False,
    counting: Counting | None = None,
) -> int:
    """Run many jobs in one transaction, a savepoint each; return the number of transactions it
    took.

    `reads`: they change nothing, so that there is nothing to save and to go back to.

    One job's StaleWrite or Fenced leaves the others alone. If the database itself fails (disk full,
    I/O error at commit), nothing of the group is kept and each job is tried by itself, so that only
    those that cannot be written fail.
    """
    if len(jobs) > 1:
        try:
            with connection.begin():
                for job in jobs:
                    _try(connection, job, reads=reads)
                counted = None if counting is None else counting.count(connection)
        except DBAPIError as error:
            if error.connection_invalidated:
                # the server is gone, and may have kept the group: to try again could write twice
                return _fail_all(jobs, error)
            _end_transaction(connection)
        except Exception:  # the count of writes refused all of it: each is told so by itself
            _end_transaction(connection)
        else:
            _keep_count(jobs, counting, counted)
            return 1
    for job in jobs:
        job.result = job.error = None
        try:
            job.result = run_alone(connection, job.work, counting)
        except BaseException as error:
            job.error = error
    return len(jobs) + (len(jobs) > 1)


def _keep_count(jobs: Sequence[_Job], counting: Counting | None, counted: Any) -> None:
    """Keep the count of writes that are on disk; a failure is told, and writes nothing twice."""
    if counting is None:
        return
    try:
        counting.keep(counted)
    except BaseException as error:
        for job in jobs:
            job.error = job.error or error


def _fail_all(jobs: Sequence[_Job], error: DBAPIError) -> int:
    for job in jobs:
        job.error = StoreFailed(f"the database failed: {error.orig}")
        job.error.__cause__ = error
    return 1


def _try(connection: Connection, job: _Job, *, reads: bool) -> None:
    try:
        with contextlib.nullcontext() if reads else connection.begin_nested():
            job.result = job.work(connection)
    except IntegrityError as error:
        job.error = AssertionError(f"a row breaks a constraint: {error.orig}")
        job.error.__cause__ = error
    except DBAPIError:
        raise  # the transaction as a whole cannot be trusted any more
    except Exception as error:
        job.error = error


class ThreadLane:
    """One thread, one connection; work that waits when a commit ends shares the next one."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        name: str,
        *,
        reads: bool = False,
        link: Link | None = None,
    ) -> None:
        """`link`: of a lane that writes to a database which others write to."""
        self._reads = reads
        self._link = link
        self._name = name
        self._counting: Counting | None = None
        self.transactions = 0
        self.jobs = 0
        self._connect = connect
        self._cache = ReadCache()
        self._closed = False
        # Bounded by its users: a coroutine waits for its answer before it asks again.
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # A daemon thread: an interpreter that exits without `close` must not hang, and a
        # transaction that was cut off is rolled back when the file is opened again.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def count_by(self, counting: Counting | None) -> None:
        """Count every transaction by this from the next one on."""
        self._counting = counting

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    async def run(self, work: Work[Result]) -> Result:
        return cast(Result, await self._answer(work, None))

    async def recall(self, question: Question) -> Any:
        return await self._answer(question.ask, question)

    async def _answer(self, work: Work[Any], question: Question | None) -> Any:
        if self._closed:
            raise StoreFailed("the store is closed")
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future(), question)
        self._queue.put(job)
        return await job.answer

    async def close(self) -> None:
        """Finish the waiting work, then end the thread. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _serve(self) -> None:
        connection: Connection | None = None
        try:
            open_for_more = True
            while open_for_more:
                jobs, open_for_more = self._next_group()
                if jobs:
                    with waits.on(f"a transaction of the {self._name}"):
                        connection = connection or self._open(jobs)
                        if connection is not None:
                            self._run_all(connection, jobs)
                    self.jobs += len(jobs)
                    _tell_all(jobs)
        finally:
            if connection is not None:
                connection.close()
            if self._link is not None:
                self._link.close()

    def _run_all(self, connection: Connection, jobs: Sequence[_Job]) -> None:
        """Bring each job to an end: a thread that ended would leave later callers without one."""
        try:
            self._run(connection, jobs)
        except Exception as error:
            for job in jobs:
                if not job.cached and job.error is None:
                    job.error = StoreFailed(f"the database failed: {error}")
                    job.error.__cause__ = error

    def _run(self, connection: Connection, jobs: Sequence[_Job]) -> None:
        """Answer from the cache, and the rest in a transaction."""
        cache = self._cache
        asked = [(job, job.question) for job in jobs if job.question is not None]
        if asked:
            cache.refresh(connection)
            for job, question in asked:
                if question in cache:
                    job.result = cache[question]
                    job.cached = True
        left = [job for job in jobs if not job.cached]
        if left and self._link is not None:
            self._run_beside_others(connection, left, self._link)
        elif left:
            self.transactions += run_group(
                connection, left, reads=self._reads, counting=self._counting
            )
        for job, question in asked:
            if job.error is None:
                cache.put(question, job.result)

    def _run_beside_others(self, connection: Connection, jobs: Sequence[_Job], link: Link) -> None:
        """Write without holding the lock; what others were faster than, alone and holding it."""
        works = [j.work for j in jobs]
        results, errors, calls = link.commit(works, self._counting)
        self.transactions += calls
        for job, result, error in zip(jobs, results, errors, strict=True):
            job.result = result
            job.error = None if isinstance(error, Overtaken) else error
            if isinstance(error, Overtaken):
                self.transactions += 1
                try:
                    job.result = run_alone(connection, job.work, self._counting)
                except BaseException as failed:
                    job.error = failed

    def _open(self, jobs: Sequence[_Job]) -> Connection | None:
        """Return the connection; None if it cannot be made now, and then these jobs have failed.

        The thread goes on: it would otherwise leave every later caller without an answer.
        """
        try:
            return self._connect()
        except Exception as error:
            for job in jobs:
                job.error = StoreFailed(f"the database cannot be reached: {error}")
                job.error.__cause__ = error
            return None

    def _next_group(self) -> tuple[list[_Job], bool]:
        """Wait for a job, then take what else is waiting; False once `close` was called."""
        first = self._queue.get()
        if first is None:
            return [], False
        jobs = [first]
        while len(jobs) < GROUP_MAX:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            jobs.append(job)
        return jobs, True


def _tell_all(jobs: Sequence[_Job]) -> None:
    """Wake each event loop once for the whole group."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, group in by_loop.items():
        # the loop may be closed already: then no caller waits for the answer
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_tell, group)


def _tell(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.tell()


class InlineLane:
    """In the calling thread, one transaction for each piece of work; never yields to the loop."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.transactions = 0
        self.jobs = 0
        self.waiting = 0
        self._counting: Counting | None = None
        self._cache = ReadCache()
        self._connection: Connection | None = connect()

    def count_by(self, counting: Counting | None) -> None:
        """Count every transaction by this from the next one on."""
        self._counting = counting

    async def run(self, work: Work[Result]) -> Result:
        if self._connection is None:
            raise StoreFailed("the store is closed")
        self.transactions += 1
        self.jobs += 1
        return run_alone(self._connection, work, self._counting)

    async def recall(self, question: Question) -> Any:
        if self._connection is not None:
            self._cache.refresh(self._connection)
            if question in self._cache:
                self.jobs += 1
                return self._cache[question]
        answer = await self.run(question.ask)
        self._cache.put(question, answer)
        return answer

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
