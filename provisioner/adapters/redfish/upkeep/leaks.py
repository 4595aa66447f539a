"""Leak detectors of liquid-cooled hosts, at each of the places where trees show them.

source: DMTF schemas ThermalSubsystem 1.3.0 and LeakDetection 1.1.0 (below the thermal subsystem);
the tests of SONiC's BMC, which has LeakDetectors at the chassis too; LambdaLabs/redfish_exporter's
tray of a GB200.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from provisioner.adapters.redfish.parsing import at, link, name_of, objects, path_of, text
from provisioner.adapters.redfish.service import Service, raise_silence
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Gap, Reason
from provisioner.planning.watch.leaks import read_moisture
from provisioner.ports import Unreachable

# A BMC's tree changes with its firmware only; a liquid-cooled host is found again within this time.
_PLACES_KNOWN_S = 3600.0
_RANK = {Moisture.DRY: 0, Moisture.UNREADABLE: 1, Moisture.WET: 2}
_STARTING = "HTTP status 503"


class LeakReader:
    """Reads the detectors behind one BMC; their places are looked for once an hour."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._places: tuple[str, ...] = ()
        self._known_until = 0.0

    async def read_detectors(self) -> tuple[LeakDetector, ...]:
        """Return every detector as it reads now. Raises `PortError` if the BMC is silent."""
        walk = self._service.walk()
        now = asyncio.get_running_loop().time()
        if now < self._known_until:
            return await read_places(walk, self._places)
        root = await walk.read_root()
        chassis = await walk.read_members(link(root, "Chassis"))
        if not chassis:
            raise_silence(walk.gaps)  # a list that makes no sense names no detector
        places = await find_places(walk, chassis)
        detectors = await read_places(walk, places)
        if not walk.gaps:
            self._places = places
            self._known_until = now + _PLACES_KNOWN_S
        return detectors


async def find_places(walk: Walk, chassis: Sequence[Resource]) -> tuple[str, ...]:
    """Return the paths of LeakDetectors collections, and of detectors that no collection has."""
    linked = [p for c in chassis if (p := link(c.data, "ThermalSubsystem")) is not None]
    subsystems = await walk.read_several(linked)
    paths = [p for s in subsystems if (p := link(s.data, "LeakDetection")) is not None]
    detections = await walk.read_several(paths)
    places = [p for r in (*chassis, *detections) if (p := link(r.data, "LeakDetectors"))]
    lost = {g.source for g in walk.gaps if g.reason is not Reason.NOT_OFFERED}
    for detection in detections:
        if detection.path in lost:
            places.append(detection.path)  # read again as a detector, it is an unreadable one
        if link(detection.data, "LeakDetectors") is None:
            groups = objects(detection.data.get("LeakDetectorGroups") or [])
            single = [d for g in groups for d in objects(g.get("Detectors") or [])]
            places += [p for d in single if (p := path_of(d.get("DataSourceUri"))) is not None]
    return tuple(dict.fromkeys(places))


async def read_places(walk: Walk, places: Sequence[str]) -> tuple[LeakDetector, ...]:
    """Return the detectors at these paths, each of which is a collection or a single detector."""
    detectors: dict[str, LeakDetector] = {}
    for place in places:
        gaps_before = len(walk.gaps)
        first = await walk.read(place)
        listed = [first]
        if "Members" in first.data:
            listed = await walk.read_members(place)
        gaps = walk.gaps[gaps_before:]
        _require_answer(gaps)
        if not first.data and all(g.reason is Reason.NOT_OFFERED for g in gaps):
            continue  # a link that leads nowhere, as services print for parts that they lack
        for resource in listed:
            detector = _read_detector(resource, gaps)
            if detector is None:
                continue
            other = detectors.get(detector.slot)
            if other is None or _RANK[detector.moisture] > _RANK[other.moisture]:
                detectors[detector.slot] = detector
    return tuple(detectors[slot] for slot in sorted(detectors))


def _read_detector(resource: Resource, gaps: Sequence[Gap]) -> LeakDetector | None:
    slot = f"{_chassis_of(resource.path)}/{name_of(resource.path)}"
    if not resource.data:
        detail = next((g.detail for g in gaps if g.source == resource.path), "no answer")
        return LeakDetector(
            slot=slot, moisture=Moisture.UNREADABLE, detail=detail, source=resource.path
        )
    state = text(resource.data.get("DetectorState"))
    health = text(at(resource.data, "Status", "Health"))
    enabled = text(at(resource.data, "Status", "State"))
    moisture = read_moisture(state, health, enabled)
    if moisture is None:
        return None
    detail = f"state {state or 'not reported'}, health {health or 'not reported'}"
    return LeakDetector(slot=slot, moisture=moisture, detail=detail[:120], source=resource.path)


def _chassis_of(path: str) -> str:
    parts = path.split("/")
    return parts[4] if len(parts) > 4 and parts[3] == "Chassis" else "host"


def _require_answer(gaps: Sequence[Gap]) -> None:
    """Raise if the BMC itself is away or starting: that says nothing about a detector."""
    for gap in gaps:
        silent = not gap.detail.startswith("HTTP status") or gap.detail.startswith(_STARTING)
        if gap.reason is Reason.UNREACHABLE and silent:
            raise Unreachable(f"{gap.source}: {gap.detail}", maybe_executed=False)
