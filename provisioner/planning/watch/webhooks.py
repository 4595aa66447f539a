"""Which webhook an event of the journal goes to, its id, and the times of retries."""

from __future__ import annotations

from fnmatch import fnmatchcase

from provisioner.model.integrations.webhook import JournalRow, Webhook

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TYPE_PREFIX = "provisioner."
NOTICE = "notice"
OWN = "webhook"  # kind of the journal's rows about webhooks themselves
ALERT_ID = "WebhookDead"
SPREAD = 0.2  # random share added to a delay, so that recovering receivers are not hit at once


def is_wanted(webhook: Webhook, row: JournalRow) -> bool:
    """Return whether a webhook receives a row. It never receives rows about its own failures."""
    if row.kind == OWN and row.detail.get("webhook") == webhook.name:
        return False
    own_alert = row.detail.get("id") == ALERT_ID and row.detail.get("target") == webhook.name
    if row.kind.startswith("alert") and own_alert:
        return False
    if webhook.tenant and (row.kind != NOTICE or row.detail.get("tenant") != webhook.tenant):
        return False
    kind = any(fnmatchcase(row.kind, g) for g in webhook.kinds)
    return kind and any(fnmatchcase(row.node, g) for g in webhook.nodes)


def list_changes(before: Webhook, after: Webhook) -> tuple[str, ...]:
    return tuple(n for n in Webhook.model_fields if getattr(before, n) != getattr(after, n))


def event_id(row: JournalRow) -> str:
    """The event's id, equal for all attempts to send the same row; different after a restore."""
    return f"{row.seq}-{row.sha256[:16]}"


def wait_s(tries: int, first_s: float, most_s: float, chance: float) -> float:
    """Return the delay after the attempt number `tries`, in seconds; `chance` is 0 to 1."""
    doubled = first_s * 2.0 ** min(tries - 1, 40)
    return float(min(doubled, most_s) * (1.0 + SPREAD * chance))
