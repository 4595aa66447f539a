"""What else a node is in for its tenant, by systems that integrations bring: one writer each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.reach import turn
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, GateRow
from provisioner.ports import PortError
from provisioner.ports.isolation import Membership
from provisioner.runtime import permit
from provisioner.store.sql_store import SqlStore

Change = Callable[[Node, Sequence[Node], Inventory | None], Awaitable[tuple[Blocker, ...]]]
NAMED_MAX = 8  # nodes that wait for one turn
# what switches on the systems that a row is of
SETTINGS = {GateCheck.NVLINK_PARTITION: "racks_nvlink_manager"}


class Memberships:
    """All systems of a site, in their order."""

    def __init__(self, systems: Sequence[Membership], store: SqlStore) -> None:
        self.systems = systems
        self._store = store
        self._holders: dict[str, str] = {}  # system -> the node that has its turn
        self._waiting: dict[str, list[str]] = {}  # system -> nodes, the first one before the others

    async def list_owed(self, node: Node) -> tuple[str, ...]:
        """Return the checks of the systems that a release may bring a node into, with those that
        it may be in by its row. It is stored before anything is sent.
        """
        return tuple(sorted({*node.beside, *await self._list_concerned(node)}))

    async def admit(self, node: Node) -> tuple[Blocker, ...]:
        """Bring a node into what its tenant has; the first system that refuses ends it."""
        if unwritten := await self._list_concerned(node) - {*node.beside}:
            return (_refuse_unwritten(node, min(unwritten)),)
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
            async with self._take_turn(one.name, node.id):
                # read within the turn: whoever had it before may have given a node away
                return await change(node, await self._store.nodes.list(), seen)
        except PortError as problem:
            return (blocked(problem, one.name),)

    @asynccontextmanager
    async def _take_turn(self, system: str, node: str) -> AsyncIterator[None]:
        """Hold the turn of a system; a notice of the daemon says who waits for whom."""
        waiting = self._waiting.setdefault(system, [])
        waiting.append(node)
        self._tell(system)
        try:
            async with turn(system):
                waiting.remove(node)
                self._holders[system] = node
                self._tell(system)
                try:
                    yield
                finally:
                    del self._holders[system]
        finally:
            if node in waiting:
                waiting.remove(node)  # it was cancelled as it waited
            self._tell(system)

    def _tell(self, system: str) -> None:
        waiting = self._waiting[system]
        holder = self._holders.get(system, "another daemon, or nobody for a moment,")
        more = f" and {len(waiting) - NAMED_MAX} more" if len(waiting) > NAMED_MAX else ""
        named = ", ".join(waiting[:NAMED_MAX])
        said = (f"{holder} has the turn of {system}; waiting for it: {named}{more}",)
        permit.get_scope().notices[f"turn of {system}"] = said if waiting else ()

    async def _list_concerned(self, node: Node) -> set[str]:
        seen = await self._store.evidence.get_inventory(node.id) if self.systems else None
        return {str(one.check) for one in self.systems if await one.concerns(node, seen)}

    async def _find_left(self, node: Node) -> tuple[Blocker, ...]:
        """Return why a node may still be in what knows it no more, or is off by now: by its row,
        and by the proof of its release, behind which no fence is recorded.
        """
        owed = set(node.beside)
        proof = await self._store.evidence.get_proof(node.id)
        if proof is not None and proof.confirmed_at > node.fenced_at:
            known = {*SETTINGS, *(one.check for one in self.systems)}
            owed |= {str(row.check) for row in proof.gate if row.check in known}
        left: list[Blocker] = []
        for check in sorted(owed - await self._list_concerned(node)) if owed else ():
            why = f"a release brought it into {check}, or began to, and"
            if any(one.check == check for one in self.systems):
                detail = f"{why} its system does not know it any more"
                unblock = "Bring it back into what the system is told of it, as its plan."
            else:
                setting = {str(row): name for row, name in SETTINGS.items()}.get(check, "")
                lacks = f"`{setting}` is not set" if setting else "its integration is not there"
                detail = f"{why} nothing takes it out of that now: {lacks}"
                unblock = f"Set `{setting}` again" if setting else "Install it again"
                unblock += ", at least until it is back."
            left.append(
                Blocker(reason=Reason.CANNOT_TELL, subject=node.id, detail=detail, unblock=unblock)
            )
        return tuple(left)


def _refuse_unwritten(node: Node, check: str) -> Blocker:
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=node.id,
        detail=f"{check} concerns it since its release began, and its row does not say so yet",
        unblock="It is tried again by itself.",
    )
