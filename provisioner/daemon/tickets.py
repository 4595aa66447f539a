"""Opens the ticket system that receives work for people, as the settings name it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from provisioner.adapters.tickets.mailbox import Mailbox, MailServer
from provisioner.adapters.tickets.pagerduty import PagerDuty
from provisioner.adapters.tickets.servicenow import ServiceNow
from provisioner.adapters.tickets.webhook import Webhook
from provisioner.model.input_error import InputError
from provisioner.ports import Clock, Secret
from provisioner.ports.tickets import TicketSystem
from provisioner.settings import Settings

WEBHOOK_SECRET = "PROVISIONER_TICKET_SECRET"  # noqa: S105 (the name of the variable)
MAIL_SECRET = "PROVISIONER_SMTP_PASSWORD"  # noqa: S105 (the name of the variable)


@asynccontextmanager
async def open_tickets(
    settings: Settings, clock: Clock, environ: Mapping[str, str], ca_file: Path | None = None
) -> AsyncIterator[TicketSystem | None]:
    """Yield the adapter, and close it at the end; None where the site has no such system.

    Raises InputError for a missing value, before the daemon starts.
    """
    system = settings.ticket_system
    if system == "webhook":
        secret = _secret(environ, WEBHOOK_SECRET)
        url = _needed("ticket_url", settings.ticket_url)
        webhook = Webhook(url, secret, clock, ca_file, settings.ticket_pin)
        try:
            yield webhook
        finally:
            await webhook.close()
    elif system in ("servicenow", "pagerduty"):
        desk = _desk(settings, environ, ca_file)
        try:
            yield desk
        finally:
            await desk.close()
    elif system == "email":
        yield _mailbox(settings, clock, environ, ca_file)
    else:
        yield None


def _desk(
    settings: Settings, environ: Mapping[str, str], ca_file: Path | None
) -> ServiceNow | PagerDuty:
    secret = _secret(environ, WEBHOOK_SECRET)
    if settings.ticket_system == "pagerduty":
        return PagerDuty(settings.ticket_url, secret, ca_file, settings.ticket_pin)
    url = _needed("ticket_url", settings.ticket_url)
    login = (_needed("ticket_user", settings.ticket_user), secret)
    return ServiceNow(url, settings.ticket_table, login, ca_file, settings.ticket_pin)


def _mailbox(
    settings: Settings, clock: Clock, environ: Mapping[str, str], ca_file: Path | None
) -> Mailbox:
    host, _, port = _needed("ticket_mail_server", settings.ticket_mail_server).rpartition(":")
    user = settings.ticket_mail_user
    tls = settings.ticket_mail_tls
    if user and tls == "none":
        problem = "a password would go over the wire in clear"
        raise InputError("settings", "ticket_mail_tls", problem, "Use starttls or tls.")
    server = MailServer(
        host=host,
        port=int(port),
        tls=tls,
        username=user,
        secret=_secret(environ, MAIL_SECRET) if user else None,
        ca_file=ca_file,
    )
    sender = _needed("ticket_mail_from", settings.ticket_mail_from)
    return Mailbox(server, sender, _needed("ticket_mail_to", settings.ticket_mail_to), clock)


def _needed(name: str, value: str) -> str:
    if not value:
        problem = "it is empty, and ticket_system needs it"
        raise InputError("settings", name, problem, "See docs/integrations/service-desks.md.")
    return value


def _secret(environ: Mapping[str, str], name: str) -> Secret:
    if not environ.get(name):
        problem = f"{name} is not set or empty"
        raise InputError("ticket_system", name, problem, f"Run: export {name}=...")
    return Secret(environ[name])
