"""Rows of playbook runs: those that a new daemon follows on, and the result of each call."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Row, Select, delete, insert, select, update

from provisioner.ports import DamagedRow, Run
from provisioner.store.database.transactions import Transactions
from provisioner.store.schema.schema import runs

OPEN = "open"


class SqlRunRepository:
    """`ports.RunRepository` in the daemon's database.

    `place` names the data directory that has the runs' folders, where several daemons share a
    database: each follows, ends and forgets its own runs only.
    """

    def __init__(self, transactions: Transactions, place: str = "") -> None:
        self._transactions = transactions
        self._place = place

    async def begin(self, run: Run) -> None:
        values = {**vars(run), "hosts": json.dumps(dict(run.hosts)), "place": self._place}
        await self._transactions.write(lambda c: c.execute(insert(runs).values(**values)))

    async def end(self, run_id: str, state: str, now: float) -> None:
        ended = update(runs).where(runs.c.id == run_id).values(state=state, ended_at=now)
        await self._transactions.write(lambda c: c.execute(ended))

    async def list_open(self) -> Sequence[Run]:
        mine = (runs.c.state == OPEN) & (runs.c.place == self._place)
        return await self._select(select(runs).where(mine).order_by(*_AGE))

    async def list_since(self, host: str, at: float) -> Sequence[Run]:
        # few rows begin within a ledger entry's lifetime: searching their hosts needs no table
        mine = (runs.c.started_at >= at) & (runs.c.place == self._place)
        later = select(runs).where(mine).order_by(*_AGE)
        return [r for r in reversed(await self._select(later)) if host in r.hosts]

    async def list_ended_before(self, at: float) -> Sequence[Run]:
        over = (runs.c.state != OPEN) & (runs.c.ended_at < at) & (runs.c.place == self._place)
        return await self._select(select(runs).where(over).order_by(*_AGE))

    async def find_end_elsewhere(self, host: str) -> float:
        elsewhere = select(runs).where(runs.c.state == OPEN, runs.c.place != self._place)
        mine = [r for r in await self._select(elsewhere.order_by(*_AGE)) if host in r.hosts]
        return max((r.started_at + r.limit_s for r in mine), default=0.0)

    async def forget(self, run_id: str) -> None:
        removal = delete(runs).where(runs.c.id == run_id)
        await self._transactions.write(lambda c: c.execute(removal))

    async def _select(self, query: Select[tuple[object, ...]]) -> list[Run]:
        rows = await self._transactions.read(lambda c: c.execute(query).all())
        return [_run(row) for row in rows]


_AGE = (runs.c.started_at, runs.c.id)


def _run(row: Row[tuple[object, ...]]) -> Run:
    values = dict(row._mapping)
    try:
        hosts = json.loads(values["hosts"])
    except ValueError:
        raise DamagedRow(f"runs, {row.id}", "its hosts are no JSON") from None
    values.pop("place")
    return Run(**{**values, "hosts": hosts})
