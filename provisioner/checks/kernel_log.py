"""No Xid, SXid, uncorrectable PCIe error or narrowed PCIe link in the kernel log, and none
of the lines that are faults without a code (`kernel_faults.csv`).

A log whose beginning is gone from the ring buffer never passes: it may have contained an Xid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import KERNEL_LOG
from provisioner.checks.readers.kernel_lines import (
    REACHES_BACK,
    LogLine,
    begins_at_boot,
    find_faults,
    is_fault_line,
    kernel_lines,
    parse_log_line,
    read_words,
)
from provisioner.checks.readers.tool_output import read_output
from provisioner.checks.xid.error_codes import Family, rank_severity
from provisioner.checks.xid.xid_events import NO_CODE, ErrorEvent, find_event, find_events
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.names import normalize_pci

# text that a line must contain, the pattern that decides, the meaning
_OTHER = (
    # pci_print_aer and the AER driver; DCGM asks to isolate for uncorrectable PCIe errors
    (
        "Uncorrect",
        re.compile(r"severity=Uncorrect|AER: (?:Multiple )?Uncorrect"),
        "uncorrectable PCIe error",
    ),
    # __pcie_print_link_status; Imbue's health check fails on it
    (
        "available PCIe",
        re.compile(r"available PCIe bandwidth, limited by"),
        "a PCIe link runs below what it can",
    ),
)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    lines = kernel_lines(read_output(evidence, KERNEL_LOG))
    if not any(read.known and read.words.strip() for read in map(parse_log_line, lines)):
        raise Unreadable("dmesg: no line of it is a kernel message")
    # the most serious come first, so that many small ones cannot push them out of the result
    findings = [*_judge_coded_errors(lines, context), *_judge_other_errors(lines)]
    findings += _judge_line_faults(lines, context)
    if not begins_at_boot(lines):
        findings.append(
            fault("host", Severity.CONFIG, REACHES_BACK, parse_log_line(lines[0]).words)
        )
    yield from sorted(findings, key=lambda f: -rank_severity(f.severity))


def judges(line: LogLine) -> bool:
    """Return whether this check judges a line: other checks ask here, and hold no pattern of their
    own, so that no line is left to a check that does not know it.
    """
    return is_fault_line(line.words) or find_event(line) is not None


def _judge_coded_errors(lines: Sequence[str], context: CheckContext) -> Iterator[Finding]:
    for event in find_events(lines, context.slot_of_pci):
        if event.code == NO_CODE:
            name = "SXid" if event.family is Family.SXID else "Xid"
            yield fault(event.part, Severity.ISOLATE, f"an unreadable {name}", event.words)
            continue
        explanation = event.explain()
        if explanation.severity is not None:
            yield fault(
                event.part, explanation.severity, _describe(event, explanation.details), event.words
            )


def _describe(event: ErrorEvent, details: Sequence[str]) -> str:
    name = "SXid" if event.family is Family.SXID else "Xid"
    times = f" ({event.count} times)" if event.count > 1 else ""
    return ": ".join((f"{name} {event.code}{times}", *("; ".join(details),) * bool(details)))


def _judge_other_errors(lines: Sequence[str]) -> Iterator[Finding]:
    texts = [read_words(line) for line in lines]
    for marker, pattern, meaning in _OTHER:
        matches = [text for text in texts if marker in text and pattern.search(text)]
        if matches:
            times = f" ({len(matches)} lines)" if len(matches) > 1 else ""
            first = parse_log_line(matches[0]).words[:200]
            yield fault("host", Severity.ISOLATE, f"{meaning}{times}", first)


def _judge_line_faults(lines: Sequence[str], context: CheckContext) -> Iterator[Finding]:
    for found in find_faults(lines):
        times = f" ({found.count} lines)" if found.count > 1 else ""
        pci = normalize_pci(found.pci)
        part = context.slot_of_pci.get(pci) or (f"PCI {found.pci}" if found.pci else "host")
        yield fault(part, found.fault.severity, f"{found.fault.meaning}{times}", found.first)


CHECK = Check("kernel_log", Gate.A, (KERNEL_LOG,), _findings, after_load=True)
