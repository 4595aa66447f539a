"""Settings of webhooks: a part of `Settings`."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


class WebhookSettings(Record):
    """How events are sent and retried: with the defaults for some 15 hours."""

    webhook_tries: int = Field(
        24, ge=1, le=1000, description="An event that was refused this often is a dead letter."
    )
    webhook_first_s: float = Field(
        5.0, gt=0, description="Between the first two tries; it doubles with each one."
    )
    webhook_most_s: float = Field(3600.0, gt=0, description="Between two tries at the most.")
    webhook_timeout_s: float = Field(
        15.0, gt=0, le=300, description="A receiver answers within this (Standard Webhooks: 15-30)."
    )
    webhook_parallel: int = Field(
        16,
        ge=1,
        le=256,
        description="Events on their way to one webhook at once, of as many nodes.",
    )
    webhook_waiting_max: int = Field(
        10000,
        ge=1,
        description="Rows of events that wait for one webhook; more wait in the journal.",
    )
