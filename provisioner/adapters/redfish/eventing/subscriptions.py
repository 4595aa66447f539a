"""A BMC's event service, and our subscriptions there. Those of others are never changed.

A subscription is ours if its destination is the one that we sent: its number may belong to another
subscriber since the BMC restarted. NVIDIA's server reads it back with the scheme's default port.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from provisioner.adapters.redfish.accounts import subscribe
from provisioner.adapters.redfish.messages import read_refusal
from provisioner.adapters.redfish.parsing import link, objects, path_of, text, truth
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    raise_unread,
    target_of,
)
from provisioner.model.base import Record
from provisioner.model.outcome import Blocker, Reason

# in each version of the registry, and no reason for an alert
_TEST_MESSAGE = "Base.1.0.Success"
_TEST_VALUES: dict[str, Any] = {
    "EventId": "1",
    "EventTimestamp": "2026-01-01T00:00:00Z",
    "Message": "A test of this subscription",
    "MessageArgs": [],
    "OriginOfCondition": "/redfish/v1/EventService",
    "Severity": "OK",
}
_PORTS = {"https": 443, "http": 80}
LISTED_MAX = 64  # subscriptions of one BMC that are looked through; bmcweb has 20 at most


class Offer(Record):
    """The ways in which a BMC delivers events. "": not this way."""

    stream: str = ""  # path of server-sent events
    subscriptions: str = ""  # path of the collection


async def read_offer(service: Service) -> Offer:
    """Return the ways that the event service offers; none if it is disabled (Dell's default)."""
    events = (await service.find_part("EventService")).data
    if not events or truth(events.get("ServiceEnabled")) is False:
        return Offer()
    stream = path_of(events.get("ServerSentEventUri")) or ""
    return Offer(stream=stream, subscriptions=link(events, "Subscriptions") or "")


async def make_subscription(service: Service, destination: str, context: str) -> str | Blocker:
    """Subscribe; the subscription's path."""
    return await subscribe(service, destination, context)


async def submit_test(service: Service) -> Blocker | None:
    """Ask for a test event to all subscribers. None: it was accepted, and is on its way.

    DSP0268 wants a MessageId; AMI and Supermicro list what else they want in an ActionInfo, Dell
    and HPE an EventType in the action itself (recorded trees).
    """
    events = await service.find_part("EventService")
    action = action_of(events.data, "EventService.SubmitTestEvent")
    target = target_of(action)
    if target is None:
        return service.not_offered("events", "test events")
    info = path_of(action.get("@Redfish.ActionInfo"))
    listed = (await service.get(info)).get("Parameters") if info is not None else None
    body: dict[str, Any] = {"MessageId": _TEST_MESSAGE}
    for parameter in objects(listed or []):
        name = text(parameter.get("Name")) or ""
        allowed = parameter.get("AllowableValues")
        if name in _TEST_VALUES and name != "MessageId":
            first = allowed[0] if isinstance(allowed, list) and allowed else _TEST_VALUES[name]
            body[name] = text(first) or "" if isinstance(first, str) else first
    types = action.get("EventType@Redfish.AllowableValues")
    if isinstance(types, list) and "Alert" in types:
        body["EventType"] = "Alert"
    demanded = {**_TEST_VALUES, "EventType": "Alert", "MessageId": _TEST_MESSAGE}
    reply = await service.post(target, body, "events", spare=body, demanded=demanded)
    return reply if isinstance(reply, Blocker) else None


async def is_standing(service: Service, path: str, destination: str) -> bool:
    """Whether the subscription at `path` is there and ours. Raises `PortError`."""
    shown = await service.find_existing(path)
    return shown is not None and _leads_to(shown.get("Destination"), destination)


async def find(service: Service, collection: str, destination: str) -> str:
    """The path of the subscription with this destination; "" if there is none."""
    walk = service.walk()
    for path in (await walk.read_links(collection))[:LISTED_MAX]:
        if _leads_to((await walk.read(path)).data.get("Destination"), destination):
            return path
    raise_unread(walk.unread)  # one that was not read may be it
    return ""


def _leads_to(shown: Any, destination: str) -> bool:
    listed = text(shown)
    return listed is not None and _split(listed) == _split(destination)


def _split(url: str) -> tuple[Any, ...]:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return (url,)
    return parts.scheme, parts.hostname, port, parts.path, parts.query


async def end_subscription(service: Service, path: str, destination: str) -> Blocker | None:
    """Delete a subscription of ours; one that is gone is ended, one of others stays."""
    shown = await service.find_existing(path)
    if shown is None:
        return None
    if not _leads_to(shown.get("Destination"), destination):
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=path,
            detail="this subscription is not ours",
            unblock="Nothing is to be done: the number was given to somebody else.",
        )
    reply = await service.call("DELETE", path)
    if 200 <= reply.status < 300 or reply.status in (404, 410):
        return None
    return read_refusal(reply, path, UNBLOCK)
