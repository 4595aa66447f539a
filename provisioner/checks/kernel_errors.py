"""E14: every kernel message of level "err" and above is one that is known to mean nothing.

The whole ring buffer's first line is asked for as well: if it is not the kernel's own greeting,
the oldest messages are gone, and what they said nobody can tell. Xid and SXid are judged by
`kernel_log`. Where lines tell their level (`journalctl -k -o json`, `dmesg -x`), the others are
left alone. After a load test every line that was not there before counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counters import earlier
from provisioner.checks.readers.kernel_lines import (
    ERR,
    REACHES_BACK,
    begins_at_boot,
    harmless,
    is_greeting,
    kernel_lines,
    level_of,
)
from provisioner.checks.readers.reading import END, text_of
from provisioner.checks.readers.xid_lines import log_line
from provisioner.model.health import Evidence, Finding, Gate, Severity

KERNEL_ERRORS = Command(
    name="kernel_errors",
    line="dmesg --time-format iso | head -n 1;"
    f" dmesg --time-format iso --level=emerg,alert,crit,err && {END}",
    limit_s=30.0,
)

_SERIOUS = re.compile(
    r"Hardware Error|Machine check|EDAC .{0,40}UE |I/O error|BUG:|Oops|soft lockup|hard LOCKUP"
    r"|blocked for more than|Out of memory|EXT4-fs error|XFS .{0,40}(?:corruption|error)"
)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    lines = _read(text_of(evidence, KERNEL_ERRORS))
    whole = begins_at_boot(lines)
    if not whole:
        yield fault("host", Severity.CONFIG, REACHES_BACK, log_line(lines[0]).words)
    before = earlier(evidence, KERNEL_ERRORS)
    had = set(_read(text_of(before, KERNEL_ERRORS))) if before is not None else set()
    # one finding for a message, however often it came and whatever numbers it held
    seen: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        level, words = level_of(line), log_line(line).words
        # the first line of all is there to say where the log begins
        judged = level <= ERR if level is not None else number > 0 or not whole
        if not judged or line in had or is_greeting(words):
            continue
        if not harmless(words, context.harmless_lines):
            seen.setdefault(_NUMBER.sub("#", words), []).append(words)
    for listed in sorted(seen.values(), key=lambda listed: not _SERIOUS.search(listed[0])):
        severity = Severity.ISOLATE if _SERIOUS.search(listed[0]) else Severity.MONITOR
        times = f" ({len(listed)} times)" if len(listed) > 1 else ""
        yield fault("host", severity, f"kernel{times}: {listed[0]}")


def _read(text: str) -> list[str]:
    lines = kernel_lines(text)
    # a message of several lines has one stamp
    if not log_line(lines[0]).known or not log_line(lines[0]).words.strip():
        raise Unreadable(f"dmesg: cannot read {lines[0][:80]!r}")
    return lines


CHECK = Check("kernel_errors", Gate.A, (KERNEL_ERRORS,), _findings, after_load=True)
