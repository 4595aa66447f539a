"""Tickets by e-mail to a real SMTP server: one message by its id, readable, with the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import TypeVar

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session
from telling import CASE, NODE, HandClock, telling

from provisioner.integrations.tickets.mailbox import Mailbox, MailServer
from provisioner.integrations.tickets.opening import open_tickets
from provisioner.model.input_error import InputError
from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.planning.repair import repair_report as ticket_words
from provisioner.ports import Unreachable
from provisioner.settings import Settings

Result = TypeVar("Result")


class Post:
    """Keeps what it is sent; refuses it while `refuses` is set."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refuses = ""

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        if self.refuses:
            return self.refuses
        content = envelope.content
        assert isinstance(content, bytes)
        mail = message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"


def posted(handler: Post, work: Callable[[int], Awaitable[Result]]) -> Result:
    """What `work` does with a server at this port; `smtplib` has a thread of its own."""

    async def main() -> Result:
        listening = await asyncio.get_running_loop().create_server(
            lambda: SMTP(handler), "127.0.0.1", 0
        )
        try:
            return await work(listening.sockets[0].getsockname()[1])
        finally:
            listening.close()
            await listening.wait_closed()

    return asyncio.run(main())


def box(port: int) -> Mailbox:
    server = MailServer("127.0.0.1", port, tls="none")
    return Mailbox(server, "provisioner@site.test", "desk@vendor.test", HandClock())


def said(**changes: object) -> TicketMessage:
    told = ticket_words.make_message(CASE, NODE, None, "site")
    return told.model_copy(update=changes)


def test_a_mail_has_the_work_the_place_and_the_archive() -> None:
    handler, message = Post(), said(bundle_name="n7-c0001.tar.gz")
    ref = posted(handler, lambda port: box(port).send(message, b"archive"))
    (mail,) = handler.mails

    assert "Replace the NIC in NIC_3." in mail["Subject"]
    assert mail["Message-ID"] == ref.id
    body = mail.get_body()
    assert body is not None
    assert "rack r12" in body.get_content()
    (attached,) = mail.iter_attachments()
    assert (attached.get_filename(), attached.get_content()) == ("n7-c0001.tar.gz", b"archive")


def test_a_mail_that_is_sent_again_has_the_same_id_and_a_later_one_answers_to_it() -> None:
    handler = Post()

    async def work(port: int) -> None:
        for message in (said(), said(), said(id="site/n7-c0001/2", event="closed")):
            await box(port).send(message, b"")

    posted(handler, work)
    first, again, later = handler.mails

    assert first["Message-ID"] == again["Message-ID"] != later["Message-ID"]
    assert later["In-Reply-To"] == first["Message-ID"]


def test_words_of_a_device_cannot_add_a_header() -> None:
    handler = Post()
    ticket = CASE.ticket
    assert ticket is not None
    bad = ticket.model_copy(update={"work": "Replace\r\nBcc: all@everywhere.test\r\n\r\nit"})
    case = CASE.model_copy(update={"ticket": bad})
    message = ticket_words.make_message(case, NODE, None, "site")
    posted(handler, lambda port: box(port).send(message, b""))

    assert handler.mails[0]["Bcc"] is None


def test_a_server_that_refuses_or_is_not_there_is_an_error_that_is_tried_again() -> None:
    handler = Post()
    handler.refuses = "452 full"

    async def work(port: int) -> None:
        for mailbox in (box(port), box(1)):
            with pytest.raises(Unreachable) as refused:
                await mailbox.send(said(), b"")

            assert not refused.value.maybe_executed

    posted(handler, work)


def test_the_daemon_tells_a_mailbox_once(tmp_path: Path) -> None:
    handler = Post()

    async def work(port: int) -> str:
        world = await telling(tmp_path)
        loop = world.loop(box(port))
        for _ in range(3):
            await loop.tick()
        ticket = (await world.case()).ticket
        await world.store.close()
        assert ticket is not None
        return ticket.id

    told = posted(handler, work)

    assert [m["Message-ID"] for m in handler.mails] == [told]


def test_a_password_in_clear_is_refused_before_the_daemon_starts() -> None:
    settings = Settings(
        ticket_system="email",
        ticket_mail_server="mail.test:25",
        ticket_mail_tls="none",
        ticket_mail_user="desk",
        ticket_mail_from="a@site.test",
        ticket_mail_to="b@site.test",
    )

    async def opened() -> None:
        async with open_tickets(settings, HandClock(), {"PROVISIONER_SMTP_PASSWORD": "x"}):
            pass

    with pytest.raises(InputError, match="clear"):
        asyncio.run(opened())
