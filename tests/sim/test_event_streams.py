"""Streams of a simulated BMC. source: facts/bmcweb.md, row 10 and the table below the rows."""

from __future__ import annotations

from bmc_client import Client

SSE = "/redfish/v1/EventService/SSE"


def test_the_eleventh_stream_is_accepted_and_ends_at_once() -> None:
    """source: bmcweb.md 10."""
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
    """source: bmcweb.md 1 and 4: no comments, ids from 1 for each connection."""
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
