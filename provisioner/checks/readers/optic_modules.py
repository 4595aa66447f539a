"""Parses an optical module's readings, from `mlxlink` or from `ethtool -m -j`, into one form.

ethtool 6.11 and later print JSON (its sff-8636 and cmis pages). Its first versions use one key
twice, for the measurement and for the limits; later ones call the measurement "..._measurement".
ethtool gives light in milliwatts, mlxlink in dBm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log10
from typing import Any

from provisioner.checks.check import CheckContext, NotJudged, Unreadable, fault
from provisioner.checks.readers.mlxlink_ports import MLXLINK, NOT_THERE, PortFacts, read_ports
from provisioner.checks.readers.tool_output import (
    parse_documents,
    parse_number,
    read_output,
    require_list,
    require_object,
)
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.cohort import Evidence, Finding, Severity
from provisioner.model.link_reading import DARK_DBM

# ------------------------------------------------------------------------------
# Network interfaces as `ip -j link` lists them, and their speeds as `ethtool` prints them.
#
# They give part of what `rdma_links` asks for: whether an interface is up, its MTU and, with
# `ethtool`, its rate. What the listing does not give is never assumed to be good.


LINKS_MAX = 4096
_IP = re.compile(r'"ifname"\s*:')
_ETHTOOL = re.compile(r"^Settings for ([\w.-]{1,32}):\s*$", re.MULTILINE)
_SPEED = re.compile(r"^\s*Speed: (?:(\d{1,7})Mb/s|Unknown!.{0,40})\s*$")
_DETECTED = re.compile(r"^\s*Link detected: (yes|no)\b")
# interfaces without a cable, by the names that the kernel and container engines give
_VIRTUAL = re.compile(
    r"^(?:lo|docker|veth|virbr|br-|bond|vxlan|cali|flannel|cni|tun|tap|dummy|ifb)"
)
_MBIT = 1000


@dataclass(frozen=True)
class Interface:
    """One interface. `mbit_s` is None where the listing gives no rate."""

    name: str
    state: str
    mtu: int | None
    mbit_s: int | None = None


def looks_like_links(text: str) -> bool:
    """Return whether this is an output of `ip -j link` or of `ethtool`."""
    return bool(_ETHTOOL.search(text) or (text.lstrip()[:1] == "[" and _IP.search(text)))


def judge_links(text: str, context: CheckContext) -> Iterator[Finding]:
    """Yield findings on the listing. Raises `NotJudged` where it lacks what is asked."""
    links = _read_interfaces(text)
    rail = require_threshold(context, "rail_gbit_s")
    fit = 0
    problems: list[Finding] = []
    for link in links:
        if link.mbit_s is not None and 0 < link.mbit_s < rail * _MBIT:
            continue  # not a rail's interface; missing rails are counted below
        problem = _find_problem(link, context)
        problems += [problem] if problem is not None else []
        fit += problem is None
    if fit < max(context.rails, 1):
        # with enough good interfaces, those that are down do not belong to rails
        yield from problems
        required = f"{max(context.rails, 1)}"
        yield fault("host", Severity.ISOLATE, "interfaces fit for a rail", fit, required)
    elif not context.rails:
        yield from problems
    if any(link.mbit_s is None for link in links):
        raise NotJudged("this listing does not report the rate of every interface")
    if any(link.mtu is None for link in links):
        raise NotJudged("this listing does not report the MTU")


def _find_problem(link: Interface, context: CheckContext) -> Finding | None:
    if link.state.upper() != "UP":
        return fault(link.name, Severity.ISOLATE, "the interface is not up", link.state, "UP")
    if link.mtu is not None and (missed := check_threshold(context, "mtu", link.mtu)):
        return fault(link.name, Severity.CONFIG, "the interface's MTU", *missed)
    return None


def _read_interfaces(text: str) -> list[Interface]:
    interfaces: dict[str, Interface] = {}
    begins = [match.start() for match in _ETHTOOL.finditer(text)]
    for _, document in parse_documents(text[: begins[0] if begins else len(text)], "ip link"):
        for entry in require_list(document, "ip link"):
            facts = require_object(entry, "interface")
            name = facts.get("ifname")
            state = facts.get("operstate")
            mtu = facts.get("mtu")
            if facts == {}:
                continue  # ip prints an empty object for an entry that a filter removed
            if not isinstance(name, str) or not isinstance(state, str) or type(mtu) is not int:
                raise Unreadable("ip link: an interface without name, state or MTU")
            if name in interfaces or len(interfaces) >= LINKS_MAX:
                raise Unreadable("ip link: one interface is listed twice, or too many")
            if facts.get("link_type", "ether") == "ether" and not _is_virtual(name, facts):
                interfaces[name] = Interface(name[:32], state, mtu)
    listed = bool(interfaces)
    for at, begin in enumerate(begins):
        end = begins[at + 1] if at + 1 < len(begins) else len(text)
        interface = _parse_ethtool(text[begin:end])
        if interface.name in interfaces:
            interfaces[interface.name] = replace(
                interfaces[interface.name], mbit_s=interface.mbit_s
            )
        elif not listed:
            interfaces[interface.name] = interface
    if not interfaces:
        raise Unreadable("ip link: no Ethernet interface in it")
    return list(interfaces.values())


def _is_virtual(name: str, facts: object) -> bool:
    kind = require_object(facts, name).get("linkinfo", {})
    made = isinstance(kind, dict) and "info_kind" in kind
    return made or "link" in require_object(facts, name) or bool(_VIRTUAL.match(name))


def _parse_ethtool(text: str) -> Interface:
    head = _ETHTOOL.match(text)
    assert head is not None
    lines = text.splitlines()[1:]
    speeds = [match for line in lines if (match := _SPEED.match(line))]
    states = [match for line in lines if (match := _DETECTED.match(line))]
    if len(speeds) != 1 or len(states) != 1:
        raise Unreadable(f"ethtool: {head[1]} does not report its speed and link state")
    state = "UP" if states[0][1] == "yes" else "DOWN"
    return Interface(head[1], state, None, int(speeds[0][1] or 0))


LANES_MAX = 16
_SECTION = "Module Info"
_SNR = "SNR Media Lanes [dB]"
_COPPER = "copper"
_OPTIC_MODULES_ETHTOOL = re.compile(
    r'"(?:identifier_description|module_temperature\w*|laser_tx_bias_current)"'
)
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
_READY = "ModuleReady"
_RAISED = frozenset({"yes", "on", "true", "1"})
_LOWERED = frozenset({"no", "off", "false", "0", "none", "n/a"})
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
    snr_db: tuple[float, ...] = ()  # of the lanes that tell it; it has no limits

    def get_lanes(self, words: str) -> tuple[float, ...]:
        """Return a quantity of every lane, light in dBm; () where it is not reported."""
        found = next((r for r in self.readings if r.words == words), None)
        if found is None:
            return ()
        return tuple(map(_convert_to_dbm, found.lanes)) if found.unit == "mW" else found.lanes

    @property
    def temperature_c(self) -> float | None:
        """The module's temperature; None where it is not reported."""
        return next((r.lanes[0] for r in self.readings if r.words == "temperature"), None)


def read_modules(evidence: Mapping[str, Evidence], context: CheckContext) -> list[OpticModule]:
    """Return the module of every port. Raises `Unreadable` for a port without one."""
    text = read_output(evidence, MLXLINK, any_exit=True)
    if _OPTIC_MODULES_ETHTOOL.search(text):
        return _parse_ethtool_optic_modules(text, context)
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
    return OpticModule(port.part, copper, tuple(readings), tuple(missing), snr_db=_read_snr(port))


def _read_snr(port: PortFacts) -> tuple[float, ...]:
    """Return the signal to noise of what comes in by fibre; () where it cannot be read: it decides
    nothing. Mellanox/mstflint, mlxlink_commander.cpp: a list of lanes with two decimals, or N/A.
    """
    try:
        told = port.get_values(_SECTION, _SNR) or ()
        return tuple(parse_number(lane, _SNR) for lane in told if lane not in NOT_THERE)
    except Unreadable:
        return ()


def _parse_ethtool_optic_modules(text: str, context: CheckContext) -> list[OpticModule]:
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
    alarms = [name for name in facts if name.endswith("_alarm")]  # each limit's own flag
    faults = [name for name in (*_FAULTS, *alarms) if _is_raised(name, facts.get(name))]
    state = facts.get("module_state_description", _READY)  # CMIS: "ModuleFault", "ModuleLowPwr"
    faults += [] if state == _READY else [f"state {state}"[:60]]
    return OpticModule(part, _COPPER in technology, tuple(readings), tuple(missing), tuple(faults))


def _parse_lanes(value: Any, name: str) -> tuple[float, ...]:
    """Parse a number, a list of numbers, or an object that holds the list."""
    listed = value.get("values") if isinstance(value, dict) else value
    listed = listed if isinstance(listed, list) else [listed]
    if len(listed) > LANES_MAX:
        raise Unreadable(f"ethtool: {name} has more than {LANES_MAX} lanes")
    return tuple(parse_number(cell, name) for cell in listed)


def _is_raised(name: str, flag: Any) -> bool:
    """Return whether a flag, or that of one lane, is raised. Raises `Unreadable` for other words.

    They are "Yes" or true; "No", "None" or false; a list of them, or absent where the module has
    none.
    """
    listed = flag if isinstance(flag, list) else [flag]
    words = {str(cell).strip().lower() for cell in listed}
    if unknown := words - _RAISED - _LOWERED:
        raise Unreadable(f"ethtool: {name} is {min(unknown)[:40]!r}")
    return bool(words & _RAISED)


def _convert_to_dbm(milliwatts: float) -> float:
    return 10 * log10(milliwatts) if milliwatts > 0 else DARK_DBM
