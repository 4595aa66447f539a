"""What a building's management system says of water in racks, by DSX Exchange's topics.

Pure. A point means nothing before its metadata. Only a fresh value of good quality that the point's
own state text calls free of a leak is dry; silence, a null, bad quality, a clock that is off, an
unknown text and a fault of the sensor are unreadable. Source: dsx-ai-factory/dsx-exchange,
docs/sources/hardware.md#building (values are sent again each 100 s, QoS 0, not retained).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SILENCE_S = 300.0  # three repetitions
SKEW_S = 300.0  # between the building's clock and ours
POINTS_MAX = 65_536
PAYLOAD_MAX = 64 * 1024
TEXT_MAX = 512
STATES_MAX = 64  # of one point
LEAK = "RackLeakDetect"
FAULT = "RackLeakSensorFault"
TOPICS = tuple(
    f"BMS/v1/PUB/{channel}/Rack/{point}/#"
    for point in (LEAK, FAULT)
    for channel in ("Metadata", "Value")
)
_GOOD = {LEAK: frozenset({"noleak", "dry", "normal"}), FAULT: frozenset({"nofault", "normal"})}
_ISOLATED = frozenset({"isolated"})  # good, of any other kind: nothing else counts for isolation
_BAD = {LEAK: frozenset({"leak", "leakdetected", "wet"})}


@dataclass
class Point:
    """One point with metadata, and its last value. `states` maps its integers to a verdict."""

    rack: str
    kind: str
    states: Mapping[int, str]  # "dry" (isolated), "wet"; any other value is unreadable
    verdict: str = "unreadable"
    detail: str = "no value since it is known"
    heard_at: float = -math.inf
    stamped_s: float = -math.inf


class Building:
    """All points of racks of some kinds, as messages tell them."""

    def __init__(self, kinds: Sequence[str] = (LEAK, FAULT)) -> None:
        self._kinds = kinds
        self.points: dict[tuple[str, str], Point] = {}
        self.refused = 0  # messages that nobody can mean
        self.unkept = False  # there are more points than are kept: none is told to be dry
        self.left_wet: set[tuple[str, str]] = set()  # racks from which a wet point was moved away

    def take(self, topic: str, payload: bytes, now: float) -> None:
        """Take one message. What cannot be read makes its point unreadable, never dry."""
        parts = topic.split("/", 6)
        fits = len(parts) == 7 and parts[:3] == ["BMS", "v1", "PUB"] and parts[4] == "Rack"
        if not fits or parts[5] not in self._kinds or len(topic) > TEXT_MAX:
            self.refused += 1
            return
        key = (parts[5], parts[6])
        body = load_body(payload)
        if parts[3] == "Metadata":
            self._describe(key, body)
        elif parts[3] == "Value" and key in self.points:
            self._hear(self.points[key], body, now)

    def forget_values(self) -> None:
        """Take every value as unheard: the connection ended."""
        for point in self.points.values():
            point.heard_at = -math.inf

    def judge(self, now: float) -> dict[str, dict[str, tuple[str, str]]]:
        """Return each rack's points with "dry", "wet" or "unreadable", and why."""
        racks: dict[str, dict[str, tuple[str, str]]] = {}
        for (kind, tag), point in self.points.items():
            silent_s = now - point.heard_at
            told = (point.verdict, point.detail)
            if point.verdict != "wet" and self.unkept:
                told = ("unreadable", f"the building has more than {POINTS_MAX} points")
            elif point.verdict != "wet" and not 0 <= silent_s <= SILENCE_S:
                told = ("unreadable", "silent")
            racks.setdefault(point.rack, {})[f"{kind}/{tag}"] = told
        for rack, name in self.left_wet:
            told = ("wet", "it was wet, and is another rack's now")
            racks.setdefault(rack, {}).setdefault(name, told)
        for points in racks.values() if LEAK in self._kinds else ():
            if not any(name.startswith(f"{LEAK}/") for name in points):
                points[LEAK] = ("unreadable", "no point tells of leaks")
        return racks

    def _describe(self, key: tuple[str, str], body: Mapping[str, Any]) -> None:
        rack = body.get("rackLocationId")
        known = self.points.get(key)
        good = isinstance(rack, str) and 0 < len(rack) <= 63 and rack.isprintable()
        if good and known is None and len(self.points) >= POINTS_MAX:
            self.unkept = True
            return
        if not good:
            self.refused += 1
            if known is not None:
                known.verdict = _keep_wet(known)
                known.states = {}
                known.detail = "its metadata cannot be read"
            return
        states = _read_states(body.get("stateText"), key[0])
        if known is None:
            self.points[key] = Point(str(rack), key[0], states)
        elif (known.rack, known.states) != (rack, states):  # its value meant something else
            if known.verdict == "wet" and known.rack != rack:
                self.unkept = self.unkept or len(self.left_wet) >= POINTS_MAX
            if known.verdict == "wet" and known.rack != rack and not self.unkept:
                self.left_wet.add((known.rack, f"{key[0]}/{key[1]}"))
            kept = _keep_wet(known)
            self.points[key] = Point(str(rack), key[0], states, kept, "no value since its metadata")

    def _hear(self, point: Point, body: Mapping[str, Any], now: float) -> None:
        stamp = _number(body.get("timestamp"))
        stamped_s = stamp / 1000 if stamp is not None else math.nan
        value = _number(body.get("value"))
        point.heard_at = now
        if not abs(now - stamped_s) <= SKEW_S or stamped_s < point.stamped_s:
            point.verdict = _keep_wet(point)
            point.detail = "its clock is off, or went back"
            return
        point.stamped_s = stamped_s
        known = value is not None and value == int(value)
        verdict = point.states.get(int(value), "") if known and value is not None else ""
        if verdict == "wet":  # a leak counts at any quality
            point.verdict = verdict
            point.detail = f"value {value}"
        elif body.get("quality") != 1 or isinstance(body.get("quality"), bool):
            point.verdict = _keep_wet(point)
            point.detail = "its quality is not good"
        else:
            point.verdict = verdict if verdict == "dry" else _keep_wet(point)
            point.detail = f"value {value}"


def _keep_wet(point: Point) -> str:
    """A leak does not end by a message that says nothing."""
    return "wet" if point.verdict == "wet" else "unreadable"


def _read_states(listed: object, kind: str) -> Mapping[int, str]:
    """Return what each integer means; {} where any entry, or their number, cannot be meant."""
    states: dict[int, str] = {}
    for value, text in _read_texts(listed).items():
        if text in _GOOD.get(kind, _ISOLATED):
            states[value] = "dry"
        else:
            states[value] = "wet" if text in _BAD.get(kind, ()) else "unreadable"
    return states


def read_numbers(listed: object, words: Mapping[bool, frozenset[str]]) -> Mapping[bool, int]:
    """Return the number of each meaning; {} unless each has one of its words, and only one."""
    texts = _read_texts(listed)
    found = {
        meaning: [value for value, text in texts.items() if text in known]
        for meaning, known in words.items()
    }
    return {m: v[0] for m, v in found.items()} if all(len(v) == 1 for v in found.values()) else {}


def _read_texts(listed: object) -> Mapping[int, str]:
    """Return the text of each integer in plain letters; {} as `_read_states` does."""
    texts: dict[int, str] = {}
    if not isinstance(listed, list) or len(listed) > STATES_MAX:
        return {}
    for one in listed:
        value = _number(one.get("value")) if isinstance(one, Mapping) else None
        if value is None or value != int(value) or not isinstance(one.get("text"), str):
            return {}
        if int(value) in texts:
            return {}  # one number with two meanings has none
        texts[int(value)] = "".join(c for c in one["text"].lower() if c.isalnum())
    return texts


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e15 else None


def _pair(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice: nobody knows which is meant")
    return found


def load_body(payload: bytes) -> Mapping[str, Any]:
    if len(payload) > PAYLOAD_MAX:
        return {}
    try:
        body = json.loads(payload, object_pairs_hook=_pair)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, Mapping) else {}
