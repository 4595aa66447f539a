"""Xid 144 to 150 on Blackwell (NVLink 5): decodes interrupt information and error status.

The message is "UNIT Fatal|Nonfatal XC<n> i<n> Link <n> (intrInfo errorStatus debug...)". Its layout
of intrInfo changed with driver R575: before (V1) bits 9:5 name the unit and bits 4:0 the Xid, since
(V2) bits 6:0 name the unit; in both, bits 25:20 are the reason of a link that went down.
Source: NVIDIA Xid catalogue, sheet "XID 144-150 Decode"; data in `xid_nvlink5_catalog.csv`.
A unit, reason or status that is in no row gets the worst severity.
"""

from __future__ import annotations

import re

from pydantic import field_validator

from provisioner.checks.xid.error_codes import SEVERITY, UNKNOWN, Action, select_worst
from provisioner.checks.xid.xid_table import data_rows
from provisioner.model.base import Record
from provisioner.model.health import Severity

XIDS_NVLINK5 = range(144, 151)
SOURCE = "NVIDIA Xid catalogue, sheet XID 144-150 Decode"
_MESSAGE = re.compile(
    r"(?P<unit>[A-Za-z][A-Za-z0-9_ ]{0,30}?)\s+(?P<level>Link Fatal|Fatal|Non-?[Ff]atal)\s+"
    r"XC\s?\d+\s+i\s?\d+\s+Link\s+(?P<link>-?\d{1,3})\s+"
    r"[(\[]\s*(?P<words>0x[0-9a-fA-F]{1,8}(?:[\s,]+0x[0-9a-fA-F]{1,8}){1,7})\s*[)\]]"
)
# RLW_RXPIPE's mark that it was promoted to fatal
_PROMOTED_V1 = 1 << 10
_PROMOTED_V2 = 1 << 7


class Nvlink5Row(Record):
    """One rule: Xid, unit (both names), its number in V1 and V2, reason or statuses, actions."""

    xid: int
    unit: str
    v1: int
    v2: int
    reason: int | None
    status: tuple[int, ...]
    action: Action
    promoted: Action | None  # the action if the promotion bit is set
    investigate: str
    severity: str
    local: str
    remote: str

    @field_validator("reason", "promoted", mode="before")
    @classmethod
    def _empty(cls, cell: str) -> str | None:
        return cell or None

    @field_validator("status", mode="before")
    @classmethod
    def _statuses(cls, cell: str) -> tuple[int, ...]:
        return tuple(int(word, 16) for word in cell.split())


ROWS = tuple(Nvlink5Row.model_validate(row) for row in data_rows("xid_nvlink5_catalog.csv"))


class Nvlink5Decoding(Record):
    """The decoded content of one message."""

    unit: str
    link: int  # -1: no single link
    fatal: bool  # by the message's own level
    severity: Severity | None
    action: Action
    investigate: str
    details: tuple[str, ...]


def decode_message(xid: int, message: str) -> Nvlink5Decoding | None:
    """Return the decoded message of an Xid 144 to 150; None if it cannot be read."""
    match = _MESSAGE.search(message)
    if match is None:
        return None
    values = [int(w, 16) for w in re.findall(r"0x[0-9a-fA-F]+", match["words"])]
    unit = match["unit"].strip().rpartition(", ")[2]
    return decode_status(
        xid, unit, values[0], values[1], link=int(match["link"]), fatal="on" not in match["level"]
    )


def decode_status(
    xid: int, unit: str, information: int, status: int, *, link: int = -1, fatal: bool = False
) -> Nvlink5Decoding:
    """Decode intrInfo and errorStatus of one unit; a unit of "" is identified by its number."""
    rows = [row for row in ROWS if _fits(row, xid, unit, information)]
    reason = information >> 20 & 0x3F
    matches = []
    for row in rows:
        if row.reason is not None:
            matches += [row] if row.reason == reason else []
        elif not row.status or status in row.status:
            matches.append(row)
    unexplained_bits = 0
    if rows and not matches and all(row.reason is None for row in rows):
        # several errors at once: one bit each
        matches = [row for row in rows if any(_is_one_bit(s) and s & status for s in row.status)]
        unexplained_bits = status & ~sum({s for row in rows for s in row.status if _is_one_bit(s)})
    severities = [_rate_row(row, information) for row in matches]
    details = [_describe_row(row, information) for row in matches]
    if not matches or unexplained_bits:
        severities.append(UNKNOWN)
        subject = f"unit {unit or '?'}, reason {reason}, status {status:#x}"
        details.append(f"{subject}: in no published row")
    if fatal:
        severities.append(Severity.RESET_GPU)
    top = max(matches, key=lambda r: _actions.index(_select_action(r, information)), default=None)
    return Nvlink5Decoding(
        unit=unit or (top.unit if top else ""),
        link=link,
        fatal=fatal,
        severity=select_worst(severities),
        action=_select_action(top, information) if top else Action.NONE,
        investigate=", ".join(dict.fromkeys(row.investigate for row in matches)),
        details=tuple(details[:8]),
    )


_actions = (Action.IGNORE, Action.XID_154_EVAL, Action.RESET_GPU)


def _fits(row: Nvlink5Row, xid: int, unit: str, information: int) -> bool:
    """Return whether Xid and unit match a row, and its number in one of the two layouts."""
    if row.xid != xid or (unit and unit not in row.unit.split("/")):
        return False
    v1 = information & 0x3FF == (row.v1 << 5 | (0 if xid == 150 else xid - 143))
    return v1 or information & 0x7F == row.v2


def _is_one_bit(status: int) -> bool:
    return status.bit_count() == 1


def _select_action(row: Nvlink5Row, information: int) -> Action:
    if row.promoted is None:
        return row.action
    old = information & 0x3FF == (row.v1 << 5 | (row.xid - 143))
    return row.promoted if information & (_PROMOTED_V1 if old else _PROMOTED_V2) else row.action


def _rate_row(row: Nvlink5Row, information: int) -> Severity | None:
    return SEVERITY[_select_action(row, information)]


def _describe_row(row: Nvlink5Row, information: int) -> str:
    reason = "" if row.reason is None else f" reason {row.reason}"
    sides = f"here: {row.local or 'nothing'}; at the other end: {row.remote or 'nothing'}"
    return f"{row.unit}{reason}, {row.severity}: {_select_action(row, information).value} ({sides})"
