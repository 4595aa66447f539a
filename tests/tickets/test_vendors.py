"""A case has one ticket at PagerDuty and at ServiceNow, whatever is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from telling import Telling, telling
from vendors import PagerDutyEvents, ServiceNowTable

from provisioner.integrations.tickets.opening import open_tickets
from provisioner.integrations.tickets.pagerduty import PagerDuty
from provisioner.integrations.tickets.servicenow import ServiceNow, read_record
from provisioner.model.case import Case, Ending
from provisioner.model.input_error import InputError
from provisioner.ports import Malformed, Secret
from provisioner.settings import Settings

Story = Callable[[Telling, Any, Any], Awaitable[None]]
KEY = "site/n7-c0001"


def at_pagerduty(directory: Path, story: Story, secret: str = PagerDutyEvents.routing_key) -> None:
    async def main() -> None:
        vendor, world = PagerDutyEvents(), await telling(directory)
        desk = PagerDuty(await vendor.start() + "v2/enqueue", Secret(secret))
        try:
            await story(world, vendor, desk)
        finally:
            await desk.close()
            await vendor.stop()
            await world.store.close()

    asyncio.run(main())


def at_servicenow(directory: Path, story: Story, secret: str = ServiceNowTable.login[1]) -> None:
    async def main() -> None:
        vendor, world = ServiceNowTable(), await telling(directory)
        login = (vendor.login[0], Secret(secret))
        desk = ServiceNow(await vendor.start(), "incident", login)
        try:
            await story(world, vendor, desk)
        finally:
            await desk.close()
            await vendor.stop()
            await world.store.close()

    asyncio.run(main())


async def change(world: Telling, work: str) -> None:
    case = await world.case()
    assert case.ticket is not None
    changed = case.model_copy(update={"ticket": case.ticket.model_copy(update={"work": work})})
    await world.book.save(changed, events=[], now=world.clock.now())


async def close(world: Telling) -> None:
    await world.case_service.close(
        await world.case(), Ending.REPAIRED, "ada", "the cable was loose"
    )


async def ticket_of(world: Telling) -> Any:
    case: Case = await world.case()
    return case.ticket


def test_a_case_is_one_alert_that_is_updated_and_resolved(tmp_path: Path):
    async def story(world: Telling, vendor: PagerDutyEvents, desk: PagerDuty) -> None:
        loop = world.loop(desk)
        vendor.lose_answers = 1
        await loop.tick()
        assert (await ticket_of(world)).id == ""
        world.clock.at += 3600
        await loop.tick()
        ticket = await ticket_of(world)
        assert (ticket.id, ticket.system) == (KEY, "pagerduty")
        await change(world, "Replace the cable.")
        await loop.tick()
        first, again, last = vendor.alerts[KEY]  # one alert: the answer of the first was lost
        assert first == again
        assert first["source"] == "n7"
        assert first["component"] == "NIC_3"
        assert first["custom_details"]["serial"] == "S1"
        assert last["custom_details"]["work"] == "Replace the cable."
        await close(world)
        await loop.tick()
        assert vendor.resolved == [KEY]

    at_pagerduty(tmp_path, story)


def test_a_wrong_routing_key_is_a_problem_without_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def story(world: Telling, vendor: PagerDutyEvents, desk: PagerDuty) -> None:
        await world.loop(desk).tick()
        problem = (await ticket_of(world)).problem
        assert problem == "PagerDuty answered with status 400"
        vendor.status = 429
        world.clock.at += 3600
        await world.loop(desk).tick()
        assert "429" in (await ticket_of(world)).problem

    at_pagerduty(tmp_path, story, secret="wrong-key-of-a-site")

    assert "wrong-key-of-a-site" not in caplog.text


def test_a_case_is_one_record_with_work_notes(tmp_path: Path):
    async def story(world: Telling, vendor: ServiceNowTable, desk: ServiceNow) -> None:
        loop = world.loop(desk)
        vendor.records.append(
            {"sys_id": "f" * 32, "number": "INC9", "correlation_id": "of-another-sender"}
        )
        vendor.lose_answers = 1
        await loop.tick()
        world.clock.at += 3600
        await world.loop(desk).tick()  # another daemon, which knows only what is stored
        ticket = await ticket_of(world)
        assert (ticket.id, ticket.system) == ("INC0000002", "servicenow")
        (record,) = [r for r in vendor.records if r["correlation_id"] == KEY]
        assert record["short_description"].startswith(f"[{KEY}] r12 n7")
        assert "S1" in record["description"]
        await change(world, "Replace the cable.")
        await loop.tick()
        await close(world)
        await loop.tick()
        changed, closed = vendor.notes["INC0000002"]
        assert "Replace the cable." in changed
        assert "the cable was loose" in closed
        assert len(vendor.records) == 2

    at_servicenow(tmp_path, story)


def test_records_that_an_instance_returns_beside_the_question_are_not_ours(tmp_path: Path):
    async def story(world: Telling, vendor: ServiceNowTable, desk: ServiceNow) -> None:
        vendor.has_correlation = False
        vendor.records.append({"sys_id": "f" * 32, "number": "INC9", "correlation_id": ""})
        found = await desk.look(KEY)
        assert (found.certain, found.ref) == (True, None)

    at_servicenow(tmp_path, story)


def test_a_wrong_login_is_a_problem_without_the_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def story(world: Telling, vendor: ServiceNowTable, desk: ServiceNow) -> None:
        await world.loop(desk).tick()
        assert "status 401" in (await ticket_of(world)).problem
        assert not vendor.records
        assert not any("hidden" in path for _, path in vendor.asked)

    at_servicenow(tmp_path, story, secret="hidden-password")

    assert "hidden-password" not in caplog.text


@pytest.mark.parametrize("record", ["", '{"result": []}', '{"result": {"sys_id": "../x"}}', "[]"])
def test_an_answer_that_is_no_record_is_refused(record: str):
    with pytest.raises(Malformed):
        read_record(201, record.encode(), 201)


@pytest.mark.parametrize(
    ("settings", "environ", "problem"),
    [
        ({"ticket_system": "pagerduty"}, {}, "PROVISIONER_TICKET_SECRET"),
        ({"ticket_system": "servicenow"}, {"PROVISIONER_TICKET_SECRET": "s"}, "ticket_url"),
        (
            {"ticket_system": "servicenow", "ticket_url": "https://x.service-now.com"},
            {"PROVISIONER_TICKET_SECRET": "s"},
            "ticket_user",
        ),
    ],
)
def test_a_desk_with_a_missing_value_is_refused_before_the_daemon_starts(
    settings: dict[str, str], environ: dict[str, str], problem: str
):
    async def main() -> None:
        chosen = Settings.model_validate(settings)
        clock: Any = None
        async with open_tickets(chosen, clock, environ):
            pass

    with pytest.raises(InputError, match=problem):
        asyncio.run(main())
