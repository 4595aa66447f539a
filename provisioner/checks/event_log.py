"""The BMC's system event log holds no open hardware fault, and a load test adds no event.

`ipmitool sel elist` prints one line per event: number, date, time, sensor, event, Asserted or
Deasserted. A fault is open until the same sensor deasserts the same event or a person clears the
log. After a load test every new assertion counts, whatever its event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import find_before_load
from provisioner.checks.readers.tool_output import END, read_output, split_lines
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

EVENT_LOG = Command(name="event_log", line=f"ipmitool sel elist 2>&1 && {END}", limit_s=120.0)

_EVENT = re.compile(
    r"^\s*([0-9a-fA-F]{1,8})\s*\|([^|]{1,40})\|([^|]{1,40})\|([^|]{1,80})\|([^|]{0,120})"
    r"(?:\|([^|]{0,40}))?(?:\|.{0,200})?$"
)
# a vendor-specific record has no sensor and no text: "3 | OEM record dd | 000137 | 0c0000000000"
_OEM = re.compile(r"^\s*([0-9a-fA-F]{1,8})\s*\|\s*(OEM record \w{1,4})\s*\|(.{0,200})$")
_EMPTY = re.compile(r"^SEL has no entries", re.IGNORECASE)
# IPMI 2.0, tables 42-1 to 42-3: texts of events that mean a part is bad
_FAULTS = re.compile(
    r"uncorrectable|uncorrected|IERR|machine check|fatal|bus error|system error|PERR|SERR"
    r"|non-?recoverable|(?<!non-)critical going|failure detected|failure asserted"
    r"|power supply AC lost|predictive failure|drive fault|parity|thermal trip"
    r"|redundancy lost|no usable cpu|CATERR|transition to critical|BIST failure|FRB[123]\b"
    r"|^failed$|device disabled|\bAC lost\b",
    re.IGNORECASE,
)
_FULL = re.compile(r"\blog\b.{0,20}\bfull\b", re.IGNORECASE)
Event = tuple[str, str, str, str]  # number, time, sensor, event


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    events = _parse_events(read_output(evidence, EVENT_LOG))
    standing: dict[tuple[str, str], Event] = {}
    for event, asserted in events:
        key = (event[2], event[3])
        if _FULL.search(event[3]):
            detail = "the event log is full: newer events are lost"
            yield fault(event[2], Severity.MONITOR, detail, event[3])
        elif not asserted:
            standing.pop(key, None)
        elif _FAULTS.search(event[3]):
            standing[key] = event
    for number, when, sensor, event_text in standing.values():
        yield fault(sensor, Severity.ISOLATE, f"event {number}: {event_text}", when)
    before = find_before_load(evidence, EVENT_LOG)
    if before is None:
        return
    had = [event for event, _ in _parse_events(read_output(before, EVENT_LOG))]
    if [event for event, _ in events][: len(had)] != had:
        raise Unreadable("ipmitool: the event log was cleared, or ran over, during the load test")
    for event, asserted in events[len(had) :]:
        if asserted and event not in standing.values():
            detail = f"a new event {event[0]}: {event[3]}"
            yield fault(event[2], Severity.MONITOR, detail, event[1])


def _parse_events(text: str) -> list[tuple[Event, bool]]:
    """Return every event in order, and whether it was asserted."""
    events = []
    lines = split_lines(text)
    if not lines:
        raise Unreadable("ipmitool: it printed neither events nor that the log is empty")
    for line in lines:
        if _EMPTY.match(line.strip()):
            continue
        if maker := _OEM.match(line):
            events.append(
                ((maker[1], maker[3].strip(), maker[2], "a vendor-specific record"), True)
            )
            continue
        match = _EVENT.match(line)
        if match is None:
            raise Unreadable(f"ipmitool: cannot read {line[:80]!r}")
        number, day, time, sensor, event_text, state = (
            (cell or "").strip() for cell in match.groups()
        )
        events.append(
            ((number, f"{day} {time}", sensor, event_text), state.lower() != "deasserted")
        )
    return events


CHECK = Check("event_log", Gate.A, (EVENT_LOG,), _findings, after_load=True)
