"""The form of an event posted to a webhook: body, signature and outcome; what a webhook may be.

CloudEvents 1.0.2 (JSON format, structured mode) in the envelope of Standard Webhooks 1.0.0
(github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md): headers `webhook-id`,
`webhook-timestamp` and `webhook-signature`, the HMAC over "ID.TIMESTAMP.BODY".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from provisioner.integrations.webhooks.outbound import refuse_host
from provisioner.model.input_error import InputError
from provisioner.model.integrations.webhook import JournalRow, PostOutcome, Webhook
from provisioner.model.times.instant import write_instants
from provisioner.planning.watch.webhooks import TYPE_PREFIX, event_id
from provisioner.settings import Settings

SECRET_PREFIX = "whsec_"  # noqa: S105 (Standard Webhooks: secrets are recognised by it)
SECRET_BYTES = (24, 64)  # Standard Webhooks, "Signature scheme"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
GLOBS_MAX = 32
SITES_NETWORKS = "not in the site's setting webhook_networks"


def cloud_event(row: JournalRow, site: str) -> bytes:
    """Return the event as its JSON text; `id` and `source` together are unique."""
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": event_id(row),
        "source": f"/provisioner/{quote(site, safe='')}",
        "type": TYPE_PREFIX + row.kind,
        "time": datetime.fromtimestamp(row.at, UTC).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
        # extension "sequence": a number of a node that is not above its last one is a repetition
        "sequence": f"{row.seq:020d}",
        "data": {"kind": row.kind, "node": row.node, "detail": write_instants(row.detail)},
    }
    if row.node:
        event["subject"] = row.node
        event["partitionkey"] = row.node  # extension "partitioning": order is preserved within it
    return json.dumps(event, sort_keys=True, separators=(",", ":")).encode()


def make_signature(secrets: Sequence[str], id_: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature for each secret, the newest first."""
    signed = f"{id_}.{timestamp}.".encode() + body
    digests = [hmac.digest(key_of(secret), signed, hashlib.sha256) for secret in secrets]
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)


def secret_of(key: bytes) -> str:
    """Return the text of a secret, in the form of Standard Webhooks."""
    assert SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1], "24 to 64 bytes"
    return SECRET_PREFIX + base64.b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """Return the key of a secret's text. Raises ValueError if it is none."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("a webhook's secret is not base64") from error
    if not SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]:
        raise ValueError("a webhook's secret has 24 to 64 bytes")
    return key


def outcome_of(status: int, retry_after: str) -> PostOutcome:
    """Return the outcome of an answer: 2xx is delivered, 410 ends the webhook, others are retried.

    A redirect is a failure: an event is sent only to the configured URL.
    """
    if 200 <= status < 300:
        return PostOutcome(delivered=True)
    seconds = retry_after.strip()
    requested_s = (
        float(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 8 else 0.0
    )
    again = requested_s if status in (429, 503) else 0.0  # RFC 9110 section 10.2.3
    return PostOutcome(
        delivered=False, error=f"HTTP {status}", again_in_s=again, gone=status == 410
    )


def refuse_url(url: str, host: str, settings: Settings) -> str:
    """Return why the site posts nothing to a URL, and which setting would allow it; or ""."""
    if not url.lower().startswith("https://") and not settings.webhook_plain:
        return "http is not allowed by the site's setting webhook_plain"
    why = refuse_host(host, settings.webhook_networks)
    return f"{why}: {SITES_NETWORKS}" if why else ""


def check(webhook: Webhook, settings: Settings, *, plain: bool = False) -> Webhook:
    """Return the webhook if it is valid. Raises InputError.

    `plain`: the caller wants http, which takes the site's setting too.
    """
    if not NAME.fullmatch(webhook.name):
        remedy = "Use small letters, digits and dashes, at most 63."
        raise InputError("NAME", webhook.name[:100], "this is no name", remedy)
    try:
        parts = urlsplit(webhook.url)
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    printable = webhook.url.isascii() and webhook.url.isprintable() and " " not in webhook.url
    if not good or not printable or len(webhook.url) > 1000 or parts.fragment:
        raise InputError("--url", webhook.url[:100], "this is no address", "Say https://...")
    if parts.username is not None or parts.password is not None:
        remedy = "Leave them out; the receiver verifies the signature."
        raise InputError("--url", parts.hostname or "", "it has a user or password", remedy)
    if parts.scheme != "https" and not (plain and parts.scheme == "http"):
        remedy = "Use https://; http needs --plain, and the site's setting webhook_plain."
        raise InputError("--url", webhook.url[:100], "it would be sent unencrypted", remedy)
    if why := refuse_url(webhook.url, parts.hostname or "", settings):
        remedy = "Name another receiver, or ask who keeps the site's settings."
        raise InputError("--url", webhook.url[:100], why, remedy)
    globs = (*webhook.kinds, *webhook.nodes)
    if len(globs) > GLOBS_MAX or not all(0 < len(g) <= 128 and g.isprintable() for g in globs):
        remedy = f"At most {GLOBS_MAX} patterns of 128 characters."
        raise InputError("--kind", ",".join(globs)[:100], "these are no patterns", remedy)
    return webhook
