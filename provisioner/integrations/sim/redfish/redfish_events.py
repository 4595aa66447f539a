"""EventService of a simulated BMC: subscriptions and streams, and the events that they receive.

Recorded BMCs of AMI, Dell and BlueField all name a `ServerSentEventUri`; Dell delivers its service
disabled. The rest follows NVIDIA/bmcweb 7f3a16ae, which was run: frames of a stream are numbered
from 1 for each connection, and `Last-Event-ID` is looked up in the counter of events; no comments
are sent; posted events carry no Context; subscriptions survive a restart.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from zlib import crc32

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Bmc
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Listen,
    Request,
    Resource,
    Tree,
    answer_done,
    make_answer,
    make_error,
    make_message,
)
from provisioner.integrations.sim.redfish.tasks import format_time

EVENTS = f"{ROOT}/EventService"
SUBSCRIPTIONS = f"{EVENTS}/Subscriptions"
STREAM = f"{EVENTS}/SSE"
SUBSCRIPTIONS_MAX = 20  # bmcweb's limit
# bmcweb's: a further one is accepted, and ends at once (docs/sources/redfish.md#events)
STREAMS_MAX = 10
EVENTS_KEPT = 200  # bmcweb's

_ANNOUNCED = (SUBSCRIPTIONS, f"{ROOT}/SessionService/Sessions", f"{ROOT}/AccountService/Accounts")

Deliver = Callable[[str, Json], None]
"""Sends an event to a destination; the BMC ignores the outcome."""


class Events:
    """Subscriptions of one BMC."""

    def __init__(
        self, machine: Machine, bmc: Bmc, deliver: Deliver, *, as_nvidia: bool = False
    ) -> None:
        self.as_nvidia = as_nvidia  # what NVIDIA's server does and others are not known to do
        self.machine = machine
        self.bmc = bmc
        self.deliver = deliver
        self.subscriptions: dict[str, Json] = {}
        self.streamed = True  # False: a service without streams
        self.kept: deque[tuple[int, Json]] = deque(maxlen=EVENTS_KEPT)
        self._listening: list[Callable[[Json], None]] = []
        self._counted = self._told = 0
        bmc.on_reset.append(self._forget)

    def _subscribe(self, request: Request) -> Answer:
        body = request.json or {}
        for name in ("Destination", "Protocol"):
            if not isinstance(body.get(name), str):
                return make_error(400, "CreateFailedMissingReqProperties", name, prop=name)
        if body["Protocol"] != "Redfish":
            return make_error(400, "PropertyValueNotInList", body["Protocol"], "Protocol")
        if not body["Destination"].startswith(("http://", "https://")):
            return make_error(400, "PropertyValueFormatError", body["Destination"], "Destination")
        if len(self.subscriptions) >= SUBSCRIPTIONS_MAX:
            return make_error(503, "EventSubscriptionLimitExceeded")
        self._counted += 1
        name = str(crc32(f"{self.bmc.name} {self._counted}".encode()))  # any 32 bits
        self.subscriptions[name] = {
            "@odata.id": f"{SUBSCRIPTIONS}/{name}",
            "@odata.type": "#EventDestination.v1_10_0.EventDestination",
            "Id": name,
            "Name": f"Event Destination {name}",
            "Destination": _with_port(body["Destination"], adds=self.as_nvidia),
            "Protocol": "Redfish",
            "Context": str(body.get("Context", "")),
            "EventFormatType": "Event",
            "SubscriptionType": "RedfishEvent",
            "DeliveryRetryPolicy": "TerminateAfterRetries",
        }
        place = f"{SUBSCRIPTIONS}/{name}"
        created = make_message("Base.1.18.Created", "The resource was created successfully")
        return make_answer(201, {"@Message.ExtendedInfo": [created]}, {"Location": place})

    def _subscription(self, name: str) -> Resource | None:
        if name not in self.subscriptions:
            return None

        def delete(_: Request) -> Answer:
            del self.subscriptions[name]
            return make_answer(200)

        return Resource(lambda: self.subscriptions[name], delete=delete)

    def _forget(self, _: float) -> None:
        """Drop streams and events when the BMC restarts; its subscriptions are stored."""
        self.kept.clear()
        self._told = 0

    def _stream(self, request: Request) -> Answer:
        if len(self._listening) >= STREAMS_MAX:
            return Answer(200, {"Content-Type": "text/event-stream"})
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() else self._told
        missed = [document for number, document in self.kept if number > after]

        def listen(send: Callable[[bytes], None]) -> Callable[[], None]:
            frames = 0

            def send_frame(document: Json) -> None:
                nonlocal frames
                frames += 1
                send(f"id: {frames}\ndata: {json.dumps(document)}\n\n".encode())

            self._listening.append(send_frame)
            for document in missed:
                send_frame(document)
            return lambda: self._listening.remove(send_frame)

        stream: Listen = listen
        return Answer(200, {"Content-Type": "text/event-stream"}, stream=stream)

    def _send(self, document: Json) -> None:
        for send in tuple(self._listening):
            send(document)

    def emit(
        self,
        key: str,
        text: str,
        args: list[str],
        now: float,
        *,
        origin: str = "",
        severity: str = "OK",
    ) -> None:
        """Send an event to every subscriber; without a severity its registry's holds (DSP0268)."""
        record = make_message(key, text, args, severity=severity)
        if not severity:
            del record["MessageSeverity"]
        self._told += 1
        record |= {"EventId": str(self._told), "EventTimestamp": format_time(now), "MemberId": "0"}
        record |= {"EventType": "Event", **({"OriginOfCondition": origin} if origin else {})}
        document = {"@odata.type": "#Event.v1_7_0.Event", "Name": "Event Log", "Events": [record]}
        self.kept.append((self._told, document))
        self._send(document)
        for subscription in self.subscriptions.values():
            self.deliver(subscription["Destination"], document)

    def note_change(self, request: Request, answer: Answer) -> None:
        """Emit the event of a session, an account or a subscription that came or went.

        source: docs/sources/redfish.md#login-events: each is an event, whoever made the change.
        """
        if not self.as_nvidia or answer.status >= 300 or not request.path.startswith(_ANNOUNCED):
            return
        if request.method == "POST" and "Location" in answer.headers:
            origin = answer.headers["Location"]
            self.emit("ResourceEvent.1.0.ResourceCreated", "", [], request.now, origin=origin)
        elif request.method == "DELETE":
            origin = request.path
            self.emit("ResourceEvent.1.0.ResourceRemoved", "", [], request.now, origin=origin)

    def _test(self, request: Request) -> Answer:
        body = request.json or {}
        key = str(body.get("MessageId", "Base.1.18.Success"))
        self.emit(key, str(body.get("Message", "Test event")), [], request.now)
        return answer_done()

    def mount(self, tree: Tree) -> None:
        """Put EventService into the tree."""
        tree.add_live(
            EVENTS,
            lambda: {
                **({"ServerSentEventUri": STREAM} if self.streamed else {}),
                "@odata.type": "#EventService.v1_5_0.EventService",
                "Id": "EventService",
                "Name": "Event Service",
                "ServiceEnabled": True,
                "Status": {"State": "Enabled", "Health": "OK"},
                "DeliveryRetryAttempts": 3,
                "DeliveryRetryIntervalSeconds": 60,
                "EventFormatTypes": ["Event"],
                "RegistryPrefixes": ["Base", "TaskEvent", "Update"],
                "Subscriptions": {"@odata.id": SUBSCRIPTIONS},
                "Actions": {
                    "#EventService.SubmitTestEvent": {
                        "target": f"{EVENTS}/Actions/EventService.SubmitTestEvent"
                    }
                },
            },
        )
        tree.add_collection(
            SUBSCRIPTIONS,
            "EventDestinationCollection",
            lambda: list(self.subscriptions),
            resolve=self._subscription,
            post=self._subscribe,
        )
        tree.add_action(f"{EVENTS}/Actions/EventService.SubmitTestEvent", self._test)
        stream = Resource()
        stream.stream = self._stream
        tree.put(STREAM, stream)


def _with_port(destination: str, *, adds: bool) -> str:
    """Return the destination as it is read back: with its default port.

    source: docs/sources/redfish.md#bmcweb
    """
    scheme, _, rest = destination.partition("://")
    authority, slash, path = rest.partition("/")
    if not adds or ":" in authority:
        return destination
    return f"{scheme}://{authority}:{443 if scheme == 'https' else 80}{slash}{path}"
