"""Silent strangers: a listener closes what is over its caps before TLS, and stays reachable."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from provisioner.adapters.agent.tls import open_authority
from provisioner.daemon.artifacts import serve_artifacts
from provisioner.integrations.prometheus.serving import serve_metrics
from provisioner.runtime import bounded_listener
from provisioner.runtime.admission import Admission, Place, name_network, name_peer
from provisioner.runtime.bounded_listener import (
    BoundedListener,
    Limits,
    get_handlers,
    hear_requests,
)
from provisioner.runtime.event_loop import new_event_loop
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile
from provisioner.store.repositories.signing_keys import MasterKey

SILENT = 1100
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def served(folder: Path, limits: Limits) -> AsyncIterator[tuple[BoundedListener, str]]:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def take(request: web.Request) -> web.Response:
        with contextlib.suppress(ConnectionError, TimeoutError):
            await asyncio.wait_for(request.read(), 20.0)
        return web.Response(status=401)

    async def show(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(32 << 20))

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b": alive\n\n")
            await asyncio.sleep(0.02)

    app = web.Application(middlewares=[web.middleware(hear_requests)])
    app.router.add_get("/", hello)
    app.router.add_get("/large", show)
    app.router.add_get("/stream", stream)
    app.router.add_post("/", take)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=limits.idle_s)
    await runner.setup()
    authority = open_authority(folder, SealedFile(folder, MasterKey.generate()))
    tls = authority.server_context(("127.0.0.1",))
    listener = BoundedListener("test", get_handlers(runner), limits, tls)
    await listener.start("127.0.0.1", 0)
    try:
        yield listener, authority.ca_pem()
    finally:
        await listener.stop()
        await runner.cleanup()


async def ask(listener: BoundedListener, ca: str, source: str = "") -> str:
    """Ask from this machine, or from another address, which the listener takes for a stranger."""
    trust = ssl.create_default_context(cadata=ca)
    connector = aiohttp.TCPConnector(local_addr=(source, 0) if source else None)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"https://127.0.0.1:{listener.port}/"
        async with session.get(url, ssl=trust) as answer:
            return await answer.text()


async def connect(listener: BoundedListener, source: str) -> asyncio.StreamWriter:
    address = (source, 0)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=address)
    return writer


def test_a_thousand_silent_connections_take_no_more_than_the_caps(tmp_path: Path) -> None:
    async def main() -> tuple[int, str]:
        limits = Limits(connections_max=64, per_peer_max=16, idle_s=30.0)
        async with served(tmp_path, limits) as (listener, ca):
            held = [await connect(listener, "127.0.0.2") for _ in range(SILENT)]
            await asyncio.sleep(0.2)
            open_now, answer = listener.connections, await ask(listener, ca)
            for writer in held:
                writer.close()
            return open_now, answer

    assert asyncio.run(main()) == (16, "hello")


def test_many_peers_together_take_no_more_than_the_total(tmp_path: Path) -> None:
    async def main() -> int:
        limits = Limits(connections_max=20, per_peer_max=4, idle_s=30.0)
        async with served(tmp_path, limits) as (listener, _ca):
            held = [await connect(listener, f"127.0.0.{n}") for n in range(2, 12) for _ in "1234"]
            await asyncio.sleep(0.2)
            open_now = listener.connections
            for writer in held:
                writer.close()
            return open_now

    assert asyncio.run(main()) == 20


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01"])
def test_a_handshake_that_does_not_end_gives_its_place_back(tmp_path: Path, says: bytes) -> None:
    async def main() -> tuple[int, str]:
        limits = Limits(connections_max=8, per_peer_max=8, idle_s=30.0, handshake_s=0.3)
        async with served(tmp_path, limits) as (listener, ca):
            held = [await connect(listener, "127.0.0.2") for _ in range(8)]
            for writer in held:
                writer.write(says)
            for _ in range(100):
                await asyncio.sleep(0.1)
                if not listener.connections:
                    break
            return listener.connections, await ask(listener, ca)

    assert asyncio.run(main()) == (0, "hello")


def test_an_idle_connection_gives_its_place_back(tmp_path: Path) -> None:
    async def main() -> int:
        limits = Limits(connections_max=8, per_peer_max=8, idle_s=0.3)
        async with served(tmp_path, limits) as (listener, ca):
            trust = ssl.create_default_context(cadata=ca)
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=trust)
            for _ in range(100):
                await asyncio.sleep(0.1)
                if not listener.connections:
                    break
            writer.close()
            return listener.connections

    assert asyncio.run(main()) == 0


def test_only_a_proved_connection_outlives_the_time_of_strangers(tmp_path: Path) -> None:
    async def main() -> int:
        limits = Limits(8, 8, idle_s=60.0, handshake_s=2.0, stranger_s=0.1)
        async with served(tmp_path, limits) as (listener, ca):
            trust = ssl.create_default_context(cadata=ca)
            port = listener.port
            opened = [await asyncio.open_connection("127.0.0.1", port, ssl=trust) for _ in "12"]
            listener.prove(next(iter(listener._strangers)))
            for _ in range(200):
                await asyncio.sleep(0.1)
                if listener.connections < 2:
                    break
            await asyncio.sleep(0.3)
            result = listener.connections
            for _, writer in opened:
                writer.close()
            return result

    assert asyncio.run(main()) == 1


def test_the_listeners_leave_half_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _which: (1024, 4096))
    asked = Limits(connections_max=512, per_peer_max=400, idle_s=30.0)

    assert asked.within_descriptors() == Limits(102, 102, 30.0)


def test_an_ipv6_host_is_one_peer_whatever_address_it_takes() -> None:
    assert name_peer("2001:db8::1") == name_peer("2001:db8::ffff:1") != name_peer("2001:db8:0:1::1")
    assert name_peer("192.0.2.1") == name_peer("::ffff:192.0.2.1") == "192.0.2.1"
    assert name_network("192.0.2.1") == name_network("192.0.2.9") != name_network("192.0.3.1")
    assert name_network(name_peer("2001:db8::1")) == name_network(name_peer("2001:db8:0:f::1"))


# ------------------------------------------------------------------------------
# Floods of silent connections: who gets a place nevertheless.


@contextlib.asynccontextmanager
async def flood(
    listener: BoundedListener, sources: Sequence[str], says: bytes = b""
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections that send nothing, or a part of a handshake, from each of the addresses."""
    held = []
    for source in sources:
        with contextlib.suppress(OSError):
            place = ("127.0.0.1", listener.port)
            held.append(await asyncio.open_connection(*place, local_addr=(source, 0)))
            held[-1][1].write(says)
    await asyncio.sleep(0.1)
    try:
        yield [reader for reader, _ in held]
    finally:
        for _, writer in held:
            writer.close()


FOUR = [f"127.0.{n}.7" for n in (1, 2, 3, 4)]
FLOODS = {
    "four addresses of four networks": FOUR * 24,
    "four addresses of one network": [f"127.0.9.{n}" for n in (1, 2, 3, 4)] * 24,
    "a whole network": [f"127.0.9.{n}" for n in range(1, 97)],
    "a network of each": [f"127.1.{n}.1" for n in range(1, 97)],
}
SMALL = Limits(connections_max=64, per_peer_max=16, idle_s=30.0, first_s=30.0)


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01\x02"], ids=["silent", "half a handshake"])
@pytest.mark.parametrize("sources", FLOODS.values(), ids=FLOODS)
def test_a_flood_shuts_out_neither_strangers_nor_known_callers_nor_this_machine(
    tmp_path: Path, sources: list[str], says: bytes
) -> None:
    async def main() -> tuple[list[str], int]:
        async with served(tmp_path, SMALL) as (listener, ca):
            answers = [await ask(listener, ca, "127.0.5.5")]  # known from now on
            async with flood(listener, sources, says):
                for source in ("127.0.5.5", "127.0.6.6", "127.0.5.6", ""):
                    answers.append(await ask(listener, ca, source))
                return answers, listener.connections

    answers, held = asyncio.run(main())
    assert answers == ["hello"] * 5
    assert held <= SMALL.connections_max


async def begin(listener: BoundedListener, ca: str, source: str, says: bytes) -> Line:
    """A connection whose handshake is whole, and what it sends."""
    trust = ssl.create_default_context(cadata=ca)
    line = await asyncio.open_connection(
        "127.0.0.1", listener.port, ssl=trust, local_addr=(source, 0), limit=2**14
    )
    line[1].write(says)
    return line


BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n{"
REQUESTS = {
    "a slow head": b"GET / HTTP/1.1\r\nHost:",
    "a slow body": BODY,
    "a slow body of pieces": BODY.replace(b"Content-Length: 9999", b"Transfer-Encoding: chunked"),
    "a body that waits for a word": BODY.replace(b"Host: a", b"Host: a\r\nExpect: 100-continue"),
    "an idle connection": b"GET /absent HTTP/1.1\r\nHost: a\r\n\r\n",
    "requests after one another": b"GET /absent HTTP/1.1\r\nHost: a\r\n\r\n" * 40,
}


@pytest.mark.parametrize("known", [False, True], ids=["strangers", "known"])
@pytest.mark.parametrize("says", REQUESTS.values(), ids=REQUESTS)
def test_requests_that_prove_nothing_shut_out_nobody(
    tmp_path: Path, says: bytes, known: bool
) -> None:
    async def main() -> list[str]:
        async with served(tmp_path, SMALL) as (listener, ca):
            answers = [await ask(listener, ca, "127.0.5.5")]
            for source in FOUR if known else ():
                await ask(listener, ca, source)
            held = []
            for source in FOUR * 16:
                with contextlib.suppress(OSError):  # it finds no place itself
                    held.append(await begin(listener, ca, source, says))
            await asyncio.sleep(0.2)
            for source in ("127.0.5.5", "127.0.6.6", ""):
                answers.append(await ask(listener, ca, source))
            for _, writer in held:
                writer.close()
            return answers

    assert asyncio.run(main()) == ["hello"] * 4


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "uv"])
def test_who_takes_nothing_of_an_answer_gives_its_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    monkeypatch.setattr(bounded_listener, "STALLED_S", 2.0)
    monkeypatch.setattr(bounded_listener, "TAKEN_MIN_BYTES", 8 * 1024)
    get = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"

    async def main() -> tuple[int, bytes, int]:
        async with served(tmp_path, SMALL) as (listener, ca):
            stays = [
                await begin(listener, ca, "127.0.5.5", get % b"stream"),
                await begin(listener, ca, "127.0.5.6", get % b"large"),
            ]
            unread = [await begin(listener, ca, s, get % b"large") for s in FOUR]
            # forty pieces of what another reads: nothing of the first answer is taken
            unread.append(await begin(listener, ca, FOUR[0], get % b"large" * 40))
            reader, count = stays[1][0], 0
            async with asyncio.timeout(60.0):
                while listener.connections > len(stays):
                    count += len(await reader.readexactly(64 * 1024))  # slow, but it takes it
                    await asyncio.sleep(0.02)
            alive = await stays[0][0].readuntil(b"alive")
            for _, writer in (*stays, *unread):
                writer.transport.abort()
            return listener.connections, alive[:8], count

    with asyncio.Runner(loop_factory=loop) as runner:
        held, alive, count = runner.run(main())
    assert (held, alive) == (2, b"HTTP/1.1")
    assert count > 0


def test_a_flood_from_addresses_that_are_known_shuts_out_nobody(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with served(tmp_path, SMALL) as (listener, ca):
            for source in FOUR:
                await ask(listener, ca, source)
            async with flood(listener, FOUR * 24):
                return [await ask(listener, ca, s) for s in ("127.0.5.5", "127.0.5.5", "")]

    assert asyncio.run(main()) == ["hello"] * 3


def test_a_stranger_of_a_flooding_address_comes_in_after_a_moment(tmp_path: Path) -> None:
    async def main() -> str:
        async with served(tmp_path, SMALL) as (listener, ca), flood(listener, FOUR * 24):
            while True:  # its own silent connections make room for it, the oldest first
                with contextlib.suppress(aiohttp.ClientError):
                    return await ask(listener, ca, FOUR[0])
                await asyncio.sleep(0.1)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "hello"


def test_a_connection_with_a_request_loses_its_place_to_nobody(tmp_path: Path) -> None:
    async def main() -> tuple[bool, bool]:
        async with served(tmp_path, SMALL) as (listener, ca):
            trust = ssl.create_default_context(cadata=ca)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", listener.port, ssl=trust, local_addr=("127.0.5.5", 0)
            )
            writer.write(b"GET /absent HTTP/1.1\r\nHost: a\r\n\r\n")  # proves nothing
            heard = b"404" in await reader.readline()
            async with flood(listener, FLOODS["a network of each"]):
                writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                kept = b"hello" in await reader.readuntil(b"hello")
                writer.close()
            return heard, kept

    assert asyncio.run(main()) == (True, True)


def test_a_stranger_that_does_not_ask_in_time_gives_its_place_back(tmp_path: Path) -> None:
    async def main() -> tuple[int, int]:
        limits = Limits(64, 16, idle_s=60.0, handshake_s=60.0, first_s=0.3)
        async with served(tmp_path, limits) as (listener, ca):
            await ask(listener, ca, "127.0.5.5")
            await asyncio.sleep(0.1)
            trust = ssl.create_default_context(cadata=ca)
            silent = await asyncio.open_connection(  # its handshake ends, and nothing follows
                "127.0.0.1", listener.port, ssl=trust, local_addr=("127.0.6.6", 0)
            )
            async with flood(listener, [*FOUR, "127.0.5.5", "127.0.0.1"]):
                before = listener.connections
                for _ in range(100):
                    await asyncio.sleep(0.1)
                    if listener.connections < 3:
                        break
                silent[1].close()
                return before, listener.connections

    # the known caller and this machine have `idle_s`
    assert asyncio.run(main()) == (7, 2)


def test_whatever_comes_no_standing_takes_the_share_of_another() -> None:
    seeded = random.Random(46)
    admission = Admission(64, 16, lambda: 0.0)
    held: list[Place] = []
    for _ in range(4000):
        choice = seeded.random()
        if held and choice < 0.3:
            admission.leave(held.pop(seeded.randrange(len(held))))
        elif held and choice < 0.4:
            admission.prove(seeded.choice(held))
        elif held and choice < 0.5:
            admission.hear(seeded.choice(held))
        else:
            peer = f"10.{seeded.randrange(3)}.{seeded.randrange(9)}.{seeded.randrange(40)}"
            place = admission.enter(peer, local=choice > 0.97)
            if place is not None:
                held.append(place)
                place.end = partial(held.remove, place)
        assert len(held) == len(admission) <= 64
        assert max(Counter(p.peer for p in held).values(), default=0) <= 16
    for place in held:
        admission.leave(place)
    assert len(admission) == 0
    for n in range(200):  # strangers that all asked for something: none of them can be ended
        stranger = admission.enter(f"192.168.{n}.1", local=False)
        if stranger is not None:
            admission.hear(stranger)
    assert admission.enter("192.168.250.1", local=False) is None
    assert admission.enter("127.0.0.1", local=True) is not None
    assert len(admission) < 64 - 16


@pytest.mark.parametrize("heard", [False, True], ids=["silent", "with a request"])
def test_the_prefixes_of_one_ipv6_site_shut_out_no_other(heard: bool) -> None:
    admission = Admission(64, 16, lambda: 0.0)
    for n in range(400):
        place = admission.enter(name_peer(f"2001:db8:7:{n:x}::1"), local=False)
        if place is not None and heard:
            admission.hear(place)

    for address in ("2001:db8:8::1", "2001:db8:9:1::1", "192.0.2.1"):
        assert admission.enter(name_peer(address), local=False) is not None
    assert admission.enter("::1", local=True) is not None
    assert len(admission) <= 64


def test_a_connection_that_proved_an_identity_ends_for_nobody() -> None:
    admission = Admission(64, 64, lambda: 0.0)
    ended: list[Place] = []
    proved = []
    for _ in range(64):
        place = admission.enter("10.0.0.1", local=False)
        if place is not None:
            place.end = partial(ended.append, place)
            admission.prove(place)
            proved.append(place)
    for n in range(200):
        admission.enter(f"10.1.{n}.1", local=False)

    assert len(proved) > 16
    assert ended == []


def test_each_listener_that_strangers_reach_has_shares() -> None:
    """Those at a socket in the file system, whose owner alone reaches it, have none."""
    calls = {}
    for file in sorted(Path(bounded_listener.__file__).parents[1].rglob("*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "bounded_listener" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Limits":
                given = {word.arg for word in node.keywords}
                if given != {None}:  # those of another process, which were made here
                    calls[f"{file.stem}:{node.lineno}"] = bool(given & {"first_s", "stranger_s"})

    assert len(calls) >= 8
    local = [name.partition(":")[0] for name, shared in calls.items() if not shared]
    assert sorted(local) == ["api", "reading"]


async def open_from_one_peer(url: str, count: int) -> int:
    """Return how many of the connections that one peer makes to a listener stay open."""
    place = urlsplit(url)
    made = [
        await asyncio.open_connection(place.hostname, place.port, local_addr=("127.0.0.2", 0))
        for _ in range(count)
    ]
    await asyncio.sleep(0.3)
    held = sum(not reader.at_eof() for reader, _ in made)
    for _, writer in made:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return held


def test_one_device_does_not_hold_the_listener_of_artifacts(tmp_path: Path) -> None:
    async def main() -> int:
        chosen = Settings(artifacts_connections_per_peer=4)
        async with serve_artifacts(tmp_path, "127.0.0.1", 0, chosen) as artifacts:
            return await open_from_one_peer(artifacts.url, 12)

    assert asyncio.run(main()) == 4


def test_one_scraper_does_not_hold_the_listener_of_metrics() -> None:
    async def main() -> int:
        chosen = Settings(metrics_port=0, metrics_connections_per_peer=4)
        async with serve_metrics(web.Application(), chosen, None) as url:
            return await open_from_one_peer(url, 12)

    assert asyncio.run(main()) == 4
