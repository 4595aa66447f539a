"""What else a node is in for its tenant, by systems that integrations bring: one writer each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import turn
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateRow
from provisioner.ports import PortError
from provisioner.ports.isolation import Membership
from provisioner.store.sql_store import SqlStore

Change = Callable[[Node, Sequence[Node]], Awaitable[tuple[Blocker, ...]]]


class Memberships:
    """All systems of a site, in their order."""

    def __init__(self, systems: Sequence[Membership], store: SqlStore) -> None:
        self._systems = systems
        self._store = store

    async def admit(self, node: Node) -> tuple[Blocker, ...]:
        """Bring a node into what its tenant has; the first system that refuses ends it."""
        for one in self._systems:
            if refused := await self._change(one.name, one.admit, node):
                return refused
        return ()

    async def expel(self, node: Node) -> tuple[Blocker, ...]:
        """Take a node out of every system; each is tried."""
        refused = [await self._change(one.name, one.expel, node) for one in self._systems]
        return tuple(blocker for each in refused for blocker in each)

    async def judge(self, node: Node) -> tuple[GateRow, ...]:
        """Return the gate's rows of every system."""
        nodes = await self._store.nodes.list()
        return tuple([row for one in self._systems for row in await one.judge(node, nodes)])

    async def close(self) -> None:
        """Nothing waits here. The caller that opened the systems closes them."""

    async def _change(self, name: str, change: Change, node: Node) -> tuple[Blocker, ...]:
        try:
            async with turn(name):
                # read within the turn: whoever had it before may have given a node away
                return await change(node, await self._store.nodes.list())
        except PortError as problem:
            return (blocked(problem, name),)
