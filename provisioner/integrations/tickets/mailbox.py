"""Tickets by e-mail: one message to a mailbox, over SMTP (RFC 5321) with TLS.

A mailbox cannot be queried. A message has the same Message-ID when it is sent again, so that a
ticket system, which identifies messages by it (RFC 5322 section 3.6.4), makes one ticket; later
ones answer to it (In-Reply-To). `smtplib` works in a thread: the standard library's client is
maintained with Python, and a message takes a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.ports import Clock, LoginRefused, Secret, Unreachable
from provisioner.ports.tickets import Looked, TicketRef
from provisioner.runtime.late_module import LateModule

if TYPE_CHECKING:
    import smtplib
else:  # loaded by the first message
    smtplib = LateModule("smtplib")

CONNECT_S = 60.0  # of each SMTP command; servers greet slowly on purpose
ATTACHED_MAX = 10 * 1024 * 1024  # many servers refuse more than 20 MB, and base64 adds a third

Tls = Literal["starttls", "tls", "none"]


@dataclass(frozen=True)
class MailServer:
    """`tls` "none" sends no password; it is for a relay on this machine."""

    host: str
    port: int
    tls: Tls = "starttls"
    username: str = ""
    secret: Secret | None = None
    ca_file: Path | None = None


class Mailbox:
    """One sender, one mailbox."""

    name = "email"

    def __init__(self, server: MailServer, sender: str, to: str, clock: Clock) -> None:
        self._server = server
        self._sender = sender
        self._to = to
        self._clock = clock

    async def look(self, _key: str) -> Looked:
        """Return that the mailbox cannot be queried."""
        return Looked(certain=False)

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """Send one message; its Message-ID is the ticket's id."""
        mail = self.mail(message, bundle)
        await asyncio.to_thread(self._deliver, mail)
        first = mail["In-Reply-To"] or mail["Message-ID"]
        return TicketRef(id=str(first))

    def mail(self, message: TicketMessage, bundle: bytes) -> EmailMessage:
        """Return the message in the form in which it is sent."""
        mail = EmailMessage()
        mail["From"] = self._sender
        mail["To"] = self._to
        mail["Subject"] = message.title
        mail["Date"] = formatdate(self._clock.now())
        mail["Message-ID"] = self._id(message.id)
        mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation responder answers it
        if message.id != message.key:
            mail["In-Reply-To"] = mail["References"] = self._id(message.key)
        mail.set_content(message.text)
        if bundle and len(bundle) <= ATTACHED_MAX:
            mail.add_attachment(
                bundle, maintype="application", subtype="gzip", filename=message.bundle_name
            )
        return mail

    def _id(self, key: str) -> str:
        domain = self._sender.rpartition("@")[2]
        return f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"

    def _deliver(self, mail: EmailMessage) -> None:
        server = self._server
        where = f"{self._server.host}:{self._server.port}"
        sent = False
        try:
            with self._connect() as smtp:
                if server.username and server.secret is not None:
                    smtp.login(server.username, server.secret.reveal())
                sent = True
                smtp.send_message(mail)
        except smtplib.SMTPAuthenticationError as error:
            raise LoginRefused(f"{where}: login refused ({error.smtp_code})") from None
        except smtplib.SMTPResponseException as error:
            detail = f"{where}: refused ({error.smtp_code})"
            raise Unreachable(detail, maybe_executed=False) from None
        except smtplib.SMTPRecipientsRefused:
            detail = f"{where}: it does not take mail for {self._to}"
            raise Unreachable(detail, maybe_executed=False) from None
        except (smtplib.SMTPException, OSError) as error:
            detail = f"{where}: {type(error).__name__}"
            raise Unreachable(detail, maybe_executed=sent) from None

    def _connect(self) -> smtplib.SMTP:
        server = self._server
        context = ssl.create_default_context(cafile=str(server.ca_file) if server.ca_file else None)
        if server.tls == "tls":
            return smtplib.SMTP_SSL(server.host, server.port, timeout=CONNECT_S, context=context)
        smtp = smtplib.SMTP(server.host, server.port, timeout=CONNECT_S)
        try:
            if server.tls == "starttls":
                smtp.starttls(context=context)  # raises where it is not offered
        except BaseException:
            smtp.close()
            raise
        return smtp
