"""A stand-in for MAAS: its API 2.0 as far as machines and zones are listed.

Its shape comes from outside: paths, parameters and fields from the published documentation
(canonical.com/maas/docs/api, "List machines", "List zones") and `DISPLAYED_MACHINE_FIELDS` of
canonical/maas at 9e51f33c; numbers and labels of states from `NodeStatus` there; the header from
its page "API login", held against RFC 5849. It answers nothing that these do not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from answering import Query, Served, serve_answers

KEY = "consumer1:token2:secret3"
FIELDS = frozenset(
    {
        "system_id",
        "hostname",
        "owner",
        "locked",
        "status",
        "status_name",
        "error_description",
        "power_type",
        "power_state",
        "zone",
        "pool",
        "hardware_info",
    }
)
HARDWARE = frozenset({"system_vendor", "system_serial", "mainboard_firmware_version"})
LABELS = {4: "Ready", 6: "Deployed", 8: "Broken", 14: "Disk erasing"}  # NodeStatus
POWER = frozenset({"on", "off", "unknown", "error"})  # PowerState
_PAIR = re.compile(r'(oauth_[a-z_]+)="([^"]*)"')


def machine(number: int, status: int, **fields: Any) -> dict[str, Any]:
    """Return a machine as the API lists it."""
    hardware = {"system_vendor": "Supermicro", "system_serial": f"S{number}"}
    row = {
        "system_id": f"abc{number}",
        "hostname": f"su0-n{number:02d}",
        "owner": "red" if status == 6 else None,
        "locked": False,
        "status": status,
        "status_name": LABELS[status],
        "error_description": "",
        "power_type": "redfish",
        "power_state": "on",
        "zone": {"name": "fra1", "description": "", "id": 1},
        "pool": {"name": "red-pool", "description": "", "id": 2},
        "hardware_info": {**hardware, "mainboard_firmware_version": "1.4"},
        **fields,
    }
    assert set(row) <= FIELDS
    assert set(row["hardware_info"]) <= HARDWARE
    assert row["power_state"] in POWER
    return row


@contextmanager
def serve_maas(machines: list[dict[str, Any]]) -> Iterator[Served]:
    """Serve these machines. A request without a right signature gets 401."""

    def answer(path: str, query: Query, headers: Mapping[str, str]) -> tuple[int, Any]:
        if not _is_signed(headers.get("Authorization", "")):
            return 401, "Authorization Error"
        if path == "/MAAS/api/2.0/zones/":
            return 200, list({m["zone"]["name"]: m["zone"] for m in machines}.values())
        if path == "/MAAS/api/2.0/machines/" and set(query) <= {"zone"}:
            return 200, [m for m in machines if m["zone"]["name"] in query["zone"]]
        return 404, "Not Found"

    with serve_answers(answer) as served:
        yield served


def _is_signed(header: str) -> bool:
    """RFC 5849, 3.5.1: quoted, percent-encoded pairs; 3.4.4: both secrets joined by "&"."""
    scheme, _, rest = header.partition(" ")
    pairs = {name: unquote(value) for name, value in _PAIR.findall(rest)}
    consumer, token, secret = KEY.split(":")
    return (
        scheme == "OAuth"
        and pairs.get("oauth_version") == "1.0"
        and pairs.get("oauth_signature_method") == "PLAINTEXT"
        and (pairs.get("oauth_consumer_key"), pairs.get("oauth_token")) == (consumer, token)
        and pairs.get("oauth_signature") == f"&{secret}"
        and pairs.get("oauth_timestamp", "").isdecimal()
        and bool(pairs.get("oauth_nonce"))
    )
