"""Reads optics and queues of a SONiC port from its databases.

Sources: sonic-net/SONiC, doc/platform_api/CMIS_Diagnostic_Monitoring_Overview_in_SONiC.md and
xcvrd's tables TRANSCEIVER_INFO, _DOM_SENSOR, _DOM_THRESHOLD of STATE_DB (before 202305 the limits
are in _DOM_SENSOR) and _VDM_REAL_VALUE (CMIS modules: electrical SNR, errors before FEC); sonic-
net/sonic-swss, orchagent/pfcwdorch.cpp and pfcactionhandler.cpp (PFC_WD_STATUS and its counters of
a queue in COUNTERS_DB).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provisioner.integrations.sonic.switch_state import read_hash
from provisioner.model.link_reading import (
    LANES_MAX,
    OpticReading,
    classify,
    clean_words,
    make_limits,
    parse_lanes,
)

QUEUE_IDS = "sonic-db-cli COUNTERS_DB HGETALL COUNTERS_QUEUE_NAME_MAP"
TABLES = (
    "TRANSCEIVER_INFO",
    "TRANSCEIVER_DOM_SENSOR",
    "TRANSCEIVER_DOM_THRESHOLD",
    "TRANSCEIVER_VDM_REAL_VALUE",
)
QUEUES_MAX = 8  # of a port that the watchdog looks at (PFC_WD_TC_MAX)
_PORT = re.compile(r"Ethernet\d{1,4}")
_OID = re.compile(r"oid:0x[0-9a-f]{1,16}")
_LANE = re.compile(r"(?P<side>rx|tx)(?P<lane>\d{1,2})(?P<kind>power|bias)")
_SIGNAL = re.compile(r"(?P<kind>esnr|prefec_ber_avg)_(?P<side>media)_input(?P<lane>\d{1,2})")
_NAME = {
    ("rx", "power"): "rx_dbm",
    ("tx", "power"): "tx_dbm",
    ("tx", "bias"): "bias_ma",
    ("media", "esnr"): "snr_db",
    ("media", "prefec_ber_avg"): "pre_fec_ber",
}
_LIMITS = {
    "rx_dbm": "rxpower",
    "tx_dbm": "txpower",
    "bias_ma": "txbias",
    "temperature_c": "temp",
    "voltage_v": "vcc",
}
_BOUND = {
    "low_alarm": "lowalarm",
    "low_warning": "lowwarning",
    "high_warning": "highwarning",
    "high_alarm": "highalarm",
}


def build_optic_queries(interface: str) -> tuple[str, ...]:
    """Return the commands for the tables of a port; () for what is no port's name."""
    if not _PORT.fullmatch(interface):
        return ()
    return tuple(f"sonic-db-cli STATE_DB HGETALL '{table}|{interface}'" for table in TABLES)


def list_queue_ids(text: str, interface: str) -> list[str]:
    """Return the counters' names of a port's unicast queues 0 to 7, as far as there are some."""
    ids = read_hash(text) or {}
    named = [ids.get(f"{interface}:{number}", "") for number in range(QUEUES_MAX)]
    return [oid for oid in named if _OID.fullmatch(oid)]


def read_optic(info: str, sensor: str, threshold: str, signal: str = "") -> OpticReading | None:
    """Return the optic of a port; None where nothing is plugged in or it cannot be told."""
    facts = read_hash(info)
    if not facts:
        return None
    shown = read_hash(sensor) or {}
    bounds = {**shown, **(read_hash(threshold) or {})}
    named: dict[str, dict[int, str]] = {}
    for name, words in {**shown, **(read_hash(signal) or {})}.items():
        found = _LANE.fullmatch(name) or _SIGNAL.fullmatch(name)
        quantity = None if found is None else _NAME.get((found["side"], found["kind"]))
        if found is not None and quantity is not None and words not in ("N/A", ""):
            named.setdefault(quantity, {})[int(found["lane"])] = words
    lanes = {
        quantity: values
        for quantity, of_lane in named.items()
        if (values := parse_lanes(quantity, [of_lane[n] for n in sorted(of_lane)[: LANES_MAX + 1]]))
    }
    for quantity, name in (("temperature_c", "temperature"), ("voltage_v", "voltage")):
        if values := parse_lanes(quantity, [shown.get(name)]):
            lanes[quantity] = values
    limits = {
        quantity: found_limits
        for quantity, stem in _LIMITS.items()
        if (found_limits := make_limits(quantity, _bounds_of(bounds, stem))) is not None
    }
    return OpticReading(
        kind=classify(
            facts.get("cable_type"), facts.get("specification_compliance"), facts.get("type")
        ),
        serial=clean_words(facts.get("serial", facts.get("serialnum"))),
        part=clean_words(facts.get("model", facts.get("modelname"))),
        vendor=clean_words(facts.get("manufacturer", facts.get("manufacturename"))),
        lot=clean_words(facts.get("vendor_date", "")),
        lanes=lanes,
        limits=limits,
    )


def _bounds_of(bounds: Mapping[str, str], stem: str) -> dict[str, object]:
    return {own: bounds.get(f"{stem}{name}") for own, name in _BOUND.items()}


def read_queues(port: str, queues: list[str]) -> dict[str, int]:
    """Return the counters of `QUEUES` from a port's hash and those of its queues."""
    counters = read_hash(port) or {}
    counted = {
        "pause_received": _sum(counters, "SAI_PORT_STAT_PFC_{}_RX_PKTS"),
        "pause_sent": _sum(counters, "SAI_PORT_STAT_PFC_{}_TX_PKTS"),
        "ecn_marked": _count(counters.get("SAI_PORT_STAT_ECN_MARKED_PACKETS")),
        "discards": _count(counters.get("SAI_PORT_STAT_IF_OUT_DISCARDS")),
    }
    watched = [q for text in queues if "PFC_WD_STATUS" in (q := read_hash(text) or {})]
    if watched:
        storms = [_count(q.get("PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED")) for q in watched]
        known = [s for s in storms if s is not None]
        if len(known) == len(storms):
            counted["watchdog_storms"] = sum(known)
        states = [q["PFC_WD_STATUS"] for q in watched]
        if all(state in ("operational", "stormed") for state in states):
            counted["watchdog_stuck"] = states.count("stormed")
    return {name: value for name, value in counted.items() if value is not None}


def _sum(counters: Mapping[str, str], pattern: str) -> int | None:
    names = [pattern.format(priority) for priority in range(8)]
    values = [_count(counters[name]) for name in names if name in counters]
    known = [v for v in values if v is not None]
    return sum(known) if values and len(known) == len(values) else None


def _count(words: str | None) -> int | None:
    good = words is not None and words.isascii() and words.isdigit() and len(words) <= 20
    return int(words or 0) if good else None
