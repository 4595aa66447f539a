"""Events reach a real receiver that loses answers: in order, again with the same id, or dead."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from receiver import Receiver, verified
from webhook_rig import SECRET, Site, run

from provisioner.integrations.webhooks.posted_events import secret_of
from provisioner.model.case import TenantNotice
from provisioner.model.integrations.webhook import secret_name
from provisioner.model.node import Node, NodeKind
from provisioner.ports import Secret


def test_an_event_is_a_signed_cloud_event(tmp_path: Path):
    async def scenario(site: Site) -> Receiver:
        await site.happens(("released", "n1", {"tenant": "red", "vrf": "red"}))
        await site.empty()
        return site.receiver

    receiver = run(tmp_path, scenario)
    headers, body = receiver.got[0]
    event = receiver.events[0]

    assert verified(headers, body, SECRET)
    assert not verified(headers, body + b" ", SECRET)
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["webhook-id"] == event["id"]
    assert event["specversion"] == "1.0"
    assert event["type"] == "provisioner.released"
    assert event["source"] == "/provisioner/here"
    assert event["subject"] == event["partitionkey"] == "n1"
    assert event["time"] == "1970-01-01T00:16:40.000+00:00"
    assert event["data"]["detail"] == {"tenant": "red", "vrf": "red"}


def test_a_lost_answer_sends_the_same_event_again_and_the_node_waits(tmp_path: Path):
    async def scenario(site: Site) -> Receiver:
        # every answer for n1 is lost twice; n2 is told meanwhile
        site.receiver.answer = lambda e, time: None if e["subject"] == "n1" and time < 3 else 204
        for number in range(3):
            await site.happens(("state", "n1", {"n": number}), ("state", "n2", {"n": number}))
        await site.empty()
        return site.receiver

    receiver = run(tmp_path, scenario)
    told = {"n1": [], "n2": []}
    for event in receiver.events:
        told[event["subject"]].append(event["data"]["detail"]["n"])
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    bodies = {headers["webhook-id"]: set() for headers, _ in receiver.got}
    for headers, body in receiver.got:
        bodies[headers["webhook-id"]].add(body)

    assert told == {"n1": [0, 1, 2], "n2": [0, 1, 2]}
    assert len(ids) == 3 * 3 + 3  # three tries for each of n1's
    assert len(set(ids)) == 6
    assert all(len(texts) == 1 for texts in bodies.values())


def test_of_one_node_nothing_overtakes_whatever_fails(tmp_path: Path):
    async def scenario(site: Site) -> Receiver:
        calls = iter(range(10_000))
        # a third of all answers is lost, another third is a refusal
        site.receiver.answer = lambda _e, time: (
            204 if time == 2 else (None, 500, 204)[next(calls) % 3]
        )
        await site.happens(*(("state", f"n{i % 5}", {"n": i}) for i in range(60)))
        await site.empty()
        return site.receiver

    receiver = run(tmp_path, scenario)

    for node in range(5):
        seen = [e for e in receiver.events if e["subject"] == f"n{node}"]
        assert [e["data"]["detail"]["n"] for e in seen] == list(range(node, 60, 5))
        assert [e["sequence"] for e in seen] == sorted(e["sequence"] for e in seen)


def test_an_event_that_nobody_takes_is_a_dead_letter_with_an_alert_and_can_be_sent_again(
    tmp_path: Path,
):
    async def scenario(site: Site) -> Any:
        await site.data.store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        site.receiver.answer = lambda e, _time: 500 if e["data"]["detail"].get("n") == 0 else 204
        await site.happens(("state", "n1", {"n": 0}), ("state", "n1", {"n": 1}))
        await site.empty()
        dead = await site.book.list_dead("billing")
        raised = await site.data.store.alerts.list("n1")
        standing = await site.standing()
        site.receiver.answer = lambda _e, _time: 204
        again = await site.book.revive("billing", None, 2000.0)
        await site.empty()
        cleared = await site.data.store.alerts.list("n1")
        return dead, raised, standing, again, cleared, await site.standing(), site.receiver.events

    dead, raised, standing, again, cleared, after, events = run(tmp_path, scenario, alerts=True)

    assert [(d.tries, d.error, r.kind) for d, r in dead] == [(3, "HTTP 500", "state")]
    assert [(a.id, a.target, a.active, a.classifications) for a in raised] == [
        ("WebhookDead", "billing", True, ())
    ]
    assert (standing.dead, standing.delivered) == (1, 1)
    assert again == 1
    assert [a.active for a in cleared] == [False]
    assert (after.dead, after.delivered) == (0, 2)
    # it is told of nothing about its own failures
    assert {e["type"] for e in events} == {"provisioner.state"}


def test_notices_to_tenants_go_out_and_count_as_sent(tmp_path: Path):
    def notice(id_: str, tenant: str) -> TenantNotice:
        return TenantNotice(
            id=id_, tenant=tenant, node="n1", kind="failure", text="It fails.", at=5.0
        )

    async def scenario(site: Site) -> Any:
        book = site.data.store.cases
        await book.put_notice(notice("a", "red"))
        await book.put_notice(notice("b", "blue"))
        await book.put_notice(notice("a", "red").model_copy(update={"accepted_at": 9.0}))
        await site.happens(("state", "n1", {"why": "not for tenants"}))
        await site.empty()
        return site.receiver.events, await book.list_notices()

    events, notices = run(tmp_path, scenario, tenant="red")

    assert [(e["type"], e["data"]["detail"]["tenant"]) for e in events] == [
        ("provisioner.notice", "red")
    ]
    assert {n.id: n.sent_at > 0 for n in notices} == {"a": True, "b": False}


@pytest.mark.parametrize("status", [301, 307, 400, 404, 500, 503])
def test_what_is_no_yes_is_a_no(tmp_path: Path, status: int):
    async def scenario(site: Site) -> Any:
        site.receiver.answer = lambda _e, _time: status
        await site.happens(("state", "n1", {}))
        await site.empty()
        return await site.standing(), len(site.receiver.got)

    standing, tries = run(tmp_path, scenario)

    assert (standing.dead, standing.delivered, tries) == (1, 0, 3)


def test_a_receiver_that_is_gone_is_paused_and_loses_nothing(tmp_path: Path):
    async def scenario(site: Site) -> Any:
        site.receiver.answer = lambda _e, _time: 410
        await site.happens(("state", "n1", {}))
        await site.outbox.serve(await site.standing())
        paused = await site.standing()
        site.receiver.answer = lambda _e, _time: 204
        await site.book.pause("billing", "", 2.0)
        await site.empty()
        return paused, await site.standing()

    paused, after = run(tmp_path, scenario)

    assert (paused.webhook.paused_why, paused.pending, paused.dead) == (
        "it answered 410 Gone",
        1,
        0,
    )
    assert (after.pending, after.delivered) == (0, 1)


def test_while_a_secret_is_exchanged_both_sign(tmp_path: Path):
    new = secret_of(b"n" * 24)

    async def scenario(site: Site) -> Receiver:
        await site.data.vault.begin(secret_name("billing"), "billing", Secret(new))
        await site.happens(("state", "n1", {}))
        await site.empty()
        await site.data.vault.confirm(secret_name("billing"))
        await site.happens(("state", "n1", {}))
        await site.empty()
        return site.receiver

    both, later = run(tmp_path, scenario).got

    assert verified(*both, SECRET)
    assert verified(*both, new)
    assert verified(*later, new)
    assert not verified(*later, SECRET)


def test_the_journal_is_the_queue_behind_a_full_one(tmp_path: Path):
    async def scenario(site: Site) -> Any:
        await site.happens(*(("state", "n1", {"n": n}) for n in range(20)))
        waiting = [await site.book.spread("billing", 5) for _ in range(3)]
        await site.empty()
        return waiting, [e["data"]["detail"]["n"] for e in site.receiver.events]

    waiting, told = run(tmp_path, scenario)

    assert waiting == [5, 5, 5]
    assert told == list(range(20))


def test_a_changed_webhook_gets_what_it_wants_at_its_new_address(tmp_path: Path):
    async def scenario(site: Site) -> Any:
        old = (await site.standing()).webhook
        new = old.model_copy(update={"url": old.url + "?new", "kinds": ("released",)})
        changed = asyncio.Event()

        async def change() -> None:
            await changed.wait()
            await site.book.replace(old, new, "ada", 2.0)

        def answer(_event: dict[str, Any], _time: int) -> int:
            changed.set()
            return 503

        await site.happens(("state", "n1", {"n": 0}), ("released", "n1", {"tenant": "red"}))
        site.receiver.answer = answer
        changing = asyncio.create_task(change())
        await site.outbox.serve(await site.standing())  # n1's first event waits for another try
        await changing
        between = await site.standing()
        site.receiver.answer = lambda _e, _time: 204
        await site.empty()
        return between, await site.standing(), site.receiver

    between, after, receiver = run(tmp_path, scenario)

    assert (between.pending, between.dead) == (1, 0)  # the event of state was dropped
    assert (after.pending, after.delivered) == (0, 1)
    assert [e["type"] for e in receiver.events] == ["provisioner.state", "provisioner.released"]
    assert receiver.queries == ["", "new"]


def test_a_busy_sender_leaves_a_changed_webhook(tmp_path: Path):
    async def scenario(site: Site) -> list[str]:
        old = (await site.standing()).webhook
        new = old.model_copy(update={"url": old.url + "?new"})

        async def feed() -> None:
            for number in itertools.count():  # there is always an event to send
                await site.happens(("state", "n1", {"n": number}))

        arrived = {"": asyncio.Event(), "new": asyncio.Event()}

        def answer(_event: dict[str, Any], _time: int) -> int:
            arrived[site.receiver.queries[-1]].set()
            return 204

        site.receiver.answer = answer
        feeding, sending = (asyncio.create_task(work) for work in (feed(), site.outbox.run()))
        async with asyncio.timeout(30):
            await arrived[""].wait()
            await site.book.replace(old, new, "ada", 2.0)
            await arrived["new"].wait()
        for task in (feeding, sending):
            task.cancel()
        await asyncio.gather(feeding, sending, return_exceptions=True)
        return site.receiver.queries

    queries = run(tmp_path, scenario)

    assert sorted(queries) == queries  # none to the old address afterwards


SENDER = """
    import asyncio, sys
    from pathlib import Path
    from provisioner.control.watch.outbox import Outbox
    from provisioner.integrations.webhooks.webhook_posts import open_posts
    from provisioner.daemon.data import open_data
    from provisioner.settings import Settings
    from provisioner.store.repositories.webhooks import SqlWebhookRepository
    from provisioner.runtime.wall_clock import WallClock

    async def main():
        clock = WallClock()
        chosen = Settings(webhook_networks=("127.0.0.0/8",), webhook_plain=True)
        async with open_data(Path(sys.argv[1]), 0.0) as data, open_posts(clock, chosen) as posts:
            await Outbox(data.store.webhooks, posts, data.vault, clock, chosen).run()

    asyncio.run(main())
"""


@asynccontextmanager
async def sender(data: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    words = [sys.executable, "-c", textwrap.dedent(SENDER), str(data)]
    process = await asyncio.create_subprocess_exec(*words)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_a_daemon_that_is_killed_between_send_and_mark_sends_it_again_with_the_same_id(
    tmp_path: Path,
):
    async def scenario(site: Site) -> list[str]:
        await site.happens(("state", "n1", {"n": 0}), ("state", "n1", {"n": 1}))

        async with sender(tmp_path / "data") as process:

            def die(_event: dict[str, Any], _time: int) -> int:
                os.kill(process.pid, signal.SIGKILL)  # it was sent, and nothing was marked
                return 204

            site.receiver.answer = die
            async with asyncio.timeout(60):
                await process.wait()
        site.receiver.answer = lambda _e, _time: 204
        await site.empty()
        return [headers["webhook-id"] for headers, _ in site.receiver.got]

    first, again, second = run(tmp_path, scenario)

    assert first == again
    assert first != second
