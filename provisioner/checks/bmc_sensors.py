"""E11: every sensor of the server is within the limits that the BMC itself gives for it.

The BMC's `Sensors` (DSP0268, Sensor), or `Thermal` and `Power` where it has only these. Limits are
the critical and fatal ones; a warning of the BMC is one here too. Sensors of what is switched off
give no reading; of those that give one, at least one must be a temperature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.bmc_reading import Resources, resources_of
from provisioner.checks.readers.reading import text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

BMC_SENSORS = Command(name="bmc_sensors", line="sensors of /redfish/v1", limit_s=900.0, bmc=True)

_HEALTH = {"Critical": Severity.ISOLATE, "Warning": Severity.MONITOR}
_UPPER = ("UpperCritical", "UpperFatal")
_LOWER = ("LowerCritical", "LowerFatal")
# lists of the older resources: name -> (reading, upper limit, lower limit)
_LISTS = {
    "Temperatures": ("ReadingCelsius", "UpperThresholdCritical", "LowerThresholdCritical"),
    "Fans": ("Reading", "UpperThresholdCritical", "LowerThresholdCritical"),
    "Voltages": ("ReadingVolts", "UpperThresholdCritical", "LowerThresholdCritical"),
    "PowerSupplies": ("", "", ""),
}
# they only grow; a DGX gives its energy counters limits all the same
_COUNTERS = ("Energy", "J", "kW.h")
_ABSENT = frozenset({"Absent", "Disabled", "StandbyOffline", "UnavailableOffline", "InTest"})


@dataclass(frozen=True)
class Sensor:
    """One reading with its limits, None where there is none."""

    name: str
    reading: float | None
    upper: float | None
    lower: float | None
    health: str
    temperature: bool


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    sensors = _sensors(resources_of(text_of(evidence, BMC_SENSORS)))
    if not any(s.temperature and s.reading is not None for s in sensors):
        raise Unreadable("no sensor gives a temperature")
    for sensor in sensors:
        value = sensor.reading
        # 0 stands for "no limit" on BMCs that must print one
        if value is not None and sensor.upper and value >= sensor.upper:
            words = "above its critical limit"
            yield fault(sensor.name, Severity.ISOLATE, words, value, f"below {sensor.upper:g}")
        elif value is not None and sensor.lower and value <= sensor.lower:
            words = "below its critical limit"
            yield fault(sensor.name, Severity.ISOLATE, words, value, f"above {sensor.lower:g}")
        elif sensor.health in _HEALTH:
            severity = _HEALTH[sensor.health]
            yield fault(sensor.name, severity, "the BMC says it is not well", sensor.health, "OK")


def _sensors(resources: Resources) -> list[Sensor]:
    found: list[Sensor] = []
    for path, body in sorted(resources.items()):
        if "/Sensors/" in path:
            found += _sensor(path, body)
        elif path.endswith(("/Thermal", "/Power")):
            for name, keys in _LISTS.items():
                listed = body.get(name)
                entries = listed if isinstance(listed, list) else []
                for entry in entries:
                    found += _older(path, entry, keys, heat=name == "Temperatures")
    return found


def _sensor(path: str, body: Mapping[str, Any]) -> list[Sensor]:
    state, health = _status(body)
    if state in _ABSENT:
        return []
    limits = body.get("Thresholds")
    limits = limits if isinstance(limits, dict) else {}
    kind = str(body.get("ReadingType") or body.get("ReadingUnits"))
    if kind.startswith(_COUNTERS):
        limits = {}
    return [
        Sensor(
            name=_name(path, body),
            reading=_figure(body.get("Reading")),
            upper=_limit(limits, _UPPER),
            lower=_limit(limits, _LOWER),
            health=health,
            temperature=kind in ("Temperature", "Cel"),
        )
    ]


def _older(path: str, entry: Any, keys: tuple[str, str, str], *, heat: bool) -> list[Sensor]:
    if not isinstance(entry, dict):
        raise Unreadable(f"Redfish: {path[-60:]} has an entry that is none")
    state, health = _status(entry)
    if state in _ABSENT:
        return []
    reading, upper, lower = (_figure(entry.get(key)) if key else None for key in keys)
    return [Sensor(_name(path, entry), reading, upper, lower, health, heat)]


def _status(body: Mapping[str, Any]) -> tuple[str, str]:
    status = body.get("Status")
    status = status if isinstance(status, dict) else {}
    return str(status.get("State", "")), str(status.get("Health", ""))


def _name(path: str, body: Mapping[str, Any]) -> str:
    told = body.get("Name") or body.get("MemberId")
    return str(told)[:80] if told else path.rpartition("/")[2][:80]


def _limit(limits: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        limit = limits.get(name)
        value = _figure(limit.get("Reading")) if isinstance(limit, dict) else None
        if value is not None:
            return value
    return None


def _figure(value: Any) -> float | None:
    """A finite number; some BMCs print numbers as text, and "" or null for none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        figure = float(value)
    except (ValueError, OverflowError):
        return None
    return figure if isfinite(figure) else None


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    sensors = _sensors(resources_of(text_of(evidence, BMC_SENSORS)))
    return {
        f"bmc_temperature_c/{s.name}": s.reading
        for s in sensors
        if s.temperature and s.reading is not None
    }


CHECK = Check("bmc_sensors", Gate.A, (BMC_SENSORS,), _findings, measure=_measure)
