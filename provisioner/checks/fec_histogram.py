"""No codeword came close to the correction limit of the code (15 symbols of RS-FEC 544,514).

Bins count codewords by the number of symbols that were corrected in them. Low bins fill on every
link; the tail shows a failing one. A real healthy port had three hits in bin 8 in 81 hours and none
above it. So a hit counts from bin 9 on, and under load from bin 8 on. These two limits are our own;
no source publishes any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth, find_before_load
from provisioner.checks.readers.mlxlink_ports import MLXLINK, PortFacts, read_ports
from provisioner.checks.readers.tool_output import parse_whole, require_list, require_object
from provisioner.checks.thresholds import require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

BINS_MIN = 10  # a histogram with fewer does not reach the tail
TAIL_BIN = 8  # measured from here on
LAST_BIN = 15  # one symbol more and the codeword is lost
_SECTION = "Histogram of FEC Errors"
_BIN = re.compile(r"^Bin (\d{1,3})$")
_RANGE = re.compile(r"^\[?(\d{1,3})(?:\s*[:,-]\s*(\d{1,3}))?\]?$")  # "[8]", "[8:9]"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    now = _read_histograms(read_ports(evidence, context), context)
    before = find_before_load(evidence, MLXLINK)
    earlier_bins = (
        _read_histograms(read_ports(before, context), context) if before is not None else {}
    )
    for part, bins in now.items():
        names = {str(symbols): hits for symbols, hits in bins.items()}
        most = require_threshold(context, "fec_symbols")
        counted = bins
        when = "since they were cleared"
        if before is not None:
            if part not in earlier_bins:
                raise Unreadable(f"mlxlink: {part} was not there before the load test")
            old = {str(symbols): hits for symbols, hits in earlier_bins[part].items()}
            growth = compute_growth(old, names, part)
            most = require_threshold(context, "fec_symbols_in_a_load")
            when = "during a load test"
            counted = {symbols: growth[str(symbols)] for symbols in bins}
        tail = {symbols: hits for symbols, hits in counted.items() if symbols > most and hits}
        if tail:
            worst = max(tail)
            severity = Severity.ISOLATE if worst >= LAST_BIN else Severity.MONITOR
            detail = f"codewords with more than {most:.0f} corrected symbols {when}, up to {worst}"
            yield fault(part, severity, detail, sum(tail.values()), 0)


def _read_histograms(listed: list[PortFacts], context: CheckContext) -> dict[str, dict[int, int]]:
    """Return port -> corrected symbols -> codewords, of the ports of rails."""
    histograms = {}
    for port in listed:
        if port.pci in context.dpu_pci and not port.get_section(_SECTION):
            continue  # ports of 200 Gb/s and less may have no such histogram
        if port.failure:
            raise Unreadable(f"mlxlink: {port.part}: {port.failure}")
        histograms[port.part] = _read_bins(port)
    return histograms


def _read_bins(port: PortFacts) -> dict[int, int]:
    bins: dict[int, int] = {}
    for name, cell in port.get_section(_SECTION).items():
        if not _BIN.match(name):
            continue
        values = require_list(require_object(cell, name).get("values"), name)
        if len(values) != 2:
            raise Unreadable(f"mlxlink: {name} is no range with a number")
        bins[_parse_symbols(values[0], name)] = parse_whole(str(values[1]), name)
    if not bins or max(bins) < BINS_MIN:
        raise Unreadable(f"mlxlink: {port.part} has no histogram of corrected symbols")
    return bins


def _parse_symbols(cell: Any, name: str) -> int:
    """Return the largest number of symbols that a bin covers."""
    match = _RANGE.match(str(cell).strip())
    if match is None:
        raise Unreadable(f"mlxlink: {name} has no range")
    return int(match[2] or match[1])


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    histograms = _read_histograms(read_ports(evidence, context), context)
    return {
        f"fec_tail_codewords/{part}": sum(h for s, h in bins.items() if s >= TAIL_BIN)
        for part, bins in histograms.items()
    }


CHECK = Check(
    "fec_histogram",
    Gate.A,
    (MLXLINK,),
    _findings,
    after_load=True,
    measure=_measure,
    thresholds=("fec_symbols", "fec_symbols_in_a_load"),
)
