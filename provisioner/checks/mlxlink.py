"""Every link is active at full speed with the strong FEC code, without errors, module healthy.

An effective bit error rate (after correction) up to 1e-15 is healthy and above 1e-12 is a fault
(NVSentinel's limits for NICs); between the two the link is monitored. mlxlink's own recommendation
counts too. Speed, width and code are required only of the ports of rails. Counters grow from their
last clearing, so that before a load their faults are only monitored; after a load, the growth
during it counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth, find_before_load
from provisioner.checks.readers.mlxlink_ports import MLXLINK, PortFacts, read_ports
from provisioner.checks.readers.sysfs import INFINIBAND
from provisioner.checks.readers.tool_output import parse_whole
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_OPERATION = "Operational Info"
_COUNTERS = "Physical Counters and BER Info"
_MODULE = "Module Info"
_ADVICE = "Troubleshooting Info"
_SPEED = re.compile(r"^(?:[A-Z]{2,6}-)?(\d{1,4})G")  # "400G", "400G_4X"
# of four lanes, in Gbit/s; mstflint, mlxlink_maps.cpp
_INFINIBAND_SPEEDS = {"IB-FDR": 56, "IB-EDR": 100, "IB-HDR": 200, "IB-NDR": 400, "IB-XDR": 800}
# the code of short InfiniBand cables has a smaller block, and repeats lost ones (PLR)
_FEC_CODES = {"Ethernet": ("544,514",), "InfiniBand": ("544,514", "271,257")}
_ZERO_COUNTS = ("Effective Physical Errors", "Link Down Counter", "Link Error Recovery Counter")
_ZERO_LANES = (
    "Module FW Fault",
    "DataPath FW Fault",
    "Rx LOS [per lane]",
    "Rx CDR LOL [per lane]",
    "Tx Fault [per lane]",
    "Tx LOS [per lane]",
    "Tx CDR LOL [per lane]",
    "Tx Adaptive EQ Fault [per lane]",
)
_NO_ISSUE = "No issue was observed"
_FINE = re.compile(r"No issue was observed\.?", re.IGNORECASE)  # and nothing behind it


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    before = find_before_load(evidence, MLXLINK)
    had = {p.part: p for p in read_ports(before, context)} if before is not None else None
    for port in read_ports(evidence, context):
        if port.failure:
            detail = "mlxlink cannot read this port"
            yield fault(port.part, Severity.POWER_CYCLE, detail, port.failure)
            continue
        state = port.get_text(_OPERATION, "State")
        if state is None:
            raise Unreadable(f"mlxlink: {port.part} does not report its state")
        advice = _read_advice(port)
        if state != "Active":
            detail = f"the link is not active: {advice or 'no advice'}"
            yield fault(port.part, Severity.ISOLATE, detail, state, "Active")
            continue
        if advice is not None and not _FINE.fullmatch(advice):
            yield fault(port.part, Severity.ISOLATE, "mlxlink's own advice", advice, _NO_ISSUE)
        elif (opcode := port.get_text(_ADVICE, "Status Opcode")) not in (None, "0"):
            yield fault(port.part, Severity.ISOLATE, "mlxlink's own verdict", opcode, 0)
        if port.pci not in context.dpu_pci:
            yield from _judge_operation(port, context)
        yield from _judge_error_rate(port, context)
        yield from _judge_counters(port, had, context)
        yield from _judge_module(port)


def _read_advice(port: PortFacts) -> str | None:
    """Return mlxlink's advice: of several pieces the first that is more than "no issue"."""
    pieces = port.get_section(_ADVICE).get("Recommendation")
    if isinstance(pieces, dict):
        pieces = pieces.get("values")
    if not isinstance(pieces, list):
        return port.get_text(_ADVICE, "Recommendation")
    said = [str(piece).strip() for piece in pieces]
    return next((one for one in said if not _FINE.fullmatch(one)), said[0] if said else None)


def _judge_operation(port: PortFacts, context: CheckContext) -> Iterator[Finding]:
    speed = port.get_text(_OPERATION, "Speed") or ""
    rail = require_threshold(context, "rail_gbit_s")
    if _read_speed(speed, context) < rail:
        yield fault(port.part, Severity.ISOLATE, "the link's speed", speed, f"{rail:g}G")
    code = port.get_text(_OPERATION, "FEC") or ""
    codes = _FEC_CODES.get(context.link_layer, _FEC_CODES["Ethernet"])
    if not any(words in code.replace(" ", "") for words in codes):
        expected = " or ".join(f"RS-FEC ({words})" for words in codes)
        yield fault(port.part, Severity.CONFIG, "the link's FEC code", code, expected)
    loop = port.get_text(_OPERATION, "Loopback Mode")
    if loop is not None and loop != "No Loopback":
        yield fault(port.part, Severity.CONFIG, "the port is looped back", loop, "No Loopback")


def _read_speed(text: str, context: CheckContext) -> int:
    """Return Gbit/s; 0 for a speed of another link layer than the rails have."""
    if context.link_layer == INFINIBAND:
        return _INFINIBAND_SPEEDS.get(text, 0)
    match = _SPEED.match(text)
    return 0 if match is None else int(match[1])


def _judge_error_rate(port: PortFacts, context: CheckContext) -> Iterator[Finding]:
    rate = port.get_number(_COUNTERS, "Effective Physical BER")
    if rate is None or rate < 0:
        raise Unreadable(f"mlxlink: {port.part} does not report its effective bit error rate")
    if missed := check_threshold(context, "link_effective_ber", rate):
        bad = check_threshold(context, "link_effective_ber_bad", rate)
        severity = Severity.ISOLATE if bad else Severity.MONITOR
        yield fault(port.part, severity, "effective bit error rate", *missed)


def _judge_counters(
    port: PortFacts, had: Mapping[str, PortFacts] | None, context: CheckContext
) -> Iterator[Finding]:
    now = _read_counters(port)
    if had is None:
        for name, count in now.items():
            if missed := check_threshold(context, "link_faults_since_clear", count):
                detail = f"{name}, since it was cleared (`mlxlink -d {port.pci or 'CARD'} --pc`)"
                yield fault(port.part, Severity.MONITOR, detail, *missed)
        return
    if port.part not in had or had[port.part].failure:
        raise Unreadable(f"mlxlink: {port.part} was not there before the load test")
    for name, count in compute_growth(_read_counters(had[port.part]), now, port.part).items():
        if count:
            yield fault(port.part, Severity.MONITOR, f"{name}, during a load test", count, 0)


def _read_counters(port: PortFacts) -> dict[str, int]:
    counters = {}
    for name in _ZERO_COUNTS:
        text = port.get_text(_COUNTERS, name)
        if text is not None:
            counters[name] = parse_whole(text, name)
        # a BlueField-3 reports neither link downs nor recoveries (scitix/sichek, pull request
        # 125); the kernel counts its losses of carrier (`link_flaps`)
        elif name == _ZERO_COUNTS[0]:
            raise Unreadable(f"mlxlink: {port.part} does not report {name}")
    return counters


def _judge_module(port: PortFacts) -> Iterator[Finding]:
    if not port.get_section(_MODULE):
        raise Unreadable(f"mlxlink: {port.part} does not report its module")
    for name in _ZERO_LANES:
        lanes = port.get_values(_MODULE, name) or []
        bad = [v for v in lanes if v not in ("0", "N/A", "No", "False")]
        if bad:
            yield fault(port.part, Severity.ISOLATE, f"the module: {name}", ", ".join(lanes), 0)
    lanes = port.get_values(_MODULE, "DataPath state [per lane]") or []
    if any(state not in ("DPActivated", "N/A") for state in lanes):
        detail = "the module's lanes are not all active"
        yield fault(port.part, Severity.ISOLATE, detail, ", ".join(lanes), "DPActivated")
    state = port.get_text(_MODULE, "Module State")
    if state is not None and "ready" not in state.lower():
        yield fault(port.part, Severity.ISOLATE, "the module's state", state, "Ready state")


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    measured: dict[str, float] = {}
    for port in read_ports(evidence, context):
        for name, key in (
            ("raw_ber", "Raw Physical BER"),
            ("effective_ber", "Effective Physical BER"),
        ):
            value = port.get_number(_COUNTERS, key)
            if value is not None:
                measured[f"{name}/{port.part}"] = value
        downs = port.get_number(_COUNTERS, "Link Down Counter")
        if downs is not None:
            measured[f"link_downs_since_clear/{port.part}"] = downs
    return measured


CHECK = Check(
    "mlxlink",
    Gate.A,
    (MLXLINK,),
    _findings,
    after_load=True,
    measure=_measure,
    thresholds=(
        "rail_gbit_s",
        "link_effective_ber",
        "link_effective_ber_bad",
        "link_faults_since_clear",
    ),
)
