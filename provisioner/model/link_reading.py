"""What a leaf's port reports of its link: light and health of the optic, and its queues.

A value that is absent, "N/A" or not a number is unknown: it is left out, and proves nothing. Units:
dBm, mA, °C, V. -40 dBm and minus infinity stand for no light (SFF-8636, CMIS: zero milliwatts).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

DARK_DBM = -40.0  # stands for no light at all (SFF-8636: zero milliwatts)
LANES_MAX = 16
_NUMBER = re.compile(r"-?\d{1,7}(?:[.,]\d{1,9})?(?:[eE][-+]?\d{1,3})?")
# what a module can show at all (SFF-8636 and CMIS registers); anything else is damage
_BOUNDS = {
    "rx_dbm": (DARK_DBM, 15.0),
    "tx_dbm": (DARK_DBM, 15.0),
    "bias_ma": (0.0, 600.0),
    "temperature_c": (-40.0, 128.0),
    "voltage_v": (0.5, 6.6),
    "snr_db": (0.5, 60.0),
    "pre_fec_ber": (0.0, 1.0),
}
QUANTITIES = tuple(_BOUNDS)
QUEUES = (
    "pause_received",  # PFC frames that the host sent: it cannot take more
    "pause_sent",  # PFC frames that the leaf sent to the host: the fabric cannot take more
    "ecn_marked",
    "discards",  # frames for this host that the leaf dropped
    "watchdog_storms",  # that the PFC watchdog has counted
    "watchdog_stuck",  # queues that it holds as stuck now
)


@dataclass(frozen=True)
class Limits:
    """A module's own limits of one quantity; None: it gives none that can be one."""

    low_alarm: float | None = None
    low_warning: float | None = None
    high_warning: float | None = None
    high_alarm: float | None = None


@dataclass(frozen=True)
class OpticReading:
    """One optic at one end of a link, lane by lane. `lanes`: quantity -> value of each lane."""

    kind: str  # "optic" | "copper" | "unknown"
    serial: str = ""
    part: str = ""
    vendor: str = ""
    lot: str = ""  # the date code
    lanes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    limits: Mapping[str, Limits] = field(default_factory=dict)
    shared: bool = False  # with other ports of a breakout: a lane may be another port's

    def get_worst(self, quantity: str) -> float | None:
        """Return the lane that is worst off; None: unknown, or of another port of a breakout."""
        values = self.lanes.get(quantity, ())
        if self.shared and quantity in ("rx_dbm", "tx_dbm", "bias_ma"):
            values = tuple(v for v in values if v > DARK_DBM)
        if not values:
            return None
        worst_is_high = quantity in ("bias_ma", "temperature_c", "pre_fec_ber")
        return max(values) if worst_is_high else min(values)


@dataclass(frozen=True)
class LinkReading:
    """One port. `optic` None: nothing can be told of it; a queue that is absent is unknown."""

    optic: OpticReading | None = None
    queues: Mapping[str, int] = field(default_factory=dict)


def parse_value(quantity: str, words: object) -> float | None:
    """Return a number of one of `QUANTITIES`: "0.8625 mW / -0.64 dBm", "42.56 C", 3.29, "-inf"."""
    text = str(words).strip()[:64] if isinstance(words, str | int | float) else ""
    if isinstance(words, bool) or not text:
        return None
    if quantity.endswith("_dbm"):
        text = text.rpartition("/")[2].strip()
        if "inf" in text.lower():
            return DARK_DBM if text.startswith("-") else None
        if "mw" in text.lower():
            return None  # another unit than the one that is meant
    found = _NUMBER.match(text)
    if found is None:
        return None
    value = float(found[0].replace(",", "."))
    low, high = _BOUNDS[quantity]
    if quantity.endswith("_dbm") and value < low:
        value = DARK_DBM
    return value if isfinite(value) and low <= value <= high else None


def parse_lanes(quantity: str, words: Iterable[object]) -> tuple[float, ...]:
    """Return the lanes; () if one of them is unknown, as it may be the bad one."""
    values = [parse_value(quantity, each) for each in words]
    known = [v for v in values if v is not None]
    return tuple(known) if known and len(known) == len(values) <= LANES_MAX else ()


def make_limits(quantity: str, words: Mapping[str, object]) -> Limits | None:
    """Return limits that can be limits: low below high. A module without them gives zeros."""
    bounds = {name: parse_value(quantity, words.get(name)) for name in Limits.__dataclass_fields__}
    low = bounds["low_alarm"]
    high = bounds["high_alarm"]
    # a low limit of exactly 0 dBm was never set: it would accuse good light
    if low is None or high is None or low >= high or (low == 0 and quantity.endswith("_dbm")):
        return None
    if not low <= (bounds["low_warning"] or low) <= (bounds["high_warning"] or high) <= high:
        return Limits(low_alarm=low, high_alarm=high)
    return Limits(**bounds)


def clean_words(words: object, length: int = 32) -> str:
    """Return a name from a module's memory, printable; "" for a missing one."""
    text = "".join(c for c in str(words)[:128] if c.isprintable()).strip()
    unknown = not isinstance(words, str) or text.lower() in ("n/a", "none", "unknown", "")
    return "" if unknown else text[:length]


def classify(*words: object) -> str:
    """Return the kind of a cable by its description."""
    text = " ".join(str(w) for w in words if isinstance(w, str)).lower()
    if "copper" in text or "passive" in text or "base-cr" in text:
        return "copper"
    optical = ("optical", "active cable", "aoc", "base-sr", "base-dr", "base-fr", "base-lr")
    return "optic" if any(word in text for word in optical) else "unknown"
