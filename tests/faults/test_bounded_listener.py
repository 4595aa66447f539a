"""Silent strangers: a listener closes what is over its caps before TLS, and stays reachable."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from provisioner.adapters.agent.tls import open_authority
from provisioner.daemon.artifacts import serve_artifacts
from provisioner.runtime.bounded_listener import BoundedListener, Limits, get_handlers, name_peer
from provisioner.settings import Settings
from provisioner.telemetry.serving import serve_metrics

SILENT = 1100


@contextlib.asynccontextmanager
async def served(folder: Path, limits: Limits) -> AsyncIterator[tuple[BoundedListener, str]]:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=limits.idle_s)
    await runner.setup()
    authority = open_authority(folder)
    tls = authority.server_context(("127.0.0.1",))
    listener = BoundedListener("test", get_handlers(runner), limits, tls)
    await listener.start("127.0.0.1", 0)
    try:
        yield listener, authority.ca_pem()
    finally:
        await listener.stop()
        await runner.cleanup()


async def ask(listener: BoundedListener, ca: str) -> str:
    trust = ssl.create_default_context(cadata=ca)
    async with aiohttp.ClientSession() as session:
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
    assert name_peer("192.0.2.1") == "192.0.2.1"


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
