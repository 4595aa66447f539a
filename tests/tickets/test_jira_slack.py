"""A case has one issue in Jira and one thread in Slack, whatever is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from jira_cloud import JiraCloud
from slack_workspace import SlackWorkspace
from telling import CASE, NODE, Telling, telling

from provisioner.integrations.tickets.jira import Jira, find_labelled, make_label, read_key
from provisioner.integrations.tickets.opening import open_tickets
from provisioner.integrations.tickets.slack import Slack, check_answer, read_own_messages, read_ts
from provisioner.model.case import Ending
from provisioner.model.input_error import InputError
from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.planning.repair import repair_report as ticket_words
from provisioner.ports import LoginRefused, Malformed, PortError, Secret, Unreachable
from provisioner.settings import Settings

Story = Callable[[Telling, Any, Any], Awaitable[None]]
KEY = "site/n7-c0001"


def at_jira(directory: Path, story: Story, secret: str = JiraCloud.login[1], **own: str) -> None:
    async def main() -> None:
        vendor, world = JiraCloud(), await telling(directory)
        login = (vendor.login[0], Secret(secret))
        kind = own.get("issue_type", "Task")
        desk = Jira(await vendor.start(), "OPS", kind, login)
        try:
            await story(world, vendor, desk)
        finally:
            await desk.close()
            await vendor.stop()
            await world.store.close()

    asyncio.run(main())


def at_slack(directory: Path, story: Story, secret: str = SlackWorkspace.token) -> None:
    async def main() -> None:
        vendor, world = SlackWorkspace(), await telling(directory)
        desk = Slack(await vendor.start() + "api", vendor.channel, Secret(secret))
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


async def ticket_of(world: Telling) -> Any:
    return (await world.case()).ticket


async def live_a_case(world: Telling, vendor: Any, desk: Any) -> Any:
    """The first answer is lost, another daemon goes on, the work changes, the case is closed."""
    vendor.lose_answers = 1
    await world.loop(desk).tick()
    assert (await ticket_of(world)).id == ""
    world.clock.at += 3600
    await world.loop(desk).tick()
    ticket = await ticket_of(world)
    await change(world, "Replace the cable.")
    await world.loop(desk).tick()
    await world.case_service.close(
        await world.case(), Ending.REPAIRED, "ada", "the cable was loose"
    )
    await world.loop(desk).tick()
    return ticket


def make_message(**changes: object) -> TicketMessage:
    return ticket_words.make_message(CASE, NODE, None, "site").model_copy(update=changes)


def test_a_case_is_one_issue_with_comments(tmp_path: Path):
    async def story(world: Telling, vendor: JiraCloud, desk: Jira) -> None:
        ticket = await live_a_case(world, vendor, desk)
        assert (ticket.id, ticket.system) == ("OPS-1", "jira")
        assert ticket.url.endswith("/browse/OPS-1")
        assert list(vendor.issues) == ["OPS-1"]
        assert vendor.issues["OPS-1"]["summary"].startswith(f"[{KEY}] r12 n7")
        changed, closed = vendor.comments["OPS-1"]
        assert "Replace the cable." in changed
        assert "the cable was loose" in closed

    at_jira(tmp_path, story)


def test_a_case_is_one_thread_with_answers(tmp_path: Path):
    async def story(world: Telling, vendor: SlackWorkspace, desk: Slack) -> None:
        ticket = await live_a_case(world, vendor, desk)
        ((first, changed, closed),) = vendor.threads()
        assert (ticket.id, ticket.system) == (first["ts"], "slack")
        assert first["blocks"][0]["text"]["text"].startswith(f"[{KEY}] r12 n7")
        assert "Replace the cable." in changed["blocks"][1]["text"]["text"]
        assert "the cable was loose" in closed["blocks"][1]["text"]["text"]

    at_slack(tmp_path, story)


def test_an_answer_in_a_thread_that_got_lost_is_not_posted_twice(tmp_path: Path):
    async def story(world: Telling, vendor: SlackWorkspace, desk: Slack) -> None:
        await world.loop(desk).tick()
        await change(world, "Replace the cable.")
        vendor.lose_answers = 1
        await world.loop(desk).tick()
        world.clock.at += 3600
        await world.loop(desk).tick()
        (thread,) = vendor.threads()
        assert len(thread) == 2
        assert (await ticket_of(world)).problem == ""

    at_slack(tmp_path, story)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("x" * 25_000, "y" * 400),
        ("one\n\n\nthree\r\nfour", "two\r\nlines"),
        ("*bold* <!channel> &amp; {panel}", "<!channel>"),
    ],
    ids=["long", "lines", "markup"],
)
def test_texts_of_any_kind_are_valid_there_and_no_markup(tmp_path: Path, text: str, title: str):
    message = make_message(text=text, title=title)

    async def jira(_: Telling, vendor: JiraCloud, desk: Jira) -> None:
        await desk.send(message, b"archive")
        assert len(vendor.issues) == 1

    async def slack(_: Telling, vendor: SlackWorkspace, desk: Slack) -> None:
        await desk.send(message, b"archive")
        ((post,),) = vendor.threads()
        assert "<!" not in post["text"]

    at_jira(tmp_path, jira)
    at_slack(tmp_path, slack)


def test_a_wrong_token_is_a_problem_without_the_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def story(world: Telling, vendor: Any, desk: Any) -> None:
        await world.loop(desk).tick()
        assert (await ticket_of(world)).id == ""
        assert "401" in (await ticket_of(world)).problem or "invalid_auth" in (
            (await ticket_of(world)).problem
        )
        assert not any("hidden" in path for _, path in vendor.asked)

    at_jira(tmp_path, story, secret="hidden-token")
    at_slack(tmp_path, story, secret="hidden-token")

    assert "hidden-token" not in caplog.text


def test_a_field_that_jira_refuses_is_named_in_the_case(tmp_path: Path):
    async def story(world: Telling, vendor: JiraCloud, desk: Jira) -> None:
        await world.loop(desk).tick()
        assert (await ticket_of(world)).problem == "Jira answered with status 400: issuetype"
        assert vendor.issues == {}

    at_jira(tmp_path, story, issue_type="Story")


@pytest.mark.parametrize(
    ("error", "kind", "maybe"),
    [
        ("ratelimited", Unreachable, False),
        ("fatal_error", Unreachable, True),
        ("token_revoked", LoginRefused, None),
        ("is_archived", Malformed, None),
        ("<b>\n", Malformed, None),
    ],
)
def test_a_refusal_of_slack_with_status_200_is_an_error(
    error: str, kind: type[PortError], maybe: bool | None
):
    body = b'{"ok": false, "error": %s}' % f'"{error}"'.replace("\n", "\\n").encode()
    with pytest.raises(kind) as refused:
        check_answer(200, body, writes=True)

    assert isinstance(refused.value, kind)
    assert "\n" not in str(refused.value)
    if isinstance(refused.value, Unreachable):
        assert refused.value.maybe_executed is maybe


@pytest.mark.parametrize("key", ["", "OPS", "OPS-", "../x-1", "OPS-1/comment", "OPS-1\n", 7, None])
def test_a_key_that_is_none_is_refused(key: object):
    answer = b'{"key": %s}' % (b"null" if key is None else repr(key).replace("'", '"').encode())
    with pytest.raises(Malformed):
        read_key(answer)


def test_issues_that_a_search_returns_beside_the_question_are_not_ours():
    body = b'{"issues": [{"key": "OPS-1", "fields": {"labels": ["another"]}}]}'

    assert find_labelled(body, make_label(KEY)) is None


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"ts": "1\\n.2"}', b'{"ts": 5}', b'{"messages": 1}']
)
def test_an_answer_of_slack_that_is_none_is_refused(body: bytes):
    for read in (read_ts, read_own_messages):
        with pytest.raises(Malformed):
            read(body)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ticket_system": "jira"}, "ticket_url"),
        ({"ticket_system": "jira", "ticket_url": "https://x.atlassian.net"}, "ticket_project"),
        ({"ticket_system": "slack"}, "ticket_channel"),
    ],
)
def test_a_desk_with_a_missing_value_is_refused_before_the_daemon_starts(
    settings: dict[str, str], problem: str
):
    async def main() -> None:
        chosen = Settings.model_validate(settings)
        clock: Any = None
        async with open_tickets(chosen, clock, {"PROVISIONER_TICKET_SECRET": "s"}):
            pass

    with pytest.raises(InputError, match=problem):
        asyncio.run(main())
