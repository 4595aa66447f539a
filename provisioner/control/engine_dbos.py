"""The engine of several daemons: DBOS on PostgreSQL as queue and owner, and nothing else.

One operation is one DBOS workflow without recorded steps: it may begin again from its top, in
another daemon or with newer code, and what it did is told by our own rows and by the device. DBOS
never takes a dead daemon's work over by itself; whoever finds its seat empty re-queues it through
the public calls. A sweep submits any active operation that no living workflow drives, so that
DBOS' tables may be thrown away at any time (facts: engine 4).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from dbos import DBOS, Serializer
from sqlalchemy import make_url

from provisioner.control.cluster import Cluster
from provisioner.control.engine import StoreLoss
from provisioner.planning.sharing import share, too_many
from provisioner.ports import Store, StoreFailed
from provisioner.store.postgres import CONNECT, postgres_url

log = logging.getLogger(__name__)
T = TypeVar("T")

QUEUE = "operations"
WORKFLOW = "operation"
# Never changed: DBOS lets only equal versions take work over, and our workflow has no steps whose
# order could change.
VERSION = "1"
QUEUE_POLL_S = 0.5
ADOPT_S = 1.0  # between two looks for dead daemons
SPREAD_S = 1.0  # between two looks at how many there are to share the work
SWEEP_LEASES = 3.0  # between two sweeps; one that is missed twice is submitted anew
KEEP_S = 86_400.0  # finished workflows, for people who look with DBOS' own tools
POOL = 4  # connections: DBOS' own statements, some 2 ms each
LISTED_MAX = 10_000


class PlainJson(Serializer):
    """What DBOS keeps of a workflow, as JSON: not as pickles, which are code."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=str)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data)

    def name(self) -> str:
        return "provisioner_json"


class DbosEngine:
    """One per process: DBOS is. The queue, and how many each may take of it, is everybody's."""

    def __init__(
        self,
        store: Store,
        drive: Callable[[str], Awaitable[None]],
        operations_max: int,
        cluster: Cluster,
        database: str,
    ) -> None:
        self._store = store
        self._drive = drive
        self._operations_max = operations_max
        self._cluster = cluster
        self._database = database
        self._thread = ThreadPoolExecutor(1, "engine")
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._ticking: list[asyncio.Task[None]] = []
        self._stopping = False
        self._missed: frozenset[str] = frozenset()
        self._loss = StoreLoss()
        self._part = operations_max  # of all operations, as was counted last
        self._left: set[str] = set()  # to peers, as soon as their drivers have ended

    @property
    def running(self) -> int:
        """How many operations are driven here now."""
        return len(self._driven)

    async def failed(self) -> None:
        """Until the store fails one that drives."""
        await self._loss.wait()

    async def start(self) -> None:
        """Begin to drive what is queued, and to look after daemons that die."""
        loop = asyncio.get_running_loop()
        await self._in_thread(partial(self._launch, loop))
        self._ticking = [
            asyncio.create_task(self._adopt(), name="adopting"),
            asyncio.create_task(self._sweep(), name="sweeping"),
            asyncio.create_task(self._spread(), name="spreading"),
        ]

    async def submit(self, operation_id: str) -> None:
        """Queue an operation; once, however often and by whomever it is submitted."""
        await self._in_thread(partial(_enqueue, f"{operation_id}@0", operation_id))

    def leaves(self, operation_id: str) -> bool:
        """Whether a peer shall go on with this one: the caller then ends at once."""
        if not too_many(len(self._driven) - len(self._left), self._part):
            return False
        self._left.add(operation_id)
        return True

    async def stop(self) -> None:
        """Drive no more. The workflows stay as they are: a peer takes them over."""
        self._stopping = True
        tasks = [*self._ticking, *self._driven.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown(wait=False)

    def _launch(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread without an event loop: DBOS then runs workflows on a loop of its own."""
        url = make_url(postgres_url(self._database)).render_as_string(hide_password=False)
        DBOS(
            config={
                "name": "provisioner",
                "system_database_url": url,
                "application_version": VERSION,
                "executor_id": self._cluster.id,
                "serializer": PlainJson(),
                "sys_db_pool_size": POOL,
                "db_engine_kwargs": {"connect_args": {**CONNECT, "application_name": "dbos"}},
                "log_level": "WARNING",
                "max_executor_threads": 16,
            }
        )

        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
        async def operation(operation_id: str) -> None:
            work = asyncio.run_coroutine_threadsafe(self._here(operation_id), loop)
            await asyncio.wrap_future(work)

        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=1,  # until whoever leads has counted
            polling_interval_sec=QUEUE_POLL_S,
            on_conflict="never_update",
        )

    async def _here(self, operation_id: str) -> None:
        """Drive one operation in the daemon's own loop."""
        if operation_id in self._driven:
            return
        task = asyncio.ensure_future(self._drive(operation_id))
        self._driven[operation_id] = task
        try:
            await asyncio.wait({task})
            if operation_id in self._left:
                await self._again(operation_id)
        finally:
            del self._driven[operation_id]
            self._left.discard(operation_id)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreFailed):
            self._loss.tell(error)
        if self._stopping or isinstance(error, StoreFailed):
            await asyncio.Event().wait()  # never told as done: it is not
        if error is not None:
            log.error("operation %s is driven no more", operation_id, exc_info=error)

    async def _adopt(self) -> None:
        """Re-queue what dead daemons were driving, for ever."""
        while True:
            await asyncio.sleep(ADOPT_S)
            for peer in await self._cluster.dead():
                count = await self._in_thread(partial(_requeue, peer.id))
                await self._cluster.let_go(peer)
                if count:
                    log.warning("took over %d operations of %s", count, peer.id)

    async def _spread(self) -> None:
        """Count our share of all operations, for ever; whoever leads allows it to everybody.

        Without it the first to look takes all, and its peers have nothing to do.
        """
        while True:
            active = await self._cluster.active()
            daemons = len(await self._cluster.living())
            self._part = share(active, daemons, self._operations_max)
            if self._cluster.leads:
                await self._in_thread(partial(_allow, self._part))
            await asyncio.sleep(SPREAD_S)

    async def _sweep(self) -> None:
        """What is active and driven by nobody is submitted anew, for ever; by whoever leads."""
        await self._cluster.leading()
        while True:
            living = await self._cluster.living()
            active = frozenset(o.id for o in await self._store.active_operations())
            driven = await self._in_thread(partial(_driven_by, living))
            missed = active - driven
            for operation_id in sorted(missed & self._missed):
                log.warning("operation %s was driven by nobody", operation_id)
                await self._again(operation_id)
            self._missed = missed
            await self._in_thread(_forget)
            await asyncio.sleep(SWEEP_LEASES * self._cluster.lease_s)

    async def _again(self, operation_id: str) -> None:
        """Queue it by a new id: a workflow that is finished never begins again."""
        await self._in_thread(partial(_enqueue, f"{operation_id}@{uuid4().hex}", operation_id))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _allow(count: int) -> None:
    """Every daemon reads this anew before it takes anything."""
    queue = DBOS.retrieve_queue(QUEUE)
    if queue is None:
        raise LookupError(f"DBOS lost its queue {QUEUE}: drop the schema dbos, and start again")
    if queue.worker_concurrency != count:
        queue.set_worker_concurrency(count)


def _enqueue(workflow: str, operation_id: str) -> None:
    DBOS.enqueue_workflow_with_options(
        {
            "workflow_name": WORKFLOW,
            "queue_name": QUEUE,
            "workflow_id": workflow,
            "app_version": VERSION,
        },
        operation_id,
    )


def _requeue(executor: str) -> int:
    """The caller holds the dead one's seat: nobody else does this at the same time."""
    found = DBOS.list_workflows(
        status="PENDING", executor_id=executor, name=WORKFLOW, load_input=False, load_output=False
    )
    if found:
        DBOS.resume_workflows([w.workflow_id for w in found], queue_name=QUEUE)
    return len(found)


def _driven_by(living: frozenset[str]) -> frozenset[str]:
    """Operations whose workflow is queued, or runs in a daemon that lives."""
    found = DBOS.list_workflows(
        status=["ENQUEUED", "PENDING"], name=WORKFLOW, load_input=False, load_output=False
    )
    return frozenset(
        w.workflow_id.rpartition("@")[0]
        for w in found
        if w.status == "ENQUEUED" or w.executor_id in living
    )


def _forget() -> None:
    """Finished workflows go after a day: the journal and the ledger have what they did."""
    before = (datetime.now(UTC) - timedelta(seconds=KEEP_S)).isoformat()
    old = DBOS.list_workflows(
        status=["SUCCESS", "ERROR", "CANCELLED"],
        name=WORKFLOW,
        completed_before=before,
        limit=LISTED_MAX,
        load_input=False,
        load_output=False,
    )
    if old:
        DBOS.delete_workflows([w.workflow_id for w in old])
