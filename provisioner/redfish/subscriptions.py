"""What a BMC offers to tell by itself, and our subscriptions there. Others' are never touched.

A subscription is ours if its destination is exactly the one that we gave: its number may have been
given to somebody else's since the BMC restarted.
"""

from __future__ import annotations

from provisioner.model.base import Record
from provisioner.model.outcome import Blocker, Reason
from provisioner.redfish.accounts import subscribe
from provisioner.redfish.messages import body_of, refusal
from provisioner.redfish.parsing import link, path_of, text, truth
from provisioner.redfish.service import UNBLOCK, Service

LISTED_MAX = 64  # subscriptions of one BMC that are looked through; bmcweb has 20 at most


class Offer(Record):
    """Ways in which a BMC tells of events. "": not this way."""

    stream: str = ""  # path of server-sent events
    subscriptions: str = ""  # path of the collection


async def offer(service: Service) -> Offer:
    """What the event service says of itself; a disabled one offers nothing (Dell's, as shipped)."""
    events = (await service.part("EventService")).data
    if not events or truth(events.get("ServiceEnabled")) is False:
        return Offer()
    stream = path_of(events.get("ServerSentEventUri")) or ""
    return Offer(stream=stream, subscriptions=link(events, "Subscriptions") or "")


async def make(service: Service, destination: str, context: str) -> str | Blocker:
    """Subscribe; the subscription's path."""
    return await subscribe(service, destination, context)


async def stands(service: Service, path: str, destination: str) -> bool:
    """Whether the subscription at `path` is there and ours. Raises `PortError`."""
    reply = await service.call("GET", path)
    return reply.status == 200 and text(body_of(reply).get("Destination")) == destination


async def find(service: Service, collection: str, destination: str) -> str:
    """The path of the subscription with this destination; "" if there is none."""
    walk = service.walk()
    for path in (await walk.links(collection))[:LISTED_MAX]:
        if text((await walk.read(path)).data.get("Destination")) == destination:
            return path
    return ""


async def end(service: Service, path: str, destination: str) -> Blocker | None:
    """Delete a subscription of ours; one that is gone is ended, one of others stays."""
    reply = await service.call("GET", path)
    if reply.status in (404, 410):
        return None
    if text(body_of(reply).get("Destination")) != destination:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=path,
            detail="this subscription is not ours",
            unblock="Nothing is to be done: the number was given to somebody else.",
        )
    reply = await service.call("DELETE", path)
    if 200 <= reply.status < 300 or reply.status in (404, 410):
        return None
    return refusal(reply, path, UNBLOCK)
