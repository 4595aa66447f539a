"""Tickets in a table of ServiceNow: the Table API (REST API reference, "Table API").

A ticket is a record with our key as `correlation_id`, so that a message whose answer was lost is
searched for before it is sent again. Later messages are work notes of the record; its state is
people's and the instance's own flows', and is never set here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yarl import URL

from provisioner.integrations.tickets.exchange import DeskExchange
from provisioner.model.integrations.audit_export import TicketMessage
from provisioner.ports import Malformed, Secret
from provisioner.ports.tickets import Looked, TicketRef

TITLE_MAX = 160  # of `short_description`, as instances have it by default
TEXT_MAX = 4000  # of `description`
ID_MAX = 100
FIELDS = "sys_id,number,correlation_id"


class ServiceNow:
    """`ports.TicketSystem`. To be used in one event loop, and closed there."""

    name = "servicenow"

    def __init__(
        self,
        url: str,
        table: str,
        login: tuple[str, Secret],
        ca_file: Path | None = None,
        pin: str = "",
    ) -> None:
        self._table = URL(url).origin() / "api" / "now" / "table" / table
        self._login = login
        self._exchange = DeskExchange(ca_file, pin)

    async def look(self, key: str) -> Looked:
        """Search for the record with this key."""
        record = await self._find(key)
        return Looked(certain=True, ref=None if record is None else _make_ref(record))

    async def send(self, message: TicketMessage, bundle: bytes) -> TicketRef:
        """Add a record, or a work note to it. The archive is named by its digest."""
        record = None if message.event == "open" else await self._find(message.key)
        if record is not None:
            note = {"work_notes": message.text[:TEXT_MAX] or message.work}
            target = self._table / record["sys_id"]
            status, body = await self._ask("PATCH", target, note)
            return _make_ref(read_record(status, body, 200))
        if message.event == "closed":
            return TicketRef(id=message.ticket or message.key)  # people have removed the record
        fields = {
            "short_description": message.title[:TITLE_MAX],
            "description": message.text[:TEXT_MAX],
            "correlation_id": message.key,
            "correlation_display": "provisioner",
        }
        status, body = await self._ask("POST", self._table, fields)
        return _make_ref(read_record(status, body, 201))

    async def close(self) -> None:
        """Close the connection."""
        await self._exchange.close()

    async def _find(self, key: str) -> Mapping[str, str] | None:
        query = self._table.update_query(correlation_id=key, sysparm_limit="10")
        status, body = await self._ask("GET", query, None)
        if status == 404:  # version 1 of the API: no such record
            return None
        if status != 200:
            raise Malformed(f"ServiceNow answered with status {status}")
        records = _read_result(body)
        # an instance ignores a condition that it does not know, and returns other records
        for record in records if isinstance(records, list) else ():
            if isinstance(record, dict) and record.get("correlation_id") == key:
                return _check_record(record)
        return None

    async def _ask(
        self, method: str, url: URL, fields: Mapping[str, str] | None
    ) -> tuple[int, bytes]:
        user, secret = self._login
        basic = base64.b64encode(f"{user}:{secret.reveal()}".encode()).decode()
        headers = {"Accept": "application/json", "Authorization": f"Basic {basic}"}
        content = b""
        if fields is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        target = url.update_query(sysparm_fields=FIELDS)
        return await self._exchange.request(method, target, headers, content)


def read_record(status: int, body: bytes, expected: int) -> Mapping[str, str]:
    """Return the ids of the one record in an answer. Raises Malformed."""
    if status != expected:
        raise Malformed(f"ServiceNow answered with status {status}")
    return _check_record(_read_result(body))


def _read_result(body: bytes) -> Any:
    try:
        return json.loads(body)["result"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Malformed("ServiceNow's answer is no JSON object with a result") from None


def _check_record(record: Any) -> Mapping[str, str]:
    """Return the ids of a record, if they are texts that can stand in a path and on a line."""
    ids = {}
    for name in ("sys_id", "number"):
        value = record.get(name) if isinstance(record, dict) else None
        if not isinstance(value, str) or not value.isascii() or not value.isalnum():
            raise Malformed(f"ServiceNow's answer has no {name}")
        ids[name] = value[:ID_MAX]
    return ids


def _make_ref(record: Mapping[str, str]) -> TicketRef:
    return TicketRef(id=record["number"])
