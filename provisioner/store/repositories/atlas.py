"""The atlas: the facts of all nodes by column, read from their rows without their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import Connection, func, select

from provisioner.model.outcome import Reason
from provisioner.planning.campaigns.select_expression import read_stored
from provisioner.ports.errors import DamagedRow
from provisioner.store.database.transactions import Transactions, reads
from provisioner.store.rows import home_rows
from provisioner.store.rows.node_rows import (
    LAST_CHANGE,
    number_change,
    read_alert_marks,
    read_certificate_marks,
    read_wave_marks,
)
from provisioner.store.rows.records import parse_object
from provisioner.store.schema.schema import nodes

# ------------------------------------------------------------------------------
# The work that waits for people: blocked nodes, alerts and certificates by group.


# of the rows, for those above the repositories
BlockedGroup: TypeAlias = home_rows.BlockedGroup
Place: TypeAlias = home_rows.Place
Placed: TypeAlias = home_rows.Placed
Waits: TypeAlias = home_rows.Waits
group_blocked = home_rows.group_blocked


class SqlHomeRepository:
    """A read model: nothing is written through it."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Return all groups of one moment.
    get_waiting = reads(home_rows.read_waiting)
    # Return the nodes of a group that a retry may take out of quarantine.
    list_retryable = reads(home_rows.list_retryable)
    # Return what happened in the last days and in the last hour.
    read_course = reads(home_rows.read_course)
    # Return nodes in some states, the longest there first.
    list_working = reads(home_rows.read_working)
    # Return (campaign, state of its nodes) -> nodes, of campaigns that are under way.
    count_campaigns = reads(home_rows.count_campaigns)


FIELDS = (
    "kind",
    "state",
    "profile",
    "release",
    "tenant",
    "vrf",
    "placement",
    "site",
    "pod",
    "su",
    "rack",
    "ports",
    "tag",
    "reason",
)


class MarkKind(StrEnum):
    """A kind of words that are no field of a node; a node has at most one word of each."""

    CERTIFICATE = "certificate"  # the span within which its certificate ends
    ALERT = "alert"  # the name of an active alert
    WAVE = "wave"  # its wave in a campaign that is under way


MARKS = {
    MarkKind.CERTIFICATE: read_certificate_marks,
    MarkKind.ALERT: read_alert_marks,
    MarkKind.WAVE: read_wave_marks,
}
Facts = tuple[tuple[str, ...], ...]  # by FIELDS


class SqlAtlasRepository:
    """A read model: nothing is written through it."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get_mark(self) -> str:
        """Return a text that changes with every change of any node."""
        return await self._transactions.read(_sum)

    async def list_generations(self) -> Sequence[tuple[str, int]]:
        """Return (name, generation) of every node."""
        return await self._transactions.read(_generations)

    async def get_newest_change(self) -> int:
        """Return the number of the newest change of any node; 0 without nodes."""
        return await self._transactions.read(_newest_change)

    async def list_changed(self, after: int, limit: int) -> Sequence[tuple[str, int]]:
        """Return (name, number of its newest change) of nodes that changed later, oldest first."""
        return await self._transactions.read(partial(_changed, after=after, limit=limit))

    async def list_facts(self, names: Sequence[str]) -> Sequence[tuple[str, int, Facts]]:
        """Return (name, generation, facts) of the existing nodes among these names."""
        return await self._transactions.read(partial(read_facts, names=names))

    # Return places of all nodes by id, after one; and of those that changed later.
    list_places = reads(home_rows.read_places)
    list_moved = reads(home_rows.read_moved)

    async def list_marks(self, kind: MarkKind, now: float) -> Sequence[tuple[str, str]]:
        """Return (node, word) of the nodes that have a word of this kind, by node."""
        return await self._transactions.read(lambda c: MARKS[kind](c, now))


def _sum(connection: Connection) -> str:
    """Moves on with every change of any node: generations only grow."""
    count, total = connection.execute(select(func.count(), func.sum(nodes.c.generation))).one()
    return f"{count}-{total or 0}"


def _generations(connection: Connection) -> list[tuple[str, int]]:
    return [(r[0], r[1]) for r in connection.execute(select(nodes.c.id, nodes.c.generation))]


def _newest_change(connection: Connection) -> int:
    return int(connection.scalar(LAST_CHANGE) or 0)


def _changed(connection: Connection, after: int, limit: int) -> list[tuple[str, int]]:
    query = select(nodes.c.id, nodes.c.changed).where(nodes.c.changed > after)
    rows = connection.execute(query.order_by(nodes.c.changed, nodes.c.id).limit(limit))
    return [(r[0], number_change(r[1])) for r in rows]


def read_facts(connection: Connection, names: Sequence[str]) -> list[tuple[str, int, Facts]]:
    query = select(nodes.c.id, nodes.c.generation, nodes.c.body).where(nodes.c.id.in_(names))
    found = connection.execute(query.order_by(nodes.c.id))
    return [(r.id, r.generation, _facts(_body(r.id, r.body))) for r in found]


def _body(name: str, text: str) -> Mapping[str, Any]:
    """The fields of a stored node; of a damaged row, the reason why there are none."""
    try:
        return parse_object(text, f"nodes, {name}")
    except DamagedRow:
        return {"blockers": [{"reason": Reason.DAMAGED_ROW.value}]}


def _facts(body: Mapping[str, Any]) -> Facts:
    return tuple(_ports(body) if n == "ports" else read_stored(body, n) for n in FIELDS)


def _ports(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The one field that no expression has: rail and switch of each cable together."""
    ports = sorted({(int(p["rail"]), str(p["switch"])) for p in body.get("ports") or ()})
    return tuple(f"{rail} {switch}" for rail, switch in ports)
