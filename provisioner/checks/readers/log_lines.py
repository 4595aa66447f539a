"""Splits a line of a kernel log, whichever tool printed it, into its time and the kernel's text.

Formats: `dmesg` (seconds since boot), `dmesg -T`, `dmesg --time-format iso` (with or without -x),
/dev/kmsg, `journalctl -k` in its forms short, short-iso, short-unix and json, a syslog file, and
Fabric Manager's own log. A line in no known form keeps its whole text, so that nothing is lost; it
only has no time.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from provisioner.model.base import Record

LINE_CHARS_MAX = 4096  # a kernel message is at most 1 KB (LOG_LINE_MAX), a JSON line a few more
_LEVEL = r"(?:<\d{1,3}>|\w{2,9}\s*:\w{2,7}\s*:\s+)?"
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, start=1)}
_ISO = re.compile(
    rf"^{_LEVEL}(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[,.]\d{{1,9}})?(?:Z|[+-]\d\d:?\d\d))\s+(.*)$"
)
_SECONDS = re.compile(rf"^{_LEVEL}\[\s*(\d{{1,10}}\.\d{{1,9}})(?:\s*@?\s*[TC]\d+)?\]\s+(.*)$")
_TEXTUAL = re.compile(
    rf"^{_LEVEL}\[(?:\w{{3}} )?(\w{{3}})\s+(\d{{1,2}})(?: (\d{{4}}))? (\d\d):(\d\d):(\d\d)"
    r"(?:[.,]\d{1,9})?(?: (\d{4}))?\]\s+(.*)$"
)
_KMSG = re.compile(r"^\d{1,5},\d{1,20},(\d{1,20}),[-+c][^;]{0,200};(.*)$")
_UNIX = re.compile(r"^(\d{9,11}\.\d{1,9})\s+(.*)$")
_SHORT = re.compile(r"^\w{3}\s+\d{1,2} \d\d:\d\d:\d\d\s+(.*)$")
# the text that journald and syslog put between the time and the kernel's message
_ORIGIN = re.compile(r"^\S{1,255}\s+kernel(?:\[\d+\])?:\s+(.*)$")


class LogLine(Record):
    """One line. `at` is in Unix seconds, `boot_s` in seconds since boot; None where it has none.

    `dmesg -T` and Fabric Manager print local time without a zone: it is read as UTC.
    """

    at: float | None = None
    boot_s: float | None = None
    words: str
    known: bool = False  # the line has one of the known forms


def parse_log_line(line: str) -> LogLine:
    """Return a line split into its parts. Never raises."""
    line = line[:LINE_CHARS_MAX].rstrip("\r\n")
    if line.startswith("{"):
        return _parse_json(line)
    if match := _KMSG.match(line):
        return LogLine(boot_s=int(match[1]) / 1e6, words=match[2], known=True)
    if match := _SECONDS.match(line):
        return LogLine(boot_s=float(match[1]), words=match[2], known=True)
    if match := _ISO.match(line):
        return _strip_origin(LogLine(at=_parse_iso(match[1]), words=match[2], known=True))
    if match := _TEXTUAL.match(line):
        return LogLine(at=_parse_textual(match), words=match[8], known=True)
    if match := _UNIX.match(line):
        return _strip_origin(LogLine(at=float(match[1]), words=match[2], known=True))
    if match := _SHORT.match(line):
        return _strip_origin(LogLine(words=match[1], known=True))
    return LogLine(words=line)


def _strip_origin(line: LogLine) -> LogLine:
    """Remove host and "kernel:"; some tools repeat the seconds since boot behind them."""
    match = _ORIGIN.match(line.words)
    if match is None:
        return line
    text = match[1]
    boot_s = None
    if inner := _SECONDS.match(text):
        boot_s = float(inner[1])
        text = inner[2]
    return line.model_copy(update={"words": text, "boot_s": boot_s})


def _parse_json(line: str) -> LogLine:
    """Parse one object of `journalctl -o json`; a message that is not UTF-8 is a list of bytes."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return LogLine(words=line)
    text = record.get("MESSAGE")
    if isinstance(text, list) and all(isinstance(b, int) and 0 <= b < 256 for b in text):
        text = bytes(text).decode("utf-8", "replace")
    if not isinstance(text, str):
        return LogLine(words=line)
    at = record.get("__REALTIME_TIMESTAMP", record.get("_SOURCE_REALTIME_TIMESTAMP"))
    digits = at if isinstance(at, str) and at.isascii() and at.isdigit() and len(at) < 20 else ""
    return LogLine(at=int(digits) / 1e6 if digits else None, words=text, known=True)


def _parse_iso(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.replace(",", ".")).timestamp()
    except (ValueError, OverflowError):
        return None


def _parse_textual(match: re.Match[str]) -> float | None:
    """Parse "Fri Oct 14 14:56:49 2022" and "Feb 27 2025 15:10:02"."""
    year = match[3] or match[7]
    if year is None or match[1] not in _MONTHS:
        return None
    clock = int(match[4]), int(match[5]), int(match[6])
    try:
        when = datetime(int(year), _MONTHS[match[1]], int(match[2]), *clock, tzinfo=UTC)
    except ValueError:
        return None
    return when.timestamp()
