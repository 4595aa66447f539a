"""The streams of events of racks' BMCs: each event is a reason to look at the unit's water now.

An event decides nothing, whatever it says and however often it comes: the unit's detectors are
read. In the field a leak is a `ResourceStateChanged` of severity OK (a sample history in
docs.nvidia.com/mission-control), and some services send neither ids nor types (NVIDIA/nv-redfish).
Of a BMC whose stream breaks, that offers none, or is not followed now, the poll goes on as before.
Nothing is written to a BMC.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing.events import Pushed, read_document
from provisioner.adapters.redfish.eventing.subscriptions import read_offer
from provisioner.ports import BmcAddress, BmcTransport, Clock, EventStreams, PortError
from provisioner.runtime.event_loop import end_tasks

log = logging.getLogger(__name__)
STREAMS_MAX = 8192  # the trays and switches of 256 racks are 6,912; 60 KB each
BACKOFF_FIRST_S = 2.0
BACKOFF_MAX_S = 600.0  # also until a BMC without streams is asked for them again
LIVED_S = 60.0  # a stream that lasted so long is opened again soon
SPREAD = 64  # of the beginnings of many streams, in seconds
BURST = 64  # documents of one BMC that are taken in at once; a healthy one sends a few an hour
PER_S = 32.0
GAP_S = 1.0  # between two looks at one unit because of events


def may_be_water(document: Pushed) -> bool:
    """Return whether a document may tell of a leak detector, or what it tells cannot be read."""
    if document.unread or document.linked:
        return True
    return any(
        "leak" in f"{one.origin} {one.said} {one.registry} {one.key} {' '.join(one.args)}".lower()
        for one in document.events
    )


@dataclass
class RackEvents:
    """`look` is called with a unit's name: once at a time for each, and once more if events came
    meanwhile. `streams` None: nothing is followed.
    """

    transport: BmcTransport
    streams: EventStreams | None
    clock: Clock
    look: Callable[[str], Awaitable[None]]
    _following: dict[str, tuple[BmcAddress, asyncio.Task[None]]] = field(default_factory=dict)
    _looking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)  # units of which something came

    def follow(self, addresses: Mapping[str, BmcAddress]) -> None:
        """Follow the streams of these units' BMCs from now on, and of no others."""
        if self.streams is None:
            return
        for name, (address, task) in list(self._following.items()):
            if addresses.get(name) != address or task.done():
                task.cancel()
                del self._following[name]
        for name in list(addresses)[:STREAMS_MAX]:
            if name not in self._following:
                wait_s = float(len(self._following) % SPREAD)
                task = asyncio.create_task(self._follow(name, addresses[name], wait_s))
                self._following[name] = (addresses[name], task)

    def rest(self, names: Collection[str]) -> None:
        """Close the streams of units until they are followed again."""
        for name in names:
            if name in self._following:
                self._following.pop(name)[1].cancel()

    async def close(self) -> None:
        tasks = [task for _, task in self._following.values()]
        await end_tasks(*tasks, *self._looking.values())

    def hear(self, name: str, document: Pushed) -> None:
        """Take in what a unit's BMC sent."""
        if not may_be_water(document):
            return
        self._asked.add(name)
        if name not in self._looking:
            self._looking[name] = asyncio.create_task(self._look_on(name))

    async def _look_on(self, name: str) -> None:
        try:
            while name in self._asked:
                self._asked.discard(name)
                await self.look(name)
                await self.clock.sleep(GAP_S)
        except Exception:  # our own bug, or a file: the poll goes on
            log.exception("%s: a look because of an event failed", name)
        finally:
            del self._looking[name]

    async def _follow(self, name: str, address: BmcAddress, wait_s: float) -> None:
        """Follow one BMC's stream for ever; what it replays costs a look."""
        assert self.streams is not None
        next_s = BACKOFF_FIRST_S
        while True:
            await self.clock.sleep(wait_s)
            began = self.clock.now()
            try:
                client = Redfish(self.transport, address, quirks.UNKNOWN)
                if path := (await read_offer(client.service)).stream:
                    async with self.streams.open(address, path, "") as events:
                        documents = 0
                        async for _, document in events:
                            self.hear(name, read_document(document))
                            documents += 1
                            if documents % BURST == 0:
                                await self.clock.sleep(BURST / PER_S)
                else:
                    next_s = BACKOFF_MAX_S
            except PortError as error:
                log.info("%s: its event stream broke: %s", name, error)
            lived = self.clock.now() - began >= LIVED_S
            wait_s = BACKOFF_FIRST_S if lived else next_s
            next_s = BACKOFF_FIRST_S if lived else min(next_s * 2, BACKOFF_MAX_S)
