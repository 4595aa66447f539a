"""What BMCs send again, or send about others, changes nothing.

The behaviour is that of NVIDIA/bmcweb 7f3a16ae, which was run: a stream that is opened again brings
up to 200 old events, and each login by anybody is an event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import virtual_time
from serving import HOST, Serving, world

from provisioner.adapters.redfish.eventing.events import (
    Pushed,
    identify_event,
    order_by_time,
    read_document,
    resume_point,
)
from provisioner.control.watch.event_feeds import BACKOFF_FIRST_S, EVENTS_KEPT, EventMemory
from provisioner.model.node import Node, NodeKind
from provisioner.store.sql_store import open_store

Result = TypeVar("Result")
AT = "2026-01-02T03:04:05+00:00"
XID_79 = {
    "EventId": "7",
    "EventTimestamp": AT,
    "MessageId": "ResourceEvent.1.0.ResourceErrorsDetected",
    "MessageArgs": ["GPU_SXM_3 Driver Event Message", "[17][1][1] XID 79 pid=1, off the bus."],
    "MessageSeverity": "Critical",
}


def document(*changes: dict[str, Any], **change: Any) -> Pushed:
    return read_document({"Events": [{**XID_79, **each, **change} for each in changes or ({},)]})


def lived(folder: Path, story: Callable[[Serving], Awaitable[Result]], **settings: float) -> Result:
    async def main() -> Result:
        serving = Serving(world(folder, **settings))
        await serving.release()
        try:
            return await story(serving)
        finally:
            await serving.stop()
            await serving.world.store.close()

    return virtual_time.run(main())


async def cure(serving: Serving) -> None:
    """What stands is over, as after a repair and a new certificate."""
    now = serving.world.clock.now()
    standing = [a for a in await serving.book.list(HOST) if a.active]
    over = [a.model_copy(update={"active": False, "cleared_at": now}) for a in standing]
    await serving.book.put(over, [], now)


def test_a_replayed_event_does_not_reopen_a_cured_fault(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start(streams=False)
        await serving.world.clock.sleep(30)
        await serving.watcher.receive(HOST, "host", document())
        came = await serving.standing()
        await cure(serving)
        await serving.watcher.receive(HOST, "host", document())
        replayed = await serving.standing()
        await serving.start(streams=False)  # another daemon is sent the same
        await serving.world.clock.sleep(30)
        await serving.watcher.receive(HOST, "host", document())
        after_restart = await serving.standing()
        await serving.watcher.receive(HOST, "host", document(EventId="9"))
        return came, replayed, after_restart, await serving.standing()

    came, replayed, after_restart, again = lived(tmp_path, story)

    assert list(came) == [("Xid79", "GPU_SXM_3")]
    assert replayed == after_restart == {}
    assert list(again) == [("Xid79", "GPU_SXM_3")]  # it happened once more


def test_a_stream_that_is_opened_again_replays_nothing_that_was_cured(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start()
        url = serving.url()
        assert await serving.until(lambda _: url in serving.streams.open_now, 900)
        await serving.world.clock.sleep(30)
        now = serving.world.clock.now()
        key, args = XID_79["MessageId"], XID_79["MessageArgs"]
        serving.events().emit(str(key), "", list(args), now)
        assert await serving.until(bool, 60)
        serving.events().emit("Base.1.0.Success", "", [], now)
        await serving.world.clock.sleep(30)
        await cure(serving)
        kept = list(serving.events().kept)
        serving.streams.break_off(url)
        await serving.world.clock.sleep(120)
        for _, old in kept:  # a service that sends all again
            await serving.watcher.receive(HOST, "host", read_document(old))
        return await serving.standing(), [i for u, i in serving.streams.opened if u == url]

    standing, last_ids = lived(tmp_path, story)

    # the fault had revoked the certificate, which is an alert of its own
    assert standing == {("CertificateAge", ""): "watch.age"}
    assert last_ids == ["", "2"]


def requests_after(folder: Path, *origins: str) -> int:
    """Requests to the host's BMC in the hour after resources were created there."""

    async def story(serving: Serving) -> int:
        await serving.start()
        assert await serving.until(lambda _: serving.url() in serving.streams.open_now, 1800)
        await serving.world.clock.sleep(600)
        service = serving.world.services[serving.url()]
        before = service.requests
        for number, origin in enumerate(origins):
            key, now = "ResourceEvent.1.0.ResourceCreated", serving.world.clock.now()
            serving.events().emit(key, str(number), [], now, origin=origin)
            await serving.world.clock.sleep(10)
        await serving.world.clock.sleep(3600 - 10 * len(origins))
        return service.requests - before

    settings = {"watch_s": 1e6, "watch_parts_s": 1e6, "watch_node_s": 120.0, "watch_told_s": 1e6}
    return lived(folder, story, **settings)


def test_logins_of_others_cause_no_sweep(tmp_path: Path) -> None:
    session = "/redfish/v1/SessionService/Sessions/{}"
    account = "/redfish/v1/AccountService/Accounts/x"

    assert requests_after(tmp_path, *(session.format(n) for n in range(20)), account) == 0


ENTRY = "/redfish/v1/Systems/HGX_Baseboard_0/LogServices/EventLog/Entries/77"


def test_an_event_that_is_a_link_is_read_at_its_bmc_once(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start()
        url = serving.url()
        assert await serving.until(lambda _: url in serving.streams.open_now, 1800)
        serving.world.services[url].tree.add_fixed(ENTRY, dict(XID_79))
        for _ in range(20):
            await serving.watcher.receive(
                HOST, "host", read_document({"Events": [{"@odata.id": ENTRY}]})
            )
        await serving.world.clock.sleep(60)
        came = await serving.standing()
        await cure(serving)
        await serving.watcher.receive(
            HOST, "host", read_document({"Events": [{"@odata.id": ENTRY}]})
        )
        await serving.world.clock.sleep(1200)
        return came, await serving.standing()

    settings = {"watch_s": 1e6, "watch_parts_s": 1e6, "watch_node_s": 120.0, "watch_told_s": 1e6}
    came, repeated = lived(tmp_path, story, **settings)

    assert ("Xid79", "GPU_SXM_3") in came
    assert ("Xid79", "GPU_SXM_3") not in repeated


@pytest.mark.parametrize("sent", [None, "text", {"Events": [{"Severity": "Critical"}]}])
def test_news_that_cannot_be_read_bring_a_look_but_no_more_than_one_in_five_minutes(
    tmp_path: Path, sent: Any
) -> None:
    async def story(serving: Serving) -> tuple[int, int]:
        await serving.start()
        assert await serving.until(lambda _: serving.url() in serving.streams.open_now, 1800)
        await serving.world.clock.sleep(600)
        service = serving.world.services[serving.url()]
        counts = [service.requests]
        for times in (1, 20):
            for _ in range(times):
                await serving.watcher.receive(HOST, "host", read_document(sent))
                await serving.world.clock.sleep(10)
            await serving.world.clock.sleep(1800)
            counts.append(service.requests)
        return counts[1] - counts[0], counts[2] - counts[1]

    settings = {"watch_s": 1e6, "watch_parts_s": 1e6, "watch_node_s": 120.0, "watch_told_s": 1e6}
    once, often = lived(tmp_path, story, **settings)

    assert once > 10
    assert often <= 2.5 * once


def test_a_part_that_came_causes_a_sweep_but_no_more_than_one_in_five_minutes(
    tmp_path: Path,
) -> None:
    chassis = "/redfish/v1/Chassis/HGX_GPU_SXM_3"
    once = requests_after(tmp_path / "once", chassis)
    often = requests_after(tmp_path / "often", *[chassis] * 20)

    assert once > 10
    assert often <= 2.5 * once


def test_a_quiet_stream_stays_and_one_that_lived_is_opened_again_at_once(tmp_path: Path) -> None:
    async def story(serving: Serving) -> tuple[Any, ...]:
        await serving.start()
        url = serving.url()
        assert await serving.until(lambda _: url in serving.streams.open_now, 900)
        await serving.world.clock.sleep(6 * 3600)  # nothing is sent
        quiet = [u for u, _ in serving.streams.opened].count(url)
        serving.streams.break_off(url)
        await serving.world.clock.sleep(BACKOFF_FIRST_S / 2)
        again = [u for u, _ in serving.streams.opened].count(url)
        serving.streams.break_off(url)  # at once: a service that is full
        await serving.world.clock.sleep(BACKOFF_FIRST_S / 2)
        return quiet, again, [u for u, _ in serving.streams.opened].count(url)

    assert lived(tmp_path, story) == (1, 2, 2)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"EventTimestamp": ""}, False),
        ({"EventTimestamp": "1970-01-01T00:00:09+00:00"}, False),  # its clock was not set
        ({"EventTimestamp": "0000-00-00T00:00:00+00:00"}, False),
        ({"EventTimestamp": "2026-01-02T03:04:05-0600"}, True),  # Dell's offset has no colon
        ({"EventId": ""}, True),
    ],
)
def test_an_event_is_known_again_by_its_own_time(change: dict[str, str], known: bool) -> None:
    (event,) = document(**change).events

    assert (identify_event(event) is not None) is known


def test_an_event_differs_by_any_of_what_it_says_of_itself() -> None:
    changes = [{}, {"EventId": "8"}, {"EventTimestamp": "2026-01-02T03:04:06Z"},
               {"MessageArgs": ["GPU_SXM_4", "x"]}, {"MessageId": "X.1.0.Y"}]  # fmt: skip

    assert len({identify_event(e) for e in document(*changes).events}) == len(changes)


def test_events_are_taken_in_the_order_in_which_they_happened() -> None:
    late, early = {"EventTimestamp": "2026-01-02T04:00:00Z", "EventId": "2"}, {"EventId": "1"}

    assert [e.id for e in order_by_time(document(late, early)).events] == ["1", "2"]
    unset = {"EventTimestamp": ""}
    assert [e.id for e in order_by_time(document(late, early | unset)).events] == ["2", "1"]


@pytest.mark.parametrize(
    ("frame", "number", "found", "after"),
    [
        ("7", 3, document(), "7"),  # upstream: the frame's id is the EventId
        ("3", 3, document(), "7"),  # NVIDIA: frames are counted, events are looked up
        ("xyz", 3, document(), ""),
        ("7", 3, document(EventTimestamp=""), ""),  # a replay could not be told
        ("4", 4, Pushed(), "5"),  # a metric report
    ],
)
def test_a_stream_goes_on_where_it_can_be_told(
    frame: str, number: int, found: Pushed, after: str
) -> None:
    assert resume_point("5", frame, number, found) == after


def test_the_memory_of_a_bmc_is_bounded_and_outlives_the_daemon() -> None:
    async def scenario() -> tuple[list[str], int, int]:
        store = open_store(":memory:")
        await store.nodes.add(Node(id=HOST, kind=NodeKind.HOST))
        book = store.alerts
        memory = EventMemory(book)
        for number in range(EVENTS_KEPT + 40):
            await memory.remember(HOST, "host", document(EventId=str(number)))
        await memory.remember(HOST, "host", document(MessageId="Base.1.0.Success"))  # means nothing
        kept = len(await book.list_received(HOST, "host"))
        newest = document({"EventId": "295"}, {"EventId": "300"}, {"EventId": "1"})
        left = await EventMemory(book).drop_repeats(HOST, "host", newest)
        others = await EventMemory(book).drop_repeats(HOST, "DPU_0", newest)
        await store.close()
        return [e.id for e in left.events], kept, len(others.events)

    left, kept, others = virtual_time.run(scenario())

    assert (left, kept, others) == (["300", "1"], EVENTS_KEPT, 3)
