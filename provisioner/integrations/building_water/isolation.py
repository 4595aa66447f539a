"""Asks the building to isolate a rack, by DSX Exchange's points, and hears whether it did.

Pure. The building publishes a point's metadata, and names in it who may ask (`integration`); the
asker repeats a value each 100 s, the building decides, and only its own status point says that a
rack is isolated. Source: docs/sources/hardware.md#isolation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import Field

from provisioner.integrations.building_water.signals import (
    POINTS_MAX,
    TEXT_MAX,
    Building,
    load_body,
    read_numbers,
)
from provisioner.model.base import Record

REPEAT_S = 100.0
ASKED = {"RackLiquidIsolationRequest": "liquid", "RackElectricalIsolationRequest": "electrical"}
STATUS = {"RackLiquidIsolationStatus": "liquid", "RackElectricalIsolationStatus": "electrical"}
TOPICS = tuple(
    f"BMS/v1/PUB/{channel}/Rack/{point}/#"
    for channel, points in (("Metadata", (*ASKED, *STATUS)), ("Value", STATUS))
    for point in points
)
_YES = frozenset({"isolationrequested", "isolaterequest", "requested"})
_NO = frozenset({"noisolationrequested", "noisolaterequest", "notrequested"})


class Request(Record):
    """What a person wants of a rack: isolated, or no more. One that nobody named is left alone."""

    isolate: bool
    who: str = Field(min_length=1, max_length=200)
    why: str = Field(min_length=1, max_length=400)
    at: float


class RequestFile(Record):
    """Requests by rack. One that cannot be read asks for nothing, and takes nothing back."""

    racks: Mapping[str, Request] = Field(default={}, max_length=4096)


@dataclass
class _Point:
    """A point that we may write."""

    rack: str
    numbers: Mapping[bool, int]
    said: bool | None = None
    sent_at: float = 0.0


class Isolation:
    """The points of isolation, as messages tell them, for one integration's name."""

    def __init__(self, integration: str) -> None:
        self._integration = integration
        self._points: dict[tuple[str, str], _Point] = {}
        self._status = Building(tuple(STATUS))

    def take(self, topic: str, payload: bytes, now: float) -> bool:
        """Take one message; whether it is of isolation."""
        parts = topic.split("/", 6)
        if len(parts) != 7 or len(topic) > TEXT_MAX or parts[4] != "Rack":
            return False
        if parts[5] in STATUS:
            self._status.take(topic, payload, now)
        elif parts[5] in ASKED and parts[:4] == ["BMS", "v1", "PUB", "Metadata"]:
            self._describe((parts[5], parts[6]), load_body(payload))
        return parts[5] in STATUS or parts[5] in ASKED

    def forget(self) -> None:
        """The connection ended: what was sent may not have arrived, and nothing is heard."""
        self._status.forget_values()
        for point in self._points.values():
            point.said = None

    def list_due(self, wanted: Mapping[str, Request], now: float) -> Iterator[tuple[str, bytes]]:
        """Yield each message that has to leave now: what changed, and what 100 s ago was sent."""
        for (kind, tag), point in self._points.items():
            asked = wanted.get(point.rack)
            if asked is None:
                continue
            if point.said is asked.isolate and 0 <= now - point.sent_at < REPEAT_S:
                continue
            point.said = asked.isolate
            point.sent_at = now
            body = {
                "value": point.numbers[asked.isolate],
                "timestamp": int(now * 1000),
                "quality": 1,
            }
            yield f"BMS/v1/{self._integration}/Value/Rack/{kind}/{tag}", json.dumps(body).encode()

    def judge(self, wanted: Mapping[str, Request], now: float) -> dict[str, dict[str, str]]:
        """Return for each rack that somebody asked for: by kind, what was sent and what is so."""
        status = self._status.judge(now)
        told: dict[str, dict[str, str]] = {}
        for rack, asked in wanted.items():
            own = {ASKED[kind]: p for (kind, _), p in self._points.items() if p.rack == rack}
            says = status.get(rack, {})
            for name in ASKED.values():
                point = own.get(name)
                if point is None:
                    sent = f"not sent: no point names {self._integration} as its integration"
                else:
                    word = "isolation" if asked.isolate else "no isolation"
                    sent = f"{word} {'asked' if point.said is asked.isolate else 'not sent yet'}"
                told.setdefault(rack, {})[name] = f"{sent}; {_tell(name, says)}"
        return told

    def is_isolated(self, rack: str, now: float) -> bool:
        """Whether every status point of a rack, one of each kind at least, says so freshly."""
        says = self._status.judge(now).get(rack, {})
        found = {STATUS[name.partition("/")[0]] for name in says}
        return found == set(STATUS.values()) and all(told[0] == "dry" for told in says.values())

    def _describe(self, key: tuple[str, str], body: Mapping[str, object]) -> None:
        """Keep a point that we may write; one whose metadata says so no more is dropped."""
        rack = body.get("rackLocationId")
        numbers = read_numbers(body.get("stateText"), {True: _YES, False: _NO})
        ours = body.get("integration") == self._integration
        known = self._points.get(key)
        if not (ours and isinstance(rack, str) and 0 < len(rack) <= 63 and numbers):
            self._points.pop(key, None)
            return
        full = known is None and len(self._points) >= POINTS_MAX
        if not full and (known is None or (known.rack, known.numbers) != (rack, numbers)):
            self._points[key] = _Point(rack, numbers)


def _tell(name: str, says: Mapping[str, tuple[str, str]]) -> str:
    own = [told for point, told in says.items() if STATUS[point.partition("/")[0]] == name]
    if not own:
        return "the building has no point for its state"
    if all(verdict == "dry" for verdict, _ in own):
        return "isolated, says the building"
    return f"not known to be isolated ({next(d for v, d in own if v != 'dry')})"
