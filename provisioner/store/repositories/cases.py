"""Rows of cases and of notices to tenants. One open case for each node, regardless of its
opener.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from provisioner.model.case import Case, TenantNotice
from provisioner.model.events import Event, EventKind
from provisioner.model.events.node_events import NodeAllocated
from provisioner.model.node import Node
from provisioner.model.operation import Operation
from provisioner.ports.errors import StaleWrite
from provisioner.runtime import permit
from provisioner.store.database.transactions import Transactions, reads
from provisioner.store.rows import journal, node_rows, operation_rows
from provisioner.store.rows.records import clean, json_text, parse_each
from provisioner.store.rows.tenant_rows import put_notice
from provisioner.store.schema.schema import cases, notices

# kinds of the journal's rows that say whom a node served
TENANCY = frozenset({EventKind.RELEASED, EventKind.REQUEST, EventKind.RETIRED, EventKind.REPLACED})
# made once: a turn of a node asks whether it has a case
_NEWEST_FIRST = select(cases.c.id, cases.c.node, cases.c.body).order_by(
    cases.c.opened_at.desc(), cases.c.id.desc()
)
_OPEN = _NEWEST_FIRST.where(cases.c.closed_at == 0.0)
_OPEN_OF_NODE = _OPEN.where(cases.c.node == bindparam("name")).limit(1)


class SqlCaseRepository:
    """Stored cases and notices, on disk when a method returns. A case carries the generation
    read.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list_open(self) -> Sequence[Case]:
        return await self._transactions.read(lambda c: _cases(c, c.execute(_OPEN)))

    async def get_open(self, node: str) -> Case | None:
        rows = await self._transactions.read(
            lambda c: _cases(c, c.execute(_OPEN_OF_NODE, {"name": node}))
        )
        return rows[0] if rows else None

    async def get(self, case_id: str) -> Case | None:
        rows = await self._transactions.read(lambda c: _read(c, cases.c.id == case_id, 1))
        return rows[0] if rows else None

    async def list(self, node: str = "", limit: int = 1000) -> Sequence[Case]:
        """Return the cases of a node, or of all nodes; the newest first."""
        where = cases.c.node == node if node else cases.c.id != ""
        return await self._transactions.read(lambda c: _read(c, where, limit))

    async def add(
        self,
        case: Case,
        *,
        notices: Sequence[TenantNotice] = (),
        events: Sequence[Event] = (),
        now: float,
    ) -> Case | None:
        """Add a case and return it; None if the node already has an open one."""
        return await self._transactions.write(lambda c: _add(c, case, notices, events, now))

    async def save(
        self,
        case: Case,
        *,
        notices: Sequence[TenantNotice] = (),
        events: Sequence[Event] = (),
        now: float,
    ) -> Case:
        """Store the case with its generation raised; raise `StaleWrite` if it has changed since."""
        return await self._transactions.write(lambda c: _save(c, case, notices, events, now))

    async def allocate_spare(
        self, case: Case, spare: Node, *, notices: Sequence[TenantNotice] = (), now: float
    ) -> tuple[Case, Node, Operation | None]:
        """Store the case that names a spare, give the spare its tenant, and open the operation
        that releases it, in one transaction; the operation is None if the spare has one already.

        Raises `StaleWrite` if the case or the spare has changed since it was read: then nothing of
        it is stored, and no notice.
        """
        opens = not permit.is_observing()  # as `operations.open`, and asked in the caller's context
        return await self._transactions.write(
            lambda c: _allocate_spare(c, case, spare, notices, now, opens=opens)
        )

    # Return the node's first `limit` rows of the journal since a time, in order.
    list_journal_of = reads(journal.of_node)

    async def list_tenancy(self, after: int, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return the journal's rows about the tenants of nodes, after a row number, in order."""
        return await self._transactions.read(lambda c: journal.of_kinds(c, TENANCY, after, limit))

    async def list_notices(
        self, tenant: str = "", *, unsent: bool = False
    ) -> Sequence[TenantNotice]:
        return await self._transactions.read(lambda c: _notices(c, tenant, unsent=unsent))

    async def put_notice(self, notice: TenantNotice) -> None:
        """Add a notice, or replace it after its delivery or acceptance."""
        await self._transactions.write(lambda c: put_notice(c, notice, replace=True))

    async def list_page(
        self,
        *,
        before: tuple[float, str] | None,
        limit: int,
        node: str = "",
        tenant: str | None = None,
        open_only: bool = False,
    ) -> tuple[Case, ...]:
        """Return cases, the newest first; `tenant`: the one served when the case was opened."""
        return await self._transactions.read(
            lambda c: cases_page(
                c, before=before, limit=limit, node=node, tenant=tenant, open_only=open_only
            )
        )

    async def count(self, node: str, tenant: str | None, *, open_only: bool) -> int:
        """Return the number of cases that `list_page` would give in all."""
        return await self._transactions.read(
            lambda c: count_cases(c, node, tenant, open_only=open_only)
        )

    async def list_notices_page(
        self, *, before: tuple[float, str] | None, limit: int, tenant: str, kind: str
    ) -> tuple[TenantNotice, ...]:
        """Return notices, the newest first; "" does not narrow."""
        return await self._transactions.read(
            lambda c: notices_page(c, before=before, limit=limit, tenant=tenant, kind=kind)
        )


def _add(
    connection: Connection,
    case: Case,
    told: Sequence[TenantNotice],
    events: Sequence[Event],
    now: float,
) -> Case | None:
    open_one = (cases.c.node == case.node) & (cases.c.closed_at == 0.0)
    if connection.scalar(select(cases.c.id).where(open_one).limit(1)) is not None:
        return None
    connection.execute(insert(cases).values(id=case.id, **_columns(case)))
    _beside(connection, told, events, now)
    return case


def _save(
    connection: Connection,
    case: Case,
    told: Sequence[TenantNotice],
    events: Sequence[Event],
    now: float,
) -> Case:
    saved = case.model_copy(update={"generation": case.generation + 1})
    mine = (cases.c.id == case.id) & (cases.c.generation == case.generation)
    if connection.execute(update(cases).where(mine).values(**_columns(saved))).rowcount != 1:
        raise StaleWrite(f"case {case.id} is no longer at generation {case.generation}")
    _beside(connection, told, events, now)
    return saved


def _allocate_spare(
    connection: Connection,
    case: Case,
    spare: Node,
    told: Sequence[TenantNotice],
    now: float,
    *,
    opens: bool,
) -> tuple[Case, Node, Operation | None]:
    case = _save(connection, case, told, (), now)
    spare = node_rows.save_node(connection, spare.model_copy(update={"tenant": case.tenant}))
    journal.append(connection, NodeAllocated(about=spare.id, tenant=case.tenant), now)
    if not opens:
        return case, spare, None
    opened = operation_rows.open_operation(connection, spare.id, spare.state.value, now)
    return case, spare, opened


def _beside(
    connection: Connection, told: Sequence[TenantNotice], events: Sequence[Event], now: float
) -> None:
    for notice in told:
        put_notice(connection, notice, replace=True)
    for event in events:
        journal.append(connection, event, now)


def _read(connection: Connection, where: ColumnElement[bool], limit: int) -> tuple[Case, ...]:
    return _cases(connection, connection.execute(_NEWEST_FIRST.where(where).limit(limit)))


def _cases(connection: Connection, rows: Iterable[Any]) -> tuple[Case, ...]:
    return parse_each(connection, Case, "cases", ((r.id, r.node, r.body) for r in rows))


def cases_page(
    connection: Connection,
    *,
    before: tuple[float, str] | None,
    limit: int,
    node: str = "",
    tenant: str | None = None,
    open_only: bool = False,
) -> tuple[Case, ...]:
    """Return cases, the newest first, from one on. `tenant`: that was served when it was opened."""
    where = _narrow(node, tenant, open_only=open_only)
    if before is not None:
        at, id_ = before
        where &= (cases.c.opened_at < at) | ((cases.c.opened_at == at) & (cases.c.id < id_))
    return _read(connection, where, limit)


def count_cases(connection: Connection, node: str, tenant: str | None, *, open_only: bool) -> int:
    """Return the number of cases of the whole list."""
    where = _narrow(node, tenant, open_only=open_only)
    return connection.scalar(select(func.count()).select_from(cases).where(where)) or 0


def _narrow(node: str, tenant: str | None, *, open_only: bool) -> ColumnElement[bool]:
    where = cases.c.id != ""
    if node:
        where &= cases.c.node == node
    if tenant is not None:
        where &= json_text(cases.c.body, "tenant") == tenant
    if open_only:
        where &= cases.c.closed_at == 0.0
    return where


def notices_page(
    connection: Connection, *, before: tuple[float, str] | None, limit: int, tenant: str, kind: str
) -> tuple[TenantNotice, ...]:
    """Return notices, the newest first; `tenant`, `kind` "": of all."""
    query = select(notices.c.id, notices.c.body)
    if before is not None:
        at, id_ = before
        query = query.where((notices.c.at < at) | ((notices.c.at == at) & (notices.c.id < id_)))
    if tenant:
        query = query.where(notices.c.tenant == tenant)
    if kind:
        query = query.where(json_text(notices.c.body, "kind") == kind)
    rows = connection.execute(query.order_by(notices.c.at.desc(), notices.c.id.desc()).limit(limit))
    return parse_each(connection, TenantNotice, "notices", ((r.id, "", r.body) for r in rows))


def _notices(connection: Connection, tenant: str, *, unsent: bool) -> tuple[TenantNotice, ...]:
    query = select(notices.c.id, notices.c.body)
    query = query.where(notices.c.tenant == tenant) if tenant else query
    query = query.where(notices.c.sent_at == 0.0) if unsent else query
    rows = connection.execute(query.order_by(notices.c.at, notices.c.id))
    return parse_each(connection, TenantNotice, "notices", ((r.id, "", r.body) for r in rows))


def _columns(case: Case) -> dict[str, object]:
    return {
        "node": case.node,
        "generation": case.generation,
        "opened_at": case.opened_at,
        "closed_at": case.closed_at,
        "body": clean(case.model_dump_json()),
    }
