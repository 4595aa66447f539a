"""Questions that all checks of a kernel log ask: whether it reaches back to the boot, the level of
a line, and whether a line is known to be harmless.

A log whose beginning is gone proves nothing, because the lost part may have contained the fault.
Harmless lines are data (`kernel_harmless.csv`, each with its source); a site adds its own.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from importlib import resources

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.log_lines import parse_log_line
from provisioner.checks.readers.tool_output import split_lines

ERR = 3  # syslog's severity "err"; smaller numbers are more serious (RFC 5424, table 2)
REACHES_BACK = (
    "the kernel log does not reach back to the boot: raise log_buf_len (kernel parameter) and"
    " restart, or judge `journalctl -k -o json`"
)
BEGIN_MAX = 3  # an early microcode update is logged before the kernel's greeting

# the first lines of a boot (x86, Arm)
_GREETING = re.compile(r"\bLinux version \d|^Booting Linux on physical CPU")
# journalctl marks where its file and where a boot begins
_HEAD = re.compile(r"^-- (?:Logs begin|Journal begins|Boot [0-9a-f]{32}|No entries)")
_RAW = re.compile(r"^<(\d{1,3})>")  # dmesg -r
_KMSG = re.compile(r"^(\d{1,5}),\d{1,20},\d{1,20},[-+c]")
_DECODED = re.compile(r"^\w{2,9}\s*:(\w{2,7})\s*: ")  # dmesg -x
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")


def kernel_lines(text: str) -> list[str]:
    """Return the lines of a kernel log without journalctl's marks. Raises `Unreadable` if empty."""
    # thousands of lines, after every load test: the regular expression runs only where it may match
    lines = [x for x in split_lines(text) if not (x.startswith("-- ") and _HEAD.match(x))]
    if not lines:
        raise Unreadable("dmesg: no line of it is a kernel message")
    if "\x00" in text or "\ufffd" in text:
        raise Unreadable("dmesg: a line is not text")
    return lines


def begins_at_boot(lines: Sequence[str]) -> bool:
    """Return whether the first lines are those of a boot: the greeting, or a time of 0 s."""
    first = [parse_log_line(line) for line in lines[:BEGIN_MAX]]
    if any(_GREETING.search(line.words) for line in first):
        return True
    return bool(first) and first[0].boot_s == 0.0


def is_greeting(text: str) -> bool:
    """Return whether this is the kernel's own first line, whatever its level."""
    return bool(_GREETING.search(text))


def read_level(line: str) -> int | None:
    """Return a line's level, 0 (emerg) to 7 (debug); None where the format does not carry it."""
    if line.startswith("{"):
        try:
            priority = json.loads(line).get("PRIORITY")
        except (ValueError, RecursionError):
            return None
        return (
            int(priority)
            if isinstance(priority, str) and priority in "01234567" and priority
            else None
        )
    if match := _RAW.match(line) or _KMSG.match(line):
        return int(match[1]) & 7
    if (match := _DECODED.match(line)) and match[1] in _LEVELS:
        return _LEVELS.index(match[1])
    return None


def is_harmless(text: str, site_patterns: Sequence[str] = ()) -> bool:
    """Return whether a message is known to be harmless; `site_patterns` are the site's own."""
    return any(p.search(text) for p in HARMLESS) or any(re.search(p, text) for p in site_patterns)


def _load_harmless() -> tuple[re.Pattern[str], ...]:
    text = resources.files("provisioner.checks.readers").joinpath("kernel_harmless.csv").read_text()
    return tuple(re.compile(row["pattern"]) for row in csv.DictReader(text.splitlines()))


HARMLESS = _load_harmless()
