"""A BMC's logs and crash dumps, as they come: read before anything is reset.

Log services hang below systems, managers and chassis (DSP0268, LogService). A dump is made by
`#LogService.CollectDiagnosticData` where the service offers it: a task, then an entry of that log
with an `AdditionalDataURI`. Everything is bounded; a resource that is too large or fails becomes a
gap.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from provisioner.adapters.redfish.hardware_tree import Reading
from provisioner.adapters.redfish.messages import body_of, task_paths
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, text
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.tasks import read_view
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.ports import Call, PortError, Reply

# ------------------------------------------------------------------------------
# Signed measurements of the roots of trust behind a BMC: ComponentIntegrity, with our own nonces.
#
# A BMC answers the action with a task and keeps the last result of any client at `<action>/data`
# (NVIDIA/bmcweb 7f3a16ae, component_integrity.hpp): only the nonce inside shows whose it is. One
# collection runs at a time, so components are asked one after the other. Components that are
# disabled are left out of the collection; a component without an answer is in the result with its
# problem.


COMPONENTS_MAX = 64  # a DGX H100 has 17, an NVL72 compute tray fewer
POLL_S = 5.0
ANSWER_S = 300.0  # 254 indices take about one second each (bmcweb)
BUSY_S = 300.0  # bmcweb's Retry-After while another collection runs
ACTION = "#ComponentIntegrity.SPDMGetSignedMeasurements"
TEXT_MAX = 512 * 1024  # characters of signed measurements or of a chain; a GPU's have 5,700
Sleep = Callable[[float], Awaitable[None]]


async def collect_measurements(
    service: Service, patterns: Sequence[str], sleep: Sleep, asked_at: float
) -> dict[str, Any]:
    """Ask each component whose name matches a pattern; return evidence as JSON values.

    Raises `PortError` if the BMC as a whole does not answer.
    """
    walk = service.walk()
    members = await walk.read_linked(await walk.read_root(), "ComponentIntegrity")
    rows = []
    for member in members[:COMPONENTS_MAX]:
        name = text(member.data.get("Id")) or member.path.rpartition("/")[2]
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if member.data.get("ComponentIntegrityEnabled") is False:
            rows.append({"component": name, "problem": "it is disabled"})
            continue
        rows.append(await _ask(service, walk, name, member.data, sleep))
    gaps = [[g.source, g.reason.value, g.detail] for g in walk.gaps]
    return {"asked_at": asked_at, "components": rows, "gaps": gaps}


async def _ask(
    service: Service, walk: Walk, name: str, member: Json, sleep: Sleep
) -> dict[str, Any]:
    nonce = secrets.token_bytes(32).hex()
    row: dict[str, Any] = {"component": name, "nonce": nonce}
    target = target_of(action_of(member, ACTION))
    if target is None:
        return {**row, "problem": "it offers no signed measurements"}
    body = {"Nonce": nonce, "SlotId": 0, "MeasurementIndices": [255]}
    reply = await _post(service, target, body, name, sleep)
    if isinstance(reply, Blocker):
        return {**row, "problem": reply.detail[:300]}
    answer = body_of(reply) if reply.status == 200 else {}
    if not _long_text(answer, "SignedMeasurements"):
        problem = await _await_task(service, next(task_paths(reply), ""), sleep)
        if problem:
            return {**row, "problem": problem}
        answer = (await walk.read(f"{target}/data")).data
    signed = _long_text(answer, "SignedMeasurements")
    if not signed:
        return {**row, "problem": "its answer has no signed measurements"}
    return {**row, "signed": signed, "certificates": await _read_chain(walk, member, answer)}


async def _post(
    service: Service, target: str, body: Json, name: str, sleep: Sleep
) -> Reply | Blocker:
    """Ask once more after the pause that a busy BMC asks for; the other asker may be a person."""
    reply = await service.call("POST", target, body)
    if reply.status == 503:
        await sleep(BUSY_S)
    elif 200 <= reply.status < 300:
        return reply
    return await service.post(target, body, name)


async def _await_task(service: Service, task: str, sleep: Sleep) -> str:
    """Return why the task did not end well within its limit; "" if it did, or was not named."""
    waited_s = 0.0
    while task and waited_s < ANSWER_S:
        await sleep(POLL_S)
        waited_s += POLL_S
        current = read_view(await service.call("GET", task), task)
        if current.done or current.vanished:
            return (current.failed or "")[:300]
    return f"no answer within {ANSWER_S:.0f} s" if task else ""


async def _read_chain(walk: Walk, member: Json, answer: Json) -> str:
    """Return the component's certificates as PEM; "" if it shows none."""
    paths = (
        link(answer, "Certificate"),
        link(
            as_object(at(member, "SPDM", "IdentityAuthentication", "ResponderAuthentication")),
            "ComponentCertificate",
        ),
    )
    for path in paths:
        if path is not None:
            chain = _long_text((await walk.read(path)).data, "CertificateString")
            if chain:
                return chain
    return ""


def _long_text(body: Json, key: str) -> str:
    """Return a text that may be longer than a name or a message; "" without one."""
    value = body.get(key)
    return value if isinstance(value, str) and len(value) <= TEXT_MAX else ""


OWNERS = ("Systems", "Managers", "Chassis")
OWNERS_MAX = 24  # of each collection; a DGX H100 has 40 chassis, and few have logs
SERVICES_MAX = 24
ENTRIES_MAX = 500  # of one log; the newest are last on most BMCs, first on others: all are kept
DUMPS_MAX = 2  # of one BMC: each takes minutes and megabytes
DUMP_BYTES_MAX = 32 * 1024 * 1024
DUMP_TYPE = "Manager"  # the one type that the specification gives every service
DUMP_READ_S = 300.0  # a BMC sends its own flash at some 100 KB/s

JOURNAL_FORMAT = "BMC Journal Entry"  # bmcweb; a DGX H100 has a hundred warnings in it
LINE_MAX = 500  # characters of a message that are shown


@dataclass(frozen=True)
class LogLine:
    """One entry of a log; `at` is by the clock of the BMC, which may be years off."""

    log: str
    id: str
    at: str
    severity: str
    message: str


@dataclass(frozen=True)
class Dump:
    """One dump; `content` in base64, as it can be kept as text."""

    service: str
    uri: str
    content: str


async def log_services(walk: Walk) -> list[Resource]:
    """Every log service that the BMC shows, each once."""
    root = await walk.read_root()
    services: dict[str, Resource] = {}
    for owner in OWNERS:
        for resource in (await walk.read_linked(root, owner))[:OWNERS_MAX]:
            for service in await walk.read_linked(resource.data, "LogServices"):
                if service.data and len(services) < SERVICES_MAX:
                    services.setdefault(service.path, service)
    return list(services.values())


async def read_logs(service: Service) -> Reading:
    """Entries of every log, by path. What another reading has (an audit log) may be in it too."""
    walk = service.walk()
    resources: dict[str, Json] = {}
    for log in await log_services(walk):
        resources[log.path] = log.data
        for entry in (await walk.read_linked(log.data, "Entries"))[:ENTRIES_MAX]:
            if entry.data:
                resources[entry.path] = entry.data
    return Reading(resources, tuple(walk.gaps))


async def fetch_dumps(
    service: Service, sleep: Sleep, poll_s: float, limit_s: float
) -> tuple[tuple[Dump, ...], tuple[Gap, ...]]:
    """Have the BMC make its dumps, wait for each, and fetch them. Nothing is reset by it."""
    made: list[Dump] = []
    gaps: list[Gap] = []
    offering = [s for s in await log_services(service.walk()) if _target(s) is not None]
    for log in offering[:DUMPS_MAX]:
        result = await _dump(service, log, sleep, poll_s, limit_s)
        if isinstance(result, Gap):
            gaps.append(result)
        else:
            made.append(result)
    return tuple(made), tuple(gaps)


def _target(log: Resource) -> str | None:
    action = action_of(log.data, "#LogService.CollectDiagnosticData")
    allowed = action.get("DiagnosticDataType@Redfish.AllowableValues")
    if isinstance(allowed, list) and DUMP_TYPE not in allowed:
        return None
    return target_of(action)


async def _dump(
    service: Service, log: Resource, sleep: Sleep, poll_s: float, limit_s: float
) -> Dump | Gap:
    target = _target(log)
    assert target is not None
    before = await _attachments(service, log)
    try:
        reply = await service.post(target, {"DiagnosticDataType": DUMP_TYPE}, log.path)
        if isinstance(reply, Blocker):
            return _gap(log, reply.reason, reply.detail)
        if failed := await _ended(service, next(task_paths(reply), ""), sleep, poll_s, limit_s):
            return _gap(log, Reason.UPDATE_STALLED, failed)
        new = [uri for uri in await _attachments(service, log) if uri not in before]
        if not new:
            return _gap(log, Reason.NOT_OFFERED, "no new entry with data came of it")
        call = Call("GET", new[-1], timeout_s=DUMP_READ_S, size_max_bytes=DUMP_BYTES_MAX)
        answer = await service.ask(call, bulk=True)
    except PortError as error:
        return _gap(log, error.reason, str(error))
    if answer.status != 200:
        return _gap(log, Reason.REFUSED, f"HTTP status {answer.status} for {new[-1][:200]}")
    return Dump(log.path, new[-1], base64.b64encode(answer.body).decode())


async def _ended(service: Service, task: str, sleep: Sleep, poll_s: float, limit_s: float) -> str:
    """Return why the task did not end well within the limit; "" if it did, or if it vanished."""
    waited = 0.0
    state = "no task was named"
    while task and waited < limit_s:
        await sleep(poll_s)
        waited += poll_s
        try:
            current = read_view(await service.call("GET", task), task)
        except PortError as error:
            state = str(error)
            continue
        if current.vanished or (current.done and current.failed is None):
            return ""
        if current.done:
            return current.failed or current.state
        state = current.state
    return f"no end within {limit_s:.0f} s: {state}" if task else ""


async def _attachments(service: Service, log: Resource) -> list[str]:
    """Addresses of data that this log's entries have, in the service's order."""
    uris = []
    for entry in (await service.walk().read_linked(log.data, "Entries"))[:ENTRIES_MAX]:
        uri = text(entry.data.get("AdditionalDataURI"))
        if uri is not None and uri.startswith("/") and not uri.startswith("//"):
            uris.append(uri)
    return uris


def _gap(log: Resource, reason: Reason, detail: str) -> Gap:
    return Gap(reason=reason, source=log.path, detail=detail[:300])


def entries_of(reading: Reading) -> list[tuple[str, str, str]]:
    """Return (message id or severity, origin, message) of each unresolved warning or failure."""
    entries = []
    for path, body in sorted(reading.resources.items()):
        if "/Entries/" not in path:
            continue
        severity = text(body.get("Severity")) or ""
        if text(body.get("OemRecordFormat")) == JOURNAL_FORMAT:
            continue  # a line of one of the BMC's own programs is no event of the host
        if severity not in ("Critical", "Warning") or body.get("Resolved") is True:
            continue
        origin = link(as_object(body.get("Links")), "OriginOfCondition") or ""
        sensor = text(body.get("SensorType")) or ""
        name = text(body.get("MessageId")) or severity
        message = " ".join(w for w in (sensor, text(body.get("Message")) or "") if w)
        entries.append((name[-80:], origin.rpartition("/")[2][:80], message[:300]))
    return entries[:ENTRIES_MAX]


def lines_of(reading: Reading) -> list[LogLine]:
    """Return every entry of the logs, in the order of their times within a log."""
    lines = [
        LogLine(
            log=path.partition("/Entries/")[0],
            id=(text(body.get("Id")) or path.rpartition("/")[2])[:80],
            at=(text(body.get("Created")) or "")[:40],
            severity=(text(body.get("Severity")) or "")[:20],
            message=_read_message(body)[:LINE_MAX],
        )
        for path, body in reading.resources.items()
        if "/Entries/" in path
    ]
    return sorted(lines, key=lambda line: (line.log, line.at, line.id))


def _read_message(body: Json) -> str:
    """Return a message of any length and lines; without one, the name of the message."""
    message = body.get("Message")
    return message if isinstance(message, str) and message else text(body.get("MessageId")) or ""
