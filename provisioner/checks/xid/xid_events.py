"""Finds Xids and SXids in kernel logs and in Fabric Manager's log, as events.

Rule: the driver's own words begin with the code, and what follows is partly chosen by whoever ran
the process: the first mark in a line counts, so that a process named "SXid (0): 12028" hides
nothing. A flood is bounded: equal events are counted, not listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from provisioner.checks.readers.reading import pci as pci_of
from provisioner.checks.readers.xid_lines import LogLine, log_line
from provisioner.checks.xid.error_codes import Explained, Family
from provisioner.checks.xid.sxid_table import explain_sxid
from provisioner.checks.xid.xid_explain import explain_xid
from provisioner.model.base import Record

EVENTS_MAX = 4096  # distinct events of one log; there are 8 GPUs, 18 links and 200 codes
WORDS_MAX = 300
NO_CODE = -1
_MARK = re.compile(
    r"(?P<family>NVRM: Xid|SXid) \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,20})\): "
    r"(?P<code>\d{1,6}\b)?,?\s*"
)
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
    """One Xid or SXid, and how often a log has it. Times as in `LogLine`: of the first and last."""

    family: Family
    code: int  # NO_CODE: the number could not be read
    pci: str  # "0000:1b:00.0" or as it was printed, if it is no address
    slot: str = ""  # "GPU_SXM_3"; "": no inventory knows this address
    link: int = -1
    place: str = ""  # "GPC 8, TPC 5" of a graphics exception
    process: str = ""  # bounded; chosen by whoever ran it
    fatal: bool | None = None  # as an SXid's words say
    words: str  # after the code
    first_at: float | None = None
    last_at: float | None = None
    first_boot_s: float | None = None
    last_boot_s: float | None = None
    count: int = 1

    @property
    def part(self) -> str:
        """Slot, or PCI address."""
        return self.slot or f"PCI {self.pci}"

    def explained(self) -> Explained:
        """What it asks for."""
        if self.family is Family.SXID:
            return explain_sxid(self.code, fatal=self.fatal)
        return explain_xid(self.code, self.words)


def event_of(line: LogLine, slots: Mapping[str, str] | None = None) -> ErrorEvent | None:
    """The Xid or SXid in one line; None if it has none. `slots`: PCI address -> slot."""
    if match := _MARK.search(line.words):
        return _driver(line, match, slots or {})
    if match := _FABRIC_MANAGER.search(line.words):
        address = pci_of(match["pci"])
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
    return None


def events_of(
    lines: Iterable[str], slots: Mapping[str, str] | None = None
) -> tuple[ErrorEvent, ...]:
    """Distinct events of a log, in the order of their first line, each with its count.

    Beyond `EVENTS_MAX` distinct ones the rest is counted without its words.
    """
    found: dict[tuple[object, ...], ErrorEvent] = {}
    for line in lines:
        # one line in a thousand tells an error: the others are not taken apart (a line of JSON
        # may spell its words in another way)
        if not ("Xid" in line or "NVSwitch" in line or line.lstrip().startswith("{")):
            continue
        event = event_of(log_line(line), slots)
        if event is None:
            continue
        key: tuple[object, ...] = (*_key(event), event.words if _decoded(event) else "")
        if key not in found and len(found) >= EVENTS_MAX:
            key = (event.family, event.code)
        before = found.get(key)
        found[key] = event if before is None else _again(before, event)
    return tuple(found.values())


def slots_of(devices: Iterable[tuple[str | None, str]]) -> dict[str, str]:
    """PCI address -> slot, from (address, slot) pairs of an inventory.

    An Xid prints the address without its function ("0000:1b:00"); both forms are keys.
    """
    return dict(_slot_keys(devices))


def _slot_keys(devices: Iterable[tuple[str | None, str]]) -> Iterator[tuple[str, str]]:
    for address, slot in devices:
        if address:
            yield pci_of(address), slot
            yield pci_of(address).partition(".")[0], slot


def _driver(line: LogLine, match: re.Match[str], slots: Mapping[str, str]) -> ErrorEvent:
    words = line.words[match.end() :]
    process = ""
    if (owner := _OWNER.match(words)) and owner.end():
        process = (owner["name"] or "").strip()
        words = words[owner.end() :]
    if process in ("<unknown>", "'<unknown>'"):
        process = ""
    address = pci_of(match["pci"])
    link = _LINK.search(words)
    place = _PLACE.search(words)
    level = _FATAL.match(words)
    return ErrorEvent(
        family=Family.SXID if match["family"] == "SXid" else Family.XID,
        code=NO_CODE if match["code"] is None else int(match["code"]),
        pci=address,
        slot=slots.get(address, ""),
        link=int(link[1] or link[2]) if link else -1,
        place=f"GPC {place[1]}, TPC {place[2]}" if place else "",
        process=process[:64],
        fatal=level[1] == "Fatal" if level else None,
        words=words[:WORDS_MAX],
        first_at=line.at,
        last_at=line.at,
        first_boot_s=line.boot_s,
        last_boot_s=line.boot_s,
    )


def _key(event: ErrorEvent) -> tuple[object, ...]:
    return event.family, event.code, event.pci, event.link, event.place, event.fatal


def _decoded(event: ErrorEvent) -> bool:
    """Its words change what it asks for, so that two with other words are two."""
    return event.family is Family.XID and (event.code in (74, 154) or 144 <= event.code <= 150)


def _again(before: ErrorEvent, event: ErrorEvent) -> ErrorEvent:
    return before.model_copy(
        update={
            "count": before.count + 1,
            "last_at": event.last_at if event.last_at is not None else before.last_at,
            "last_boot_s": (
                event.last_boot_s if event.last_boot_s is not None else before.last_boot_s
            ),
        }
    )
