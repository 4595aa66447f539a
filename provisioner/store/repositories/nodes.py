"""Nodes, with the ones that damaged rows set aside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.store.database.setting_aside import Aside
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import (
    node_rows,
)
from provisioner.store.rows.fleet import Fleet, read_named


class SqlNodeRepository:
    """`ports.NodeRepository` on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._fleet = Fleet()
        self._aside = Aside(transactions.engine)

    async def add(self, node: Node) -> Node:
        return await self._transactions.write(lambda c: node_rows.add_node(c, node))

    async def get(self, node_id: str) -> Node | None:
        return await self._transactions.read(lambda c: node_rows.read_node(c, node_id))

    async def list(self) -> Sequence[Node]:
        return self._aside.leave_out(await self._fleet.nodes(self._transactions.read))

    def find_damaged(self) -> Mapping[str, Blocker]:
        return self._aside.damaged()

    async def list_set_aside(self) -> Sequence[Node]:
        readable = await self._fleet.nodes(self._transactions.read)
        self._aside.take(readable)
        damaged = self._aside.damaged()
        return *self._fleet.damaged, *(n for n in readable if n.id in damaged)

    async def list_named(self, names: Collection[str]) -> Mapping[str, Node]:
        return await self._transactions.read(lambda c: read_named(c, names))

    async def save(self, node: Node) -> Node:
        return await self._transactions.write(lambda c: node_rows.save_node(c, node))
