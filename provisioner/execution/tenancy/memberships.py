"""What else a node is in for its tenant, by systems that integrations bring: one writer each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import turn
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow
from provisioner.ports import PortError
from provisioner.ports.isolation import Membership
from provisioner.store.sql_store import SqlStore

Change = Callable[[Node, Sequence[Node], Inventory | None], Awaitable[tuple[Blocker, ...]]]
# what switches on the systems that a row is of
SETTINGS = {GateCheck.NVLINK_PARTITION: "racks_nvlink_manager"}


class Memberships:
    """All systems of a site, in their order."""

    def __init__(self, systems: Sequence[Membership], store: SqlStore) -> None:
        self.systems = systems
        self._store = store

    async def admit(self, node: Node) -> tuple[Blocker, ...]:
        """Bring a node into what its tenant has; the first system that refuses ends it."""
        for one in self.systems:
            if refused := await self._change(one, one.admit, node):
                return refused
        return ()

    async def expel(self, node: Node) -> tuple[Blocker, ...]:
        """Take a node out of every system; each is tried."""
        refused: list[Blocker] = []
        for one in self.systems:
            refused += await self._change(one, one.expel, node)
        return (*refused, *await self._find_left(node))

    async def judge(self, node: Node) -> tuple[GateRow, ...]:
        """Return the gate's rows of every system."""
        nodes = await self._store.nodes.list()
        seen = await self._store.evidence.get_inventory(node.id)
        return tuple([row for one in self.systems for row in await one.judge(node, nodes, seen)])

    async def close(self) -> None:
        """Nothing waits here. The caller that opened the systems closes them."""

    async def _change(self, one: Membership, change: Change, node: Node) -> tuple[Blocker, ...]:
        seen = await self._store.evidence.get_inventory(node.id)
        if not await one.concerns(node, seen):
            return ()  # it waits for no turn of a system that it has nothing to do with
        try:
            async with turn(one.name):
                # read within the turn: whoever had it before may have given a node away
                return await change(node, await self._store.nodes.list(), seen)
        except PortError as problem:
            return (blocked(problem, one.name),)

    async def _find_left(self, node: Node) -> tuple[Blocker, ...]:
        """Return why a node may still be in what knows it no more, or is off by now: by the proof
        of its release, behind which no fence is recorded.
        """
        proof = await self._store.evidence.get_proof(node.id)
        if proof is None or proof.confirmed_at <= node.fenced_at:
            return ()
        seen = await self._store.evidence.get_inventory(node.id)
        mine = [one for one in self.systems if await one.concerns(node, seen)]
        left: list[Blocker] = []
        for check in sorted({row.check for row in proof.gate}):
            if any(one.check is check for one in mine):
                continue
            why = f"it was released with {check}, and"
            if any(one.check is check for one in self.systems):
                detail = f"{why} its system does not know it any more"
                unblock = "Bring it back into what the system is told of it, as its plan."
            elif setting := SETTINGS.get(check):
                detail = f"{why} nothing takes it out of that now: `{setting}` is not set"
                unblock = f"Set `{setting}` again, at least until it is back."
            else:
                continue
            left.append(
                Blocker(reason=Reason.CANNOT_TELL, subject=node.id, detail=detail, unblock=unblock)
            )
        return tuple(left)
