"""N3: every port's link is active at full speed with the strong code, without errors, module well.

An effective bit error rate (after correction) up to 1e-15 is healthy and above 1e-12 is a fault
(NVSentinel's limits for NICs); between the two the link is to be watched. What mlxlink itself
recommends counts too. Speed, width and code are asked of the ports of rails only. Counters stand
since somebody cleared them, so that before a load their faults are to be watched and cleared; after
it only what came during the load counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.counters import earlier, grown
from provisioner.checks.readers.mlxlink_reading import MLXLINK, PortFacts, ports
from provisioner.checks.readers.reading import whole
from provisioner.checks.thresholds import floor, misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

_OPERATION = "Operational Info"
_COUNTERS = "Physical Counters and BER Info"
_MODULE = "Module Info"
_ADVICE = "Troubleshooting Info"
_SPEED = re.compile(r"^(?:[A-Z]{2,6}-)?(\d{1,4})G")  # "400G", "400G_4X", "IB-NDR" is no Ethernet
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


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    before = earlier(evidence, MLXLINK)
    had = {p.part: p for p in ports(before, context)} if before is not None else None
    for port in ports(evidence, context):
        if port.failure:
            words = "mlxlink cannot read this port"
            yield fault(port.part, Severity.POWER_CYCLE, words, port.failure)
            continue
        state = port.word(_OPERATION, "State")
        if state is None:
            raise Unreadable(f"mlxlink: {port.part} does not say its state")
        advice = port.word(_ADVICE, "Recommendation")
        if state != "Active":
            words = f"the link is not active: {advice or 'no advice'}"
            yield fault(port.part, Severity.ISOLATE, words, state, "Active")
            continue
        if advice is not None and not advice.startswith(_NO_ISSUE):
            yield fault(port.part, Severity.ISOLATE, "mlxlink's own advice", advice, _NO_ISSUE)
        if port.pci not in context.dpu_pci:
            yield from _operation(port, context)
        yield from _rate(port, context)
        yield from _counted(port, had, context)
        yield from _module(port)


def _operation(port: PortFacts, context: CheckContext) -> Iterator[Finding]:
    speed, rail = port.word(_OPERATION, "Speed") or "", floor(context, "rail_gbit_s")
    match = _SPEED.match(speed)
    if match is None or int(match[1]) < rail:
        yield fault(port.part, Severity.ISOLATE, "the link's speed", speed, f"{rail:g}G")
    code = port.word(_OPERATION, "FEC") or ""
    if "544,514" not in code.replace(" ", ""):
        yield fault(port.part, Severity.CONFIG, "the link's code", code, "RS-FEC (544,514)")
    loop = port.word(_OPERATION, "Loopback Mode")
    if loop is not None and loop != "No Loopback":
        yield fault(port.part, Severity.CONFIG, "the port is looped back", loop, "No Loopback")


def _rate(port: PortFacts, context: CheckContext) -> Iterator[Finding]:
    rate = port.figure(_COUNTERS, "Effective Physical BER")
    if rate is None or rate < 0:
        raise Unreadable(f"mlxlink: {port.part} does not say its effective bit error rate")
    if missed := misses(context, "link_effective_ber", rate):
        bad = misses(context, "link_effective_ber_bad", rate)
        severity = Severity.ISOLATE if bad else Severity.MONITOR
        yield fault(port.part, severity, "effective bit error rate", *missed)


def _counted(
    port: PortFacts, had: Mapping[str, PortFacts] | None, context: CheckContext
) -> Iterator[Finding]:
    now = _counts(port)
    if had is None:
        for name, count in now.items():
            if missed := misses(context, "link_faults_since_clear", count):
                words = f"{name}, since it was cleared (`mlxlink -d {port.pci or 'CARD'} --pc`)"
                yield fault(port.part, Severity.MONITOR, words, *missed)
        return
    if port.part not in had or had[port.part].failure:
        raise Unreadable(f"mlxlink: {port.part} was not there before the load test")
    for name, count in grown(_counts(had[port.part]), now, port.part).items():
        if count:
            yield fault(port.part, Severity.MONITOR, f"{name}, during a load test", count, 0)


def _counts(port: PortFacts) -> dict[str, int]:
    found = {}
    for name in _ZERO_COUNTS:
        text = port.word(_COUNTERS, name)
        if text is not None:
            found[name] = whole(text, name)
        # a BlueField-3 tells neither link downs nor recoveries (scitix/sichek, pull request 125):
        # its losses of carrier are counted by the kernel (`link_flaps`)
        elif name == _ZERO_COUNTS[0]:
            raise Unreadable(f"mlxlink: {port.part} does not say {name}")
    return found


def _module(port: PortFacts) -> Iterator[Finding]:
    if not port.section(_MODULE):
        raise Unreadable(f"mlxlink: {port.part} does not tell its module")
    for name in _ZERO_LANES:
        lanes = port.values(_MODULE, name) or []
        bad = [v for v in lanes if v not in ("0", "N/A", "No", "False")]
        if bad:
            yield fault(port.part, Severity.ISOLATE, f"the module: {name}", ", ".join(lanes), 0)
    lanes = port.values(_MODULE, "DataPath state [per lane]") or []
    if any(state not in ("DPActivated", "N/A") for state in lanes):
        words = "the module's lanes are not all active"
        yield fault(port.part, Severity.ISOLATE, words, ", ".join(lanes), "DPActivated")
    state = port.word(_MODULE, "Module State")
    if state is not None and "ready" not in state.lower():
        yield fault(port.part, Severity.ISOLATE, "the module's state", state, "Ready state")


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for port in ports(evidence, context):
        for name, key in (
            ("raw_ber", "Raw Physical BER"),
            ("effective_ber", "Effective Physical BER"),
        ):
            value = port.figure(_COUNTERS, key)
            if value is not None:
                found[f"{name}/{port.part}"] = value
        downs = port.figure(_COUNTERS, "Link Down Counter")
        if downs is not None:
            found[f"link_downs_since_clear/{port.part}"] = downs
    return found


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
