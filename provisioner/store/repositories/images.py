"""Rows of the files that people uploaded into the artifact store, or described."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from sqlalchemy import Connection, Table, delete, insert, select

from provisioner.model.agent import StoredImage
from provisioner.model.campaign import NamedPolicy
from provisioner.model.events import Event
from provisioner.model.events.fleet_events import ImageChanged, PolicyChanged
from provisioner.ports.errors import StaleWrite
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal
from provisioner.store.rows.records import parse, parse_each
from provisioner.store.schema.schema import campaign_policies, stored_images

Named = TypeVar("Named", NamedPolicy, StoredImage)


class NamedRecords(Generic[Named]):
    """Named records of one table. A damaged one is missing in a list and hides no other; asked for
    by its name it raises DamagedRow.
    """

    def __init__(
        self, transactions: Transactions, table: Table, model: type[Named], noun: str
    ) -> None:
        self._transactions = transactions
        self._table = table
        self._model: type[Named] = model
        self._noun = noun

    async def list(self) -> Sequence[Named]:
        return (await self.list_with_damaged())[0]

    async def list_with_damaged(self) -> tuple[Sequence[Named], frozenset[str]]:
        """Return the records, and the names of damaged ones, as they are at one moment."""
        return await self._transactions.read(self._read_all)

    async def get(self, name: str) -> Named | None:
        return await self._transactions.read(lambda c: self._read(c, name))

    async def replace(self, record: Named, event: Event, now: float) -> None:
        """Store a record, new or instead of the generation before its own, with its event.

        Raises StaleWrite if it was changed meanwhile.
        """

        def write(connection: Connection) -> None:
            self._require_generation(connection, record.name, record.generation - 1)
            self._delete(connection, record.name)
            row = {"name": record.name, "body": record.model_dump_json()}
            connection.execute(insert(self._table).values(row))
            journal.append(connection, event, now)

        await self._transactions.write(write)

    async def remove(self, record: Named, event: Event, now: float) -> None:
        """Remove a record with its event; generation 0: it has no row.

        Raises StaleWrite if it was changed meanwhile.
        """

        def write(connection: Connection) -> None:
            self._require_generation(connection, record.name, record.generation)
            self._delete(connection, record.name)
            journal.append(connection, event, now)

        await self._transactions.write(write)

    def _read_all(self, connection: Connection) -> tuple[tuple[Named, ...], frozenset[str]]:
        rows = connection.execute(select(self._table).order_by(self._table.c.name)).all()
        each = ((row.name, "", row.body) for row in rows)
        records = parse_each(connection, self._model, self._table.name, each)
        return records, frozenset(r.name for r in rows) - {r.name for r in records}

    def _read(self, connection: Connection, name: str) -> Named | None:
        asked = select(self._table.c.body).where(self._table.c.name == name)
        row = connection.execute(asked).one_or_none()
        return None if row is None else parse(self._model, row.body, f"{self._table.name}, {name}")

    def _delete(self, connection: Connection, name: str) -> None:
        connection.execute(delete(self._table).where(self._table.c.name == name))

    def _require_generation(self, connection: Connection, name: str, expected: int) -> None:
        """Check the generation of the stored record; 0: there is none. Raises StaleWrite."""
        stored = self._read(connection, name)
        if (0 if stored is None else stored.generation) != expected:
            raise StaleWrite(f"{self._noun} {name}")


class SqlPolicyRepository(NamedRecords[NamedPolicy]):
    """Named policies on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        super().__init__(transactions, campaign_policies, NamedPolicy, "policy")

    async def put(self, policy: NamedPolicy, now: float) -> NamedPolicy:
        """Store a policy, new or instead of the generation before its own, with its event.

        Raises StaleWrite if it was changed meanwhile.
        """
        await self.replace(policy, PolicyChanged(policy=policy, by=policy.by), now)
        return policy

    async def drop(self, policy: NamedPolicy, by: str, now: float) -> None:
        """Remove a policy with its event. Raises StaleWrite if it was changed meanwhile."""
        await self.remove(policy, PolicyChanged(dropped=policy, by=by), now)


class SqlImageRepository(NamedRecords[StoredImage]):
    """Stored images on the daemon's own database."""

    def __init__(self, transactions: Transactions) -> None:
        super().__init__(transactions, stored_images, StoredImage, "image")

    async def put(self, image: StoredImage, now: float) -> StoredImage:
        """Store an image, new or instead of the generation before its own, with its event.

        Raises StaleWrite if it was changed meanwhile.
        """
        await self.replace(image, ImageChanged(image=image, by=image.by), now)
        return image

    async def drop(self, image: StoredImage, by: str, now: float) -> None:
        """Remove an image with its event; generation 0: it has no row.

        Raises StaleWrite if it was changed meanwhile.
        """
        await self.remove(image, ImageChanged(dropped=image, by=by), now)
