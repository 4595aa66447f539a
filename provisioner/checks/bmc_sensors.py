"""Every sensor of the server is within the limits that the BMC gives for it.

The check reads the BMC's `Sensors` (DSP0268, Sensor), or `Thermal` and `Power` on older services.
It applies the critical and fatal limits, and passes on a warning of the BMC as a warning. Sensors
of parts that are switched off give no reading; at least one sensor must give a temperature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import Resources, read_output, read_resources
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

BMC_SENSORS = Command(name="bmc_sensors", line="sensors of /redfish/v1", limit_s=900.0, bmc=True)

_CONDITIONS_MAX = 64  # of one sensor
_HEALTH = {"Critical": Severity.ISOLATE, "Warning": Severity.MONITOR}
_UPPER = ("UpperCritical", "UpperFatal")
_LOWER = ("LowerCritical", "LowerFatal")
# lists of the older resources: name -> keys of (reading, upper limit, lower limit)
_LISTS = {
    "Temperatures": ("ReadingCelsius", "UpperThresholdCritical", "LowerThresholdCritical"),
    "Fans": ("Reading", "UpperThresholdCritical", "LowerThresholdCritical"),
    "Voltages": ("ReadingVolts", "UpperThresholdCritical", "LowerThresholdCritical"),
    "PowerSupplies": ("", "", ""),
}
# energy counters only grow; a DGX gives limits for them nevertheless
_COUNTERS = ("Energy", "J", "kW.h")
_ABSENT = frozenset({"Absent", "Disabled", "StandbyOffline", "UnavailableOffline", "InTest"})


@dataclass(frozen=True)
class Sensor:
    """One sensor's reading with its limits; None where the BMC gives none."""

    name: str
    reading: float | None
    upper: float | None
    lower: float | None
    health: str
    temperature: bool


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    sensors = _read_sensors(read_resources(read_output(evidence, BMC_SENSORS)))
    if not any(s.temperature and s.reading is not None for s in sensors):
        raise Unreadable("no sensor gives a temperature")
    for sensor in sensors:
        value = sensor.reading
        # BMCs that must print a limit print 0 for "no limit"
        if value is not None and sensor.upper and value >= sensor.upper:
            detail = "above its critical limit"
            yield fault(sensor.name, Severity.ISOLATE, detail, value, f"below {sensor.upper:g}")
        elif value is not None and sensor.lower and value <= sensor.lower:
            detail = "below its critical limit"
            yield fault(sensor.name, Severity.ISOLATE, detail, value, f"above {sensor.lower:g}")
        elif sensor.health in _HEALTH:
            severity = _HEALTH[sensor.health]
            yield fault(sensor.name, severity, "the BMC reports bad health", sensor.health, "OK")


def _read_sensors(resources: Resources) -> list[Sensor]:
    sensors: list[Sensor] = []
    for path, body in sorted(resources.items()):
        if "/Sensors/" in path:
            sensors += _read_sensor(path, body)
        elif path.endswith(("/Thermal", "/Power")):
            for name, keys in _LISTS.items():
                listed = body.get(name)
                entries = listed if isinstance(listed, list) else []
                for entry in entries:
                    sensors += _read_listed_sensor(path, entry, keys, heat=name == "Temperatures")
    return sensors


def _read_sensor(path: str, body: Mapping[str, Any]) -> list[Sensor]:
    state, health = _read_status(body)
    if state in _ABSENT:
        return []
    limits = body.get("Thresholds")
    limits = limits if isinstance(limits, dict) else {}
    kind = str(body.get("ReadingType") or body.get("ReadingUnits"))
    if kind.startswith(_COUNTERS):
        limits = {}
    return [
        Sensor(
            name=_read_name(path, body),
            reading=_parse_figure(body.get("Reading")),
            upper=_read_limit(limits, _UPPER),
            lower=_read_limit(limits, _LOWER),
            health=health,
            temperature=kind in ("Temperature", "Cel"),
        )
    ]


def _read_listed_sensor(
    path: str, entry: Any, keys: tuple[str, str, str], *, heat: bool
) -> list[Sensor]:
    if not isinstance(entry, dict):
        raise Unreadable(f"Redfish: {path[-60:]} has a malformed entry")
    state, health = _read_status(entry)
    if state in _ABSENT:
        return []
    reading, upper, lower = (_parse_figure(entry.get(key)) if key else None for key in keys)
    return [Sensor(_read_name(path, entry), reading, upper, lower, health, heat)]


def _read_status(body: Mapping[str, Any]) -> tuple[str, str]:
    status = body.get("Status")
    status = status if isinstance(status, dict) else {}
    said = [status.get("Health")]
    listed = status.get("Conditions")
    for one in listed[:_CONDITIONS_MAX] if isinstance(listed, list) else ():
        if isinstance(one, dict):
            said += [one.get("Severity"), one.get("MessageSeverity")]
    words = {word.capitalize() for word in said if isinstance(word, str)}
    for worst in _HEALTH:
        if worst in words:
            return str(status.get("State", "")), worst
    return str(status.get("State", "")), str(status.get("Health", ""))


def _read_name(path: str, body: Mapping[str, Any]) -> str:
    name = body.get("Name") or body.get("MemberId")
    return str(name)[:80] if name else path.rpartition("/")[2][:80]


def _read_limit(limits: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        limit = limits.get(name)
        value = _parse_figure(limit.get("Reading")) if isinstance(limit, dict) else None
        if value is not None:
            return value
    return None


def _parse_figure(value: Any) -> float | None:
    """Return a finite number, or None; some BMCs print numbers as text, and "" or null for none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        figure = float(value)
    except (ValueError, OverflowError):
        return None
    return figure if isfinite(figure) else None


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    sensors = _read_sensors(read_resources(read_output(evidence, BMC_SENSORS)))
    return {
        f"bmc_temperature_c/{s.name}": s.reading
        for s in sensors
        if s.temperature and s.reading is not None
    }


CHECK = Check("bmc_sensors", Gate.A, (BMC_SENSORS,), _findings, measure=_measure)
