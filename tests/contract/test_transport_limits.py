"""How much a slow or lying BMC can cost: bounded time, memory and requests."""

from __future__ import annotations

import asyncio
import gzip
import resource
import time

import pytest
from aiohttp import web
from devices import Bmc, Broken, run

from provisioner.adapters.redfish import exchange
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import Call as Request
from provisioner.ports import (
    Malformed,
    Reply,
    TooLarge,
    Unreachable,
)

GET = Request("GET", "/redfish/v1/Systems/1", timeout_s=5)
POST = Request("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {}, timeout_s=5)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def ask(device: Broken, call: Request) -> Reply:
    transport = RedfishTransport()
    try:
        return await transport.request(device.stranger(), call)
    finally:
        await transport.close()


@pytest.mark.parametrize("call", [GET, POST], ids=["get", "post"])
def test_t6_silence_ends_at_the_limit(call) -> None:
    async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scenario() -> None:
        async with Broken(silence) as device:
            with pytest.raises(Unreachable) as caught:
                await ask(device, Request(call.method, call.path, call.body, timeout_s=0.3))

            assert caught.value.maybe_executed

    run(scenario())


@pytest.mark.parametrize("start", [b"", OK, OK + b"Content-Length: 999999\r\n\r\n"])
def test_a_trickle_of_bytes_ends_at_the_limit(start) -> None:
    async def trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(b"a")
            await asyncio.sleep(0.02)

    async def scenario() -> None:
        async with Broken(trickle) as device:
            before = time.monotonic()
            with pytest.raises((Unreachable, Malformed)):
                await ask(device, Request("GET", GET.path, timeout_s=0.5))

            assert time.monotonic() - before < 30

    run(scenario())


async def hundred_megabytes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    piece = b" " * (1 << 20)
    writer.write(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _n in range(100):
        writer.write(b"100000\r\n" + piece + b"\r\n")
        await writer.drain()


async def bomb(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    squeezed = gzip.compress(bytes(100 << 20), 9)
    writer.write(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(squeezed))
    writer.write(squeezed)
    await writer.drain()


@pytest.mark.parametrize("talk", [hundred_megabytes, bomb], ids=["t13 plain", "gzip bomb"])
def test_a_hundred_megabytes_are_bounded_in_memory(talk) -> None:
    """The peak is this process's, server included: the server keeps at most a bomb's 100 KB."""

    async def scenario() -> None:
        gzip.compress(bytes(100 << 20), 9)  # so that the server's own peak is there beforehand
        async with Broken(talk) as device:
            before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with pytest.raises(TooLarge):
                await ask(device, Request("GET", GET.path, size_max_bytes=1 << 20))
            after_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

            assert after_kb - before_kb < 24 * 1024

    run(scenario())


def test_an_announced_size_over_the_limit_is_not_read() -> None:
    async def scenario() -> None:
        async with Broken(OK + b"Content-Length: 99999999\r\n\r\n") as device:
            with pytest.raises(TooLarge):
                await ask(device, GET)

    run(scenario())


def test_one_writer_and_two_readers_at_most_reach_a_bmc_at_once() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            writers = most = 0

            async def slowly(_: web.Request) -> web.Response:
                nonlocal writers, most
                writers += 1
                most = max(most, writers)
                await asyncio.sleep(0.01)
                writers -= 1
                return web.Response(status=204)

            bmc.answers["POST", POST.path] = slowly
            transport = RedfishTransport()
            calls = [GET, POST] * 10
            await asyncio.gather(*(transport.request(bmc.address(), c) for c in calls))

            assert most == 1
            assert bmc.under_way_most <= exchange.READS_MAX + 1
            await transport.close()

    run(scenario())


def test_requests_in_the_whole_process_are_bounded() -> None:
    async def scenario() -> None:
        transport = RedfishTransport(requests_max=1)
        async with Bmc() as one, Bmc() as other:
            calls = [transport.request(b.address(), GET) for b in (one, other) for _ in range(5)]
            replies = await asyncio.gather(*calls)

            assert {r.status for r in replies} == {200}
            await transport.close()

    run(scenario())
