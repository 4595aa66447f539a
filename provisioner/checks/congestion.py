"""The lossless network drops no packet and has no pause storm during a load test.

The check reads `ethtool -S` of every port. Pauses and marks are how congestion is controlled, so
they are only measured. Packets that the port dropped, and a receiver that pauses its sender without
end, are faults. An InfiniBand port counts what it dropped itself (`port_xmit_discards`), and how
long it waited for the credits of its neighbour (`port_xmit_wait`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth_per_device, find_before_load
from provisioner.checks.readers.rdma_port_counters import RDMA_COUNTERS, read_counters, read_growth
from provisioner.checks.readers.sysfs import INFINIBAND
from provisioner.checks.readers.tool_output import END, parse_whole, read_output, split_lines
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

CONGESTION = Command(
    name="congestion",
    line="for i in /sys/class/infiniband/*/device/net/*; do echo device $(basename $i);"
    f" ethtool -S $(basename $i); done; {END}",
    limit_s=60.0,
)

# counter names of mlx5 (kernel documentation, mlx5 ethtool counters); RoCE runs in priority 3
LOST = ("rx_discards_phy", "tx_discards_phy", "rx_prio3_discards", "rx_prio3_buf_discard")
STORMS = ("tx_pause_storm_warning_events", "tx_pause_storm_error_events")
MEASURED = ("rx_prio3_pause", "tx_prio3_pause", "rx_discards_phy")
INFINIBAND_LOST = "port_xmit_discards"
INFINIBAND_WAIT = "port_xmit_wait"
_NEEDED = frozenset({"rx_discards_phy"})
_DEVICE = re.compile(r"^device ([\w.-]{1,32})$")
_COUNTER = re.compile(r"^\s*([A-Za-z][\w.\[\]-]{0,80}(?: ?[\w.\[\]-]{1,40}){0,3}): (\d{1,20})$")
_HEADS = ("NIC statistics:",)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    if context.link_layer == INFINIBAND:
        yield from _judge_ports(evidence, context)
        return
    grew = _read_growth(evidence, context)
    for port, deltas in sorted((grew or {}).items()):
        for name in LOST:
            if deltas.get(name):
                detail = f"{name}: packets were lost during a load test"
                yield fault(port, Severity.MONITOR, detail, deltas[name], 0)
        for name in STORMS:
            if deltas.get(name):
                detail = f"{name}: the receiver is stuck"
                yield fault(port, Severity.ISOLATE, detail, deltas[name], 0)


def _judge_ports(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for port, counters in read_counters(evidence, context).ports.items():
        if INFINIBAND_LOST not in counters:
            raise Unreadable(f"sysfs: {port} does not count what it throws away")
    grew = read_growth(evidence, context)
    for port, deltas in sorted(grew.ports.items() if grew else ()):
        if deltas.get(INFINIBAND_LOST):
            detail = f"{INFINIBAND_LOST}: packets were lost during a load test"
            yield fault(port, Severity.MONITOR, detail, deltas[INFINIBAND_LOST], 0)


def _build_commands(context: CheckContext) -> tuple[Command, ...]:
    return (RDMA_COUNTERS if context.link_layer == INFINIBAND else CONGESTION,)


def _read_growth(
    evidence: Mapping[str, Evidence], context: CheckContext
) -> dict[str, dict[str, int]] | None:
    now = _read(evidence, context)
    before = find_before_load(evidence, CONGESTION)
    return (
        None
        if before is None
        else compute_growth_per_device(_read(before, context), now, "ethtool")
    )


def _read(evidence: Mapping[str, Evidence], context: CheckContext) -> dict[str, dict[str, int]]:
    """Return port -> the counters that are judged or measured."""
    ports: dict[str, dict[str, int]] = {}
    current: dict[str, int] | None = None
    for line in split_lines(read_output(evidence, CONGESTION, any_exit=True)):
        if match := _DEVICE.match(line.strip()):
            if match[1] in ports:
                raise Unreadable(f"ethtool: {match[1]} is listed twice")
            current = ports[match[1]] = {}
        elif line.strip() in _HEADS:
            current = ports.setdefault("port", {}) if current is None else current
        elif current is None or (match := _COUNTER.match(line)) is None:
            raise Unreadable(f"ethtool: cannot read {line[:60]!r}")
        elif match[1] in (*LOST, *STORMS, *MEASURED):
            if match[1] in current:
                raise Unreadable(f"ethtool: {match[1]} is listed twice")
            current[match[1]] = parse_whole(match[2], match[1])
    if not ports or len(ports) < context.rails:
        raise Unreadable(f"ethtool: {len(ports)} ports, {context.rails} are rails")
    for port, counters in ports.items():
        if not set(counters) >= _NEEDED:
            raise Unreadable(f"ethtool: {port} does not count what it throws away")
    return ports


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    if context.link_layer == INFINIBAND:
        ports = read_growth(evidence, context)
        rows = ports.ports if ports else {}
        wait = INFINIBAND_WAIT
        return {f"{wait}/{port}": d[wait] for port, d in rows.items() if wait in d}
    grew = _read_growth(evidence, context) or {}
    return {f"{name}/{port}": d[name] for port, d in grew.items() for name in MEASURED if name in d}


CHECK = Check(
    "congestion",
    Gate.A,
    (CONGESTION,),
    _findings,
    after_load=True,
    measure=_measure,
    lines=_build_commands,
)
