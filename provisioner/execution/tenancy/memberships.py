"""What else a node is in for its tenant, by systems that integrations bring: one writer each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import turn
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
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
            if refused := await self._change(one, one.admit, node):
                return refused
        return ()

    async def expel(self, node: Node) -> tuple[Blocker, ...]:
        """Take a node out of every system; each is tried."""
        refused: list[Blocker] = []
        for one in self._systems:
            refused += await self._change(one, one.expel, node)
            refused += await self._find_left(one, node)
        return tuple(refused)

    async def judge(self, node: Node) -> tuple[GateRow, ...]:
        """Return the gate's rows of every system."""
        nodes = await self._store.nodes.list()
        return tuple([row for one in self._systems for row in await one.judge(node, nodes)])

    async def close(self) -> None:
        """Nothing waits here. The caller that opened the systems closes them."""

    async def _change(self, one: Membership, change: Change, node: Node) -> tuple[Blocker, ...]:
        if not await one.concerns(node):
            return ()  # it waits for no turn of a system that it has nothing to do with
        try:
            async with turn(one.name):
                # read within the turn: whoever had it before may have given a node away
                return await change(node, await self._store.nodes.list())
        except PortError as problem:
            return (blocked(problem, one.name),)

    async def _find_left(self, one: Membership, node: Node) -> tuple[Blocker, ...]:
        """Return why a node may still be in a system that knows it no more: by the proof of its
        release, behind which no fence is recorded.
        """
        if await one.concerns(node):
            return ()
        proof = await self._store.evidence.get_proof(node.id)
        if proof is None or proof.confirmed_at <= node.fenced_at:
            return ()
        if all(row.check is not one.check for row in proof.gate):
            return ()
        detail = f"it was released with {one.check}, and its system does not know it any more"
        unblock = "Bring it back into what the system's integration is told of it, as its plan."
        return (
            Blocker(reason=Reason.CANNOT_TELL, subject=node.id, detail=detail, unblock=unblock),
        )
