"""Rows of the files that people uploaded into the artifact store, or described."""

from __future__ import annotations

from provisioner.model.artifact import StoredImage
from provisioner.model.events.fleet_events import ImageChanged
from provisioner.store.database.transactions import Transactions
from provisioner.store.repositories.named_records import NamedRecords
from provisioner.store.schema.campaign_schema import stored_images


class SqlImageRepository(NamedRecords[StoredImage]):
    """Stored images on the daemon's own database. A damaged row raises DamagedRow."""

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
