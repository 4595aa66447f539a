"""The queue of several daemons: DBOS on PostgreSQL as queue and owner, and nothing else.

One operation is one DBOS workflow without recorded steps. DBOS never takes a dead daemon's work
over by itself: `engine_shared.py` asks for that, through the public calls
(docs/sources/engine.md#recovery).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
from dbos import DBOS, Serializer
from sqlalchemy import URL, make_url

from provisioner.store.database import waits
from provisioner.store.database.postgres import CONNECT, postgres_url, wait_for_room

T = TypeVar("T")

QUEUE = "operations"
WORKFLOW = "operation"
# Never changed: DBOS lets only equal versions take work over, and our workflow has no steps whose
# order could change.
VERSION = "1"
QUEUE_POLL_S = 0.5
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


class DbosQueue:
    """`WorkQueue`; one per process, since DBOS is."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, "queue")

    async def open(self, executor: str, run: Callable[[str], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        await self._in_thread(partial(self._launch, executor, run, loop))

    async def put(self, operation_id: str, *, again: bool = False) -> None:
        # a workflow that is finished never begins again: then it is queued by a new id
        suffix = uuid4().hex if again else "0"
        await self._in_thread(partial(_enqueue, f"{operation_id}@{suffix}", operation_id))

    async def requeue(self, executor: str) -> int:
        return await self._in_thread(partial(_requeue, executor))

    async def driven_by(self, living: frozenset[str]) -> frozenset[str]:
        return await self._in_thread(partial(_driven_by, living))

    async def allow(self, count: int) -> None:
        await self._in_thread(partial(_allow, count))

    async def forget(self) -> None:
        await self._in_thread(_forget)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _launch(
        self, executor: str, run: Callable[[str], Awaitable[None]], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Launch DBOS in a thread without an event loop: it then runs workflows on a loop of its
        own.
        """
        url = make_url(postgres_url(self._database)).render_as_string(hide_password=False)
        _find_room(make_url(url).set(drivername="postgresql"))
        DBOS(
            config={
                "name": "provisioner",
                "system_database_url": url,
                "application_version": VERSION,
                "executor_id": executor,
                "serializer": PlainJson(),
                "sys_db_pool_size": POOL,
                "db_engine_kwargs": {"connect_args": {**CONNECT, "application_name": "dbos"}},
                "log_level": "WARNING",
                "max_executor_threads": 16,
            }
        )

        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
        async def operation(operation_id: str) -> None:
            work = asyncio.run_coroutine_threadsafe(_awaited(run, operation_id), loop)
            await asyncio.wrap_future(work)

        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=1,  # until the leader has counted
            polling_interval_sec=QUEUE_POLL_S,
            on_conflict="never_update",
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def waiting() -> T:
            with waits.on("the queue of operations"):
                return wait_for_room(work)

        return await asyncio.get_running_loop().run_in_executor(self._thread, waiting)


async def _awaited(run: Callable[[str], Awaitable[None]], operation_id: str) -> None:
    await run(operation_id)


def _find_room(url: URL) -> None:
    """Wait until the server has the connections that DBOS opens at once: it cannot wait itself.

    None is held while others are missing, so that two daemons do not wait for each other.
    """
    text = url.render_as_string(hide_password=False)

    def try_all() -> None:
        with ExitStack() as held:
            for _ in range(POOL + 1):  # and the one that it creates its tables by
                held.enter_context(psycopg.connect(text, **CONNECT))

    wait_for_room(try_all)


def _allow(count: int) -> None:
    """Set the count, which every daemon reads anew before it takes an operation."""
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
    """Queue the operations of a dead daemon again. The caller holds its lease, so that no peer does
    so too.
    """
    workflows = DBOS.list_workflows(
        status="PENDING", executor_id=executor, name=WORKFLOW, load_input=False, load_output=False
    )
    if workflows:
        DBOS.resume_workflows([w.workflow_id for w in workflows], queue_name=QUEUE)
    return len(workflows)


def _driven_by(living: frozenset[str]) -> frozenset[str]:
    """Return the operations whose workflow is queued, or runs in a living daemon."""
    workflows = DBOS.list_workflows(
        status=["ENQUEUED", "PENDING"], name=WORKFLOW, load_input=False, load_output=False
    )
    return frozenset(
        w.workflow_id.rpartition("@")[0]
        for w in workflows
        if w.status == "ENQUEUED" or w.executor_id in living
    )


def _forget() -> None:
    """Delete workflows a day after their end: the journal and the ledger record their actions."""
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
