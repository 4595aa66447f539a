"""Events of BMCs over real HTTPS: streams and subscriptions of simulated BMCs, and of sushy-tools.

sushy-tools offers no event service: it is asked all the same, and says so by what it lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from emulated import PASSWORD

from provisioner.bounded_http import Trust
from provisioner.control.event_feeds import EventFeeds
from provisioner.control.watcher import WatchParts
from provisioner.event_intake import open_watch
from provisioner.event_loop import new_event_loop
from provisioner.execution.reach import Reach
from provisioner.execution.watch import OutOfBand
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.ports import BmcAddress, LoginRefused, Secret, Unreachable
from provisioner.quirks import UNKNOWN
from provisioner.redfish import subscriptions
from provisioner.redfish.client import Redfish
from provisioner.redfish.event_stream import RedfishStreams
from provisioner.redfish.events import Pushed
from provisioner.redfish.transport import RedfishTransport
from provisioner.sim.clock import FastClock
from provisioner.sim.redfish_events import Events
from provisioner.sim.serve_site import serve_site
from provisioner.sim.site import Site
from provisioner.store.master_key import MasterKey
from provisioner.store.sql_store import open_store
from provisioner.store.vault import Vault
from provisioner.wall_clock import WallClock

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
        self.streams = RedfishStreams(transport, idle_max_s=20)

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


def test_events_come_over_a_stream_as_they_happen() -> None:
    async def scenario() -> list[tuple[str, str]]:
        async with room() as r, r.streams.open(r.address, SSE, "") as events:
            r.emit(1)
            r.emit(2)
            got = []
            async for event_id, document in events:
                got.append((event_id, document["Events"][0]["Message"]))
                if len(got) == 2:
                    return got
            return got

    assert run(scenario()) == [("1", "hot 1"), ("2", "hot 2")]


def test_a_stream_that_ends_raises_and_goes_on_after_the_last_event() -> None:
    async def scenario() -> list[str]:
        async with room() as r:
            async with r.streams.open(r.address, SSE, "") as events:
                r.emit(1)
                await anext(events)
                await r.streams.close()  # the connection is gone
                with pytest.raises(Unreachable):
                    await anext(events)
            r.emit(2)
            r.emit(3)
            got = []
            async with r.streams.open(r.address, SSE, "1") as events:
                async for event_id, _ in events:
                    got.append(event_id)
                    if len(got) == 2:
                        break
            return got

    assert run(scenario()) == ["2", "3"]


def test_a_session_that_ended_is_renewed_for_the_stream_and_none_is_left_behind() -> None:
    async def scenario() -> tuple[str, int]:
        async with room() as r:
            service = r.site.redfish[HOST]
            async with r.streams.open(r.address, SSE, ""):
                pass
            service.sessions.sessions.clear()
            async with r.streams.open(r.address, SSE, "") as events:
                r.emit()
                event_id = (await anext(events))[0]
            await r.transport.close()
            return event_id, len(service.sessions.sessions)

    assert run(scenario()) == ("1", 0)


def test_a_wrong_password_opens_no_stream_and_is_shown_once() -> None:
    async def scenario() -> None:
        async with room() as r:
            wrong = BmcAddress(r.address.url, "admin", Secret("wrong"), pin=r.address.pin)
            with pytest.raises(LoginRefused):
                async with r.streams.open(wrong, SSE, ""):
                    pass

    run(scenario())


def test_what_is_no_stream_is_said_to_be_none() -> None:
    async def scenario() -> None:
        async with room() as r:
            with pytest.raises(Unreachable, match="no event stream"):
                async with r.streams.open(r.address, "/redfish/v1/Systems", ""):
                    pass

    run(scenario())


class Subscribed(Room):
    """With our own listener and what keeps subscriptions; received events are in `came`."""

    came: list[tuple[str, str, Pushed]]
    feeds: EventFeeds
    node: Node
    bmc: BmcRef

    async def received(self, count: int) -> list[str]:
        for _ in range(200):
            if len(self.came) >= count:
                break
            await asyncio.sleep(0.05)
        return [event.key for _, _, found in self.came for event in found.events]


class Listening:
    """Stands where the watcher does, as far as the listener asks it."""

    def __init__(self, feeds: EventFeeds) -> None:
        self.feeds = feeds


@contextlib.asynccontextmanager
async def subscribed(folder: Path) -> AsyncIterator[Subscribed]:
    clock, store = WallClock(), open_store(":memory:")
    vault = Vault(store, MasterKey.generate())
    url = "https://127.0.0.1:0"
    async with room() as r, open_watch(url, (), folder, store, clock, None) as watch:
        r.__class__ = Subscribed
        assert isinstance(r, Subscribed)
        r.events.streamed = False
        r.came = []
        r.bmc = BmcRef(name="host", url=r.address.url, pin=r.address.pin)
        r.node = Node(id="su0-n00", kind=NodeKind.HOST, state=State.RELEASED, bmcs=(r.bmc,))
        await store.add_node(r.node)
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


def test_a_bmc_without_streams_posts_to_us_and_nobody_else_can(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[str], int]:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            r.emit()
            keys = await r.received(1)
            (made,) = await r.feeds._book.subscriptions()
            forged = {"Context": "guessed", "Events": [{"MessageId": "X.1.0.Y"}]}
            return keys, await r.feeds.delivered(made.id, forged)

    assert run(scenario()) == (["ReadingAboveUpperCriticalThreshold"], 404)


def test_a_subscription_that_a_reset_took_is_made_again(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int, list[str]]:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            await r.feeds.attend(r.node, r.bmc)
            before = len(r.events.subscriptions)
            r.events.subscriptions.clear()
            await r.feeds.attend(r.node, r.bmc)
            r.emit()
            return before, len(r.events.subscriptions), await r.received(1)

    assert run(scenario()) == (1, 1, ["ReadingAboveUpperCriticalThreshold"])


def test_only_our_own_subscription_is_taken_back(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[str], int]:
        async with subscribed(tmp_path) as r:
            client = Redfish(r.transport, r.address, UNKNOWN)
            theirs = "https://monitoring.test/events"
            assert isinstance(await client.subscribe(theirs, "theirs"), str)
            await r.feeds.attend(r.node, r.bmc)
            await r.feeds.end(r.node)
            left = [s["Destination"] for s in r.events.subscriptions.values()]
            return left, len(await r.feeds._book.subscriptions())

    assert run(scenario()) == (["https://monitoring.test/events"], 0)


def test_a_number_that_was_given_to_somebody_else_is_not_deleted(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, list[str]]:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            (theirs,) = r.events.subscriptions.values()
            theirs["Destination"] = "https://monitoring.test/events"
            await r.feeds.end(r.node)
            return len(await r.feeds._book.subscriptions()), list(r.events.subscriptions)

    assert run(scenario())[1] == ["1"]


def test_a_subscription_whose_answer_was_lost_is_found_and_replaced(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int]:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            (made,) = await r.feeds._book.subscriptions()
            await r.feeds._book.put_subscription(made.model_copy(update={"path": ""}))
            await r.feeds.restore()  # as after a crash between request and answer
            await r.feeds.attend(r.node, r.bmc)
            return len(r.events.subscriptions), len(await r.feeds._book.subscriptions())

    assert run(scenario()) == (1, 1)


def test_sushy_tools_offers_no_events_and_that_is_no_failure(emulator: str) -> None:
    async def scenario() -> subscriptions.Offer:
        transport = RedfishTransport()
        try:
            for _ in range(100):
                with contextlib.suppress(Exception):
                    pin = await transport.fingerprint(BmcAddress(emulator))
                    break
                await asyncio.sleep(0.2)
            bmc = BmcAddress(emulator, "admin", Secret(PASSWORD), pin=pin)
            return await subscriptions.offer(Redfish(transport, bmc, UNKNOWN).service)
        finally:
            await transport.close()

    assert run(scenario()) == subscriptions.Offer()


def test_the_listener_shows_a_certificate_of_our_authority(tmp_path: Path) -> None:
    async def scenario() -> int:
        import aiohttp

        store = open_store(":memory:")
        url = "https://127.0.0.1:0"
        async with (
            open_watch(url, (), tmp_path, store, WallClock(), None) as watch,
            aiohttp.ClientSession() as session,
        ):
            trust = Trust(tmp_path / "agent-ca.pem").option(watch.listener, "", insecure=False)
            async with session.post(f"{watch.listener}/x", json={}, ssl=trust) as answer:
                status = answer.status
        await store.close()
        return status

    assert run(scenario()) == 503  # nobody is attached yet
