"""Questions that all checks of a kernel log ask: whether it reaches back to the boot, the level of
a line, and whether a line is known to be harmless.

A log whose beginning is gone proves nothing, because the lost part may have contained the fault.
Harmless lines are data (`kernel_harmless.csv`, each with its source); a site adds its own.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Sequence
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
# a USB host adapter; a device that it found, with its maker and model; the name that it got
# source: Linux drivers/usb/storage/usb.c, drivers/scsi/scsi_scan.c, drivers/scsi/sd.c, sr.c
_USB_HOST = re.compile(r"\bscsi host(\d{1,4}): (?:usb-storage|uas)\b")
_FOUND = re.compile(r"\bscsi (\d{1,4}):[\d:]{5,20}: (?:Direct-Access|CD-ROM)\s+(\S.{0,60})")
_NAMED = re.compile(
    r"\bs[dr] (\d{1,4}):[\d:]{5,20}: (?:\[(s[dr]\w{1,6})\] (?:Attached SCSI|scsi\S{0,8} drive)"
    r"|Attached scsi CD-ROM (sr\d{1,3})\b)"
)
# what BMCs call the drives that they show to their host
_BMC_DRIVE = re.compile(
    r"\bVirtual (?:CD|DVD|HDISK|Floppy|Disc|Disk|Media|USB|SD)|\bLCDRIVE\b|\bVirtual$"
    r"|\bFile-(?:CD|Stor) Gadget\b",
    re.IGNORECASE,
)
_IO_ERROR = re.compile(
    r"(?:I/O error|(?:medium|target|timeout) error),? .{0,20}\bdev(?:ice)? (s[dr][a-z0-9]{1,6})\b"
    r"|\bs[dr] [\d:]{7,20}: \[(s[dr]\w{1,6})\]"
)
_PARTITION = re.compile(r"^(sd[a-z]{1,3}|sr\d{1,3})\d{0,3}$")
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


def find_virtual_drives(lines: Sequence[str]) -> frozenset[str]:
    """Return the names ("sda", "sr0") that only drives of a BMC had in this log.

    Both the adapter (USB) and the model must say so; a name that another drive had as well is not
    one of them.
    """
    usb: set[str] = set()
    is_virtual: dict[str, bool] = {}
    kind_of_name: dict[str, set[bool]] = {}
    for line in lines:
        if not ("scsi" in line or "sd " in line or "sr " in line):
            continue
        text = parse_log_line(line).words
        if match := _USB_HOST.search(text):
            usb.add(match[1])
        elif match := _FOUND.search(text):
            is_virtual[match[1]] = match[1] in usb and bool(_BMC_DRIVE.search(match[2]))
        elif match := _NAMED.search(text):
            kinds = kind_of_name.setdefault(match[2] or match[3], set())
            kinds.add(is_virtual.get(match[1], False))
    return frozenset(name for name, kinds in kind_of_name.items() if kinds == {True})


def is_attachment(text: str) -> bool:
    """Return whether a message only says that a drive was found."""
    return any(pattern.search(text) for pattern in (_USB_HOST, _FOUND, _NAMED))


def is_of_drives(text: str, names: Collection[str]) -> bool:
    """Return whether a message is an I/O error of one of these drives or their partitions."""
    match = _IO_ERROR.search(text) if names else None
    if match is None:
        return False
    drive = _PARTITION.match(match[1] or match[2])
    return drive is not None and drive[1] in names


def _load_harmless() -> tuple[re.Pattern[str], ...]:
    text = resources.files("provisioner.checks.readers").joinpath("kernel_harmless.csv").read_text()
    return tuple(re.compile(row["pattern"]) for row in csv.DictReader(text.splitlines()))


HARMLESS = _load_harmless()
