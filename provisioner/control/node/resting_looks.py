"""Looks at nodes that rest: an operation is opened only where a look shows something to do.

A look that changes nothing writes nothing: an idle fleet leaves its database, and with it every
answer that is kept in memory, alone. What such a look saw is never acted upon; the operation that
it opens observes and decides anew.

The rule that a reader would otherwise break: every doubt is "something to do". A silent device, a
damaged row, an open action, a stale reading and a bug of ours all go to the node's driver, which
has the rules for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from provisioner.control.context import Context
from provisioner.control.node.lockdown_bracket import is_lifted
from provisioner.control.node.observer import Observer
from provisioner.model.node import Node, State
from provisioner.planning.certification import certification
from provisioner.planning.lifecycle.decide import Rest, View, decide
from provisioner.planning.path.history import find_open_entries
from provisioner.ports import DamagedRow, PortError, StoreFailed
from provisioner.runtime import permit
from provisioner.runtime.log_context import set_log_context

log = logging.getLogger(__name__)


def is_only_looked_at(node: Node) -> bool:
    """Return whether a look is all that this node can need: it rests until something changed."""
    return node.state is State.RELEASED or (node.state is State.CERTIFIED and not node.tenant)


class RestingLooks:
    """Reads nodes side by side, at most `operations_max` of them at once."""

    def __init__(
        self,
        context: Context,
        observer: Observer,
        submit: Callable[[str], Awaitable[None]],
        watch: Callable[[asyncio.Task[None]], object],
    ) -> None:
        """`watch` gets the task of each look: a failure, which is the store's, ends the daemon."""
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._observer = observer
        self._submit = submit
        self._watch = watch
        self._slots = asyncio.Semaphore(context.settings.operations_max)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> frozenset[str]:
        """Return the names of the nodes that are looked at, or wait for their look."""
        return frozenset(self._tasks)

    def begin(self, node: Node) -> None:
        """Look at a node, unless a look at it is under way; return at once."""
        if node.id in self._tasks or permit.is_observing():
            return
        task = asyncio.create_task(self._run(node.id), name=f"look at {node.id}")
        self._tasks[node.id] = task
        task.add_done_callback(lambda ended: self._drop(node.id, ended))
        self._watch(task)

    async def end(self, name: str) -> None:
        """End a look: the node's driver reads it from now on, and changes what would be seen."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """End every look."""
        for name in list(self._tasks):
            await self.end(name)

    def _drop(self, name: str, ended: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is ended:
            del self._tasks[name]

    async def _run(self, name: str) -> None:
        async with self._slots:
            with set_log_context(node=name):
                node = await self._store.nodes.get(name)
                if node is None or not is_only_looked_at(node) or await self._rests(node):
                    return
            self._tasks.pop(name, None)  # its driver, which may begin at once, ends no look
            operation = await self._store.operations.open(name, node.state.value, self._clock.now())
            if operation is not None:
                await self._submit(operation.id)

    async def _rests(self, node: Node) -> bool:
        """Return whether the node is seen to be as its rows say, with nothing left to do."""
        try:
            rows = await self._store.operations.list_entries(node.id)
            if find_open_entries(rows) or is_lifted(rows):
                return False
            if node.id in self._store.nodes.find_damaged():
                return False
            view = await self._observer.observe(node, "")
            return await self._changes_nothing(node, view)
        except StoreFailed:
            raise
        except (PortError, DamagedRow):
            return False
        except Exception:  # our own bug: the driver meets it too, and parks the node
            log.exception("the look at %s failed", node.id)
            return False

    async def _changes_nothing(self, node: Node, view: View) -> bool:
        """Return whether the driver of this node would record nothing new."""
        if view.unseen or not isinstance(decide(node, view, self._settings.poll_s), Rest):
            return False
        if node.state is State.CERTIFIED:
            return True
        causes = certification.list_causes(view.certificate_blockers)
        if causes != node.blockers:
            return False
        if certification.is_lost(causes) and not await self._store.evidence.is_revoked(
            node.certificate
        ):
            return False
        # the next look compares its boot with what is stored
        last = await self._store.evidence.get_inventory(node.id)
        seen = view.inventory
        return seen is None or (last is not None and last.digest() == seen.digest())
