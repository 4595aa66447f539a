"""E6, E7: no Xid, SXid, uncorrectable PCIe error or narrowed PCIe link in the kernel log.

A log cannot say that it is whole: its first part may be gone from the ring buffer. Faults that
fall out of it are found again by counters (ECC, remapping, NVLink), which do not roll over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import KERNEL_LOG
from provisioner.checks.error_codes import RECOVERY_WORDS, RECOVERY_XID, SXIDS, XIDS
from provisioner.checks.reading import lines_of, text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[,.]\d+[+-]\d\d:?\d\d ")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{1,20})\): (\d{1,6}\b)?")
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]{1,20})\): (\d{1,6}\b)?")
_OTHER = (
    # pci_print_aer and the AER driver; DCGM asks to isolate for uncorrectable PCIe errors
    (re.compile(r"severity=Uncorrect|AER: Uncorrect"), "uncorrectable PCIe error"),
    # __pcie_print_link_status; Imbue's health check fails on it
    (re.compile(r"available PCIe bandwidth, limited by"), "a PCIe link runs below what it can"),
)


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    lines = lines_of(text_of(evidence, KERNEL_LOG))
    if not any(_STAMP.match(line) for line in lines):
        raise Unreadable("dmesg: no line of it is a kernel message")
    for line in lines:
        if "\x00" in line or "\ufffd" in line:
            raise Unreadable("dmesg: a line is not text")
        if match := _SXID.search(line):
            yield from _coded("SXid", match, SXIDS, line)
        elif match := _XID.search(line):
            yield from _coded("Xid", match, XIDS, line)
        for pattern, meaning in _OTHER:
            if pattern.search(line):
                yield fault("host", Severity.ISOLATE, meaning, _words(line))


def _coded(
    name: str, match: re.Match[str], table: Mapping[int, Severity | None], line: str
) -> Iterator[Finding]:
    if match[2] is None:
        yield fault(match[1], Severity.ISOLATE, f"an unreadable {name}", _words(line))
        return
    code = int(match[2])
    # a number nobody published an action for asks for the worst
    severity = table.get(code, Severity.ISOLATE)
    if name == "Xid" and code == RECOVERY_XID:
        # "changed from 0x1 (GPU Reset Required) to 0x0 (None)": the last words count
        last = max(RECOVERY_WORDS, key=line.rfind)
        severity = RECOVERY_WORDS[last] if last in line else Severity.ISOLATE
    if severity is not None:
        yield fault(f"PCI {match[1]}", severity, f"{name} {code}", _words(line))


def _words(line: str) -> str:
    return _STAMP.sub("", line)[:200]


CHECK = Check("kernel_log", Gate.A, (KERNEL_LOG,), _findings, after_load=True)
