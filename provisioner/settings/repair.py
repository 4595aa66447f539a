"""Settings of repairs, and of the tickets that request work from people. A part of `Settings`.

Passwords are in the environment: PROVISIONER_TICKET_SECRET signs webhooks,
PROVISIONER_SMTP_PASSWORD logs in at the mail server.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from provisioner.model.base import Record

# Lengths are limits of their own: the regex engine unfolds `{1,253}`, to half a megabyte for each.
MailAddress = Annotated[str, Field(max_length=318, pattern=r"^([^@\s]+@[^@\s]+)?$")]


class RepairSettings(Record):
    """How automatic repairs proceed, and the ticket system for work that people do."""

    repair_service: Literal["auto", "keep", "drain", "cut_off"] = Field(
        "auto", description="A tenant's use of a node with a fault; auto: decided by its alerts."
    )
    repair_notice_s: float = Field(
        86400.0, ge=0, description="A tenant's notice before a faulty node is drained."
    )
    repair_defer_max_s: float = Field(
        1209600.0, ge=0, description="A tenant may put a drain off until this after the opening."
    )
    repair_quiet_s: float = Field(
        3600.0,
        ge=0,
        description="A node that stays in service is healthy after this long without alerts.",
    )
    repair_resets_per_day: int = Field(
        4, ge=1, le=50, description="Resets of one node as remedies within a day."
    )
    repair_remedies_per_hour: int = Field(
        8, ge=1, le=10000, description="Resets as remedies in the whole fleet within an hour."
    )
    repair_pause_s: float = Field(
        0.0, ge=0, description="Between the beginnings of two remedies of one node."
    )
    repair_confidence_min: float = Field(
        0.4, ge=0, le=1, description="Below it a person diagnoses before a part is replaced."
    )
    repair_dump_limit_s: float = Field(
        900.0, gt=0, description="A crash dump that a BMC makes is there within this."
    )
    repair_deeper_score: float = Field(
        2.0, ge=0, description="Score of a repeat offender that requires every test."
    )
    repair_deeper_limit_s: float = Field(
        14400.0, ge=0, description="Time for tests of a repeat offender beyond the site's gates."
    )
    repair_retire_score: float = Field(
        5.0, ge=0, description="Score of a repeat offender that a ticket proposes to retire."
    )

    spares_per_unit: int = Field(
        0,
        ge=0,
        le=512,
        description="Certified hosts that stay free among those on the same leaves; one takes the "
        "place of a serving host with a fault. 0: no spares.",
    )

    retire_credentials: Literal["remove", "factory", "keep"] = Field(
        "remove",
        description="Logins of a retired node's BMCs: forgotten here; the factory password is set "
        "again and then forgotten; or kept.",
    )

    # work for people
    ticket_system: Literal[
        "none", "webhook", "email", "servicenow", "pagerduty", "jira", "slack"
    ] = Field(
        "none", description="Where tickets are sent; none: only on the command line and the API."
    )
    ticket_url: str = Field(
        "",
        pattern=r"^(https://\S+)?$",
        max_length=508,
        description="Webhook that tickets are sent to; ServiceNow, Jira: the instance; PagerDuty: "
        "where events go.",
    )
    ticket_user: str = Field(
        "",
        pattern=r"^[^\s:]*$",
        max_length=200,
        description="ServiceNow, Jira: login; its password or API token is a secret.",
    )
    ticket_table: str = Field(
        "incident", pattern=r"^[a-z0-9_]{1,80}$", description="ServiceNow: table of tickets."
    )
    ticket_project: str = Field(
        "", pattern=r"^([A-Z][A-Z0-9_]{1,49})?$", description="Jira: key of the project."
    )
    ticket_issue_type: str = Field(
        "Task", min_length=1, max_length=60, description="Jira: type of the issues."
    )
    ticket_channel: str = Field(
        "", pattern=r"^([CG][A-Z0-9]{2,40})?$", description="Slack: id of the channel."
    )
    ticket_pin: str = Field(
        "",
        pattern=r"^([0-9a-fA-F:]{64,95})?$",
        description="SHA-256 of its certificate, if pinned.",
    )
    ticket_mail_server: str = Field(
        "",
        pattern=r"^([^:\s]+:\d{1,5})?$",
        max_length=259,
        description="SMTP server of tickets, HOST:PORT.",
    )
    ticket_mail_tls: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="Security of the connection; none only for a relay without a password.",
    )
    ticket_mail_user: str = Field("", max_length=200, description="Login at it; empty: none.")
    ticket_mail_from: MailAddress = Field("", description="Sender of tickets.")
    ticket_mail_to: MailAddress = Field("", description="Mailbox that tickets go to.")
    ticket_retry_s: float = Field(
        60.0, gt=0, description="Wait after a ticket could not be sent; doubles, up to an hour."
    )
    repair_led: bool = Field(
        default=True, description="The identify LED of a node that people work on is switched on."
    )
