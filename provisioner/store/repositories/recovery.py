"""Rows of a restore that is being settled: differences, and whether nothing may be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import Connection, delete, insert, select, update

from provisioner.model.events.fleet_events import (
    AdoptedPortLeft,
    DifferenceSettled,
    LookOnlyBegun,
    RestoreSettled,
)
from provisioner.model.host_filter import DatabaseMark
from provisioner.model.node import Node
from provisioner.model.recovery import Difference, DifferenceKind, Settlement
from provisioner.model.tenant import ReleaseProof
from provisioner.ports.errors import DamagedRow, StaleWrite
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import evidence_rows, journal, node_rows
from provisioner.store.rows.records import parse
from provisioner.store.schema.schema import differences, site_state


class SqlRecoveryRepository:
    """Stored differences between rows and switches, on disk when a method returns."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def get_look_only(self) -> str:
        """Return why no device may be written to; "" if writing is allowed."""
        return await self._transactions.read(read_look_only)

    async def get_surveyed_at(self) -> float:
        """Return when all nodes were last compared; 0 before that."""
        return await self._transactions.read(read_surveyed_at)

    async def list_differences(self) -> Sequence[Difference]:
        """Return all differences, those without a decision first."""
        return await self._transactions.read(read_differences)

    async def put_survey(self, found: Sequence[Difference], now: float) -> None:
        """Replace the differences without a decision; settled ones stay."""
        await self._transactions.write(partial(put_survey, found=tuple(found), now=now))

    async def settle(
        self, difference: Difference, node: Node | None = None, proof: ReleaseProof | None = None
    ) -> None:
        """Store the decision, the node's new row, and its proof, in one transaction.

        Raises `StaleWrite` if it was settled, or the row has changed, since it was read.
        """
        await self._transactions.write(
            partial(settle, difference=difference, node=node, proof=proof)
        )

    async def finish(self, by: str, now: float) -> None:
        """Allow the daemons to act again. Raises `StaleWrite` while a difference has no
        decision.
        """
        await self._transactions.write(partial(finish, by=by, now=now))

    async def get_database_mark(self) -> DatabaseMark | None:
        """Return the database's identity and life; None before a daemon has opened it."""
        return await self._transactions.read(read_database_mark)

    async def begin_look_only(self, why: str, now: float) -> None:
        """Forbid writes to devices until all differences are settled."""
        await self._transactions.write(partial(only_look, why=why, now=now))

    async def list_adopted_ports(self) -> Mapping[str, str]:
        """Return the ports without a node that a person left in a customer's VRF, with that VRF.

        Names are "leaf/interface". Such a decision outlives `finish`, because the watch would
        otherwise fence the port.
        """
        return await self._transactions.recall(read_adopted_ports)

    async def drop_adopted(self, name: str, now: float) -> None:
        """Drop the decision on one of `adopted_ports`, which is in another network by now."""
        await self._transactions.write(partial(drop_adopted, name=name, now=now))


def read_look_only(connection: Connection) -> str:
    """Return why nothing may be written to devices; "" if it may."""
    return connection.scalar(select(site_state.c.look_only)) or ""


def read_database_mark(connection: Connection) -> DatabaseMark | None:
    """Return the database's identity and how many of its restores were settled."""
    row = connection.execute(select(site_state.c.site, site_state.c.life)).first()
    return None if row is None else DatabaseMark(row.site, row.life)


def only_look(connection: Connection, why: str, now: float) -> None:
    """Let nothing be written to devices until what differs is settled."""
    connection.execute(delete(differences))
    connection.execute(update(site_state).values(look_only=why, surveyed_at=0.0))
    journal.append(connection, LookOnlyBegun(why=why), now)


def read_surveyed_at(connection: Connection) -> float:
    """Return when rows and leaves of every node were compared last; 0 before that."""
    surveyed_at = connection.scalar(select(site_state.c.surveyed_at)) or 0.0
    if not isinstance(surveyed_at, float):
        raise DamagedRow("site_state", "surveyed_at is no time")
    return surveyed_at


def read_differences(connection: Connection) -> Sequence[Difference]:
    """Return all of them, those that wait for a word first."""
    rows = connection.execute(
        select(differences).order_by(differences.c.settled != "", differences.c.subject)
    )
    return tuple(parse(Difference, r.body, f"differences, {r.subject}") for r in rows)


def put_survey(connection: Connection, found: Sequence[Difference], now: float) -> None:
    """Replace the differences that wait for a decision by the present ones; settled ones stay
    settled.

    A port that was settled in one network and is in another one by now is not settled.
    """
    connection.execute(delete(differences).where(differences.c.settled == ""))
    settled = {d.subject: d for d in read_differences(connection)}
    for one in found:
        word = settled.get(one.subject)
        if word is not None:
            if one.kind is not DifferenceKind.STRANGER or one.world == word.world:
                continue
            connection.execute(delete(differences).where(differences.c.subject == one.subject))
        connection.execute(
            insert(differences).values(subject=one.subject, settled="", body=one.model_dump_json())
        )
    connection.execute(update(site_state).values(surveyed_at=now))


def read_adopted_ports(connection: Connection) -> Mapping[str, str]:
    """Return the ports without a node that a person left in a VRF: "leaf/interface" -> VRF."""
    rows = connection.execute(
        select(differences).where(differences.c.settled == Settlement.ADOPT.value)
    )
    adopted = (parse(Difference, r.body, f"differences, {r.subject}") for r in rows)
    return {d.subject: d.vrf for d in adopted if d.kind is DifferenceKind.STRANGER}


def drop_adopted(connection: Connection, name: str, now: float) -> None:
    """Drop the word on a port that has left the VRF in which it was adopted."""
    if name not in read_adopted_ports(connection):
        return
    connection.execute(delete(differences).where(differences.c.subject == name))
    journal.append(connection, AdoptedPortLeft(about=name.partition("/")[0], port=name), now)


def settle(
    connection: Connection, difference: Difference, node: Node | None, proof: ReleaseProof | None
) -> None:
    """Store the decision on one difference, and the node's row that follows from it: both or
    neither.

    `StaleWrite` if it was settled meanwhile, or if the node's row was changed.
    """
    assert difference.settled is not None
    waiting = select(differences.c.settled).where(differences.c.subject == difference.subject)
    if connection.scalar(waiting) not in (None, ""):
        raise StaleWrite(f"the difference of {difference.subject} is settled already")
    connection.execute(delete(differences).where(differences.c.subject == difference.subject))
    connection.execute(
        insert(differences).values(
            subject=difference.subject,
            settled=difference.settled.value,
            body=difference.model_dump_json(),
        )
    )
    if node is not None:
        node_rows.save_node(connection, node)
    if proof is not None:
        evidence_rows.put_proof(connection, proof)
    event = DifferenceSettled(
        difference=difference.kind,
        row=difference.row,
        world=difference.world,
        vrf=difference.vrf,
        tenant=difference.tenant if node is None else node.tenant,
        seen_at=difference.seen_at,
        settled=difference.settled,
        settled_by=difference.settled_by,
        settled_at=difference.settled_at,
    )
    if node is not None:
        event = event.model_copy(update={"about": node.id, "state": node.state})
    if difference.leaf:
        port = {"about": difference.leaf, "leaf": difference.leaf, "port": difference.subject}
        event = event.model_copy(update=port)
    journal.append(connection, event, difference.settled_at)


def finish(connection: Connection, by: str, now: float) -> None:
    """Let the daemons act again. `StaleWrite` while anything waits for a word."""
    waits = connection.scalar(
        select(differences.c.subject).where(differences.c.settled == "").limit(1)
    )
    if waits is not None:
        raise StaleWrite(f"{waits} and perhaps others wait for a word")
    if not read_surveyed_at(connection):
        raise StaleWrite("rows and ports were not compared yet")
    why = read_look_only(connection)
    adopted = list(read_adopted_ports(connection))  # the watch of leaves goes by them
    connection.execute(delete(differences).where(differences.c.subject.not_in(adopted)))
    settled = {"look_only": "", "surveyed_at": 0.0, "life": site_state.c.life + 1}
    connection.execute(update(site_state).values(settled))
    journal.append(connection, RestoreSettled(by=by, why=why), now)
