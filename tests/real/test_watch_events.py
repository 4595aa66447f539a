"""Events of BMCs over real HTTPS: streams and subscriptions of simulated BMCs, and of sushy-tools.

sushy-tools offers no event service: it is asked all the same, and says so by what it lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from emulated import PASSWORD
from watched_bmc import HOST, SSE, room, run, subscribed

from provisioner.adapters.bounded_http import Trust
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing import subscriptions
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.daemon.events import open_watch
from provisioner.model.alert import Way
from provisioner.ports import BmcAddress, LoginRefused, Secret, Unreachable
from provisioner.quirks import UNKNOWN
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.sql_store import open_store


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
    """Frames are numbered anew for each connection; the event itself says which it is."""

    async def scenario() -> list[tuple[str, str]]:
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
                async for event_id, document in events:
                    got.append((event_id, document["Events"][0]["Message"]))
                    if len(got) == 2:
                        break
            return got

    assert run(scenario()) == [("1", "hot 2"), ("2", "hot 3")]


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


def test_a_bmc_without_streams_posts_to_us_and_nobody_else_can(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[str], int]:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            r.emit()
            keys = await r.received(1)
            (made,) = await r.feeds._book.list_subscriptions()
            forged = {"Context": "guessed", "Events": [{"MessageId": "X.1.0.Y"}]}
            return keys, await r.feeds.take_delivery(made.id, forged)

    assert run(scenario()) == (["ReadingAboveUpperCriticalThreshold"], 404)


def test_a_subscription_counts_once_something_came_through(tmp_path: Path) -> None:
    """bmcweb refuses a listener whose certificate it does not trust, and tells nobody."""

    async def scenario() -> tuple[Way, bool, bool, Way, Way, bool]:
        async with subscribed(tmp_path) as r:
            deliver = r.events.deliver
            r.events.deliver = lambda _url, _document: None  # certificate verify failed
            await r.feeds.attend(r.node, r.bmc)
            refused = r.feeds.find_way(r.node.id, r.bmc.name)
            told_by_itself = r.feeds.is_reporting(r.node.id, r.bmc.name)
            r.events.deliver = deliver
            r.emit()
            proved = await r.until(Way.SUBSCRIPTION)
            await r.feeds.restore([r.node.id])  # as after a restart of the daemon
            restored = r.feeds.find_way(r.node.id, r.bmc.name)
            r.feeds.doubt("another")
            r.feeds.doubt()  # the process that takes events ended
            doubted = r.feeds.find_way(r.node.id, r.bmc.name)
            r.emit()
            again = await r.until(Way.SUBSCRIPTION)
            return refused, told_by_itself, proved, restored, doubted, again

    expected = (Way.UNPROVED, False, True, Way.SUBSCRIPTION, Way.UNPROVED, True)
    assert run(scenario()) == expected


def test_a_new_subscription_is_tried_by_a_test_event(tmp_path: Path) -> None:
    async def scenario() -> bool:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            return await r.until(Way.SUBSCRIPTION)

    assert run(scenario())


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
            return left, len(await r.feeds._book.list_subscriptions())

    assert run(scenario()) == (["https://monitoring.test/events"], 0)


def test_a_number_that_was_given_to_somebody_else_is_not_deleted(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, list[str]]:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            (theirs,) = r.events.subscriptions.values()
            theirs["Destination"] = "https://monitoring.test/events"
            await r.feeds.end(r.node)
            return len(await r.feeds._book.list_subscriptions()), list(r.events.subscriptions)

    assert len(run(scenario())[1]) == 1


def test_a_subscription_whose_answer_was_lost_is_found_and_replaced(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, int]:
        async with subscribed(tmp_path) as r:
            await r.feeds.attend(r.node, r.bmc)
            (made,) = await r.feeds._book.list_subscriptions()
            await r.feeds._book.put_subscription(made.model_copy(update={"path": ""}))
            await r.feeds.restore([r.node.id])  # as after a crash between request and answer
            await r.feeds.attend(r.node, r.bmc)
            return len(r.events.subscriptions), len(await r.feeds._book.list_subscriptions())

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
            return await subscriptions.read_offer(Redfish(transport, bmc, UNKNOWN).service)
        finally:
            await transport.close()

    assert run(scenario()) == subscriptions.Offer()


def test_the_listener_shows_a_certificate_of_our_authority(tmp_path: Path) -> None:
    async def scenario() -> int:
        import aiohttp

        store = open_store(":memory:")
        url = "https://127.0.0.1:0"
        async with (
            open_watch(url, (), tmp_path, store, WallClock(), None, MasterKey.generate()) as watch,
            aiohttp.ClientSession() as session,
        ):
            trust = Trust(tmp_path / "agent-ca.pem").option(watch.listener, "", insecure=False)
            async with session.post(f"{watch.listener}/x", json={}, ssl=trust) as answer:
                status = answer.status
        await store.close()
        return status

    assert run(scenario()) == 503  # nobody is attached yet
