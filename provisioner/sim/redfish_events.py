"""EventService of a simulated BMC: subscriptions are kept and events delivered to whoever asked."""

from __future__ import annotations

from collections.abc import Callable

from provisioner.sim.machine import Machine
from provisioner.sim.parts import Bmc
from provisioner.sim.redfish_answers import Answer, Json, answer, done, error, message
from provisioner.sim.redfish_tree import ROOT, Request, Resource, Tree
from provisioner.sim.tasks import stamp

EVENTS = f"{ROOT}/EventService"
SUBSCRIPTIONS = f"{EVENTS}/Subscriptions"
SUBSCRIPTIONS_MAX = 20  # bmcweb's limit

Deliver = Callable[[str, Json], None]
"""Sends an event to a destination; what becomes of it does not matter to the BMC."""


class Events:
    """Subscriptions of one BMC."""

    def __init__(self, machine: Machine, bmc: Bmc, deliver: Deliver) -> None:
        self.machine, self.bmc, self.deliver = machine, bmc, deliver
        self.subscriptions: dict[str, Json] = {}
        self._counted = 0

    def _subscribe(self, request: Request) -> Answer:
        body = request.json or {}
        for name in ("Destination", "Protocol"):
            if not isinstance(body.get(name), str):
                return error(400, "CreateFailedMissingReqProperties", name, prop=name)
        if body["Protocol"] != "Redfish":
            return error(400, "PropertyValueNotInList", body["Protocol"], "Protocol")
        if not body["Destination"].startswith(("http://", "https://")):
            return error(400, "PropertyValueFormatError", body["Destination"], "Destination")
        if len(self.subscriptions) >= SUBSCRIPTIONS_MAX:
            return error(503, "SessionLimitExceeded")
        self._counted += 1
        name = str(self._counted)
        self.subscriptions[name] = {
            "@odata.id": f"{SUBSCRIPTIONS}/{name}",
            "@odata.type": "#EventDestination.v1_10_0.EventDestination",
            "Id": name,
            "Name": f"Event Destination {name}",
            "Destination": body["Destination"],
            "Protocol": "Redfish",
            "Context": str(body.get("Context", "")),
            "EventFormatType": "Event",
            "SubscriptionType": "RedfishEvent",
            "DeliveryRetryPolicy": "TerminateAfterRetries",
        }
        place = f"{SUBSCRIPTIONS}/{name}"
        return answer(201, self.subscriptions[name], {"Location": place})

    def _subscription(self, name: str) -> Resource | None:
        if name not in self.subscriptions:
            return None

        def delete(_: Request) -> Answer:
            del self.subscriptions[name]
            return answer(204)

        return Resource(lambda: self.subscriptions[name], delete=delete)

    def emit(self, key: str, text: str, args: list[str], now: float) -> None:
        """Tell every subscriber."""
        record = message(key, text, args)
        record |= {"EventId": str(self._counted), "EventTimestamp": stamp(now), "MemberId": "0"}
        record["EventType"] = "Alert"
        for subscription in self.subscriptions.values():
            self.deliver(subscription["Destination"], {
                "@odata.type": "#Event.v1_7_0.Event", "Id": "1", "Name": "Event Array",
                "Context": subscription["Context"], "Events": [record],
            })  # fmt: skip

    def _test(self, request: Request) -> Answer:
        body = request.json or {}
        key = str(body.get("MessageId", "Base.1.18.Success"))
        self.emit(key, str(body.get("Message", "Test event")), [], request.now)
        return done()

    def mount(self, tree: Tree) -> None:
        """Put EventService into the tree."""
        tree.fixed(EVENTS, {
            "@odata.type": "#EventService.v1_5_0.EventService", "Id": "EventService",
            "Name": "Event Service", "ServiceEnabled": True,
            "Status": {"State": "Enabled", "Health": "OK"},
            "DeliveryRetryAttempts": 3, "DeliveryRetryIntervalSeconds": 60,
            "EventFormatTypes": ["Event"], "RegistryPrefixes": ["Base", "TaskEvent", "Update"],
            "Subscriptions": {"@odata.id": SUBSCRIPTIONS},
            "Actions": {"#EventService.SubmitTestEvent":
                        {"target": f"{EVENTS}/Actions/EventService.SubmitTestEvent"}},
        })  # fmt: skip
        tree.collection(SUBSCRIPTIONS, "EventDestinationCollection",
                        lambda: list(self.subscriptions), resolve=self._subscription,
                        post=self._subscribe)  # fmt: skip
        tree.action(f"{EVENTS}/Actions/EventService.SubmitTestEvent", self._test)
