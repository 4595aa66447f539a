"""Opens the ticket system that receives work for people, as the settings name it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from provisioner.integrations.tickets.jira import Jira
from provisioner.integrations.tickets.mailbox import Mailbox, MailServer
from provisioner.integrations.tickets.pagerduty import PagerDuty
from provisioner.integrations.tickets.servicenow import ServiceNow
from provisioner.integrations.tickets.slack import Slack
from provisioner.integrations.tickets.webhook import Webhook
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
    if system in DESKS:
        secret = _secret(environ, WEBHOOK_SECRET)
        desk = DESKS[system](settings, secret, clock, ca_file)
        try:
            yield desk
        finally:
            await desk.close()
    elif system == "email":
        yield _mailbox(settings, clock, environ, ca_file)
    else:
        yield None


def _webhook(settings: Settings, secret: Secret, clock: Clock, ca_file: Path | None) -> Webhook:
    url = _needed("ticket_url", settings.ticket_url)
    return Webhook(url, secret, clock, ca_file, settings.ticket_pin)


def _pagerduty(settings: Settings, secret: Secret, _: Clock, ca_file: Path | None) -> PagerDuty:
    return PagerDuty(settings.ticket_url, secret, ca_file, settings.ticket_pin)


def _servicenow(settings: Settings, secret: Secret, _: Clock, ca_file: Path | None) -> ServiceNow:
    url = _needed("ticket_url", settings.ticket_url)
    login = (_needed("ticket_user", settings.ticket_user), secret)
    return ServiceNow(url, settings.ticket_table, login, ca_file, settings.ticket_pin)


def _jira(settings: Settings, secret: Secret, _: Clock, ca_file: Path | None) -> Jira:
    url = _needed("ticket_url", settings.ticket_url)
    project = _needed("ticket_project", settings.ticket_project)
    login = (_needed("ticket_user", settings.ticket_user), secret)
    kind = settings.ticket_issue_type
    return Jira(url, project, kind, login, ca_file, settings.ticket_pin)


def _slack(settings: Settings, secret: Secret, _: Clock, ca_file: Path | None) -> Slack:
    channel = _needed("ticket_channel", settings.ticket_channel)
    return Slack(settings.ticket_url, channel, secret, ca_file, settings.ticket_pin)


Desk = Webhook | PagerDuty | ServiceNow | Jira | Slack
# systems with one secret, PROVISIONER_TICKET_SECRET; a further one is a file and a line here
DESKS: Mapping[str, Callable[[Settings, Secret, Clock, Path | None], Desk]] = {
    "webhook": _webhook,
    "pagerduty": _pagerduty,
    "servicenow": _servicenow,
    "jira": _jira,
    "slack": _slack,
}


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
