"""Parses an optical module's readings, from `mlxlink` or from `ethtool -m -j`, into one form.

ethtool 6.11 and later print JSON (its sff-8636 and cmis pages). Its first versions use one key
twice, for the measurement and for the limits; later ones call the measurement "..._measurement".
ethtool gives light in milliwatts, mlxlink in dBm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.readers.mlxlink_ports import MLXLINK, PortFacts, read_ports
from provisioner.checks.readers.tool_output import (
    parse_documents,
    parse_number,
    read_output,
    require_object,
)
from provisioner.model.health import Evidence

LANES_MAX = 16
DARK_DBM = -40.0  # stands for no light at all (SFF-8636: zero milliwatts)
_SECTION = "Module Info"
_COPPER = "copper"
_ETHTOOL = re.compile(r'"(?:identifier_description|module_temperature\w*|laser_tx_bias_current)"')
_DEVICE = re.compile(r"^(?:device |Module info for )?([\w.-]{1,32}):?$")
_MLXLINK = (
    ("Temperature [C]", "temperature", "C"),
    ("Voltage [mV]", "voltage", "mV"),
    ("Bias Current [mA]", "bias current", "mA"),
    ("Rx Power Current [dBm]", "light received", "dBm"),
    ("Tx Power Current [dBm]", "light sent", "dBm"),
)
# keys of the measurement (by driver and version), key of the limits, quantity, unit
_JSON = (
    (("module_temperature_measurement",), "module_temperature", "temperature", "C"),
    (("module_voltage_measurement",), "module_voltage", "voltage", "V"),
    (("laser_tx_bias_current",), "laser_bias_current", "bias current", "mA"),
    (("rx_power", "rcvr_signal_avg_optical_power"), "laser_rx_power", "light received", "mW"),
    (("transmit_avg_optical_power",), "laser_output_power", "light sent", "mW"),
)
_FAULTS = ("rx_loss_of_signal", "rx_loss_of_lock", "tx_fault", "tx_loss_of_signal")
_TWICE = ("module_temperature", "module_voltage")
_USED = {*_FAULTS, *(name for names, limits, _, _ in _JSON for name in (*names, limits))}


@dataclass(frozen=True)
class OpticReading:
    """One quantity of all lanes, with the module's own limits."""

    words: str
    unit: str
    lanes: tuple[float, ...]
    low: float
    high: float


@dataclass(frozen=True)
class OpticModule:
    """One module. `missing` lists the quantities without a reading or without limits."""

    part: str
    copper: bool
    readings: tuple[OpticReading, ...]
    missing: tuple[str, ...]
    faults: tuple[str, ...] = ()  # flags that the module has raised

    @property
    def received_dbm(self) -> tuple[float, ...]:
        """The light that every lane receives; () where it is not reported."""
        light = next((r for r in self.readings if r.words == "light received"), None)
        if light is None:
            return ()
        return light.lanes if light.unit == "dBm" else tuple(map(_convert_to_dbm, light.lanes))

    @property
    def temperature_c(self) -> float | None:
        """The module's temperature; None where it is not reported."""
        return next((r.lanes[0] for r in self.readings if r.words == "temperature"), None)


def read_modules(evidence: Mapping[str, Evidence], context: CheckContext) -> list[OpticModule]:
    """Return the module of every port. Raises `Unreadable` for a port without one."""
    text = read_output(evidence, MLXLINK, any_exit=True)
    if _ETHTOOL.search(text):
        return _parse_ethtool(text, context)
    listed = read_ports(evidence, context)
    for port in listed:
        if port.failure:
            raise Unreadable(f"mlxlink: {port.part}: {port.failure}")
    return [_parse_mlxlink(port) for port in listed]


def _parse_mlxlink(port: PortFacts) -> OpticModule:
    kind = port.get_text(_SECTION, "Cable Type")
    readings = []
    missing = []
    for key, quantity, unit in _MLXLINK:
        values = port.get_range(_SECTION, key)
        if values is None or not values[0]:
            missing.append(key)
        else:
            readings.append(OpticReading(quantity, unit, tuple(values[0]), values[1], values[2]))
    # some firmware does not identify an optical module, but a cable without readings must do so
    if kind is None and missing:
        raise Unreadable(f"mlxlink: {port.part} does not report its cable type")
    copper = kind is not None and _COPPER in kind.lower()
    return OpticModule(port.part, copper, tuple(readings), tuple(missing))


def _parse_ethtool(text: str, context: CheckContext) -> list[OpticModule]:
    modules = []
    for at, (above, document) in enumerate(parse_documents(text, "ethtool", pairs=_merge_pairs)):
        match = _DEVICE.match(above)
        listed = document if isinstance(document, list) else [document]
        if len(listed) != 1:
            raise Unreadable("ethtool: not one module in a document")
        modules.append(
            _build_module(f"port {match[1] if match else at}", require_object(listed[0], "module"))
        )
    if len(modules) < max(context.rails, 1) or len({m.part for m in modules}) != len(modules):
        raise Unreadable(f"ethtool: {len(modules)} modules, {context.rails} are of rails")
    return modules


def _merge_pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object whose key may occur twice: as a number, and as an object of its limits."""
    merged: dict[str, Any] = {}
    for key, value in pairs:
        if key in _TWICE and isinstance(value, int | float):
            key = f"{key}_measurement"
        if key in merged and key in _USED:
            raise ValueError(f"{key[:40]} is there twice")
        merged[key] = value
    return merged


def _build_module(part: str, facts: Mapping[str, Any]) -> OpticModule:
    if "identifier" not in facts and "identifier_description" not in facts:
        raise Unreadable(f"ethtool: {part} does not report its module type")
    technology = str(facts.get("transmitter_technology_description", "")).lower()
    readings = []
    missing = []
    for names, limits, quantity, unit in _JSON:
        lanes = next((_parse_lanes(facts[name], name) for name in names if name in facts), ())
        bounds = require_object(facts.get(limits, {}), limits)
        low = bounds.get("low_alarm_threshold")
        high = bounds.get("high_alarm_threshold")
        if not lanes or low is None or high is None:
            missing.append(quantity)
            continue
        readings.append(
            OpticReading(
                quantity, unit, lanes, parse_number(low, limits), parse_number(high, limits)
            )
        )
    faults = tuple(name for name in _FAULTS if _is_raised(facts.get(name)))
    return OpticModule(part, _COPPER in technology, tuple(readings), tuple(missing), faults)


def _parse_lanes(value: Any, name: str) -> tuple[float, ...]:
    """Parse a number, a list of numbers, or an object that holds the list."""
    listed = value.get("values") if isinstance(value, dict) else value
    listed = listed if isinstance(listed, list) else [listed]
    if len(listed) > LANES_MAX:
        raise Unreadable(f"ethtool: {name} has more than {LANES_MAX} lanes")
    return tuple(parse_number(cell, name) for cell in listed)


def _is_raised(flag: Any) -> bool:
    """Return True for "Yes", true, or a list with one of them; False for "None", "No" and false."""
    listed = flag if isinstance(flag, list) else [flag]
    return any(cell is True or cell in ("Yes", "On") for cell in listed)


def _convert_to_dbm(milliwatts: float) -> float:
    return 10 * log10(milliwatts) if milliwatts > 0 else DARK_DBM
