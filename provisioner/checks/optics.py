"""Every optical module is within its own limits of temperature, voltage, current and light.

The module itself gives the limits: in brackets behind each reading of `mlxlink`, as alarm
thresholds in `ethtool -m -j`. Received light is measured for every lane: an outlier in its cohort
indicates a dirty connector long before the module's limit. A copper cable needs no readings; those
that it has are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.readers.mlxlink_ports import MLXLINK
from provisioner.checks.readers.optic_modules import OpticModule, read_modules
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

# what is measured of each lane: both ends' light and bias tell which end ages
_BY_LANE = {
    "rx_power_dbm": "light received",
    "tx_power_dbm": "light sent",
    "optic_bias_ma": "bias current",
}


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for module in read_modules(evidence, context):
        if module.missing and not module.copper:
            raise Unreadable(f"{module.part} does not give {module.missing[0]} and its limits")
        yield from _judge_module(module)


def _judge_module(module: OpticModule) -> Iterator[Finding]:
    for name in module.faults:
        yield fault(module.part, Severity.ISOLATE, f"the module: {name}", "raised", "not raised")
    for reading in module.readings:
        many = len(reading.lanes) > 1
        for lane, value in enumerate(reading.lanes):
            if not reading.low <= value <= reading.high:
                part = f"{module.part} lane {lane}" if many else module.part
                measured = f"{value:g} {reading.unit}"
                limits = f"{reading.low:g} to {reading.high:g} {reading.unit}"
                yield fault(
                    part, Severity.ISOLATE, f"the optic's {reading.words}", measured, limits
                )


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    measured: dict[str, float] = {}
    for module in read_modules(evidence, context):
        for name, words in _BY_LANE.items():
            for lane, value in enumerate(module.get_lanes(words)):
                measured[f"{name}/{module.part} lane {lane}"] = value
        for lane, value in enumerate(module.snr_db):
            measured[f"optic_snr_db/{module.part} lane {lane}"] = value
        if (heat := module.temperature_c) is not None:
            measured[f"optic_temperature_c/{module.part}"] = heat
    return measured


CHECK = Check("optics", Gate.A, (MLXLINK,), _findings, after_load=True, measure=_measure)
