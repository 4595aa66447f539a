"""What all checks of a kernel log ask: does it reach back to the boot, how grave is a line, is it
known to mean nothing.

Rule: a log whose beginning is gone proves nothing: what was lost may have been the fault. The
harmless lines are data (`kernel_harmless.csv`, each with who says so); a site adds its own.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from importlib import resources

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.reading import lines_of
from provisioner.checks.readers.xid_lines import log_line

ERR = 3  # syslog's severity "err"; smaller numbers are graver (RFC 5424, table 2)
REACHES_BACK = (
    "the kernel log does not reach back to the boot: raise log_buf_len (kernel parameter) and"
    " restart, or judge `journalctl -k -o json`"
)
BEGIN_MAX = 3  # an early microcode update is told before the kernel's greeting

# what the first lines of a boot say (x86, Arm)
_GREETING = re.compile(r"\bLinux version \d|^Booting Linux on physical CPU")
# journalctl tells where its file begins and where a boot does
_HEAD = re.compile(r"^-- (?:Logs begin|Journal begins|Boot [0-9a-f]{32}|No entries)")
_RAW = re.compile(r"^<(\d{1,3})>")  # dmesg -r
_KMSG = re.compile(r"^(\d{1,5}),\d{1,20},\d{1,20},[-+c]")
_DECODED = re.compile(r"^\w{2,9}\s*:(\w{2,7})\s*: ")  # dmesg -x
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")


def kernel_lines(text: str) -> list[str]:
    """Lines of a kernel log, without journalctl's heads. Raises `Unreadable` for anything else."""
    # thousands of lines, after every load test: a pattern is tried only where it may fit
    lines = [x for x in lines_of(text) if not (x.startswith("-- ") and _HEAD.match(x))]
    if not lines:
        raise Unreadable("dmesg: no line of it is a kernel message")
    if "\x00" in text or "\ufffd" in text:
        raise Unreadable("dmesg: a line is not text")
    return lines


def begins_at_boot(lines: Sequence[str]) -> bool:
    """Whether the first lines are those of a boot: the greeting, or a stamp of zero seconds."""
    first = [log_line(line) for line in lines[:BEGIN_MAX]]
    if any(_GREETING.search(line.words) for line in first):
        return True
    return bool(first) and first[0].boot_s == 0.0


def is_greeting(words: str) -> bool:
    """Whether this is the kernel's own first line, whatever level it has."""
    return bool(_GREETING.search(words))


def level_of(line: str) -> int | None:
    """The level of a line, 0 (emerg) to 7 (debug); None: this form does not tell it."""
    if line.startswith("{"):
        try:
            told = json.loads(line).get("PRIORITY")
        except (ValueError, RecursionError):
            return None
        return int(told) if isinstance(told, str) and told in "01234567" and told else None
    if match := _RAW.match(line) or _KMSG.match(line):
        return int(match[1]) & 7
    if (match := _DECODED.match(line)) and match[1] in _LEVELS:
        return _LEVELS.index(match[1])
    return None


def harmless(words: str, own: Sequence[str] = ()) -> bool:
    """Whether a message is known to mean nothing; `own`: a site's patterns."""
    return any(p.search(words) for p in HARMLESS) or any(re.search(p, words) for p in own)


def _read() -> tuple[re.Pattern[str], ...]:
    text = resources.files("provisioner.checks.readers").joinpath("kernel_harmless.csv").read_text()
    return tuple(re.compile(row["pattern"]) for row in csv.DictReader(text.splitlines()))


HARMLESS = _read()
