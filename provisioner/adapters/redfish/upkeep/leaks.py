"""Leak detectors of liquid-cooled hosts, at each of the places where trees show them.

source: DMTF schemas ThermalSubsystem 1.3.0 and LeakDetection 1.1.0 (below the thermal subsystem);
the tests of SONiC's BMC, which has LeakDetectors at the chassis too; LambdaLabs/redfish_exporter's
tray of a GB200.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.adapters.redfish.parsing import (
    Json,
    as_object,
    at,
    link,
    name_of,
    number,
    objects,
    path_of,
    text,
    truth,
)
from provisioner.adapters.redfish.parts import read_health
from provisioner.adapters.redfish.service import Service, raise_unread
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.inventory import LeakDetector, Moisture
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.planning.watch.leaks import carry_detectors, read_moisture
from provisioner.ports import Unreachable
from provisioner.ports.agents import ConsoleDoor

# ------------------------------------------------------------------------------
# Reads the counters of NVLinks: those that a GPU's ports have, or those of an NVSwitch's.
#
# HGX baseboards show them as `PortMetrics` below each port of a processor, and of a switch of the
# NVLink fabric (DMTF DSP0268; paths as in a DGX H100's recorded tree). Only one part is read at
# once, since a port is a request. The device's own counts are passed on: none is reset.


PORTS_MAX = 64  # of one part; an NVSwitch of this generation has 64
COUNTERS_MAX = 64  # of one port
DEPTH_MAX = 4
COUNT_MAX = 2**64
OWN = "@"  # begins names that describe the document


@dataclass(frozen=True)
class LinkCounter:
    port: str  # path of the port's metrics
    name: str  # as the device names it, with the objects around it
    count: int


@dataclass(frozen=True)
class LinkReading:
    """The counters of all ports of one part, and the resources that were not read."""

    part: str
    counters: tuple[LinkCounter, ...]
    gaps: tuple[Gap, ...]


async def read_link_counters(service: Service, part: str) -> LinkReading:
    """Return the counters of a GPU or a switch by its id; "": of the first that has ports."""
    walk = service.walk()
    counters: list[LinkCounter] = []
    name, ports = await _find_ports(walk, part)
    paths = [link(port, "Metrics") for port in ports[:PORTS_MAX]]
    for metrics in await walk.read_several([path for path in paths if path is not None]):
        counters += [
            LinkCounter(metrics.path, name, count)
            for name, count in list_counts(metrics.data).items()
        ]
    return LinkReading(name, tuple(counters), tuple(walk.gaps))


async def _find_ports(walk: Walk, part: str) -> tuple[str, list[Json]]:
    """Return id and ports of the first processor or fabric switch that has this id, or any."""
    root = await walk.read_root()
    for holder, members in (("Systems", "Processors"), ("Fabrics", "Switches")):
        for path in await walk.read_links(link(root, holder)):
            parts = await walk.read_links(link((await walk.read(path)).data, members))
            for one in parts:
                name = one.rsplit("/", 1)[-1]
                if part and name != part:
                    continue
                ports = await walk.read_linked((await walk.read(one)).data, "Ports")
                if part or ports:
                    return name, [port.data for port in ports]
    return part, []


def list_counts(document: object, prefix: str = "", depth: int = 0) -> dict[str, int]:
    """Return the counts of a document by name, "NVLinkErrors.ReplayCount"; the makers' objects
    around them (`Oem`) are left out of the names.
    """
    counts: dict[str, int] = {}
    for key, value in as_object(document).items():
        if key.startswith(OWN) or len(counts) >= COUNTERS_MAX:
            continue
        if isinstance(value, dict) and depth < DEPTH_MAX:
            outer = depth < 2 and (key == "Oem" or prefix == "Oem.")
            inner = "Oem." if key == "Oem" else "" if outer else f"{prefix}{key}."
            counts |= list_counts(value, inner, depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_MAX:
            counts[f"{prefix}{key}"] = value
    return dict(list(counts.items())[:COUNTERS_MAX])


# ------------------------------------------------------------------------------
# The door to a host's serial console, as its BMC's tree shows it.
#
# source: DMTF schema ComputerSystem 1.13 (SerialConsole.SSH with Port and ConsoleEntryCommand);
# trees of a DGX H100 (Managers/HGX_BMC_0 and BMC: SerialConsole.ConnectTypesSupported), a
# BlueField-3 and a PowerEdge R750; OpenBMC's obmc-console, which listens at SSH port 2200. IPMI's
# port is that of RMCP (IPMI 2.0, 13.1.2).


OPENBMC_PORT = 2200
IPMI_PORT = 623
_SHELL_PORT = 22


async def find_console(service: Service, *, ipmi: bool = False) -> ConsoleDoor | Blocker:
    """Return how the console is reached: by SSH, else over IPMI if that is allowed; or why not."""
    system = await service.read_system()
    console = as_object(system.data.get("SerialConsole")) if system is not None else {}
    ssh = as_object(console.get("SSH"))
    if truth(ssh.get("ServiceEnabled")):
        return ConsoleDoor(port=_port(ssh), command=text(ssh.get("ConsoleEntryCommand")) or "")
    manager = await service.read_manager()
    older = as_object(manager.data.get("SerialConsole")) if manager is not None else {}
    if truth(older.get("ServiceEnabled")) and "SSH" in _types(older):
        return ConsoleDoor(port=OPENBMC_PORT)
    by_ipmi = as_object(console.get("IPMI"))
    offered = truth(by_ipmi.get("ServiceEnabled"))
    if not offered and not (truth(older.get("ServiceEnabled")) and "IPMI" in _types(older)):
        return _refuse("not at all", "Enable SerialConsole over SSH in the BMC.")
    if ipmi:
        port = _read_port(by_ipmi) if offered else None
        return ConsoleDoor(port=port or IPMI_PORT, protocol="ipmi")
    remedy = "Enable it over SSH, or set `consoles: ssh_or_ipmi` and leave IPMI unpinned or on."
    return _refuse("over IPMI only", remedy)


def _refuse(how: str, remedy: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject="console",
        detail=f"this BMC offers its serial console {how}",
        unblock=remedy,
    )


def _port(ssh: Json) -> int:
    """Return the port; a command is entered at the shell, whose port it is where none is shown."""
    by_default = _SHELL_PORT if text(ssh.get("ConsoleEntryCommand")) else OPENBMC_PORT
    return _read_port(ssh) or by_default


def _read_port(door: Json) -> int | None:
    shown = number(door.get("Port"))
    return int(shown) if shown is not None and 0 < shown < 65536 else None


def _types(console: Json) -> list[str]:
    listed = console.get("ConnectTypesSupported")
    return [t for t in listed if isinstance(t, str)] if isinstance(listed, list) else []


# A BMC's tree changes with its firmware only; a liquid-cooled host is found again within this time.
_PLACES_KNOWN_S = 3600.0
_CHASSIS = "/redfish/v1/Chassis"
# chassis within another: only what they link to is read (DSP0268, Chassis: ChassisType)
_PARTS = frozenset({"Component", "Module", "Card", "Cartridge", "Zone"})
_RANK = {Moisture.DRY: 0, Moisture.UNREADABLE: 1, Moisture.WET: 2}
_STARTING = "HTTP status 503"


class LeakReader:
    """Reads the detectors behind one BMC; their places are looked for once an hour."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._places: tuple[str, ...] = ()
        self._known_until = 0.0
        self._seen: tuple[LeakDetector, ...] = ()

    async def read_detectors(self) -> tuple[LeakDetector, ...]:
        """Return every detector as it reads now, and each that was ever read and is not shown.

        Raises `PortError` if the BMC is silent.
        """
        self._seen = carry_detectors(self._seen, await self._read())
        return self._seen

    async def _read(self) -> tuple[LeakDetector, ...]:
        walk = self._service.walk()
        now = asyncio.get_running_loop().time()
        if now < self._known_until:
            detectors = await read_places(walk, self._places)
            if walk.gaps:
                self._known_until = 0.0  # another firmware may have them elsewhere
            return detectors
        root = await walk.read_root()
        linked = link(root, "Chassis")
        chassis = await walk.read_members(linked or _CHASSIS)
        if not chassis:
            raise_unread(walk.gaps)
            # a server has a chassis: a list without one, or a link to none, is no whole answer
            if linked is not None or not walk.gaps:
                raise Unreachable(f"{_CHASSIS}: no chassis is listed", maybe_executed=False)
        places = await find_places(walk, chassis)
        detectors = await read_places(walk, places)
        if not walk.gaps:
            self._places = places
            self._known_until = now + _PLACES_KNOWN_S
        return detectors


async def find_places(walk: Walk, chassis: Sequence[Resource]) -> tuple[str, ...]:
    """Return the paths of LeakDetectors collections, and of detectors that no collection has.

    Where a link is absent or leads nowhere, the path that the schema gives the resource is read
    itself, as makers print trees of which a link is missing (LambdaLabs/redfish_exporter,
    chassis_collector.go at 610113a, lines 308 to 337): below each chassis that says so, that cannot
    be read, or that is no part of another. A link that leads nowhere, with nothing at that path
    either, is returned as a place: read there, it is a detector without a reading.
    """
    places: list[str] = []
    parents = _find_parents(chassis)
    for one in chassis:
        may_have = not _is_part(one, parents)
        if (linked := link(one.data, "LeakDetectors")) is not None:
            places.append(linked)
        elif may_have:
            found, lost = await _find(walk, one, "LeakDetectors", guess=True)
            places += [found.path] if found is not None else lost
        thermal = link(one.data, "ThermalSubsystem")
        if thermal is not None:
            subsystem: Resource | None = await walk.read(thermal)
        elif may_have:
            subsystem, lost = await _find(walk, one, "ThermalSubsystem", guess=True)
            places += lost
        else:
            continue
        if subsystem is None:
            continue
        required = thermal is not None and not subsystem.data
        detection, lost = await _find(walk, subsystem, "LeakDetection", required=required)
        places += lost
        if detection is not None:
            places += await _list_places(walk, detection)
    return tuple(dict.fromkeys(places))


def _find_parents(chassis: Sequence[Resource]) -> dict[str, Resource]:
    """Return the listed chassis in which each one is, by either end of the link.

    A type alone is no proof of one: trays stand alone as `Module`, as boards of GPUs in them do.
    """
    by_path = {one.path.rstrip("/"): one for one in chassis}
    parents: dict[str, Resource] = {}
    for one in chassis:
        linked = link(one.data.get("Links"), "ContainedBy") or ""
        if (parent := by_path.get(linked.rstrip("/"))) is not None:
            parents[one.path.rstrip("/")] = parent
        for child in objects(at(one.data, "Links", "Contains") or []):
            parents.setdefault((path_of(child) or "").rstrip("/"), one)
    return parents


def _is_part(one: Resource, parents: Mapping[str, Resource]) -> bool:
    """Return whether a chassis is in another that is asked: a part of nothing, or of a ring of
    parts, is a chassis like any other.
    """
    passed: set[str] = set()
    at_hand: Resource | None = one
    while at_hand is not None and at_hand.path not in passed:
        if text(at_hand.data.get("ChassisType")) not in _PARTS:
            return at_hand is not one
        passed.add(at_hand.path)
        at_hand = parents.get(at_hand.path.rstrip("/"))
    return at_hand is None and len(passed) > 1


async def _list_places(walk: Walk, detection: Resource) -> list[str]:
    """Return the places of one LeakDetection; itself too where it says how its detectors are."""
    said = [detection.path] if "Status" in detection.data or _groups(detection.data) else []
    return [*await _list_detectors(walk, detection), *said]


def _groups(detection: Json) -> list[Json]:
    return list(objects(detection.get("LeakDetectorGroups") or []))


def _excerpts(detection: Json) -> list[Json]:
    """Return what the groups show of their detectors: DetectorState, and DataSourceUri or none."""
    return [d for g in _groups(detection) for d in objects(g.get("Detectors") or [])]


async def _list_detectors(walk: Walk, detection: Resource) -> list[str]:
    if (linked := link(detection.data, "LeakDetectors")) is not None:
        direct = f"{detection.path.rstrip('/')}/LeakDetectors"
        found, _ = await _find(walk, detection, "LeakDetectors")
        return [linked if found is None or found.path != direct else direct]
    single = _excerpts(detection.data)
    if paths := [p for d in single if (p := path_of(d.get("DataSourceUri"))) is not None]:
        return paths
    found, lost = await _find(walk, detection, "LeakDetectors")
    # a LeakDetection that shows no detector anywhere is read as a detector of its own
    return [found.path] if found is not None else lost or [detection.path]


async def _find(
    walk: Walk, parent: Resource, key: str, *, required: bool = False, guess: bool = False
) -> tuple[Resource | None, list[str]]:
    """Return the resource that `parent` links to as `key`, or that is at the schema's path.

    Else None with the places that have no reading: a link that leads nowhere, or a path that could
    not be read. `required`: the parent itself is such a place, if its child is not there either.
    `guess`: nothing says that there is such a path, so that any refusal of it is an absence.
    """
    linked = link(parent.data, key)
    direct = f"{parent.path.rstrip('/')}/{key}"
    unread = [parent.path] if required else []
    for path in dict.fromkeys(p for p in (linked, direct) if p is not None):
        gaps_before = len(walk.gaps)
        resource = await walk.read(path)
        if resource.data:
            return resource, []
        gaps = walk.gaps[gaps_before:]
        absent = all(g.reason is Reason.NOT_OFFERED or (guess and _is_denied(g)) for g in gaps)
        if path != linked and absent:
            del walk.gaps[gaps_before:]  # a path that nothing leads to may be empty
        else:
            unread.append(path)
    return None, unread


def _is_denied(gap: Gap) -> bool:
    return gap.reason is not Reason.BUSY and gap.detail.startswith("HTTP status 4")


async def read_places(walk: Walk, places: Sequence[str]) -> tuple[LeakDetector, ...]:
    """Return the detectors at these paths, each of which is a collection or a single detector.

    A place without an answer, or a collection that lost members, is an unreadable detector.
    """
    detectors: dict[str, LeakDetector] = {}
    for place in places:
        gaps_before = len(walk.gaps)
        first = await walk.read(place)
        listed = [first]
        if "Members" in first.data:
            listed = await walk.read_members(place, first)
        gaps = walk.gaps[gaps_before:]
        _require_answer(gaps)
        paths = {r.path for r in listed}
        lost = next((g for g in gaps if g.source not in paths), None)
        if lost is not None:  # members that were not listed, or a page that could not be read
            listed = [*listed, Resource(place)]
            gaps = [*gaps, lost.model_copy(update={"source": place})]
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
    health = _read_worst(resource.data)
    enabled = text(at(resource.data, "Status", "State"))
    moisture = read_moisture(state, health, enabled)
    if "LeakDetectors" in resource.data or _groups(resource.data):
        moisture = _read_whole(resource.data, health)
    if moisture is None:
        return None
    detail = f"state {state or 'not reported'}, health {health or 'not reported'}"
    return LeakDetector(slot=slot, moisture=moisture, detail=detail[:120], source=resource.path)


def _read_worst(data: Json) -> str | None:
    """Return the worst of Health, its roll-up and Conditions; a Status may be its Health alone."""
    status = data.get("Status")
    if isinstance(status, str):
        return status
    rolled = {"Status": {"Health": at(data, "Status", "HealthRollup")}}
    said = [read_health(data), read_health(rolled)]
    return next((one for one in said if one not in (None, "OK")), said[0])


def _read_whole(detection: Json, health: str | None) -> Moisture:
    """Return the worst that a LeakDetection says of its detectors, without those that it links."""
    readings = [read_moisture("OK", health, None)]
    readings += [read_moisture("OK", _read_worst(group), None) for group in _groups(detection)]
    for one in _excerpts(detection):
        reading = read_moisture(text(one.get("DetectorState")), _read_worst(one), None)
        is_read_there = path_of(one.get("DataSourceUri")) is not None
        readings.append(Moisture.DRY if is_read_there and reading is not Moisture.WET else reading)
    return max((r for r in readings if r is not None), key=_RANK.__getitem__)


def _chassis_of(path: str) -> str:
    parts = path.split("/")
    return parts[4] if len(parts) > 4 and parts[3] == "Chassis" else "host"


def _require_answer(gaps: Sequence[Gap]) -> None:
    """Raise if the BMC itself is away or starting: that says nothing about a detector."""
    for gap in gaps:
        silent = not gap.detail.startswith("HTTP status") or gap.detail.startswith(_STARTING)
        not_ready = gap.reason is Reason.BUSY and gap.detail.startswith("HTTP status")
        if not_ready or (gap.reason is Reason.UNREACHABLE and silent):
            raise Unreachable(f"{gap.source}: {gap.detail}", maybe_executed=False)
