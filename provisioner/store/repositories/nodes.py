"""Nodes, with the ones that damaged rows set aside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from sqlalchemy import Connection

from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.events.event import Event
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, ReleaseConditions
from provisioner.model.operation import ActionStatus, LedgerEntry, Operation, OperationStatus
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import ReleaseProof
from provisioner.runtime import permit
from provisioner.store.database.database import Aside
from provisioner.store.database.transactions import Transactions, reads, writes
from provisioner.store.rows import node_rows, operation_rows, page_rows
from provisioner.store.rows.node_rows import (
    Fleet,
    read_named,
    read_unassigned,
    write_detachment,
    write_node_request,
)


class SqlOperationRepository:
    """Operations of nodes, the turns of their drivers, and the ledger of actions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def open(self, node: str, want: str, now: float) -> Operation | None:
        """Open an active operation and return it; None if the node already has one."""
        if permit.is_observing():
            return None  # a daemon that acts, later, begins nothing that this one decided
        return await self._transactions.write(
            lambda c: operation_rows.open_operation(c, node, want, now)
        )

    async def list_active(self) -> Sequence[Operation]:
        return await self._transactions.recall(operation_rows.active_operations)

    async def list_disrupting(self) -> Sequence[Operation]:
        """Return the active ones in a phase: what their steps take out of service."""
        return await self._transactions.recall(operation_rows.disrupting_operations)

    get = reads(operation_rows.read_operation)

    # Become the operation's driver: raise the epoch, which fences the previous driver.
    take = writes(operation_rows.take)

    async def record(
        self,
        operation: Operation,
        *,
        node: Node | None = None,
        inventory: Inventory | None = None,
        report: HealthReport | None = None,
        certificate: Certificate | None = None,
        proof: ReleaseProof | None = None,
        events: Sequence[Event] = (),
        standing: ReleaseConditions | None = None,
        now: float,
    ) -> tuple[Operation, Node | None]:
        """Write the outcome of one turn in one fenced transaction; return the new operation and
        node.

        `standing` is checked in the same transaction: raises `StaleWrite` if it does not hold.
        """
        parts = (inventory, report, certificate, proof)
        assert node is None or node.id == operation.node, "a driver writes its own node only"
        assert all(p is None or p.node == operation.node for p in parts), "of its own node only"
        listed = tuple(events)
        return await self._transactions.write(
            lambda c: operation_rows.record(c, operation, node, parts, listed, now, standing)
        )

    async def end(
        self, operation: Operation, status: OperationStatus, note: str, now: float | None = None
    ) -> Operation:
        """End the operation (or park it for a person), and with `now` the request that it carries
        out; fenced like every write.
        """
        ended = operation.model_copy(update={"status": status, "note": note})
        return await self._transactions.write(lambda c: operation_rows.end(c, ended, now))

    # Check the fence and write the ledger row in one transaction, on disk before this returns.
    intend = writes(operation_rows.intend)

    async def settle(
        self,
        operation: Operation,
        entry: LedgerEntry,
        status: ActionStatus,
        *,
        task: str = "",
        outcome: str = "",
        now: float,
    ) -> tuple[Operation, LedgerEntry]:
        return await self._transactions.write(
            lambda c: operation_rows.settle(
                c, operation, entry, status, task=task, outcome=outcome, now=now
            )
        )

    get_last_entry = reads(operation_rows.last_entry)

    async def list_entries(self, node: str) -> Sequence[LedgerEntry]:
        return await self._transactions.recall_of(operation_rows.entries, node)

    async def list_page(
        self, *, after: str = "", limit: int, status: str = "", node: str = ""
    ) -> tuple[Operation, ...]:
        """Return operations by id, after one; "" does not narrow."""
        return await self._transactions.read(
            lambda c: page_rows.operations_page(
                c, after=after, limit=limit, status=status, node=node
            )
        )


RECALLED_MAX = 64  # the leaves of a host, the hosts of a leaf: asked at every look
COLUMNS = tuple(page_rows.COLUMNS)  # of `list_columns`, in their order


def _recall_named(connection: Connection, names: tuple[str, ...]) -> Mapping[str, Node]:
    return MappingProxyType(read_named(connection, names))  # callers share it


class SqlNodeRepository:
    """Nodes, with the ones that damaged rows set aside."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._fleet = Fleet()
        self._aside = Aside(transactions.engine)

    add = writes(node_rows.add_node)

    async def get(self, node_id: str) -> Node | None:
        return await self._transactions.recall(node_rows.read_node, node_id)

    async def list(self) -> Sequence[Node]:
        """Return every node except those that are `set_aside`."""
        return self._aside.leave_out(await self._fleet.nodes(self._transactions.recall))

    def find_damaged(self) -> Mapping[str, Blocker]:
        """The blocker of each node that a damaged row belongs to, of the rows read so far."""
        return self._aside.damaged()

    async def list_set_aside(self) -> Sequence[Node]:
        """Return the nodes with a damaged row among those read so far; `nodes` leaves them out.

        A node whose own row is damaged has only its readable fields: its ports may be missing.
        """
        readable = await self._fleet.nodes(self._transactions.recall)
        self._aside.take(readable)
        damaged = self._aside.damaged()
        if not damaged:
            return self._fleet.damaged
        return *self._fleet.damaged, *(n for n in readable if n.id in damaged)

    async def list_cabled(self, switches: Collection[str]) -> Sequence[Node]:
        """Return the nodes of `list` that have a port at one of these switches, by id.

        The cost depends on their number and on what changed.
        """
        self._aside.take(await self._fleet.nodes(self._transactions.recall))
        damaged = self._aside.damaged()
        return [n for n in self._fleet.list_cabled(switches) if n.id not in damaged]

    async def list_guarded(self) -> Sequence[Node]:
        """Return all adopted and detached nodes by id, also those set aside for a damaged row.

        The cost depends on their number and on what changed: it is asked before each write.
        """
        await self._fleet.nodes(self._transactions.recall)
        return self._fleet.guarded

    async def list_named(self, names: Collection[str]) -> Mapping[str, Node]:
        """Return the existing nodes among these names; the cost depends on their number only."""
        if len(names) > RECALLED_MAX:
            return await self._transactions.read(lambda c: read_named(c, names))
        return await self._transactions.recall(_recall_named, tuple(sorted(names)))

    async def list_unassigned(self, names: Collection[str]) -> Sequence[Node]:
        """Return the certified hosts without a tenant among these names, by their present rows,
        except those that are set aside.
        """
        present = await self._transactions.read(lambda c: read_unassigned(c, names))
        damaged = self._aside.damaged()
        return [node for node in present.values() if node.id not in damaged]

    save = writes(node_rows.save_node)

    async def list_page(
        self, *, after: str, limit: int, narrowed: Mapping[str, Collection[str]]
    ) -> tuple[Node, ...]:
        """Return nodes by id, after one; `narrowed` maps a column to its allowed values."""
        return await self._transactions.read(
            lambda c: page_rows.nodes_page(c, after=after, limit=limit, narrowed=narrowed)
        )

    # Return the values of `COLUMNS` for every node (of a tenant).
    list_columns = reads(page_rows.fleet)
    # Return (kind, state, release, tenant, count) of the nodes (of a tenant).
    count_groups = reads(page_rows.summary)

    async def save_requested(
        self, nodes: Sequence[Node], event: RequestCarriedOut, now: float
    ) -> None:
        """Store nodes as a person asked, each with the event, in one transaction.

        Raises `StaleWrite` if one of them has changed since it was read.
        """
        await self._transactions.write(
            lambda c: [write_node_request(c, node, event, now) for node in nodes]
        )

    # Store a node that is given back and revoke its certificate, in one transaction.
    # Raises `StaleWrite` if the node has changed since it was read.
    save_detached = writes(write_detachment)
