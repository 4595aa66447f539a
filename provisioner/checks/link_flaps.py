"""N6: no port of a rail loses its carrier; not once during a load test.

Five losses are what Azure's health checks fail on (in 24 hours, from the system's log); here they
are counted by the kernel since the port came up. A log of networkd ("lost carrier") is read too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counters import earlier, grown
from provisioner.checks.readers.reading import END, lines_of, text_of, whole
from provisioner.checks.readers.sysfs import files_of, matching, one
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

BOOT_ID = "/proc/sys/kernel/random/boot_id"
LINK_FLAPS = Command(
    name="link_flaps",
    line=f"grep -H . {BOOT_ID} /sys/class/infiniband/*/device/net/*/carrier_down_count; {END}",
    limit_s=30.0,
)

_FILE = re.compile(
    r"/sys/class/infiniband/[\w.-]{1,64}/device/net/([\w.-]{1,32})/carrier_down_count"
)
_LOG = re.compile(r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,30}) \S+ \S+: ")
_LOST = re.compile(r": ([\w.-]{1,32}): (?i:lost carrier)")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    text = text_of(evidence, LINK_FLAPS, any_exit=True)
    if _LOG.match(text.lstrip()):
        losses = _logged(text)
    else:
        _, losses = _counted(text)
        if len(losses) < context.rails:
            yield fault("host", Severity.ISOLATE, "ports that count", len(losses), context.rails)
    for port, lost in sorted(losses.items()):
        if missed := misses(context, "carrier_losses", lost):
            words = "the link lost its carrier again and again"
            yield fault(port, Severity.ISOLATE, words, *missed)
    before = earlier(evidence, LINK_FLAPS)
    if before is None:
        return
    boot, had = _counted(text_of(before, LINK_FLAPS, any_exit=True))
    if _counted(text)[0] != boot:
        raise Unreadable("the host was booted between two looks")
    for port, new in grown(had, losses, "carrier_down_count").items():
        if new:
            words = "the link lost its carrier during a load test"
            yield fault(port, Severity.ISOLATE, words, new, 0)


def _counted(text: str) -> tuple[str, dict[str, int]]:
    """Boot id, and port -> losses."""
    files = files_of(text)
    found = {groups[0]: whole(line, groups[0]) for groups, line in matching(files, _FILE).items()}
    if not found:
        raise Unreadable("sysfs: no port counts its losses of carrier")
    return one(files, BOOT_ID), found


def _logged(text: str) -> dict[str, int]:
    """Port -> losses, of a log of one day."""
    lines = lines_of(text)
    if not all(_LOG.match(line) for line in lines):
        raise Unreadable("log: a line of it is not one of a log")
    return dict(Counter(match[1] for line in lines if (match := _LOST.search(line))))


CHECK = Check(
    "link_flaps", Gate.A, (LINK_FLAPS,), _findings, after_load=True, thresholds=("carrier_losses",)
)
