"""No port of a rail loses its carrier repeatedly, or even once during a load test.

Azure's health checks fail on five losses (in 24 hours, from the system's log); this check uses the
kernel's count since the port came up. It also reads a log of networkd ("lost carrier"). A host of
an InfiniBand fabric needs no interface of its ports (IPoIB): there the port itself counts
(`link_downed`, since it was cleared).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth, find_before_load
from provisioner.checks.readers.rdma_port_counters import RDMA_COUNTERS, read_counters, read_growth
from provisioner.checks.readers.sysfs import INFINIBAND, match_files, parse_files, read_single_line
from provisioner.checks.readers.tool_output import END, parse_whole, read_output, split_lines
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

BOOT_ID = "/proc/sys/kernel/random/boot_id"
LINK_FLAPS = Command(
    name="link_flaps",
    line=f"grep -H . {BOOT_ID} /sys/class/infiniband/*/device/net/*/carrier_down_count; {END}",
    limit_s=30.0,
)

_FILE = re.compile(
    r"/sys/class/infiniband/[\w.-]{1,64}/device/net/([\w.-]{1,32})/carrier_down_count"
)
_DOWNED = "link_downed"
_LOG = re.compile(r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,30}) \S+ \S+: ")
_LOST = re.compile(r": ([\w.-]{1,32}): (?i:lost carrier)")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    if context.link_layer == INFINIBAND:
        yield from _judge_ports(evidence, context)
        return
    text = read_output(evidence, LINK_FLAPS, any_exit=True)
    if _LOG.match(text.lstrip()):
        losses = _read_logged_losses(text)
    else:
        _, losses = _read_counted_losses(text)
        if len(losses) < context.rails:
            yield fault("host", Severity.ISOLATE, "ports that count", len(losses), context.rails)
    for port, lost in sorted(losses.items()):
        if missed := check_threshold(context, "carrier_losses", lost):
            detail = "the link lost its carrier repeatedly"
            yield fault(port, Severity.ISOLATE, detail, *missed)
    before = find_before_load(evidence, LINK_FLAPS)
    if before is None:
        return
    boot, earlier_losses = _read_counted_losses(read_output(before, LINK_FLAPS, any_exit=True))
    if _read_counted_losses(text)[0] != boot:
        raise Unreadable("the host was rebooted between the two readings")
    for port, new in compute_growth(earlier_losses, losses, "carrier_down_count").items():
        if new:
            detail = "the link lost its carrier during a load test"
            yield fault(port, Severity.ISOLATE, detail, new, 0)


def _judge_ports(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for port, counters in sorted(read_counters(evidence, context).ports.items()):
        if _DOWNED not in counters:
            raise Unreadable(f"sysfs: {port} does not count its losses of the link")
        if missed := check_threshold(context, "carrier_losses", counters[_DOWNED]):
            detail = "the link went down repeatedly since the counter was cleared"
            yield fault(port, Severity.ISOLATE, detail, *missed)
    grew = read_growth(evidence, context)
    for port, deltas in sorted(grew.ports.items() if grew else ()):
        if deltas.get(_DOWNED):
            detail = "the link went down during a load test"
            yield fault(port, Severity.ISOLATE, detail, deltas[_DOWNED], 0)


def _build_commands(context: CheckContext) -> tuple[Command, ...]:
    return (RDMA_COUNTERS if context.link_layer == INFINIBAND else LINK_FLAPS,)


def _read_counted_losses(text: str) -> tuple[str, dict[str, int]]:
    """Return the boot id, and port -> losses."""
    files = parse_files(text)
    losses = {
        groups[0]: parse_whole(line, groups[0])
        for groups, line in match_files(files, _FILE).items()
    }
    if not losses:
        raise Unreadable("sysfs: no port counts its losses of carrier")
    return read_single_line(files, BOOT_ID), losses


def _read_logged_losses(text: str) -> dict[str, int]:
    """Return port -> losses, from a log of one day."""
    lines = split_lines(text)
    if not all(_LOG.match(line) for line in lines):
        raise Unreadable("log: a line of it is not one of a log")
    return dict(Counter(match[1] for line in lines if (match := _LOST.search(line))))


CHECK = Check(
    "link_flaps",
    Gate.A,
    (LINK_FLAPS,),
    _findings,
    after_load=True,
    lines=_build_commands,
    thresholds=("carrier_losses",),
)
