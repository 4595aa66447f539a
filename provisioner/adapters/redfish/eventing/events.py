"""Events and metric reports that BMCs send, as values. Pure; nothing raises.

Events are judged by registry and message key (DSP8011 ResourceEvent, DMTF SensorEvent 1.0.1), never
by language; an unknown registry by its severity. Time is ours: a BMC's clock may be years off.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from provisioner.adapters.redfish.eventing.registries import Registry
from provisioner.adapters.redfish.parsing import (
    Json,
    as_object,
    at,
    link,
    name_of,
    number,
    objects,
    parse_fields,
    path_of,
    text,
)
from provisioner.checks.xid.error_codes import rank_severity
from provisioner.checks.xid.xid_explain import explain_xid
from provisioner.model.alert import Classification, Signal
from provisioner.model.base import Record
from provisioner.model.cohort import Severity

EVENTS_MAX = 64  # of one document; bmcweb sends one to a few
METRICS_MAX = 4096  # of one report; the largest recorded one has some 4,000 values
TARGET_MAX = 128
ENDED_MAX = 256  # faults that one message ends
LINKED_MAX = 16  # records of one document that are links
# Subjects that are no hardware: requests and their refusals, logins, certificates, licences,
# updates, virtual media. Their messages are Critical as well (registries that a DGX H100 and an
# R750 serve). By the registry, by the words of the key, by the letters of Dell's ids (Dell, Event
# and Error Message Reference Guide), or by the service at which the event began.
_QUIET_REGISTRY = re.compile(
    r"Base|iLO|HttpStatus|SyncAgent|Privileges?|LogService|EventService"
    r"|\w*(Update|Licen[cs]e|Certificate|Account|Session|Security|Job|Task)\w*"
)
_QUIET_WORDS = re.compile(
    r"Log(in|on|out|off)(?![a-z])|Logged(In|Out)|Session|Passw(or)?d|Credential|Authenticat"
    r"|Authoriz|(Auth|Cert|Lic|Ssl|Tls|KVM|VNC)(?![a-z])|SSH|SSL|TLS|LDAP|Kerberos|RADIUS"
    r"|Account|User(Name|Added|Deleted|Locked)|Certificate|CSR|Licen[cs]e|Subscription"
    r"|(Insert|Eject|Virtual|Remote|Redirected)\w*Media|Media(Insert|Eject)"
    r"|(FW|Fw|Firmware|Image|Bios|BIOS)\w*(Upd|Flash)|^Update"
    r"|Update(InProgress|Started|Failed|Successful|Completed)"
    r"|Service(Enabled|Disabled|Started|Stopped)"
    r"|^Property|^(Action|Query)Parameter|^Invalid(Property|Parameter|\w*Variable)"
)
# letters of a Dell's message ids. source: iDRAC User's Guide, "Alerts message IDs" (DIS
# auto-discovery, DH certificates, IPA address, JCP jobs); Dell's Messages Reference Guide (USR =
# User Tracking); captured tree of an R750 (LIC, LOG, SWC, USR); OpenManage Ansible (RED and SUP
# updates, SYS4xx answers to requests); dell/iDRAC-Redfish-Scripting#24 (RAC0720, a share that is
# not mounted) and microsoft/lisa#4168 (RAC0904 and VRM0021, virtual media). RAC0232 is a login by
# a public bug report, without a page of Dell's; LC068 and RAC0679 refuse a request while a job is
# open (openstack/sushy-oem-idrac, constants.py). No source was found for other RAC, SWU, OSD, VME,
# TST and RSI: they count by their severity, as every message that nobody explains.
_QUIET_DELL = re.compile(
    r"(LIC|SUP|USR|JCP|RED|SWC|LOG|IPA|DH|DIS)\d{1,4}|SYS4\d\d|RAC0(232|679|720|904)"
    r"|LC068|VRM0021"
)
# Lenovo's ids are FQX, product, component, number, severity; SE is security, of which XCC's audit
# has the numbers from 4000: logins, passwords, certificates. source: sysmgt.lenovofiles.com,
# XClarity Administrator, "Event and alert messages"; pubs.lenovo.com, "XClarity Controller events"
_QUIET_LENOVO = re.compile(r"FQXSPSE4\d{3}[A-Z]")
_QUIET_ORIGIN = re.compile(
    r"/redfish/v1/(Account|Session|Update|Certificate|License|Event|Task|Job)Service(/|$)"
    r"|.*/(VirtualMedia|Certificates|NetworkProtocol)(/|$)"
)
_MILD = frozenset({"ok", "informational", "info", "normal"})
_OVER = re.compile(r"(Cleared|Restored|Recovered)$")
# NVIDIA's HGX BMC: ResourceErrorsDetected with the arguments "GPU_SXM_1 Driver Event Message" and
# "[time][number][flags] XID <code> <text>" (NVIDIA/nsmd, event settings of GPUs)
_XID = re.compile(r"\bXID (\d{1,4})\b[ ,:]*(.{0,200})")
_NAME = re.compile(r"[\w./:-]{1,128}")

C = Classification
_WARNING = (C.SENSOR_WARNING,)
_CRITICAL = (C.SENSOR_CRITICAL, C.HARDWARE)
_FAILURE = (C.SENSOR_FAILURE,)
_BY_SEVERITY = {"critical": (C.HARDWARE,), "warning": _WARNING}
# (registry, key) -> (alert, classifications; () means: it is over)
_KNOWN: Mapping[tuple[str, str], tuple[str, tuple[Classification, ...]]] = {
    ("SensorEvent", "ReadingAboveUpperCautionThreshold"): ("SensorReading", _WARNING),
    ("SensorEvent", "ReadingBelowLowerCautionThreshold"): ("SensorReading", _WARNING),
    ("SensorEvent", "ReadingWarning"): ("SensorReading", _WARNING),
    ("SensorEvent", "ReadingAboveLowerCriticalThreshold"): ("SensorReading", _WARNING),
    ("SensorEvent", "ReadingBelowUpperCriticalThreshold"): ("SensorReading", _WARNING),
    ("SensorEvent", "ReadingNoLongerCritical"): ("SensorReading", _WARNING),
    ("SensorEvent", "ReadingAboveUpperCriticalThreshold"): ("SensorReading", _CRITICAL),
    ("SensorEvent", "ReadingBelowLowerCriticalThreshold"): ("SensorReading", _CRITICAL),
    ("SensorEvent", "ReadingAboveUpperFatalThreshold"): ("SensorReading", _CRITICAL),
    ("SensorEvent", "ReadingBelowLowerFatalThreshold"): ("SensorReading", _CRITICAL),
    ("SensorEvent", "ReadingAboveLowerFatalThreshold"): ("SensorReading", _CRITICAL),
    ("SensorEvent", "ReadingBelowUpperFatalThreshold"): ("SensorReading", _CRITICAL),
    ("SensorEvent", "ReadingCritical"): ("SensorReading", _CRITICAL),
    ("SensorEvent", "SensorReadingNormalRange"): ("SensorReading", ()),
    ("SensorEvent", "InvalidSensorReading"): ("SensorFailure", _FAILURE),
    ("SensorEvent", "SensorFailure"): ("SensorFailure", _FAILURE),
    ("SensorEvent", "SensorRestored"): ("SensorFailure", ()),
    ("ResourceEvent", "ResourceStatusChangedCritical"): ("ResourceHealth", (C.HARDWARE,)),
    ("ResourceEvent", "ResourceStatusChangedWarning"): ("ResourceHealth", _WARNING),
    ("ResourceEvent", "ResourceStatusChangedOK"): ("ResourceHealth", ()),
    ("ResourceEvent", "ResourceErrorsDetected"): ("ResourceErrors", (C.HARDWARE,)),
    ("ResourceEvent", "ResourceErrorsCorrected"): ("ResourceErrors", ()),
    ("ResourceEvent", "ResourceErrorThresholdExceeded"): ("ErrorThreshold", (C.HARDWARE,)),
    ("ResourceEvent", "ResourceErrorThresholdCleared"): ("ErrorThreshold", ()),
    ("ResourceEvent", "ResourceWarningThresholdExceeded"): ("WarningThreshold", _WARNING),
    ("ResourceEvent", "ResourceWarningThresholdCleared"): ("WarningThreshold", ()),
}
_RELATED = "ConditionInRelatedResource"  # Base registry: see the Conditions of its origin
# after these, versions and parts are looked at again, without waiting for their turn
_LOOK = frozenset(
    {
        "ResourceCreated",
        "ResourceRemoved",
        "ResourceVersionIncompatible",
        "ResourcePoweredOn",
        "UpdateSuccessful",
        "ApplySuccessful",
        "EventBufferExceeded",  # Base registry: events were lost
    }
)


_CAME_OR_WENT = frozenset({"ResourceCreated", "ResourceRemoved"})
_OF_PARTS = re.compile(
    r"/redfish/v1/(Chassis|Systems|Managers|UpdateService/(Firmware|Software)Inventory)"
    r"(?!.*/(LogServices|Certificates|VirtualMedia)(/|$))(/|$)"
)


class RedfishEvent(Record):
    """One event record (DSP0268, Event.Events)."""

    registry: str
    key: str
    args: tuple[str, ...] = ()
    said: str = ""
    severity: str = ""
    origin: str = ""  # path of the resource it began at
    id: str = ""  # EventId; many services count from 1 again after each restart
    timestamp: str = ""  # EventTimestamp as it is sent, by the BMC's own clock


class Metric(Record):
    name: str
    value: float


class Pushed(Record):
    """The content of one document.

    `context` is the text that the subscriber chose at subscription, "" if the document carries none
    (bmcweb's events do not, its metric reports do).
    """

    context: str = ""
    events: tuple[RedfishEvent, ...] = ()
    metrics: tuple[Metric, ...] = ()

    unread: int = 0  # records in which nothing could be read: their subject is looked at instead
    linked: tuple[str, ...] = ()  # paths of those of them that are only links

    @property
    def asks_for_a_look(self) -> bool:
        """Whether versions or parts may have changed, or news could not be read."""
        return self.unread > 0 or any(_asks_for_a_look(event) for event in self.events)

    @property
    def concerns_leaks(self) -> bool:
        """Whether a leak detector may have changed: their state is read, and never inferred."""
        return any("/LeakDetect" in event.origin for event in self.events)


def read_document(document: Any) -> Pushed:
    """Return an Event or a MetricReport; anything else counts as a record that was not read.

    Some frames of a replay are an event record, or a message, without a document around it
    (NVIDIA/bmcweb 7f3a16ae).
    """
    body = as_object(document)
    if "Events" in body:
        records = body["Events"]
    elif "MetricValues" in body or (not body and isinstance(document, Mapping)):
        records = []
    else:
        records = [document]
    events, unread, linked = _read_records(records)
    unread += _count_absent(body, records)
    return Pushed(
        context=_context(body.get("Context")),
        events=events,
        metrics=tuple(_metrics(body.get("MetricValues"))),
        unread=unread,
        linked=linked,
    )


def parse_document(body: bytes) -> Any:
    """Return the JSON of a pushed or streamed document; None if it is none.

    A damaged field is lost alone; a record that cannot be read stands for it, since what the field
    said is to be looked for.
    """
    try:
        document, lost = parse_fields(body)
    except (ValueError, RecursionError):
        return None
    if not lost or not isinstance(document, dict) or "MetricValues" in document:
        return document
    records = document.get("Events")
    if not isinstance(records, list):
        return {"Context": document.get("Context"), "Events": [document, None]}
    return {**document, "Events": [*records, None]}


def read_entry(entry: Json) -> Pushed:
    """Return a log entry, or an event, that a record was a link to, as the record itself."""
    links = as_object(entry.get("Links"))
    own = {
        "OriginOfCondition": links.get("OriginOfCondition"),
        "EventTimestamp": entry.get("Created"),
    }
    return read_document({"Events": [{**own, **entry}]} if "Events" not in entry else entry)


def _context(value: Any) -> str:
    """Return the context; a value that cannot be ours becomes a text that equals no context."""
    if value is None:
        return ""
    return value if isinstance(value, str) and len(value) <= 256 else "?"


def is_meaningful(event: RedfishEvent) -> bool:
    """Return whether an alert or a look at the node may follow from this event."""
    return _asks_for_a_look(event) or _signal(event, "", "", 0.0) is not None


def _asks_for_a_look(event: RedfishEvent) -> bool:
    """Return whether versions or parts may have changed.

    Of resources that came or went only parts, managers and firmware count: every login creates a
    session, which is an event of its own on NVIDIA's baseboards (NVIDIA/bmcweb 7f3a16ae).
    """
    if event.key not in _LOOK:
        return _is_unclear(event)
    if event.key not in _CAME_OR_WENT or not event.origin:
        return True
    return _OF_PARTS.match(event.origin) is not None


def _is_unclear(event: RedfishEvent) -> bool:
    """Return whether nothing tells how bad an event is: its registry and its severity are unknown.

    An Xid is judged by its code.
    """
    known = event.registry in ("ResourceEvent", "SensorEvent", "HeartbeatEvent")
    severe = event.severity.lower() in (*_MILD, "warning", "critical")
    return not known and not severe and not is_quiet(event)


def is_quiet(event: RedfishEvent) -> bool:
    """Return whether the event is about requested work, logins, certificates, licences or updates.

    Events of the registries that are judged by their keys are never asked for this.
    """
    return (
        _QUIET_REGISTRY.fullmatch(event.registry) is not None
        or _QUIET_DELL.fullmatch(event.key) is not None
        or _QUIET_LENOVO.fullmatch(event.key) is not None
        or _QUIET_WORDS.search(event.key) is not None
        or _QUIET_ORIGIN.match(event.origin) is not None
    )


def find_signals(
    pushed: Pushed,
    node: str,
    bmc: str,
    now: float,
    registries: Mapping[str, Registry] = MappingProxyType({}),
) -> tuple[Signal, ...]:
    """Return the signals about the node that these events carry.

    `registries`: those that the BMC serves, by prefix. Without one, the severity that the event
    itself has is all that is known, and the end of a fault is recognised by the name of its key.
    """
    return tuple(
        signal
        for event in pushed.events
        for signal in _signals(event, node, f"redfish/{bmc}", now, registries.get(event.registry))
    )


def list_unlisted(pushed: Pushed) -> tuple[str, ...]:
    """Return the registries by which these events are to be judged, apart from DMTF's two."""
    return tuple(
        dict.fromkeys(
            event.registry
            for event in pushed.events
            if event.registry
            and _NAME.fullmatch(event.registry)
            and (event.registry, event.key) not in _KNOWN
            and event.registry not in ("ResourceEvent", "SensorEvent", "HeartbeatEvent")
            and not is_quiet(event)
        )
    )


def _signals(
    event: RedfishEvent, node: str, source: str, now: float, registry: Registry | None
) -> tuple[Signal, ...]:
    """Return an event's signals, by its registry where that has the message.

    The event's own severity goes before the registry's (DSP0268, MessageSeverity: a service may
    replace it). A message ends those of its ClearingLogic, and nothing by the name of its key.
    """
    message = registry.get(event.key) if registry is not None else None
    if message is None or (event.registry, event.key) in _KNOWN:
        signal = _signal(event, node, source, now)
        return () if signal is None else (signal,)
    if is_quiet(event):
        return ()
    common: dict[str, Any] = {"node": node, "source": source, "at": now, "message": _words(event)}
    target = _target(event)
    assert registry is not None
    ends = registry if message.ends_all else message.ends
    over = [key for key in list(ends)[:ENDED_MAX] if key != event.key and _NAME.fullmatch(key)]
    ended = tuple(
        Signal(id=f"{event.registry}.{key}", target=target, active=False, **common) for key in over
    )
    severity = (event.severity or message.severity).lower()
    classifications = _BY_SEVERITY.get(severity)
    if classifications is None:
        return ended
    name = f"{event.registry}.{event.key}"
    return (*ended, Signal(id=name, target=target, classifications=classifications, **common))


def _read_records(value: Any) -> tuple[tuple[RedfishEvent, ...], int, tuple[str, ...]]:
    """Return the records that can be judged, how many cannot, and the links among these.

    A record without a usable name of a message says nothing (a link to a log entry,
    NVIDIA/infra-controller-core#4818); what is beyond the bound was not read either.
    """
    items = value if isinstance(value, list) else [value]
    whole = list(_events(items[:EVENTS_MAX]))
    # of a group the exact event counts: where it is not beside it, the group was not read
    exact = {_group_of(i) for i in objects(items, EVENTS_MAX) if not _is_grouped(i)}
    summaries = [_group_of(i) for i in objects(items, EVENTS_MAX) if _is_grouped(i)]
    grouped = sum(group in exact or (group is None and bool(exact)) for group in summaries)
    named = tuple(event for event in whole if _NAME.fullmatch(event.key))
    links = (
        path_of(i) or path_of(i.get("OriginOfCondition"))
        for i in objects(items, EVENTS_MAX)
        if not text(i.get("MessageId"))
    )
    linked = tuple(dict.fromkeys(path for path in links if path is not None))[:LINKED_MAX]
    return named, max(0, len(items) - grouped - len(named)), linked


def _count_absent(body: Json, records: Any) -> int:
    """Return how many records a document says that it has, and does not have."""
    given = len(records) if isinstance(records, list) else 1
    counted = number(body.get("Events@odata.count")) or 0
    continued = link(body, "Events@odata.nextLink") is not None
    return max(int(counted) - given, int(continued), 0)


def _is_grouped(item: Json) -> bool:
    """Return whether another event of the group reports the same fact more exactly."""
    return (
        item.get("SpecificEventExistsInGroup") is True and text(item.get("MessageId")) is not None
    )


def _group_of(item: Json) -> str | None:
    return text(item.get("EventGroupId"))


def _events(items: list[Any]) -> Iterator[RedfishEvent]:
    for item in objects(items, EVENTS_MAX):
        if _is_grouped(item):
            continue
        registry, _, rest = (text(item.get("MessageId")) or "").partition(".")
        raw = item.get("MessageArgs")
        args = [text(a) or "" for a in raw[:16]] if isinstance(raw, list) else []
        yield RedfishEvent(
            registry=registry if rest else "",
            key=rest.rsplit(".", 1)[-1] or registry,
            args=tuple(args),
            said=text(item.get("Message")) or "",
            severity=text(item.get("MessageSeverity") or item.get("Severity")) or "",
            origin=path_of(item.get("OriginOfCondition")) or "",
            id=text(item.get("EventId")) or "",
            timestamp=text(item.get("EventTimestamp")) or "",
        )


def _metrics(value: Any) -> Iterator[Metric]:
    for item in objects(value if isinstance(value, list) else [], METRICS_MAX):
        if at(item, "Oem", "Nvidia", "MetricValueStale") is True:
            continue  # an old reading, sent again (recorded from a DGX H100)
        name = text(item.get("MetricProperty")) or text(item.get("MetricId"))
        reading = number(item.get("MetricValue"))
        if name is not None and reading is not None:
            yield Metric(name=name, value=reading)


def _signal(event: RedfishEvent, node: str, source: str, now: float) -> Signal | None:
    common: dict[str, Any] = {"node": node, "source": source, "at": now, "message": _words(event)}
    xid = _xid_of(event)
    if xid is not None:
        name, classifications = xid
        if not classifications:
            return None
        return Signal(id=name, target=_target(event), classifications=classifications, **common)
    meaning = _KNOWN.get((event.registry, event.key))
    if meaning is not None:
        name, classifications = meaning
        return Signal(
            id=name,
            target=_target(event),
            classifications=classifications,
            active=bool(classifications),
            **common,
        )
    return _by_severity(event, common)


def _by_severity(event: RedfishEvent, common: Mapping[str, Any]) -> Signal | None:
    """A message whose registry we do not know: by its severity, and by the end of its key.

    One that is not mild ends nothing, whatever its key ends with ("...NotRecovered").
    """
    if not event.key or not _NAME.fullmatch(event.key) or is_quiet(event):
        return None
    name = f"{event.registry}.{event.key}" if event.registry else event.key
    classifications = _BY_SEVERITY.get(event.severity.lower())
    if classifications is not None:
        target = _target(event)
        return Signal(id=name, target=target, classifications=classifications, **common)
    if _OVER.search(event.key) and event.severity.lower() in _MILD:
        return Signal(id=_OVER.sub("", name), target=_target(event), active=False, **common)
    return None


def _xid_of(event: RedfishEvent) -> tuple[str, tuple[Classification, ...]] | None:
    """Return the Xid that a GPU's driver reported to its baseboard; None if there is none.

    An Xid that NVIDIA's catalogue attributes to the application is no fault of the node: ().
    """
    if event.key != "ResourceErrorsDetected" or len(event.args) < 2:
        return None
    match = _XID.search(event.args[1])
    if match is None:
        return None
    code = int(match[1])
    severity = explain_xid(code, match[2]).severity
    if severity is None:
        return f"Xid{code}", ()
    fatal = rank_severity(severity) >= rank_severity(Severity.RESET_GPU)
    return f"Xid{code}", (C.FATAL_EVENT, C.HARDWARE) if fatal else (C.HARDWARE,)


def _target(event: RedfishEvent) -> str:
    """The part: the first argument (a sensor, a property, a path), else where it began."""
    for candidate in (event.args[0] if event.args else "", event.origin):
        word = name_of(candidate) if candidate.startswith("/") else candidate.split(" ", 1)[0]
        if word and _NAME.fullmatch(word):
            return word[:TARGET_MAX]
    return ""


def _words(event: RedfishEvent) -> str:
    message = event.said or f"{event.key} {', '.join(event.args)}"
    xid = event.args[1] if len(event.args) > 1 and _XID.search(event.args[1]) else ""
    return f"{message} {xid if xid not in message else ''}".strip()[:400]


def read_conditions(resource: Json) -> tuple[RedfishEvent, ...]:
    """Return a resource's Status.Conditions (DSP0268), and its health where none explains it."""
    events, _, _ = _read_records(at(resource, "Status", "Conditions") or [])
    health = text(at(resource, "Status", "HealthRollup")) or text(at(resource, "Status", "Health"))
    explained = any((signal := _signal(e, "", "", 0.0)) and signal.active for e in events)
    if explained or health not in ("Critical", "Warning"):
        return events
    origin = path_of(resource.get("@odata.id")) or ""
    key = f"ResourceStatusChanged{health}"
    message = f"its health is {health}"
    rolled = RedfishEvent(registry="ResourceEvent", key=key, said=message, origin=origin)
    return (*events, rolled)


def list_related(resource: Json) -> tuple[str, ...]:
    """Return the resources in which a resource's Conditions say that there are more, or others."""
    events, _, linked = _read_records(at(resource, "Status", "Conditions") or [])
    origins = [e.origin for e in events if e.key == _RELATED and e.origin]
    return tuple(dict.fromkeys([*origins, *linked]))[:LINKED_MAX]


# ------------------------------------------------------------------------------
# The identity of an event: it differs from other events of its BMC, and equals its replay. Pure.
#
# A BMC replays its stored events when a stream is opened again: bmcweb (NVIDIA/bmcweb 7f3a16ae)
# looks
# `Last-Event-ID` up in a counter of its own, which is not the one that it numbers frames by. So an
# event is identified by its own fields: EventId, EventTimestamp, MessageId and arguments.


# an earlier time comes from a clock that was never set: after each restart the BMC counts anew, and
# two true events would look alike
CLOCK_SET_SINCE = datetime(2015, 1, 1, tzinfo=UTC)


def occurred_at(event: RedfishEvent) -> datetime | None:
    """Return the BMC's own time of the event, None if it has none or its clock was not set.

    Comparable with other times of the same BMC only: its clock may be years off.
    """
    try:
        at = datetime.fromisoformat(event.timestamp)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return at if at >= CLOCK_SET_SINCE else None


def identify_event(event: RedfishEvent) -> str | None:
    """Return the event's identity in 16 characters; None if it could not identify a replay.

    Without a time an EventId proves nothing: counters begin again when a BMC restarts.
    """
    if occurred_at(event) is None:
        return None
    named = [event.id, event.timestamp, event.registry, event.key, *event.args, event.origin]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]


def order_by_time(document: Pushed) -> Pushed:
    """Return the document with its events in the order in which they happened, if all say when."""
    times = [occurred_at(event) for event in document.events]
    if len(times) < 2 or None in times:
        return document
    order = sorted(range(len(times)), key=lambda n: (times[n] or CLOCK_SET_SINCE, n))
    return document.model_copy(update={"events": tuple(document.events[n] for n in order)})


def resume_point(before: str, frame_id: str, number: int, document: Pushed) -> str:
    """Return the `Last-Event-ID` with which a stream goes on after this frame; "": with none.

    `number` counts the frames of this connection from 1. A frame id that is the EventId is sent
    back (DSP0266 13.5.2; openbmc/bmcweb); where frames are merely counted, the service looks
    up the EventId (NVIDIA/bmcweb). Otherwise, and where a replay could not be recognised, none
    is sent, and nothing is replayed. Metric reports change nothing.
    """
    if not document.events:
        return before
    newest = document.events[-1]
    is_identified = newest.id and identify_event(newest) is not None
    return newest.id if is_identified and frame_id in (newest.id, str(number)) else ""
