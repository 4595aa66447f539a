"""Tickets as alerts of PagerDuty: Events API v2 (PagerDuty's reference/events-v2/openapiv3.json).

One ticket is one alert, by `dedup_key`: a message that is sent again changes nothing, so that this
system need not be asked whether one arrived. The routing key stands in the body, as the API wants
it, and in no URL.
"""

from __future__ import annotations

import json
from pathlib import Path

from yarl import URL

from provisioner.integrations.tickets.exchange import DeskExchange
from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.ports import Malformed, Secret
from provisioner.ports.tickets import Looked, TicketRef

ENQUEUE = "https://events.pagerduty.com/v2/enqueue"
ACCEPTED = 202
SUMMARY_MAX = 1024
HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}


class PagerDuty:
    """`ports.TicketSystem`. To be used in one event loop, and closed there."""

    name = "pagerduty"

    def __init__(
        self, url: str, secret: Secret, ca_file: Path | None = None, pin: str = ""
    ) -> None:
        self._url = URL(url or ENQUEUE)
        self._secret = secret
        self._exchange = DeskExchange(ca_file, pin)

    async def look(self, key: str) -> Looked:
        """Return that it cannot be asked: the same event again is the same alert."""
        return Looked(certain=False)

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """Trigger or resolve the alert. The archive is named by its digest."""
        event = make_event(message) | {"routing_key": self._secret.reveal()}
        content = json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
        status, _ = await self._exchange.request("POST", self._url, HEADERS, content)
        if status != ACCEPTED:
            raise Malformed(f"PagerDuty answered with status {status}")
        return TicketRef(id=message.key)

    async def close(self) -> None:
        """Close the connection."""
        await self._exchange.close()


def make_event(message: TicketMessage) -> dict[str, object]:
    """Return the event of a message, without the routing key."""
    if message.event == "closed":
        return {"event_action": "resolve", "dedup_key": message.key}
    part = message.part
    payload: dict[str, object] = {
        "summary": message.title[:SUMMARY_MAX],
        "source": message.place.node,
        "severity": "error",
        "component": message.place.slot,
        "group": message.place.rack,
        "class": "unknown" if part is None else part.kind,
        "custom_details": {
            "work": message.work,
            "text": message.text,
            "serial": "unknown" if part is None else part.serial,
            "leaf_ports": list(message.place.leaf_ports),
            "rma": message.rma,
            "bundle_sha256": message.bundle_sha256,
        },
    }
    return {"event_action": "trigger", "dedup_key": message.key, "payload": payload}
