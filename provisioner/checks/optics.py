"""N5: every optical module is within its own limits of temperature, voltage, current and light.

The limits are those that the module itself gives, in brackets behind each reading. Light received
is measured for every lane: an outlier in its cohort tells of a dirty connector long before the
module's limit. A copper cable has no readings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.mlxlink_reading import MLXLINK, PortFacts, ports
from provisioner.model.health import Evidence, Finding, Gate, Severity

_SECTION = "Module Info"
_READINGS = (
    ("Temperature [C]", "temperature", "C"),
    ("Voltage [mV]", "voltage", "mV"),
    ("Bias Current [mA]", "bias current", "mA"),
    ("Rx Power Current [dBm]", "light received", "dBm"),
    ("Tx Power Current [dBm]", "light sent", "dBm"),
)
_COPPER = "copper"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    for port in ports(evidence, context):
        if port.failure:
            raise Unreadable(f"mlxlink: {port.part}: {port.failure}")
        if _is_copper(port):
            continue
        for key, words, unit in _READINGS:
            reading = port.bracket(_SECTION, key)
            if reading is None or not reading[0]:
                raise Unreadable(f"mlxlink: {port.part} does not give {key} and its limits")
            lanes, low, high = reading
            for lane, value in enumerate(lanes):
                if not low <= value <= high:
                    part = f"{port.part} lane {lane}" if len(lanes) > 1 else port.part
                    measured, wanted = f"{value:g} {unit}", f"{low:g} to {high:g} {unit}"
                    yield fault(part, Severity.ISOLATE, f"the optic's {words}", measured, wanted)


def _is_copper(port: PortFacts) -> bool:
    kind = port.word(_SECTION, "Cable Type")
    if kind is None:
        raise Unreadable(f"mlxlink: {port.part} does not say what its cable is")
    return _COPPER in kind.lower()


def _measure(evidence: Mapping[str, Evidence], context: CheckContext) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for port in ports(evidence, context):
        if port.failure:
            continue
        light = port.bracket(_SECTION, "Rx Power Current [dBm]")
        for lane, value in enumerate(light[0] if light else ()):
            found[f"rx_power_dbm/{port.part} lane {lane}"] = value
        heat = port.bracket(_SECTION, "Temperature [C]")
        if heat and heat[0]:
            found[f"optic_temperature_c/{port.part}"] = heat[0][0]
    return found


CHECK = Check("optics", Gate.A, (MLXLINK,), _findings, after_load=True, measure=_measure)
