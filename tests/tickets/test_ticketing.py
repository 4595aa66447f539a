"""A case has one ticket, whatever is lost on the way, and its system hears of the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from desk import Desk
from telling import Telling, telling

from provisioner.integrations.tickets.webhook import Webhook
from provisioner.model.case import Case, Ending, Spare
from provisioner.model.inventory import DeviceKind
from provisioner.ports import Secret

Story = Callable[[Telling, Desk, Webhook], Awaitable[None]]


def told(directory: Path, story: Story, secret: str = "s3cret-of-the-desk") -> None:
    async def main() -> None:
        desk, world = Desk(), await telling(directory)
        hook = Webhook(await desk.start(), Secret(secret), world.clock)
        try:
            await story(world, desk, hook)
        finally:
            await hook.close()
            await desk.stop()
            await world.store.close()

    asyncio.run(main())


def test_a_case_that_waits_for_people_has_one_ticket_with_place_part_and_evidence(
    tmp_path: Path,
) -> None:
    async def story(world: Telling, desk: Desk, hook: Webhook) -> None:
        loop = world.loop(hook)
        for _ in range(3):
            await loop.tick()

        (said,), case = desk.messages, await world.case()
        assert case.ticket is not None
        assert (case.ticket.id, case.ticket.system) == ("T-n7-c0001", "webhook")
        assert said["event"] == "open"
        assert said["part"]["serial"] == "S1"
        place = said["place"]
        assert (place["rack"], place["unit"], place["slot"]) == ("r12", "7", "NIC_3")
        assert (place["rail"], place["leaf_ports"]) == ("3", ["leaf-3/swp7s0"])
        assert said["bundle_sha256"] == case.ticket.bundle
        assert said["bundle"]

    told(tmp_path, story)


def test_an_answer_that_got_lost_and_a_killed_daemon_make_no_second_ticket(tmp_path: Path) -> None:
    async def story(world: Telling, desk: Desk, hook: Webhook) -> None:
        desk.lose_answers = 1
        await world.loop(hook).tick()
        first = await world.case()
        await world.loop(hook).tick()  # another daemon, which knows only what is stored

        case = await world.case()
        assert first.ticket is not None
        assert case.ticket is not None
        assert (first.ticket.id, first.ticket.tries) == ("", 1)
        assert case.ticket.id == "T-n7-c0001"
        assert (desk.posts, len(desk.messages)) == (1, 1)  # it was found by looking

    told(tmp_path, story)


def test_a_system_that_cannot_be_asked_is_told_again_under_the_same_key(tmp_path: Path) -> None:
    async def story(world: Telling, desk: Desk, hook: Webhook) -> None:
        desk.lose_answers, desk.looks = 1, False
        await world.loop(hook).tick()
        await world.loop(hook).tick()

        case = await world.case()
        assert case.ticket is not None
        assert case.ticket.id == "T-n7-c0001"
        assert (desk.posts, len(desk.messages)) == (2, 1)

    told(tmp_path, story)


def test_a_system_that_is_down_is_tried_again_later_and_a_person_may_ask_for_it_now(
    tmp_path: Path,
) -> None:
    async def story(world: Telling, desk: Desk, hook: Webhook) -> None:
        loop = world.loop(hook)
        desk.status = 503
        for _ in range(5):
            await loop.tick()
        down = await world.case()
        posts = desk.posts
        desk.status = 0
        assert isinstance(
            await world.case_service.send_ticket(await world.case(), "somebody"), Case
        )
        await loop.tick()

        case = await world.case()
        assert down.ticket is not None
        assert case.ticket is not None
        assert "503" in down.ticket.problem
        assert posts == 1  # the wait has not run out
        assert (case.ticket.id, case.ticket.problem) == ("T-n7-c0001", "")

    told(tmp_path, story)


def test_return_number_spare_and_the_end_are_told_to_the_same_ticket(tmp_path: Path) -> None:
    async def story(world: Telling, desk: Desk, hook: Webhook) -> None:
        loop = world.loop(hook)
        await loop.tick()
        spare = Spare(kind=DeviceKind.NIC, serial="S2")
        assert isinstance(
            await world.case_service.record_rma(await world.case(), "RMA-5", "o"), Case
        )
        await loop.tick()
        assert isinstance(
            await world.case_service.record_spare(await world.case(), spare, "o"), Case
        )
        await loop.tick()
        await world.case_service.close(await world.case(), Ending.REPAIRED, "o", "NIC replaced")
        await loop.tick()
        await world.loop(hook).tick()

        events = [m["event"] for m in desk.messages]
        assert events == ["open", "changed", "changed", "closed"]
        assert len({m["key"] for m in desk.messages}) == 1
        assert desk.messages[2]["rma"] == "RMA-5"
        assert "S2" in desk.messages[2]["spare"]
        assert desk.messages[3]["work"] == "NIC replaced"
        assert desk.messages[3]["ticket"] == "T-n7-c0001"

    told(tmp_path, story)


def test_a_wrong_secret_is_no_ticket_and_says_so(tmp_path: Path) -> None:
    async def story(world: Telling, desk: Desk, hook: Webhook) -> None:
        await world.loop(hook).tick()

        case = await world.case()
        assert case.ticket is not None
        assert (case.ticket.id, desk.unsigned, desk.tickets) == ("", ["POST"], {})
        assert "401" in case.ticket.problem
        assert "another" not in case.ticket.problem

    told(tmp_path, story, secret="another secret")
