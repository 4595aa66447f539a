"""Reads optics and queues of a Cumulus port from NVUE's answers.

Sources: NVIDIA, NVUE Command Reference: "nv show platform transceiver <interface>" (since 5.11),
"nv show interface <interface> counters qos" (since 5.5), "... qos pfc-watchdog" (since 5.6),
"... link phy health" (since 5.15; "... link phy-detail" from 5.10 on).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from provisioner.integrations.cumulus.nvue_calls import PREFIX
from provisioner.model.link_reading import (
    Limits,
    OpticReading,
    classify,
    clean_words,
    make_limits,
    parse_lanes,
)

_BREAKOUT = re.compile(r"(swp\d{1,3})s\d")
_COUNT_MAX = 2**63
CLASSES_MAX = 16
# NVUE's name of a quantity -> ours, and the key of its value
_OF_MODULE = {
    "temperature": ("temperature_c", "temperature"),
    "voltage": ("voltage_v", "voltage"),
}
_OF_CHANNEL = {
    "rx-power": ("rx_dbm", "power"),
    "tx-power": ("tx_dbm", "power"),
    "tx-bias-current": ("bias_ma", "current"),
    "snr": ("snr_db", "snr"),
}
SIGNAL_PAGES = ("phy/health", "phy-detail")
_LANES = re.compile(r"(raw-ber|snr-media)-lane\d{1,2}")
_LIMITS = {
    "low_alarm": "low-alarm-threshold",
    "low_warning": "low-warning-threshold",
    "high_warning": "high-warning-threshold",
    "high_alarm": "high-alarm-threshold",
}


def optic_path(interface: str) -> str:
    return f"{PREFIX}/platform/transceiver/{quote(interface, safe='')}?rev=operational"


def cage_of(interface: str) -> str:
    """Return the cage of a port of a breakout, "swp1" of "swp1s0"; "": it has its own."""
    found = _BREAKOUT.fullmatch(interface)
    return found[1] if found else ""


def queues_path(interface: str) -> str:
    return f"{PREFIX}/interface/{quote(interface, safe='')}/counters/qos?rev=operational"


def watchdog_path(interface: str) -> str:
    return f"{PREFIX}/interface/{quote(interface, safe='')}/qos/pfc-watchdog?rev=operational"


def signal_path(interface: str, page: str) -> str:
    return f"{PREFIX}/interface/{quote(interface, safe='')}/link/{page}?rev=operational"


def read_signal(answer: Any) -> dict[str, tuple[float, ...]]:
    """Return errors before FEC and SNR by lane, of one of `SIGNAL_PAGES`.

    Errors are those since the counters were cleared. A lane that is not in use has an SNR of zero.
    """
    told = answer if isinstance(answer, dict) else {}
    lanes: dict[str, list[object]] = {}
    for name, words in told.items():
        lane = _LANES.fullmatch(str(name)[:32])
        if lane is not None and not (lane[1] == "snr-media" and str(words)[:16] in ("0", "0 dB")):
            lanes.setdefault(lane[1], []).append(words)
    errors = parse_lanes("pre_fec_ber", lanes.get("raw-ber", [told.get("raw-ber")]))
    found = {"pre_fec_ber": errors, "snr_db": parse_lanes("snr_db", lanes.get("snr-media", []))}
    return {quantity: values for quantity, values in found.items() if values}


def read_optic(answer: Any, *, shared: bool = False, signal: Any = None) -> OpticReading | None:
    """Return the optic of a port; None where nothing is plugged in or it cannot be told."""
    if not isinstance(answer, dict) or not answer:
        return None
    state = str(answer.get("status", "")).lower()
    if state and ("unplugged" in state or state in ("removed", "non present")):
        return None
    lanes: dict[str, tuple[float, ...]] = {}
    limits: dict[str, Limits] = {}
    for name, (quantity, key) in _OF_MODULE.items():
        _take(quantity, [_get(answer, name)], key, lanes, limits)
    channels = _get(answer, "channel")
    listed = [_get(channels, name) for name in sorted(channels)[:CLASSES_MAX]]
    for name, (quantity, key) in _OF_CHANNEL.items():
        _take(quantity, [_get(channel, name) for channel in listed], key, lanes, limits)
    lanes = {**read_signal(signal), **lanes}
    kind = classify(answer.get("cable-type"), answer.get("identifier"))
    return OpticReading(
        kind=kind,
        serial=clean_words(answer.get("vendor-sn")),
        part=clean_words(answer.get("vendor-pn")),
        vendor=clean_words(answer.get("vendor-name")),
        lot=clean_words(answer.get("vendor-date-code", answer.get("vendor-data-code"))).strip("_"),
        lanes=lanes,
        limits=limits,
        shared=shared,
    )


def _take(
    quantity: str,
    places: list[Mapping[str, Any]],
    key: str,
    lanes: dict[str, tuple[float, ...]],
    limits: dict[str, Limits],
) -> None:
    if values := parse_lanes(quantity, [place.get(key) for place in places]):
        lanes[quantity] = values
    if places:
        # before 5.11 the words end in "-thresh"
        words = {o: places[0].get(n, places[0].get(n[:-3])) for o, n in _LIMITS.items()}
        found = make_limits(quantity, words)
        if found is not None:
            limits[quantity] = found


def read_queues(qos: Any, watchdog: Any) -> dict[str, int]:
    """Return the counters of `QUEUES` that the port reports, summed over its classes."""
    pfc = _get(qos, "pfc-stats")
    egress = _get(qos, "egress-queue-stats")
    port = _get(qos, "port-stats") or _get(qos, "qos-port-stats")
    counted = {
        "pause_received": _sum(pfc, "rx-pause-frames"),
        "pause_sent": _sum(pfc, "tx-pause-frames"),
        "ecn_marked": _sum(egress, "ecn-marked-frames"),
        "discards": _sum(egress, "wred-discards"),
    }
    marked = _get(port, "ecn-marked-packets").get("transmit")
    if counted["ecn_marked"] is None:
        counted["ecn_marked"] = _count(marked)
    status = _get(watchdog, "status")
    if _is_watched(watchdog) and status:
        states = [str(_get(status, name).get("status", "")).upper() for name in list(status)[:16]]
        counted["watchdog_storms"] = _sum(status, "deadlock-count")
        if all(state in ("OK", "DEADLOCK") for state in states):
            counted["watchdog_stuck"] = states.count("DEADLOCK")
    return {name: value for name, value in counted.items() if value is not None}


def _is_watched(watchdog: Any) -> bool:
    state = watchdog.get("state") if isinstance(watchdog, dict) else None
    return str(state).lower() in ("enabled", "enable", "on")


def _get(place: Any, name: str) -> Mapping[str, Any]:
    found = place.get(name) if isinstance(place, Mapping) else None
    return found if isinstance(found, dict) else {}


def _sum(classes: Mapping[str, Any], name: str) -> int | None:
    """Return the sum over classes; None if one of them cannot be read."""
    values = [_count(_get(classes, each).get(name)) for each in list(classes)[: CLASSES_MAX + 1]]
    known = [v for v in values if v is not None]
    return sum(known) if values and len(known) == len(values) <= CLASSES_MAX else None


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_MAX
    return value if good else None
