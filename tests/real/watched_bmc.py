"""A simulated BMC over HTTPS whose events are listened to: by a stream, or by our listener."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from provisioner.adapters.redfish.eventing.event_stream import RedfishStreams
from provisioner.adapters.redfish.eventing.events import Pushed
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.control.watch.event_feeds import EventFeeds
from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.events import open_watch
from provisioner.execution.actions.reach import Reach
from provisioner.execution.observe.watch import OutOfBand
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.redfish.redfish_events import Events
from provisioner.integrations.sim.site.serve_site import serve_site
from provisioner.integrations.sim.site.site import Site
from provisioner.model.alert import Way
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

HOST = "su0-n00/host"
SSE = "/redfish/v1/EventService/SSE"
HOT = ("SensorEvent.1.0.1.ReadingAboveUpperCriticalThreshold", "hot", ["Fan_1", "99", "Cel", "90"])


def run(scenario: Any, limit_s: float = 60) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(limit_s):
            return await scenario

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(bounded())


class Room:
    """A served site of one node, a transport and streams to it."""

    def __init__(self, site: Site, address: BmcAddress, transport: RedfishTransport) -> None:
        self.site, self.address, self.transport = site, address, transport
        self.streams = RedfishStreams(transport)

    @property
    def events(self) -> Events:
        found = self.site.redfish[HOST].events
        assert found is not None
        return found

    def emit(self, number: int = 0) -> None:
        key, text, args = HOT
        self.events.emit(key, f"{text} {number}", args, self.site.clock.now())


@contextlib.asynccontextmanager
async def room() -> AsyncIterator[Room]:
    site = Site(1, 7, clock=FastClock(), vendor="supermicro")
    server = await serve_site(site)
    transport = RedfishTransport()
    bmc, url = site.machines["su0-n00"].bmcs["host"], site.urls[HOST]
    pin = await transport.fingerprint(BmcAddress(url))
    address = BmcAddress(url, bmc.username, Secret(bmc.password), pin=pin)
    found = Room(site, address, transport)
    try:
        yield found
    finally:
        await found.streams.close()
        await transport.close()
        await server.close()


class Subscribed(Room):
    """With our own listener and what keeps subscriptions; received events are in `came`."""

    came: list[tuple[str, str, Pushed]]
    feeds: EventFeeds
    node: Node
    bmc: BmcRef

    async def received(self, count: int) -> list[str]:
        """Keys of what came, once there are so many; test events of the subscription are none."""
        for _ in range(200):
            if len(self._keys()) >= count:
                break
            await asyncio.sleep(0.05)
        return self._keys()

    def _keys(self) -> list[str]:
        keys = [event.key for _, _, found in self.came for event in found.events]
        return [key for key in keys if key != "Success"]

    async def until(self, way: Way) -> bool:
        """Wait until the BMC's events come in this way; whether they do."""
        for _ in range(200):
            if self.feeds.find_way("su0-n00", "host") is way:
                return True
            await asyncio.sleep(0.05)
        return False


class Listening:
    """Stands where the watcher does, as far as the listener asks it."""

    def __init__(self, feeds: EventFeeds) -> None:
        self.feeds = feeds


@contextlib.asynccontextmanager
async def subscribed(folder: Path) -> AsyncIterator[Subscribed]:
    clock, store = WallClock(), open_store(":memory:")
    vault = Vault(store, MasterKey.generate())
    url = "https://127.0.0.1:0"
    async with (
        room() as r,
        open_watch(url, (), folder, store, clock, None, MasterKey.generate()) as watch,
    ):
        r.__class__ = Subscribed
        assert isinstance(r, Subscribed)
        r.events.streamed = False
        r.came = []
        r.bmc = BmcRef(name="host", url=r.address.url, pin=r.address.pin)
        r.node = Node(id="su0-n00", kind=NodeKind.HOST, state=State.RELEASED, bmcs=(r.bmc,))
        await store.nodes.add(r.node)
        assert r.address.secret is not None
        await vault.put("su0-n00/host", r.address.username, r.address.secret)
        r.feeds = feeds(watch, r, vault, clock)
        assert watch.attach is not None
        watch.attach(Listening(r.feeds))  # type: ignore[arg-type]
        try:
            yield r
        finally:
            await r.feeds.close()
            await store.close()


def feeds(watch: WatchParts, r: Subscribed, vault: Vault, clock: WallClock) -> EventFeeds:
    async def receive(node: str, bmc: str, found: Pushed) -> None:
        r.came.append((node, bmc, found))

    eyes = OutOfBand(Reach(r.transport, None, vault), clock, 1000)  # type: ignore[arg-type]
    return EventFeeds(watch.book, clock, eyes, receive, streams=None, listener=watch.listener,
                      new_secret=watch.new_secret, streams_max=0)  # fmt: skip
