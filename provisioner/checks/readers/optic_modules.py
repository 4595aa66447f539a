"""Reads what an optical module says of itself, from `mlxlink` or from `ethtool -m -j`: one form.

ethtool 6.11 and later print JSON (its sff-8636 and cmis pages). Its first versions give one key
twice, once for the measurement and once for the limits; later ones call the measurement
"..._measurement". Light is in milliwatts there and in dBm at mlxlink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.readers.mlxlink_reading import MLXLINK, PortFacts, ports
from provisioner.checks.readers.reading import documents_of, mapping, number, text_of
from provisioner.model.health import Evidence

LANES_MAX = 16
DARK_DBM = -40.0  # how no light at all is written (SFF-8636: zero milliwatts)
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
# measurement (names of drivers and versions), limits, words, unit
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
class Reading:
    """One quantity of all lanes, with the module's own limits."""

    words: str
    unit: str
    lanes: tuple[float, ...]
    low: float
    high: float


@dataclass(frozen=True)
class Module:
    """One module. `missing`: quantities that it gives no reading or no limits of."""

    part: str
    copper: bool
    readings: tuple[Reading, ...]
    missing: tuple[str, ...]
    faults: tuple[str, ...] = ()  # flags that it has raised

    @property
    def received_dbm(self) -> tuple[float, ...]:
        """Light received by every lane."""
        found = next((r for r in self.readings if r.words == "light received"), None)
        if found is None:
            return ()
        return found.lanes if found.unit == "dBm" else tuple(map(_dbm, found.lanes))

    @property
    def temperature_c(self) -> float | None:
        """None: it gives none."""
        return next((r.lanes[0] for r in self.readings if r.words == "temperature"), None)


def modules(evidence: Mapping[str, Evidence], context: CheckContext) -> list[Module]:
    """The module of every port. Raises `Unreadable` for a port that tells none."""
    text = text_of(evidence, MLXLINK, any_exit=True)
    if _ETHTOOL.search(text):
        return _of_ethtool(text, context)
    listed = ports(evidence, context)
    for port in listed:
        if port.failure:
            raise Unreadable(f"mlxlink: {port.part}: {port.failure}")
    return [_of_mlxlink(port) for port in listed]


def _of_mlxlink(port: PortFacts) -> Module:
    kind = port.word(_SECTION, "Cable Type")
    readings, missing = [], []
    for key, words, unit in _MLXLINK:
        found = port.bracket(_SECTION, key)
        if found is None or not found[0]:
            missing.append(key)
        else:
            readings.append(Reading(words, unit, tuple(found[0]), found[1], found[2]))
    # some firmware does not say what an optical module is, but a cable without readings must
    if kind is None and missing:
        raise Unreadable(f"mlxlink: {port.part} does not say what its cable is")
    copper = kind is not None and _COPPER in kind.lower()
    return Module(port.part, copper, tuple(readings), tuple(missing))


def _of_ethtool(text: str, context: CheckContext) -> list[Module]:
    found = []
    for at, (above, document) in enumerate(documents_of(text, "ethtool", pairs=_pairs)):
        match = _DEVICE.match(above)
        listed = document if isinstance(document, list) else [document]
        if len(listed) != 1:
            raise Unreadable("ethtool: not one module in a document")
        found.append(_module(f"port {match[1] if match else at}", mapping(listed[0], "module")))
    if len(found) < max(context.rails, 1) or len({m.part for m in found}) != len(found):
        raise Unreadable(f"ethtool: {len(found)} modules, {context.rails} are of rails")
    return found


def _pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose key may be there twice: a number, and an object of its limits."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in _TWICE and isinstance(value, int | float):
            key = f"{key}_measurement"
        if key in found and key in _USED:
            raise ValueError(f"{key[:40]} is there twice")
        found[key] = value
    return found


def _module(part: str, facts: Mapping[str, Any]) -> Module:
    if "identifier" not in facts and "identifier_description" not in facts:
        raise Unreadable(f"ethtool: {part} does not say what its module is")
    technology = str(facts.get("transmitter_technology_description", "")).lower()
    readings, missing = [], []
    for names, limits, words, unit in _JSON:
        lanes = next((_lanes(facts[name], name) for name in names if name in facts), ())
        bounds = mapping(facts.get(limits, {}), limits)
        low, high = bounds.get("low_alarm_threshold"), bounds.get("high_alarm_threshold")
        if not lanes or low is None or high is None:
            missing.append(words)
            continue
        readings.append(Reading(words, unit, lanes, number(low, limits), number(high, limits)))
    faults = tuple(name for name in _FAULTS if _raised(facts.get(name)))
    return Module(part, _COPPER in technology, tuple(readings), tuple(missing), faults)


def _lanes(value: Any, name: str) -> tuple[float, ...]:
    """A number, a list of them, or an object that has the list."""
    listed = value.get("values") if isinstance(value, dict) else value
    listed = listed if isinstance(listed, list) else [listed]
    if len(listed) > LANES_MAX:
        raise Unreadable(f"ethtool: {name} has more than {LANES_MAX} lanes")
    return tuple(number(cell, name) for cell in listed)


def _raised(flag: Any) -> bool:
    """ "Yes", true, or a list with one of them; "None", "No" and false are not."""
    listed = flag if isinstance(flag, list) else [flag]
    return any(cell is True or cell in ("Yes", "On") for cell in listed)


def _dbm(milliwatts: float) -> float:
    return 10 * log10(milliwatts) if milliwatts > 0 else DARK_DBM
