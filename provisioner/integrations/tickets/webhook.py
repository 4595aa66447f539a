"""Tickets by webhook: JSON over HTTPS, signed, with a key that stays the same when it is repeated.

Headers and signature are those of Standard Webhooks 1.0.0 (https://www.standardwebhooks.com,
specification of 2023): `webhook-id`, `webhook-timestamp`, and `webhook-signature: v1,BASE64` of
HMAC-SHA256 over "id.timestamp.body". The receiver answers 2xx with `{"id": ..., "url": ...}`, the
same for the same `webhook-id`. `GET URL?key=ID`, signed in the same way over an empty body, says
whether a message arrived: 200 with the same object, or 404. A receiver that has no such answer
(405, 501) is sent the message again, and has to know it by its id.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path

from yarl import URL

from provisioner.integrations.tickets.exchange import CANNOT_LOOK, DeskExchange
from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.ports import Clock, Malformed, Secret
from provisioner.ports.tickets import Looked, TicketRef

TEXT_MAX = 500  # of either
ATTACHED_MAX = 16 * 1024 * 1024  # a larger archive is named by its digest, and fetched from us
NOT_THERE = (404, 410)


class Webhook:
    """To be used in one event loop, and closed there."""

    name = "webhook"

    def __init__(
        self, url: str, secret: Secret, clock: Clock, ca_file: Path | None = None, pin: str = ""
    ) -> None:
        self._url = url
        self._secret = secret
        self._clock = clock
        self._exchange = DeskExchange(ca_file, pin)

    async def look(self, key: str) -> Looked:
        """Ask the receiver for the message with this id."""
        status, body = await self._ask("GET", key, b"", {"key": key})
        if status in NOT_THERE:
            return Looked(certain=True)
        if status in CANNOT_LOOK:
            return Looked(certain=False)
        return Looked(certain=True, ref=_ref(status, body))

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """POST it."""
        document = message.model_dump(mode="json")
        if bundle and len(bundle) <= ATTACHED_MAX:
            document["bundle"] = base64.b64encode(bundle).decode()
        content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        status, body = await self._ask("POST", message.id, content, {})
        return _ref(status, body)

    async def close(self) -> None:
        """Close the connection."""
        await self._exchange.close()

    async def _ask(
        self, method: str, key: str, content: bytes, query: Mapping[str, str]
    ) -> tuple[int, bytes]:
        headers = signature(self._secret, key, int(self._clock.now()), content)
        target = URL(self._url).update_query(query)
        return await self._exchange.request(method, target, headers, content)


def signature(secret: Secret, key: str, at: int, content: bytes) -> dict[str, str]:
    """Return the headers of one message. `at`: seconds since the epoch."""
    signed = b"%b.%d.%b" % (key.encode(), at, content)
    made = hmac.new(secret.reveal().encode(), signed, hashlib.sha256).digest()
    return {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "webhook-id": key,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }


def _ref(status: int, body: bytes) -> TicketRef:
    if not 200 <= status < 300:
        raise Malformed(f"the ticket system answered with status {status}")
    try:
        document = json.loads(body)
        id_text = document["id"]
        url = document.get("url", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Malformed("the ticket system's answer is no JSON object with an id") from None
    if isinstance(id_text, int) and not isinstance(id_text, bool):
        id_text = str(id_text)
    good = isinstance(id_text, str) and 0 < len(id_text) <= TEXT_MAX and id_text.isprintable()
    if not good or not isinstance(url, str) or len(url) > TEXT_MAX or not url.isprintable():
        raise Malformed("the ticket system's id or url is not readable")
    return TicketRef(id=id_text, url=url)
