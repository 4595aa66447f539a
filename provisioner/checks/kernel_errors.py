"""E14: every kernel message of level "err" and above is one that is known to mean nothing.

The whole ring buffer's first line is asked for as well: if it is not the kernel's own greeting,
the oldest messages are gone, and what they said nobody can tell. Xid and SXid are judged by
`kernel_log`. After a load test every line that was not there before counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counters import earlier
from provisioner.checks.reading import END, lines_of, text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

KERNEL_ERRORS = Command(
    name="kernel_errors",
    line="dmesg --time-format iso | head -n 1;"
    f" dmesg --time-format iso --level=emerg,alert,crit,err && {END}",
    limit_s=30.0,
)

_STAMP = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[,.]\d+[+-]\d\d:?\d\d "
    r"|\[[ 0-9.]{1,20}\] |\[[A-Z][^\]]{1,40}\] )"
)
_GREETING = re.compile(r"Linux version \d")
# What err-level lines of healthy servers say; Imbue's cluster-health keeps such a list
# (`dmesg_whitelist.py`: SXid 12028 and ACPI lines among them).
HARMLESS = (
    re.compile(r"\bACPI(?: BIOS)? (?:Error|Exception|Warning)|\bACPI: .{0,60}(?:_DSM|_CRS|_OSC)"),
    re.compile(r"NVRM: Xid |SXid \("),  # judged by kernel_log, with their actions
    re.compile(r"i8042: |ima: |integrity: |Unable to find .{0,20}x509|tpm tpm0: |tpm_crb"),
    re.compile(r"DMAR: \[Firmware Bug\]|\[Firmware (?:Bug|Warn)\]: .{0,40}(?:TPM|cpu|BIOS)"),
    re.compile(r"(?:snd_hda|sgx: |Initramfs unpacking failed|efifb|sp5100|iTCO_wdt)"),
)
_SERIOUS = re.compile(
    r"Hardware Error|Machine check|EDAC .{0,40}UE |I/O error|BUG:|Oops|soft lockup|hard LOCKUP"
    r"|blocked for more than|Out of memory|EXT4-fs error|XFS .{0,40}(?:corruption|error)"
)


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    lines = _read(text_of(evidence, KERNEL_ERRORS))
    if not _GREETING.search(lines[0]):
        words = "the kernel log does not reach back to the boot: read the journal, and restart"
        yield fault("host", Severity.RESTART, words, _STAMP.sub("", lines[0]))
    errors = [line for line in lines if not _GREETING.search(line)]
    before = earlier(evidence, KERNEL_ERRORS)
    if before is not None:
        had = set(_read(text_of(before, KERNEL_ERRORS)))
        errors = [line for line in errors if line not in had]
    for line in errors:
        words = _STAMP.sub("", line)
        if not any(pattern.search(words) for pattern in HARMLESS):
            severity = Severity.ISOLATE if _SERIOUS.search(words) else Severity.MONITOR
            yield fault("host", severity, f"kernel: {words}")


def _read(text: str) -> list[str]:
    lines = lines_of(text)
    if not lines:
        raise Unreadable("dmesg: no line of it is a kernel message")
    for line in lines:
        # a message of several lines has one stamp
        if "\x00" in line or "\ufffd" in line:
            raise Unreadable("dmesg: a line is not text")
    if not _STAMP.match(lines[0]):
        raise Unreadable(f"dmesg: cannot read {lines[0][:80]!r}")
    return lines


CHECK = Check("kernel_errors", Gate.A, (KERNEL_ERRORS,), _findings, after_load=True)
