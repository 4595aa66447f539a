"""Every kernel message of level "err" and above is one that is known to be harmless.

The check also reads the first line of the ring buffer: if that is not the kernel's greeting, the
oldest messages are gone and may have been faults. `kernel_log` judges Xids, SXids and lines that
are faults of a part. Where lines carry their level (`journalctl -k -o json`, `dmesg -x`), less
serious ones are ignored. After a load test every new line counts. I/O errors of drives that a
BMC shows over USB (virtual media that was taken away) are no errors of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks import kernel_log
from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import find_before_load
from provisioner.checks.readers.kernel_lines import (
    ERR,
    REACHES_BACK,
    begins_at_boot,
    find_virtual_drives,
    is_attachment,
    is_greeting,
    is_harmless,
    is_of_drives,
    kernel_lines,
    parse_log_line,
    read_level,
)
from provisioner.checks.readers.tool_output import END, read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

KERNEL_ERRORS = Command(
    name="kernel_errors",
    # the first line, those in which USB drives were found (below "err"), and the errors
    line="dmesg --time-format iso | sed -n -E '1p;2,$ {/ scsi host[0-9]+: (usb-storage|uas)/p;"
    "/ scsi [0-9:]+: (Direct-Access|CD-ROM)/p;/ s[dr] [0-9:]+: .*([Aa]ttached|drive:)/p}';"
    f" dmesg --time-format iso --level=emerg,alert,crit,err && {END}",
    limit_s=30.0,
)

# Linux: mm/memory-failure.c, arch/arm64/kernel/traps.c, arch/x86/kernel/{nmi,traps}.c,
# drivers/{edac,acpi/apei/ghes.c,nvme/host/pci.c,md}. A program's own general protection fault
# ("traps: NAME[PID] general protection fault ip:…") is no fault of the host.
_SERIOUS = re.compile(
    r"[Hh]ardware [Ee]rror|Machine check|EDAC .{0,40}UE[ :]|I/O [Ee]rror|\bBUG\b|Oops|soft lockup"
    r"|hard LOCKUP|blocked for more than|Out of memory|EXT4-fs error"
    r"|XFS .{0,40}(?:[Cc]orruption|error)|Kernel panic|general protection fault(?! ip:)"
    r"|[Uu]nable to handle kernel|rcu.{0,20}: .{0,60}stall|HANDLING \w{1,16} MEMORY ERROR"
    r"|hardware memory corruption|synchronous external abort|\bSError\b|PCI system error"
    r"|IOCK error|(?:double fault|stack segment|invalid opcode|divide error): \d"
    r"|critical (?:medium|target) error|nvme\d{1,4}: controller is down|Disk failure on"
    r"|Remounting filesystem read-only"
)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    lines = _read_lines(read_output(evidence, KERNEL_ERRORS))
    complete = begins_at_boot(lines)
    if not complete:
        yield fault("host", Severity.CONFIG, REACHES_BACK, parse_log_line(lines[0]).words)
    before = find_before_load(evidence, KERNEL_ERRORS)
    earlier_lines = (
        set(_read_lines(read_output(before, KERNEL_ERRORS))) if before is not None else set()
    )
    # one finding per message, however often it came and whatever numbers it contained
    messages: dict[str, list[str]] = {}
    virtual = find_virtual_drives(lines)
    for number, line in enumerate(lines):
        level = read_level(line)
        parsed = parse_log_line(line)
        text = parsed.words
        # the very first line only shows where the log begins
        judged = level <= ERR if level is not None else number > 0 or not complete
        if not judged or line in earlier_lines or is_greeting(text):
            continue
        if is_attachment(text) or is_of_drives(text, virtual):
            continue
        if is_harmless(text, context.harmless_lines, serious=_SERIOUS.search(text) is not None):
            continue
        if not kernel_log.judges(parsed):
            messages.setdefault(_NUMBER.sub("#", text), []).append(text)
    for listed in sorted(messages.values(), key=lambda listed: not _SERIOUS.search(listed[0])):
        severity = Severity.ISOLATE if _SERIOUS.search(listed[0]) else Severity.MONITOR
        times = f" ({len(listed)} times)" if len(listed) > 1 else ""
        yield fault("host", severity, f"kernel{times}: {listed[0]}")


def _read_lines(text: str) -> list[str]:
    lines = kernel_lines(text)
    # only the first line of a multi-line message carries a time stamp
    if not parse_log_line(lines[0]).known or not parse_log_line(lines[0]).words.strip():
        raise Unreadable(f"dmesg: cannot read {lines[0][:80]!r}")
    return lines


CHECK = Check("kernel_errors", Gate.A, (KERNEL_ERRORS,), _findings, after_load=True)
