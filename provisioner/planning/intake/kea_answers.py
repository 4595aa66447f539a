"""Read the answers of Kea's control socket to `lease4-get-page`. Pure.

The hook library `libdhcp_lease_cmds.so` answers with result 0 and the leases of a page in the order
of their addresses, and with result 3 after the last one; without the library the result is 2. The
form is that of Debian's Kea 2.2.0. A lease ends `valid-lft` seconds after the client's last contact
(`cltt`). A lease has no vendor class there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.integrations.dhcp_lease import DhcpLease
from provisioner.planning.intake.lease_values import (
    NO_MAC,
    UNREADABLE,
    clean_name,
    normalize_lease_address,
    normalize_mac,
)

OK = 0
UNSUPPORTED = 2
EMPTY = 3
IN_USE = 0  # state; 1: declined, 2: expired and reclaimed; later versions have more
INFINITE = 2**32 - 1  # valid-lft: RFC 2131, 3.3
SECONDS_MAX = 10**12
_TEXT_MAX = 200  # characters of a refusal


class LeasePage(Record):
    """The leases of one answer. `last`: the address after which the next page begins."""

    leases: tuple[DhcpLease, ...] = ()
    last: str = ""  # "": this was the last page
    unreadable: int = 0
    without_mac: int = 0


def read_page(source: str, text: str) -> LeasePage:
    """Return the leases of an answer. Raises InputError if it is none, or a refusal."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or type(answer.get("result")) is not int:
        problem = "its answer cannot be read"
        raise InputError(source, "", problem, "Name the control socket of kea-dhcp4.")
    result = answer["result"]
    if result == EMPTY:
        return LeasePage()
    if result == UNSUPPORTED:
        problem = "this server does not know `lease4-get-page`"
        remedy = "Load libdhcp_lease_cmds.so in its `hooks-libraries`, or read its lease file."
        raise InputError(source, "", problem, remedy)
    if result != OK:
        problem = f"it refused: {clean_name(str(answer.get('text', '')))[:_TEXT_MAX]}"
        raise InputError(source, "", problem, "See the log of kea-dhcp4.")
    arguments = answer.get("arguments")
    rows = arguments.get("leases") if isinstance(arguments, dict) else None
    if not isinstance(rows, list):
        problem = "its answer has no leases"
        raise InputError(source, "", problem, "Name the control socket of kea-dhcp4.")
    return _read_rows(rows)


def _read_rows(rows: Sequence[object]) -> LeasePage:
    leases: list[DhcpLease] = []
    reasons: list[str] = []
    last = ""
    for row in rows:
        if not isinstance(row, dict):
            reasons.append(UNREADABLE)
            continue
        last = normalize_lease_address(str(row.get("ip-address", ""))) or last
        lease = _read_lease(row)
        if isinstance(lease, str):
            reasons.append(lease)
        else:
            leases.append(lease)
    return LeasePage(
        leases=tuple(leases),
        last=last,
        unreadable=reasons.count(UNREADABLE),
        without_mac=reasons.count(NO_MAC),
    )


def _read_lease(row: Mapping[str, Any]) -> DhcpLease | str:
    """Return the lease of a row, or the reason to leave it out."""
    address = normalize_lease_address(str(row.get("ip-address", "")))
    began_at = _read_count(row.get("cltt"))
    lifetime = _read_count(row.get("valid-lft"))
    if not address or began_at is None or lifetime is None:
        return UNREADABLE
    mac = normalize_mac(str(row.get("hw-address", "")))
    if not mac:
        return NO_MAC
    name = row.get("hostname")
    return DhcpLease(
        address=address,
        mac=mac,
        active=row.get("state", IN_USE) == IN_USE and lifetime > 0,
        began_at=began_at,
        ends_at=None if lifetime == INFINITE else began_at + lifetime,
        hostname=clean_name(name) if isinstance(name, str) else "",
    )


def _read_count(value: object) -> float | None:
    """Return a count of seconds; None for anything else."""
    if type(value) is not int or not 0 <= value <= SECONDS_MAX:
        return None
    return float(value)
