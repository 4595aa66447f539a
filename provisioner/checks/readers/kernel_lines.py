"""Questions that all checks of a kernel log ask: whether it reaches back to the boot, the level of
a line, and whether a line is known to be harmless.

A log whose beginning is gone proves nothing, because the lost part may have contained the fault.
Harmless lines are data (`kernel_harmless.csv`, each with its source); a site adds its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import split_lines
from provisioner.model.base import Record
from provisioner.model.cohort import Severity
from provisioner.model.shipped_tables import read_table

# ------------------------------------------------------------------------------
# Splits a line of a kernel log, whichever tool printed it, into its time and the kernel's text.
#
# Formats: `dmesg` (seconds since boot), `dmesg -T`, `dmesg --time-format iso` (with or without
# -x),
# /dev/kmsg, `journalctl -k` in its forms short, short-iso, short-unix and json, a syslog file, and
# Fabric Manager's own log. A line in no known form keeps its whole text, so that nothing is lost;
# it only has no time.


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
        record = json.loads(line, object_pairs_hook=_join_pairs)
    except (ValueError, RecursionError):
        return LogLine(words=line)
    text = _read_message(record.get("MESSAGE"))
    if text is None:
        return LogLine(words=line)
    at = record.get("__REALTIME_TIMESTAMP", record.get("_SOURCE_REALTIME_TIMESTAMP"))
    digits = at if isinstance(at, str) and at.isascii() and at.isdigit() and len(at) < 20 else ""
    return LogLine(at=int(digits) / 1e6 if digits else None, words=text, known=True)


def _join_pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return an object in which no message hides behind a later one of the same name."""
    said = [value for name, value in pairs if name == "MESSAGE"]
    return {**dict(pairs), "MESSAGE": said} if len(said) > 1 else dict(pairs)


def _read_message(value: object, depth: int = 0) -> str | None:
    """Return a message in each form of systemd's "Journal JSON Format": text, a list of bytes where
    it is no UTF-8, or a list of these where an entry has the field more than once.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    if all(isinstance(b, int) and 0 <= b < 256 for b in value):
        return bytes(value).decode("utf-8", "replace")
    parts = [_read_message(part, 1) for part in value] if depth == 0 else []
    return " ".join(p for p in parts if p is not None) if any(parts) else None


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


# ------------------------------------------------------------------------------
# Kernel lines that are faults of a part, as data (`kernel_faults.csv`), each with its source.
#
# A fault with `ends` is over when a later line ends it for the same `key`: the link of a slot whose
# card was reset comes back.


WORDS_MAX = 200


@dataclass(frozen=True)
class LineFault:
    """One row: the pattern of a line, its meaning, and the pattern of the line that ends it."""

    pattern: re.Pattern[str]
    ends: re.Pattern[str] | None
    severity: Severity
    meaning: str


@dataclass(frozen=True)
class FaultLines:
    """The lines of one fault at one part. `pci` is "" where the line names none."""

    fault: LineFault
    pci: str
    first: str
    count: int


def find_faults(lines: Sequence[str]) -> Iterator[FaultLines]:
    """Yield the faults that stand at the end of a log, in the order of the rows."""
    texts = [read_words(line) for line in lines]
    for row in FAULTS:
        standing: dict[tuple[str, str], tuple[str, int]] = {}
        for line in texts:
            if (match := row.pattern.search(line)) is not None:
                groups = match.groupdict()
                place = (groups.get("key") or "", groups.get("pci") or "")
                first, count = standing.get(place, (line, 0))
                standing[place] = (first, count + 1)
            elif standing and row.ends is not None and (over := row.ends.search(line)) is not None:
                standing = {p: v for p, v in standing.items() if p[0] != over["key"]}
        for (_, pci), (first, count) in standing.items():
            yield FaultLines(row, pci, parse_log_line(first).words[:WORDS_MAX], count)


def read_words(line: str) -> str:
    """Return what patterns are held against: the line, or the message in an object of journalctl,
    which may give it as a list of bytes.
    """
    return parse_log_line(line).words if line.startswith("{") else line


def is_fault_line(text: str) -> bool:
    return any(row.pattern.search(text) for row in FAULTS)


def _load() -> tuple[LineFault, ...]:
    return tuple(
        LineFault(
            pattern=re.compile(row["pattern"]),
            ends=re.compile(row["ends"]) if row["ends"] else None,
            severity=Severity(row["severity"]),
            meaning=row["meaning"],
        )
        for row in read_table("provisioner.checks.readers", "kernel_faults.csv")
    )


FAULTS = _load()


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
_KERNEL_LINES_KMSG = re.compile(r"^(\d{1,5}),\d{1,20},\d{1,20},[-+c]")
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
    if match := _RAW.match(line) or _KERNEL_LINES_KMSG.match(line):
        return int(match[1]) & 7
    if (match := _DECODED.match(line)) and match[1] in _LEVELS:
        return _LEVELS.index(match[1])
    return None


def is_harmless(text: str, site_patterns: Sequence[str] = (), *, serious: bool = False) -> bool:
    """Return whether a message is known to be harmless; `site_patterns` are the site's own.

    Of a `serious` message only the site can say so: our patterns name a subsystem at times.
    """
    ours = not serious and any(p.search(text) for p in HARMLESS)
    return ours or any(re.search(p, text) for p in site_patterns)


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
    table = read_table("provisioner.checks.readers", "kernel_harmless.csv")
    return tuple(re.compile(row["pattern"]) for row in table)


HARMLESS = _load_harmless()
