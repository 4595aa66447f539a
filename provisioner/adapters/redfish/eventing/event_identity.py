"""The identity of an event: it differs from other events of its BMC, and equals its replay. Pure.

A BMC replays its stored events when a stream is opened again: bmcweb (NVIDIA/bmcweb 7f3a16ae) looks
`Last-Event-ID` up in a counter of its own, which is not the one that it numbers frames by. So an
event is identified by its own fields: EventId, EventTimestamp, MessageId and arguments.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

from provisioner.adapters.redfish.eventing.events import Pushed, RedfishEvent

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
