"""Finds Xids and SXids in kernel logs and in Fabric Manager's log, as events.

The driver's text begins with the code, and the owner of the process chooses part of the text behind
it. So the first mark in a line counts: a process named "SXid (0): 12028" hides nothing. Floods are
bounded: equal events are counted, not listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from provisioner.checks.readers.kernel_lines import LogLine, parse_log_line
from provisioner.checks.xid.error_codes import Explanation, Family, explain_sxid
from provisioner.checks.xid.xid_explain import explain_xid
from provisioner.model.base import Record
from provisioner.model.names import normalize_pci

EVENTS_MAX = 4096  # distinct events of one log; there are 8 GPUs, 18 links and 200 codes
WORDS_MAX = 300
NO_CODE = -1
# every line that has one of these is judged here: a form that is not known is an unreadable Xid.
# Between the driver's name and the word no text of a process may stand: it is quoted, or has "=".
_ANY_MARK = re.compile(
    r"(?P<xid>\b(?:NVRM|nvidia)\b[^'\"=<]{0,48}?\bXid)\b|(?P<sxid>\bSXid)\b"
    r"|(?P<fabric>\bdetected NVSwitch .{0,40}\berror)\b",
    re.IGNORECASE,
)
# with MIG the driver names the instance behind the address: "(PCI:0000:01:00 GPU-I:05 GPU-CI:02)"
# source: NVIDIA, "GPU Memory Error Management", contained errors with MIG enabled
_MARK = re.compile(
    r"(?P<family>NVRM: Xid|SXid) \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,20})"
    r"(?: GPU-C?I:\w{1,8}){0,4}\): (?P<code>\d{1,6}\b)?,?\s*"
)
_MAYBE = re.compile(r"[Xx][Ii][Dd]|NVSwitch")
_ADDRESS = re.compile(r"\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b")
_LINK = re.compile(r"\bLink\s+(\d{1,3})\b|\bon link (\d{1,3})\b")
_FATAL = re.compile(r"^(Fatal|Non-fatal)\b")
_OWNER = re.compile(r"^(?:pid=(?P<pid>'?<?\w{1,20}>?'?))?(?:,?\s*name=(?P<name>[^,]{0,64}))?,\s*")
_PLACE = re.compile(r"\(GPC (\d{1,3}), TPC (\d{1,3})(?:, SM (\d{1,3}))?\)")
# Fabric Manager: "detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id
# 00000000:86:00.0 physical id 3 port 61"
_FABRIC_MANAGER = re.compile(
    r"detected NVSwitch (?P<level>non-fatal|fatal) error (?P<code>\d{1,6}) on fid \d+ on NVSwitch"
    r" pci bus id (?P<pci>[0-9a-fA-F:.]{1,20})(?: physical id \d+)?(?: port (?P<port>\d{1,3}))?"
)


class ErrorEvent(Record):
    """One Xid or SXid with its count in a log; times (see `LogLine`) of its first and last line."""

    family: Family
    code: int  # NO_CODE: the number could not be read
    pci: str  # "0000:1b:00.0", or as printed if that is not an address
    slot: str = ""  # "GPU_SXM_3"; "" where no inventory has this address
    link: int = -1
    place: str = ""  # "GPC 8, TPC 5" of a graphics exception
    process: str = ""  # bounded; its owner chose the name
    fatal: bool | None = None  # by the text of an SXid
    words: str  # the text after the code
    first_at: float | None = None
    last_at: float | None = None
    first_boot_s: float | None = None
    last_boot_s: float | None = None
    count: int = 1

    @property
    def part(self) -> str:
        """The slot, or the PCI address where the slot is unknown."""
        return self.slot or (f"PCI {self.pci}" if self.pci else "host")

    def explain(self) -> Explanation:
        """Return what the code means and which action it needs."""
        if self.family is Family.SXID:
            return explain_sxid(self.code, fatal=self.fatal)
        return explain_xid(self.code, self.words)


def find_event(line: LogLine, slots: Mapping[str, str] | None = None) -> ErrorEvent | None:
    """Return the Xid or SXid in one line, or None. `slots`: PCI address -> slot."""
    first = _ANY_MARK.search(line.words)
    if first is None:
        return None
    if match := _MARK.match(line.words, first.start()):
        return _build_driver_event(line, match, slots or {})
    if match := _FABRIC_MANAGER.match(line.words, first.start()):
        address = normalize_pci(match["pci"])
        return ErrorEvent(
            family=Family.SXID,
            code=int(match["code"]),
            pci=address,
            slot=(slots or {}).get(address, ""),
            link=int(match["port"] or -1),
            fatal=match["level"] == "fatal",
            words=line.words[:WORDS_MAX],
            first_at=line.at,
            last_at=line.at,
        )
    return _build_unreadable_event(line, first, slots or {})


def find_events(
    lines: Iterable[str], slots: Mapping[str, str] | None = None
) -> tuple[ErrorEvent, ...]:
    """Return the distinct events of a log, in the order of their first line, each with its count.

    Beyond `EVENTS_MAX` distinct events, further ones are counted without their text.
    """
    event_of_key: dict[tuple[object, ...], ErrorEvent] = {}
    for line in lines:
        # one line in a thousand reports an error: the others are not parsed (a line of JSON may
        # escape its text)
        if not (_MAYBE.search(line) or line.lstrip().startswith("{")):
            continue
        event = find_event(parse_log_line(line), slots)
        if event is None:
            continue
        key: tuple[object, ...] = (
            *_build_key(event),
            event.words if _has_decoded_text(event) else "",
        )
        if key not in event_of_key and len(event_of_key) >= EVENTS_MAX:
            key = (event.family, event.code)
        earlier = event_of_key.get(key)
        event_of_key[key] = event if earlier is None else _merge_event(earlier, event)
    return tuple(event_of_key.values())


def index_slots(devices: Iterable[tuple[str | None, str]]) -> dict[str, str]:
    """Return PCI address -> slot, from (address, slot) pairs of an inventory.

    An Xid prints the address without its function ("0000:1b:00"); both forms are keys.
    """
    return dict(_walk_slot_keys(devices))


def _walk_slot_keys(devices: Iterable[tuple[str | None, str]]) -> Iterator[tuple[str, str]]:
    for address, slot in devices:
        if address:
            yield normalize_pci(address), slot
            yield normalize_pci(address).partition(".")[0], slot


def _build_driver_event(
    line: LogLine, match: re.Match[str], slots: Mapping[str, str]
) -> ErrorEvent:
    text = line.words[match.end() :]
    process = ""
    if (owner := _OWNER.match(text)) and owner.end():
        process = (owner["name"] or "").strip()
        text = text[owner.end() :]
    if process in ("<unknown>", "'<unknown>'"):
        process = ""
    address = normalize_pci(match["pci"])
    link = _LINK.search(text)
    place = _PLACE.search(text)
    level = _FATAL.match(text)
    return ErrorEvent(
        family=Family.SXID if match["family"] == "SXid" else Family.XID,
        code=NO_CODE if match["code"] is None else int(match["code"]),
        pci=address,
        slot=slots.get(address, ""),
        link=int(link[1] or link[2]) if link else -1,
        place=f"GPC {place[1]}, TPC {place[2]}" if place else "",
        process=process[:64],
        fatal=level[1] == "Fatal" if level else None,
        words=text[:WORDS_MAX],
        first_at=line.at,
        last_at=line.at,
        first_boot_s=line.boot_s,
        last_boot_s=line.boot_s,
    )


def _build_unreadable_event(
    line: LogLine, mark: re.Match[str], slots: Mapping[str, str]
) -> ErrorEvent:
    text = line.words[mark.end() :]
    named = _ADDRESS.search(text[:80])
    address = normalize_pci(named[0]) if named else ""
    return ErrorEvent(
        family=Family.XID if mark["xid"] is not None else Family.SXID,
        code=NO_CODE,
        pci=address,
        slot=slots.get(address, ""),
        words=text.strip()[:WORDS_MAX],
        first_at=line.at,
        last_at=line.at,
        first_boot_s=line.boot_s,
        last_boot_s=line.boot_s,
    )


def _build_key(event: ErrorEvent) -> tuple[object, ...]:
    return event.family, event.code, event.pci, event.link, event.place, event.fatal


def _has_decoded_text(event: ErrorEvent) -> bool:
    """Return whether an event's text changes its action, so that different texts are two events."""
    return event.family is Family.XID and (event.code in (74, 154) or 144 <= event.code <= 150)


def _merge_event(before: ErrorEvent, event: ErrorEvent) -> ErrorEvent:
    return before.model_copy(
        update={
            "count": before.count + 1,
            "last_at": event.last_at if event.last_at is not None else before.last_at,
            "last_boot_s": (
                event.last_boot_s if event.last_boot_s is not None else before.last_boot_s
            ),
        }
    )
