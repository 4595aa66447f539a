"""Rows of the ledger of time: folded from the journal, summed over a time.

The place in the journal moves in the transaction that writes the spans, so that a crash, a second
leader or a restored database folds no row twice and leaves none out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, literal, select
from sqlalchemy.sql.selectable import Select

from provisioner.model.node import State
from provisioner.planning.certification.fault_rates import Stay
from provisioner.planning.lifecycle.usage import (
    FOLLOWED,
    UNCOUNTED,
    Cause,
    Opened,
    Standing,
    UsageRow,
    Use,
    fold_journal,
    name_use,
)
from provisioner.ports.errors import DamagedRow
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows.records import parse, record
from provisioner.store.schema.schema import journal, node_versions, version_sets
from provisioner.store.schema.usage_tables import (
    usage_open,
    usage_place,
    usage_spans,
    version_spans,
)

log = logging.getLogger(__name__)
ROWS_MAX = 2_000  # of the journal in one transaction: some 40 ms
GPU = "hgx.gpu"
_CAUSES = {cause.value: cause for cause in Cause}


class UsageQuery(NamedTuple):
    """What is summed: a time, of one tenant or of all, by node or not."""

    begins_at: float
    ends_at: float
    tenant: str = ""
    node: str = ""
    by: str = "cause"  # or "what", or "node": how finely beside owner and cause


class SqlUsageRepository:
    """The ledger of time on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def advance(self) -> bool:
        """Fold the journal's next rows; return whether there are more."""
        return await self._transactions.write(advance_ledger)

    async def sum_usage(self, query: UsageQuery) -> tuple[UsageRow, ...]:
        """Return the node-seconds within a time, by owner, cause and what it is about."""
        return await self._transactions.read(lambda c: sum_usage(c, query))

    async def list_stays(self, since: float, now: float) -> tuple[Stay, ...]:
        """Return the times in which nodes could fail, by the versions that they ran."""
        return await self._transactions.read(lambda c: list_stays(c, since, now))

    async def sum_steps(self, query: UsageQuery, edges: Sequence[float]) -> list[dict[str, float]]:
        """Return the node-seconds by cause of each step between two edges."""
        return await self._transactions.read(lambda c: sum_steps(c, query, edges))

    async def find_begin(self, query: UsageQuery) -> float | None:
        """Return when the first counted second of a time is; None where none is counted."""
        return await self._transactions.read(lambda c: find_begin(c, query))

    async def count_behind(self) -> int:
        """Return how many events of the journal are not folded yet."""
        return await self._transactions.read(count_behind)


def count_behind(connection: Connection) -> int:
    """Return how many events of the journal are not folded yet."""
    through, _ = find_place(connection)
    waiting = select(func.count()).where(
        journal.c.seq > through, journal.c.kind.in_(sorted(FOLLOWED))
    )
    return connection.scalar(waiting) or 0


def find_place(connection: Connection) -> tuple[int, int]:
    """Return the number of the last folded row of the journal, and of its newest one."""
    newest = connection.scalar(select(func.max(journal.c.seq))) or 0
    through = connection.scalar(select(usage_place.c.through))
    if through is None and connection.scalar(select(func.count()).select_from(usage_open)):
        raise DamagedRow("usage_place", "it is missing, and the journal was folded before")
    if through is not None and (not isinstance(through, int) or through < 0):
        raise DamagedRow("usage_place", "through is no number of a row")
    return through or 0, newest


def advance_ledger(connection: Connection) -> bool:
    """Fold the next rows after the stored place; return whether there are more."""
    through, newest = find_place(connection)
    if through >= newest:
        return False
    found = connection.execute(
        select(journal.c.seq, journal.c.at, journal.c.kind, journal.c.node, journal.c.detail)
        .where(journal.c.seq > through, journal.c.kind.in_(sorted(FOLLOWED)))
        .order_by(journal.c.seq)
        .limit(ROWS_MAX)
    ).all()
    rows = read_details(found)
    before = _read_open(connection, {row["node"] for row in rows})
    opened = dict(before)
    closed = fold_journal(rows, opened)
    if closed:
        values = [
            {"node": s.node, "begins_at": s.begins_at, "ends_at": s.ends_at, **_as_columns(s.use)}
            for s in closed
        ]
        connection.execute(insert(usage_spans), values)
    _write_open(connection, before, opened)
    more = len(found) == ROWS_MAX
    connection.execute(delete(usage_place))
    through = found[-1].seq if more else newest
    connection.execute(insert(usage_place).values(id=1, through=through))
    return more


def read_details(found: Iterable[Any]) -> list[dict[str, Any]]:
    """Return rows of the journal with their details read."""
    rows = []
    for row in found:
        try:
            rows.append({**row._mapping, "detail": json.loads(row.detail)})
        except ValueError as error:
            raise DamagedRow(f"journal, {row.seq}", str(error)) from None
    return rows


def _read_open(connection: Connection, nodes: set[str]) -> dict[str, Opened]:
    query = select(usage_open).where(usage_open.c.node.in_(sorted(nodes)))
    found = {}
    for row in connection.execute(query):
        if not isinstance(row.begins_at, float):
            record(connection.engine, "", DamagedRow(f"usage_open, {row.node}", "begins_at"))
            continue  # nobody knows since when: it is counted from its next state on
        try:
            standing = parse(Standing, row.standing, f"usage_open, {row.node}")
            use = name_use(standing)
        except DamagedRow as error:  # one node's, and no reason to stop counting the others
            log.error("%s: it is counted on as it was until its next state", error)
            state = State.RELEASED if row.owner else State.DISCOVERED
            standing = Standing(state=state.value, tenant=row.owner)
            use = Use(row.owner, _CAUSES.get(row.cause, Cause.INTAKE), row.what)
        found[row.node] = Opened(row.begins_at, use, standing)
    return found


def _write_open(
    connection: Connection, before: Mapping[str, Opened], after: Mapping[str, Opened]
) -> None:
    changed = {node for node in {*before, *after} if before.get(node) != after.get(node)}
    if not changed:
        return
    connection.execute(delete(usage_open).where(usage_open.c.node.in_(sorted(changed))))
    values = [
        {
            "node": node,
            "begins_at": one.begins_at,
            **_as_columns(one.use),
            "standing": one.standing.model_dump_json(),
        }
        for node, one in after.items()
        if node in changed
    ]
    if values:
        connection.execute(insert(usage_open), values)


def _as_columns(use: Use) -> dict[str, str]:
    return {**use._asdict(), "cause": use.cause.value}


def sum_usage(connection: Connection, query: UsageQuery) -> tuple[UsageRow, ...]:
    """Return the node-seconds within a time, by owner, cause and what it is about."""
    gpus = _count_gpus(connection)
    sums: dict[tuple[str, str, str, str], list[float]] = {}
    closed = _sum_columns(usage_spans, usage_spans.c.ends_at, query)
    going = _sum_columns(usage_open, literal(query.ends_at), query)
    for row in (*connection.execute(closed), *connection.execute(going)):
        texts = (row.owner, row.what, row.node)
        if row.cause not in _CAUSES or not all(isinstance(text, str) for text in texts):
            where = f"usage_spans or usage_open, {row.node or 'owner'} {row.owner} {row.cause}"
            record(connection.engine, "", DamagedRow(where, "no owner and cause are read in it"))
            continue
        entry = sums.setdefault((row.owner, row.cause, row.what, row.node), [0.0, 0.0])
        entry[0] += row.seconds
        entry[1] += row.seconds * gpus.get(row.versions, 0)
    return tuple(
        UsageRow.model_construct(
            owner=owner, cause=_CAUSES[cause], what=what, node=node, node_s=own, gpu_s=gpu
        )
        for (owner, cause, what, node), (own, gpu) in sorted(sums.items())
    )


def sum_steps(
    connection: Connection, query: UsageQuery, edges: Sequence[float]
) -> list[dict[str, float]]:
    """Return the node-seconds by cause of each step between two edges; idle causes are left out."""
    steps = []
    for begin, end in pairwise(edges):
        step = query._replace(begins_at=begin, ends_at=end, by="cause")
        sums: dict[str, float] = {}
        for table, ends_at in ((usage_spans, usage_spans.c.ends_at), (usage_open, literal(end))):
            found = select(table.c.cause, _seconds(table, ends_at, step).label("seconds"))
            where = _within(table, ends_at, step)
            for row in connection.execute(found.where(*where).group_by(table.c.cause)):
                sums[row.cause] = sums.get(row.cause, 0.0) + row.seconds
        steps.append(sums)
    return steps


def find_begin(connection: Connection, query: UsageQuery) -> float | None:
    """Return when the first counted second of a time is; None where none is counted."""
    found = []
    for table, ends_at in (
        (usage_spans, usage_spans.c.ends_at),
        (usage_open, literal(query.ends_at)),
    ):
        first = select(func.min(table.c.begins_at)).where(*_within(table, ends_at, query))
        found.append(connection.scalar(first))
    known = [at for at in found if at is not None]
    return max(min(known), query.begins_at) if known else None


def _sum_columns(table: Any, ends_at: ColumnElement[float], query: UsageQuery) -> Select[Any]:
    finer = {"what": [table.c.what], "node": [table.c.node]}.get(query.by, [])
    what = table.c.what if query.by == "what" else literal("")
    node = table.c.node if query.by == "node" else literal("")
    keys = [table.c.owner, table.c.cause, node_versions.c.versions]
    found = select(
        *keys,
        what.label("what"),
        node.label("node"),
        _seconds(table, ends_at, query).label("seconds"),
    ).select_from(table.outerjoin(node_versions, node_versions.c.node == table.c.node))
    return found.where(*_within(table, ends_at, query)).group_by(*keys, *finer)


def _seconds(table: Any, ends_at: ColumnElement[float], query: UsageQuery) -> ColumnElement[float]:
    first = case((table.c.begins_at > query.begins_at, table.c.begins_at), else_=query.begins_at)
    last = case((ends_at < query.ends_at, ends_at), else_=query.ends_at)
    return func.sum(last - first)


def _within(
    table: Any, ends_at: ColumnElement[float], query: UsageQuery
) -> list[ColumnElement[bool]]:
    """Return the conditions of spans that a question is about."""
    found = [
        ends_at > query.begins_at,
        table.c.begins_at < query.ends_at,
        table.c.cause.not_in(sorted(UNCOUNTED)),
    ]
    if query.tenant:
        found.append(table.c.owner == query.tenant)
    if query.node:
        found.append(table.c.node == query.node)
    return found


def _count_gpus(connection: Connection) -> dict[str | None, int]:
    """Return the GPUs of each set of versions, which many nodes share."""
    counts: dict[str | None, int] = {}
    for digest, body in connection.execute(select(version_sets.c.digest, version_sets.c.body)):
        try:
            counts[digest] = sum(int(row[-1]) for row in json.loads(body or "[]") if row[0] == GPU)
        except (ValueError, TypeError, LookupError) as error:
            record(connection.engine, "", DamagedRow(f"version_sets, {digest}", str(error)))
    return counts


# ------------------------------------------------------------------------------
# Times in which nodes could fail, by the versions that they ran.

AT_RISK = frozenset({Cause.SERVING.value, Cause.FREE.value})
FAULTY = frozenset({Cause.DEGRADED.value, Cause.FAULT.value, Cause.CASE.value})


def list_stays(connection: Connection, since: float, now: float) -> tuple[Stay, ...]:
    """Return each time at risk since `since`, cut where the versions changed."""
    changes: dict[str, list[tuple[float, str]]] = {}
    begins = version_spans.c.begins_at
    last = select(version_spans.c.node, func.max(begins).label("at")).where(begins <= since)
    first = last.group_by(version_spans.c.node).subquery()
    at_begin = (version_spans.c.node == first.c.node) & (begins == first.c.at)
    within = select(version_spans).outerjoin(first, at_begin)
    within = within.where((begins > since) | first.c.node.is_not(None)).order_by(begins)
    for row in connection.execute(within):
        if not isinstance(row.begins_at, float):
            record(connection.engine, "", DamagedRow(f"version_spans, {row.node}", "begins_at"))
            continue
        changes.setdefault(row.node, []).append((row.begins_at, row.versions))
    columns = ("node", "begins_at", "ends_at", "cause")
    closed = select(*(usage_spans.c[name] for name in columns)).where(usage_spans.c.ends_at > since)
    going = select(
        usage_open.c.node, usage_open.c.begins_at, literal(now).label("ends_at"), usage_open.c.cause
    )
    found = [*connection.execute(closed).all(), *connection.execute(going).all()]
    types = (str, float, float)
    known = [r for r in found if all(map(isinstance, r[:3], types))]
    for row in found if len(known) < len(found) else ():
        if row not in known:
            record(
                connection.engine, "", DamagedRow(f"usage_spans, {row.node}", "its node or times")
            )
    rows = sorted(known)
    stays: list[Stay] = []
    for row, after in zip(rows, [*rows[1:], None], strict=False):  # the last one has none
        if row.cause not in AT_RISK:
            continue
        follows = after is not None and after.node == row.node and after.begins_at == row.ends_at
        failed = follows and after is not None and after.cause in FAULTY
        stay = Stay(row.node, max(row.begins_at, since), row.ends_at, failed, "")
        stays += _cut_by_versions(stay, changes.get(row.node, []))
    return tuple(stays)


def _cut_by_versions(stay: Stay, changes: Sequence[tuple[float, str]]) -> list[Stay]:
    """Return the pieces of a time at risk, each under one set of versions."""
    pieces = []
    rest = stay
    for at, versions in changes:
        if at <= rest.begins_at:
            rest = rest._replace(versions=versions)
        elif at < rest.ends_at:
            pieces.append(rest._replace(ends_at=at, failed=False))
            rest = rest._replace(begins_at=at, versions=versions)
    return [*pieces, rest]
