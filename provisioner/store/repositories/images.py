"""Rows of the files that people uploaded into the artifact store, or described."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from provisioner.model.artifact import StoredImage
from provisioner.model.events.fleet_events import ImageChanged
from provisioner.ports.errors import StaleWrite
from provisioner.store.database.transactions import Transactions
from provisioner.store.rows import journal as chain
from provisioner.store.rows.records import parse
from provisioner.store.schema.campaign_schema import stored_images as table


class SqlImageRepository:
    """Stored images on the daemon's own database. A damaged row raises DamagedRow."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self) -> Sequence[StoredImage]:
        """Return all images, by name."""
        return await self._transactions.read(_read_all)

    async def get(self, name: str) -> StoredImage | None:
        """Return one image; None if there is none of this name."""
        return await self._transactions.read(lambda c: _read(c, name))

    async def put(self, image: StoredImage, now: float) -> StoredImage:
        """Store an image, new or instead of the generation before its own, with its event.

        Raises StaleWrite if it was changed meanwhile.
        """
        await self._transactions.write(lambda c: _put(c, image, now))
        return image

    async def drop(self, image: StoredImage, by: str, now: float) -> None:
        """Remove an image with its event; generation 0: it has no row.

        Raises StaleWrite if it was changed meanwhile.
        """
        await self._transactions.write(lambda c: _drop(c, image, by, now))


def _read_all(connection: Connection) -> tuple[StoredImage, ...]:
    rows = connection.execute(select(table).order_by(table.c.name)).all()
    return tuple(parse(StoredImage, r.body, f"stored_images, {r.name}") for r in rows)


def _read(connection: Connection, name: str) -> StoredImage | None:
    row = connection.execute(select(table.c.body).where(table.c.name == name)).one_or_none()
    return None if row is None else parse(StoredImage, row.body, f"stored_images, {name}")


def _put(connection: Connection, image: StoredImage, now: float) -> None:
    _require_generation(connection, image.name, image.generation - 1)
    connection.execute(delete(table).where(table.c.name == image.name))
    connection.execute(insert(table).values(name=image.name, body=image.model_dump_json()))
    chain.append(connection, ImageChanged(image=image, by=image.by), now)


def _drop(connection: Connection, image: StoredImage, by: str, now: float) -> None:
    _require_generation(connection, image.name, image.generation)
    connection.execute(delete(table).where(table.c.name == image.name))
    chain.append(connection, ImageChanged(dropped=image, by=by), now)


def _require_generation(connection: Connection, name: str, expected: int) -> None:
    """Check the generation of the stored image; 0: there is none. Raises StaleWrite."""
    stored = _read(connection, name)
    if (0 if stored is None else stored.generation) != expected:
        raise StaleWrite(f"image {name}")
