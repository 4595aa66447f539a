"""A BMC's logs and crash dumps, as they come: read before anything is reset.

Log services hang below systems, managers and chassis (DSP0268, LogService). A dump is made by
`#LogService.CollectDiagnosticData` where the service offers it: a task, then an entry of that log
with an `AdditionalDataURI`. Everything is bounded; what is too large or fails is a gap.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from provisioner.adapters.redfish.messages import task_paths
from provisioner.adapters.redfish.parsing import Json, as_object, link, text
from provisioner.adapters.redfish.readings import Reading
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.tasks import view
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.ports import Call, PortError

OWNERS = ("Systems", "Managers", "Chassis")
OWNERS_MAX = 24  # of each collection; a DGX H100 has 40 chassis, and few have logs
SERVICES_MAX = 24
ENTRIES_MAX = 500  # of one log; the newest are last on most BMCs, first on others: all are kept
DUMPS_MAX = 2  # of one BMC: each takes minutes and megabytes
DUMP_BYTES_MAX = 32 * 1024 * 1024
DUMP_TYPE = "Manager"  # the one type that the specification gives every service
DUMP_READ_S = 300.0  # a BMC sends its own flash at some 100 KB/s

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Dump:
    """One dump; `content` in base64, as it can be kept as text."""

    service: str
    uri: str
    content: str


async def log_services(walk: Walk) -> list[Resource]:
    """Every log service that the BMC shows, each once."""
    root = await walk.root()
    found: dict[str, Resource] = {}
    for owner in OWNERS:
        for resource in (await walk.first(root, owner))[:OWNERS_MAX]:
            for service in await walk.first(resource.data, "LogServices"):
                if service.data and len(found) < SERVICES_MAX:
                    found.setdefault(service.path, service)
    return list(found.values())


async def logs(service: Service) -> Reading:
    """Entries of every log, by path. What another reading has (an audit log) may be in it too."""
    walk = service.walk()
    kept: dict[str, Json] = {}
    for found in await log_services(walk):
        kept[found.path] = found.data
        for entry in (await walk.first(found.data, "Entries"))[:ENTRIES_MAX]:
            if entry.data:
                kept[entry.path] = entry.data
    return Reading(kept, tuple(walk.gaps))


async def dumps(
    service: Service, sleep: Sleep, poll_s: float, limit_s: float
) -> tuple[tuple[Dump, ...], tuple[Gap, ...]]:
    """Have the BMC make its dumps, wait for each, and fetch them. Nothing is reset by it."""
    made: list[Dump] = []
    gaps: list[Gap] = []
    offering = [s for s in await log_services(service.walk()) if _target(s) is not None]
    for found in offering[:DUMPS_MAX]:
        told = await _dump(service, found, sleep, poll_s, limit_s)
        if isinstance(told, Gap):
            gaps.append(told)
        else:
            made.append(told)
    return tuple(made), tuple(gaps)


def _target(found: Resource) -> str | None:
    action = action_of(found.data, "#LogService.CollectDiagnosticData")
    allowed = action.get("DiagnosticDataType@Redfish.AllowableValues")
    if isinstance(allowed, list) and DUMP_TYPE not in allowed:
        return None
    return target_of(action)


async def _dump(
    service: Service, found: Resource, sleep: Sleep, poll_s: float, limit_s: float
) -> Dump | Gap:
    target = _target(found)
    assert target is not None
    before = await _attachments(service, found)
    try:
        reply = await service.post(target, {"DiagnosticDataType": DUMP_TYPE}, found.path)
        if isinstance(reply, Blocker):
            return _gap(found, reply.reason, reply.detail)
        if failed := await _ended(service, next(task_paths(reply), ""), sleep, poll_s, limit_s):
            return _gap(found, Reason.UPDATE_STALLED, failed)
        new = [uri for uri in await _attachments(service, found) if uri not in before]
        if not new:
            return _gap(found, Reason.NOT_OFFERED, "no new entry with data came of it")
        call = Call("GET", new[-1], timeout_s=DUMP_READ_S, size_max_bytes=DUMP_BYTES_MAX)
        answer = await service.transport.request(service.address, call)
    except PortError as error:
        return _gap(found, error.reason, str(error))
    if answer.status != 200:
        return _gap(found, Reason.REFUSED, f"HTTP status {answer.status} for {new[-1][:200]}")
    return Dump(found.path, new[-1], base64.b64encode(answer.body).decode())


async def _ended(service: Service, task: str, sleep: Sleep, poll_s: float, limit_s: float) -> str:
    """Why the task did not end well within the limit; "" if it did, or nobody can tell."""
    waited, state = 0.0, "no task was named"
    while task and waited < limit_s:
        await sleep(poll_s)
        waited += poll_s
        try:
            seen = view(await service.call("GET", task), task)
        except PortError as error:
            state = str(error)
            continue
        if seen.vanished or (seen.done and seen.failed is None):
            return ""
        if seen.done:
            return seen.failed or seen.state
        state = seen.state
    return f"no end within {limit_s:.0f} s: {state}" if task else ""


async def _attachments(service: Service, found: Resource) -> list[str]:
    """Addresses of data that this log's entries have, in the service's order."""
    uris = []
    for entry in (await service.walk().first(found.data, "Entries"))[:ENTRIES_MAX]:
        uri = text(entry.data.get("AdditionalDataURI"))
        if uri is not None and uri.startswith("/") and not uri.startswith("//"):
            uris.append(uri)
    return uris


def _gap(found: Resource, reason: Reason, detail: str) -> Gap:
    return Gap(reason=reason, source=found.path, detail=detail[:300])


def entries_of(reading: Reading) -> list[tuple[str, str, str]]:
    """(message id or severity, origin, words) of entries that are not well, as logs tell them."""
    found = []
    for path, body in sorted(reading.resources.items()):
        if "/Entries/" not in path:
            continue
        severity = text(body.get("Severity")) or ""
        if severity not in ("Critical", "Warning") or body.get("Resolved") is True:
            continue
        origin = link(as_object(body.get("Links")), "OriginOfCondition") or ""
        sensor = text(body.get("SensorType")) or ""
        name = text(body.get("MessageId")) or severity
        words = " ".join(w for w in (sensor, text(body.get("Message")) or "") if w)
        found.append((name[-80:], origin.rpartition("/")[2][:80], words[:300]))
    return found[:ENTRIES_MAX]
