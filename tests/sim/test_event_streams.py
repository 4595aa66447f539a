"""Streams of a simulated BMC.

source: NVIDIA/bmcweb 7f3a16ae, run; docs/sources/redfish.md#events.
"""

from __future__ import annotations

import json

from bmc_client import Client

from provisioner.integrations.sim.redfish.redfish_tree import Answer

SSE = "/redfish/v1/EventService/SSE"
SUBSCRIPTIONS = "/redfish/v1/EventService/Subscriptions"


def test_the_eleventh_stream_is_accepted_and_ends_at_once() -> None:
    """source: docs/sources/redfish.md#events."""
    client = Client()
    streams = [client.ask("GET", SSE).stream for _ in range(10)]
    closing = [stream(lambda _: None) for stream in streams if stream is not None]

    further = client.ask("GET", SSE)
    closing[0]()
    later = client.ask("GET", SSE)

    assert len(closing) == 10
    assert (further.status, further.stream) == (200, None)
    assert later.stream is not None


def test_a_quiet_stream_carries_nothing_and_frames_count_anew_for_each() -> None:
    """source: docs/sources/redfish.md#events: no comments, ids from 1 for each connection."""
    client = Client()
    heard: list[list[bytes]] = []
    for _ in range(2):
        frames: list[bytes] = []
        stream = client.ask("GET", SSE).stream
        assert stream is not None
        stream(frames.append)
        heard.append(frames)

    quiet = [list(frames) for frames in heard]
    client.ask(
        "POST",
        "/redfish/v1/EventService/Actions/EventService.SubmitTestEvent",
        {"MessageId": "Base.1.18.Success"},
    )

    assert quiet == [[], []]
    assert [frames[0].split(b"\n")[0] for frames in heard] == [b"id: 1", b"id: 1"]


class Nvidia(Client):
    """The BMC of a BlueField, whose server was run."""

    def __init__(self) -> None:
        super().__init__("DPU_0")

    def subscribe(self, destination: str) -> Answer:
        return self.ask("POST", SUBSCRIPTIONS, {"Destination": destination, "Protocol": "Redfish"})


def test_a_subscription_is_answered_read_back_and_deleted_as_by_nvidias_server() -> None:
    """source: docs/sources/redfish.md#bmcweb.

    201 with a Created message only, the default port added, 200.
    """
    client = Nvidia()
    made = client.subscribe("https://daemon.test/v1/events/x")
    place = made.headers["Location"]

    assert made.status == 201
    assert list(json.loads(made.body)) == ["@Message.ExtendedInfo"]
    assert place.rpartition("/")[2].isdigit()
    assert client.get(place)["Destination"] == "https://daemon.test:443/v1/events/x"
    assert client.ask("DELETE", place).status == 200


def test_the_twenty_first_subscription_is_refused_and_a_restart_forgets_none() -> None:
    """source: docs/sources/redfish.md#bmcweb.

    503 EventSubscriptionLimitExceeded; 20 of 20 after a restart.
    """
    client = Nvidia()
    made = [client.subscribe(f"https://daemon.test/{n}").headers["Location"] for n in range(20)]
    further = client.subscribe("https://daemon.test/20")
    client.ask(
        "POST",
        "/redfish/v1/Managers/Bluefield_BMC/Actions/Manager.Reset",
        {"ResetType": "GracefulRestart"},
    )
    client.later(3600)

    assert further.status == 503
    assert b"EventSubscriptionLimitExceeded" in further.body
    members = [m["@odata.id"] for m in client.get(SUBSCRIPTIONS)["Members"]]
    assert (len(set(made)), sorted(members)) == (20, sorted(made))


def test_events_of_nvidias_server_have_no_id_no_context_and_a_counter() -> None:
    """source: docs/sources/redfish.md#login-events: logins and logouts of anybody are events."""
    client = Nvidia()
    heard: list[bytes] = []
    stream = client.ask("GET", SSE).stream
    assert stream is not None
    stream(heard.append)
    account = next(iter(client.service.accounts.accounts.values()))
    body = {"UserName": account.username, "Password": account.password}
    session = client.ask("POST", "/redfish/v1/SessionService/Sessions", body).headers["Location"]
    client.ask("DELETE", session)

    documents = [json.loads(frame.split(b"data: ")[1]) for frame in heard]

    records = [document["Events"][0] for document in documents]
    assert [r["MessageId"].rpartition(".")[2] for r in records] == [
        "ResourceCreated",
        "ResourceRemoved",
    ]
    assert {r["OriginOfCondition"] for r in records} == {session}
    assert [r["EventId"] for r in records] == ["1", "2"]
    assert not any({"Id", "Context"} & set(document) for document in documents)
