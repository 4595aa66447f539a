"""E6, E7: no Xid, SXid, uncorrectable PCIe error or narrowed PCIe link in the kernel log.

A log whose first part is gone from the ring buffer never passes: an Xid may have been in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import KERNEL_LOG
from provisioner.checks.readers.kernel_lines import REACHES_BACK, begins_at_boot, kernel_lines
from provisioner.checks.readers.reading import text_of
from provisioner.checks.readers.xid_lines import log_line
from provisioner.checks.xid.error_codes import Family, rank
from provisioner.checks.xid.xid_events import NO_CODE, ErrorEvent, events_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

# words that a line must have, the pattern that decides, what it means
_OTHER = (
    # pci_print_aer and the AER driver; DCGM asks to isolate for uncorrectable PCIe errors
    ("Uncorrect", re.compile(r"severity=Uncorrect|AER: Uncorrect"), "uncorrectable PCIe error"),
    # __pcie_print_link_status; Imbue's health check fails on it
    (
        "available PCIe",
        re.compile(r"available PCIe bandwidth, limited by"),
        "a PCIe link runs below what it can",
    ),
)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    lines = kernel_lines(text_of(evidence, KERNEL_LOG))
    if not any(read.known and read.words.strip() for read in map(log_line, lines)):
        raise Unreadable("dmesg: no line of it is a kernel message")
    # the gravest first: a flood of small ones must not push it out of a bounded result
    found = [*_coded(lines, context), *_others(lines)]
    if not begins_at_boot(lines):
        found.append(fault("host", Severity.CONFIG, REACHES_BACK, log_line(lines[0]).words))
    yield from sorted(found, key=lambda f: -rank(f.severity))


def _coded(lines: Sequence[str], context: CheckContext) -> Iterator[Finding]:
    for event in events_of(lines, context.slot_of_pci):
        if event.code == NO_CODE:
            name = "SXid" if event.family is Family.SXID else "Xid"
            yield fault(event.part, Severity.ISOLATE, f"an unreadable {name}", event.words)
            continue
        told = event.explained()
        if told.severity is not None:
            yield fault(event.part, told.severity, _detail(event, told.details), event.words)


def _detail(event: ErrorEvent, details: Sequence[str]) -> str:
    name = "SXid" if event.family is Family.SXID else "Xid"
    times = f" ({event.count} times)" if event.count > 1 else ""
    return ": ".join((f"{name} {event.code}{times}", *("; ".join(details),) * bool(details)))


def _others(lines: Sequence[str]) -> Iterator[Finding]:
    for words, pattern, meaning in _OTHER:
        seen = [line for line in lines if words in line and pattern.search(line)]
        if seen:
            times = f" ({len(seen)} lines)" if len(seen) > 1 else ""
            first = log_line(seen[0]).words[:200]
            yield fault("host", Severity.ISOLATE, f"{meaning}{times}", first)


CHECK = Check("kernel_log", Gate.A, (KERNEL_LOG,), _findings, after_load=True)
