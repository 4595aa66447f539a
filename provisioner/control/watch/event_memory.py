"""Remembers which events of each BMC were taken in, so that a replay reopens nothing.

The memory is in the store: a daemon that comes back, or takes another's place, is sent the same old
events by the same BMCs. Only events that mean something are remembered; of the others a repeat does
no harm.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from provisioner.adapters.redfish.eventing.event_identity import identify_event, order_by_time
from provisioner.adapters.redfish.eventing.events import Pushed, is_meaningful
from provisioner.ports import AlertRepository

EVENTS_KEPT = 256  # of one BMC: bmcweb keeps and replays 200
BMCS_KEPT = 4096  # in memory, the last that sent something; of the others the store is read

Key = tuple[str, str]  # node, BMC


class EventMemory:
    """To be used by one task per BMC; several only let a repeat through, which is no harm then."""

    def __init__(self, book: AlertRepository) -> None:
        self._book = book
        self._kept: OrderedDict[Key, list[str]] = OrderedDict()  # the newest last

    async def drop_repeats(self, node: str, bmc: str, document: Pushed) -> Pushed:
        """Return the document in the order of its events, without those that came before."""
        if not any(is_meaningful(event) for event in document.events):
            return document
        before = set(await self._read(node, bmc))
        fresh = [
            event
            for event in order_by_time(document).events
            if not is_meaningful(event) or identify_event(event) not in before
        ]
        return document.model_copy(update={"events": tuple(fresh)})

    async def remember(self, node: str, bmc: str, document: Pushed) -> None:
        """Keep the events of a document whose consequences are on disk."""
        meaningful = [identify_event(e) for e in document.events if is_meaningful(e)]
        new = [identity for identity in meaningful if identity is not None]
        if not new:
            return
        identities = await self._read(node, bmc)
        identities += [identity for identity in dict.fromkeys(new) if identity not in identities]
        del identities[:-EVENTS_KEPT]
        await self._book.put_received(node, bmc, tuple(identities))

    async def _read(self, node: str, bmc: str) -> list[str]:
        key = (node, bmc)
        if key not in self._kept:
            read: Sequence[str] = await self._book.list_received(node, bmc)
            self._kept.setdefault(key, list(read))
            while len(self._kept) > BMCS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]
