"""Connections of BMCs that post events, byte by byte over TLS: what is taken, refused and kept."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from provisioner.daemon.event_connections import BODY_MAX, EVENTS, HEAD_MAX
from provisioner.daemon.events import WEBHOOK, open_watch
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.sql_store import open_store

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
DOCUMENT = json.dumps({"Events": [{"MessageId": "ResourceEvent.1.0.ResourceChanged"}]}).encode()


class Feeds:
    """Stands where the watch's subscriptions do: one id is a secret of ours."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.doubted: list[str] = []

    def doubt(self, name: str) -> None:
        self.doubted.append(name)

    async def take_delivery(self, name: str, document: Any) -> int:
        if name != "ours":
            return 404
        await asyncio.sleep(0)
        self.taken.append(document)
        return 200


def post(
    path: str = f"{EVENTS}/ours", *headers: str, body: bytes = DOCUMENT, version: str = "1.1"
) -> bytes:
    """Return the bytes of a request."""
    sized = headers if "Transfer-Encoding" in "".join(headers) else (
        f"Content-Length: {len(body)}", *headers)  # fmt: skip
    return "\r\n".join((f"POST {path} HTTP/{version}", "Host: x", *sized, "", "")).encode() + body


@asynccontextmanager
async def listening(folder: Path, **chosen: Any) -> AsyncIterator[tuple[Any, Feeds]]:
    """Yield a function that connects, and what is taken in."""
    store, feeds = open_store(":memory:"), Feeds()
    site: Any = SimpleNamespace(plan=None, settings=Settings(**chosen))
    url = "https://127.0.0.1:0"
    async with open_watch(
        url, (), folder, store, WallClock(), None, MasterKey.generate(), site
    ) as watch:
        assert watch.attach is not None
        watcher: Any = SimpleNamespace(feeds=feeds, list_watched=list)
        watch.attach(watcher)
        trust = ssl.create_default_context(cafile=str(folder / "agent-ca.pem"))
        port = urlsplit(watch.listener).port

        async def connect() -> Connection:
            return await asyncio.open_connection("127.0.0.1", port, ssl=trust)

        yield connect, feeds
    await store.close()


async def read_answers(reader: asyncio.StreamReader, count: int) -> tuple[list[int], bool]:
    """Return the statuses that come, and whether the listener closes after so many of them."""
    received = b""
    statuses: list[int] = []
    try:
        async with asyncio.timeout(20.0) as limit:
            while piece := await reader.read(65536):
                received += piece
                statuses = [int(s) for s in re.findall(rb"HTTP/1\.1 (\d{3})", received)]
                if len(statuses) >= count:
                    limit.reschedule(asyncio.get_running_loop().time() + 0.2)
    except TimeoutError:
        return statuses, False
    return statuses, True


CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(DOCUMENT), DOCUMENT)
GOOD = (post(), [200], False)
CASES: dict[str, tuple[bytes, list[int], bool]] = {
    "an event": GOOD,
    "two at once": (post() + post(), [200, 200], False),
    "in chunks": (post(f"{EVENTS}/ours", "Transfer-Encoding: chunked", body=CHUNKS), [200], False),
    "waits for the word": (post(f"{EVENTS}/ours", "Expect: 100-continue"), [100, 200], False),
    "closes by itself": (post(f"{EVENTS}/ours", "Connection: close"), [200], True),
    "an old version": (post(version="1.0"), [200], True),
    "of a stranger": (post(f"{EVENTS}/theirs"), [404], True),
    "behind a path": (post(f"{EVENTS}/ours/../x"), [404], True),
    "no document": (post(body=b"{"), [400], True),
    "no HTTP": (f"POST {EVENTS}/ours\r\nrubbish\r\n\r\n".encode(), [400], True),
    "too large": (post(f"{EVENTS}/ours").replace(
        f"Length: {len(DOCUMENT)}".encode(), f"Length: {BODY_MAX + 1}".encode()), [413], True),
    "a coding": (post(f"{EVENTS}/ours", "Content-Encoding: gzip"), [415], True),
    "a long head": (post(f"{EVENTS}/ours", f"X: {'x' * HEAD_MAX}"), [431], True),
    "both lengths": (post(f"{EVENTS}/ours", "Content-Length: 3"), [400], True),
    "another path": (post(WEBHOOK), [401], True),
    "no path of ours": (post("/v1/redfish/else"), [404], False),
}  # fmt: skip


def test_events_are_taken_and_all_else_is_refused_and_closed(tmp_path: Path) -> None:
    async def main() -> tuple[dict[str, tuple[list[int], bool]], list[Any]]:
        seen = {}
        async with listening(tmp_path) as (connect, feeds):
            for name, (request, statuses, _) in CASES.items():
                reader, writer = await connect()
                writer.write(request)
                seen[name] = await read_answers(reader, len(statuses))
                writer.close()
            reader, writer = await connect()
            for place in range(len(post())):  # byte by byte, each in a record of its own
                writer.write(post()[place : place + 1])
                await asyncio.sleep(0)
            seen["byte by byte"] = await read_answers(reader, 1)
            writer.close()
            return seen, feeds.taken

    seen, taken = asyncio.run(main())
    expected = {name: (statuses, closes) for name, (_, statuses, closes) in CASES.items()}

    assert seen == expected | {"byte by byte": ([200], False)}
    assert [one for one in taken if one is not None] == [json.loads(DOCUMENT)] * 8


def test_what_cannot_be_taken_leads_to_a_look_at_its_bmc(tmp_path: Path) -> None:
    async def main() -> tuple[list[Any], list[str]]:
        async with listening(tmp_path) as (connect, feeds):
            for case in ("no document", "too large"):
                reader, writer = await connect()
                writer.write(CASES[case][0])
                await read_answers(reader, 1)
                writer.close()
            return feeds.taken, feeds.doubted

    assert asyncio.run(main()) == ([None], ["ours"])


def test_an_event_that_is_taken_is_answered_as_each_maker_reads_it(tmp_path: Path) -> None:
    """iLO 5 and 6 take 200 alone; others want a length and JSON to a 200."""

    async def main() -> bytes:
        async with listening(tmp_path) as (connect, _):
            reader, writer = await connect()
            writer.write(post(f"{EVENTS}/ours", "Connection: close"))
            answer = await asyncio.wait_for(reader.read(), 20.0)
            writer.close()
            return answer

    head, _, body = asyncio.run(main()).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 2" in head
    assert b"Content-Type: application/json" in head
    assert json.loads(body) == {}


def test_the_newest_senders_keep_their_connections(tmp_path: Path) -> None:
    async def main() -> list[bool]:
        async with listening(tmp_path, events_kept_max=2) as (connect, _):
            opened = [await connect() for _ in range(3)]
            for reader, writer in opened:
                writer.write(post())
                await reader.readuntil(b"\r\n\r\n{}")
            result = [(await read_answers(reader, 0))[1] for reader, _ in opened[:1]]
            opened[1][1].write(post())  # again, on a connection that it kept
            await opened[1][0].readuntil(b"\r\n\r\n{}")
            opened.append(await connect())
            opened[3][1].write(post())
            await opened[3][0].readuntil(b"\r\n\r\n{}")
            result += [(await asyncio.wait_for(opened[2][0].read(1), 20.0)) == b""]
            opened[1][1].write(post())
            await opened[1][0].readuntil(b"\r\n\r\n{}")
            for _, writer in opened:
                writer.close()
            return result

    # the first makes room for the third, and the third, silent for the longest, for the fourth
    assert asyncio.run(main()) == [True, True]
